"""Kernels for the ops that `.rw` files declare: a registry of hand-written ones. Imports nothing of `fxrewrite`."""

from fxrewrite_kernels.registry import find, names, register, states, unregister

__all__ = ["find", "names", "register", "states", "unregister"]
