"""The kernel generator and hand-written kernels; nothing here imports `fxrewrite`."""
