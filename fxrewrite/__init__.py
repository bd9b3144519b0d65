"""Kernel fusion for `torch.compile`, one line a fusion.

    model = torch.compile(model, backend="fxrewrite")
    with fxrewrite.record() as log: model(x)
    print(log.report())

The names below are imported when they are first used, so that `import fxrewrite` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "backend": "fxrewrite.lowering.backend",
    "inductor_options": "fxrewrite.lowering.backend",
    "register_ops": "fxrewrite.lowering.backend",
    "rewrite": "fxrewrite.lowering.backend",
    "ConfigError": "fxrewrite.lowering.config",
    "record": "fxrewrite.patterns.events",
    "Event": "fxrewrite.patterns.events",
    "Log": "fxrewrite.patterns.events",
    "RuleError": "fxrewrite.dsl.diagnostics",
    "ops": "fxrewrite.ops",
}

if TYPE_CHECKING:
    from fxrewrite import ops
    from fxrewrite.dsl.diagnostics import RuleError
    from fxrewrite.lowering.backend import backend, inductor_options, register_ops, rewrite
    from fxrewrite.lowering.config import ConfigError
    from fxrewrite.patterns.events import Event, Log, record

__all__ = [
    "ConfigError",
    "Event",
    "Log",
    "RuleError",
    "backend",
    "inductor_options",
    "ops",
    "record",
    "register_ops",
    "rewrite",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'fxrewrite' has no attribute {name!r}")
    module = import_module(home)
    value = module if home == f"fxrewrite.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
