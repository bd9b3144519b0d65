"""How a message says a scalar: as the text of a rule has it."""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import MARK, Apply, Ref, Size
from fxrewrite.dsl.scalars import UNKNOWN, Env


def said(x: Any) -> str:
    """A scalar as text: `D % G == 0`."""
    if not isinstance(x, Apply):
        return str(x.dim) if isinstance(x, Size) else text(getattr(x, "value", x))
    args = [said(a) for a in x.args]
    if x.op == "not" and isinstance(x.args[0], Apply) and x.args[0].op == "==":
        return " != ".join(said(a) for a in x.args[0].args)
    if x.op == "is_none":
        return f"{args[0]} == none"
    if x.op == "not":
        return f"not {args[0]}"
    if x.op in ("and", "or", "all") or (len(args) == 2 and not x.op[0].isalpha()):
        return f" {'and' if x.op == 'all' else x.op} ".join(args)
    return _fact(x.op, args) or (f"{x.op}({', '.join(args)})" if args else x.op)


def _fact(op: str, args: list[str]) -> str:
    """`x.dtype`, `x.shape[0]`, `g.size`, `finfo(t).max`; nothing for another operation."""
    kind, _, name = op.partition(".")
    if op == "shape" and len(args) == 2:
        return f"{args[0]}.shape[{args[1]}]"
    if op in ("dtype", "shape") and len(args) == 1:
        return f"{args[0]}.{op}"
    if kind == "group" and len(args) == 1:
        return f"{args[0]}.{name}"
    if kind == "finfo" and len(args) == 1:
        return f"finfo({args[0]}).{name}"
    return f"{op.rpartition(':')[2]}({', '.join(args)})" if op.startswith(MARK) else ""


def text(found: Any) -> str:
    """A value as text: `true`, `none`, `"row"`, `bf16`."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if found is None:
        return "none"
    return f'"{found}"' if isinstance(found, str) else str(getattr(found, "name", found))


def with_values(condition: Any, env: Env) -> str:
    """A condition and the values of its names: `D % G == 0; here D = 100, G = 64`."""
    known = [(n, env.attributes.get(n, env.dim(n))) for n in sorted(_names(condition))]
    shown = [f"{n} = {text(v)}" for n, v in known if v is not UNKNOWN]
    return said(condition) + (f"; here {', '.join(shown)}" if shown else "")


def _names(x: Any) -> set[str]:
    if isinstance(x, Ref):
        return {x.name}
    if isinstance(x, Size):
        return dims.names(x.dim)
    return {n for a in x.args for n in _names(a)} if isinstance(x, Apply) else set()
