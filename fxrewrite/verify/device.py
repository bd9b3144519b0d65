"""Operands on the device under test: made on the CPU, moved with the layouts that they have, and results brought back.

    given = placed_on(operands, "cuda")      # strides, storage offsets and shared memory as on the CPU
    back = brought_back(results)

The side under test runs there. The reference is walked on the CPU, as ever, but for the torch ops and `ref`s in it that
have no meaning but their own (`Beside`): those are what the device makes of them, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from fxrewrite.dsl.core import OpDef
from fxrewrite.dsl.evaluate import Overwritten
from fxrewrite.lowering.eager import Torch

CPU = "cpu"


class NoDevice(Exception):
    """There is no such device here; the text says so."""

    code = "RW611"

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint

    def rendered(self) -> str:
        """The error with its code and hint."""
        return f"error[{self.code}]: {self}\n  hint: {self.hint}"


class DeviceLost(Exception):
    """A device that was there answers no longer: what ran on it before has broken it."""


def existing_device(name: str) -> str:
    """`name`, as torch spells it. Raises NoDevice where nothing can be computed on it here."""
    hint = f"this machine has {', '.join(devices())}: leave `--device` out, or name one of these"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise NoDevice(f"no device is called `{name}`", hint) from None
    if device.type == "meta":
        raise NoDevice("on the device `meta` nothing is computed", hint)
    try:
        torch.ones(1, device=device).item()
    except Exception as error:  # noqa: BLE001  each backend says in its own class of error that it is absent
        raise NoDevice(f"there is no device `{name}` here: {str(error).splitlines()[0]}", hint) from None
    return str(device)


def devices() -> list[str]:
    """The types of device on which this machine computes."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return [CPU] if accelerator is None else [CPU, accelerator.type]


def answers(device: str) -> bool:
    """Does a device that was there still compute? Not after a kernel that read or wrote beyond its memory."""
    if device == CPU:
        return True
    try:
        torch.ones(1, device=device).item()
    except RuntimeError:
        return False
    return True


@contextmanager
def deterministic(device: str) -> Iterator[None]:
    """Torch's own ops on a GPU give one result: `index_put` with equal indices leaves what came last, as on a CPU, and
    products are not summed in 16 bits."""
    if device == CPU:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    products, flags = torch.backends.cuda.matmul, [f"allow_{d}_reduced_precision_reduction" for d in ("fp16", "bf16")]
    allowed = {flag: getattr(products, flag) for flag in flags}
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for flag in flags:
            setattr(products, flag, False)
        yield
    finally:
        for flag, value in allowed.items():
            setattr(products, flag, value)
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


# ---- moving


def placed_on(given: Any, device: str) -> Any:
    """Operands on a device: lists element by element, tensors in the strides and at the offsets that they have; what is
    one tensor stays one, and what shares memory still does. Raises DeviceLost."""
    return given if device == CPU else copied(given, device)


def copied(given: Any, device: str) -> Any:
    """The same in memory of its own, on the CPU too. Raises DeviceLost."""
    try:
        return _placed(given, device, {})
    except RuntimeError as error:
        raise DeviceLost(f"`{device}` answers no longer: {str(error).splitlines()[0]}") from error


def is_changed(before: Any, after: Any) -> bool:
    """Has a copy of an operand other bytes than the operand, anywhere in its storage?"""
    if isinstance(before, list | tuple):
        return any(is_changed(b, a) for b, a in zip(before, after))
    if not isinstance(before, Tensor):
        return False
    return not torch.equal(_bytes(before), _bytes(after).to(before.device))


def _placed(given: Any, device: str, known: dict[tuple[str, int], Tensor]) -> Any:
    if isinstance(given, list | tuple):
        return type(given)(_placed(g, device, known) for g in given)
    if isinstance(given, dict):
        return {k: _placed(g, device, known) for k, g in given.items()}
    if isinstance(given, Overwritten):
        return evolve(given, value=_placed(given.value, device, known))
    if not isinstance(given, Tensor):
        return given
    at = ("tensor", id(given))
    if at not in known:
        known[at] = _view(given, _memory(given, device, known), device)
    return known[at]


def _memory(x: Tensor, device: str, known: dict[tuple[str, int], Tensor]) -> Tensor:
    """The bytes of the storage of a tensor, all of them, on a device."""
    storage = x.untyped_storage()
    at = ("storage", storage._cdata)
    if at not in known:
        known[at] = _bytes(x).to(device, copy=True)
    return known[at]


def _bytes(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


def _view(x: Tensor, memory: Tensor, device: str) -> Tensor:
    empty = torch.empty(0, dtype=x.dtype, device=device)
    return empty.set_(memory.untyped_storage(), x.storage_offset(), x.shape, x.stride())


def brought_back(given: Any) -> Any:
    """Tensors on the CPU; lists and tables element by element."""
    if isinstance(given, Mapping):
        return {k: brought_back(g) for k, g in given.items()}
    if isinstance(given, list | tuple):
        return [brought_back(g) for g in given]
    return given.cpu() if isinstance(given, Tensor) else given


# ---- the reference


@frozen
class Beside(Torch):
    """Primitives on the CPU; torch ops and `ref`s on the device under test."""

    device: str

    def torch_call(
        self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[Any, Any]]:
        """What the op gives on the device. One of torch is asked on the CPU first: an index beyond the end, which that
        refuses, breaks a GPU for all that follows."""
        if op.startswith("aten."):
            with suppress(NotImplementedError):
                super().torch_call(op, args, kwargs)
        given, named = placed_on((list(args), dict(kwargs)), self.device)
        with deterministic(self.device):
            returned, written = super().torch_call(op, given, named)
        return brought_back(returned), brought_back(written)

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """What the `ref` gives on the device."""
        return brought_back(super().reference(op, placed_on(list(operands), self.device), attributes))
