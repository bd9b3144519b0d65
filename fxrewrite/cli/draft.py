"""`fxrewrite draft MODULE:FUNCTION`: the `.rw` text of a Python function, as a start for an author."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from typing import Any

import click
from attrs import frozen

from fxrewrite.cli.options import Misuse, end, first_line, json_option, print_json, resolved

_TENSOR = re.compile(r"\s*(\w+)\s*\[(.*)\]\s*")
_SIZE = re.compile(r"\s*(?:([A-Z]\w*)\s*=\s*)?(\d+)\s*")


@frozen
class Input:
    """One argument of the function: a tensor's dtype and sizes, each with the name of its dim, or a constant."""

    dtype: str | None
    sizes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    value: Any = None

    def make(self) -> Any:
        """The argument. Raises Misuse for a dtype that torch does not have."""
        if self.dtype is None:
            return self.value
        import torch

        from fxrewrite.patterns.dtypes import DTYPES

        if self.dtype not in DTYPES:
            raise Misuse(f"{self.dtype} is no dtype", f"one of {', '.join(DTYPES)}")
        return torch.empty(self.sizes, dtype=DTYPES[self.dtype])


class _InputType(click.ParamType):
    name = "dtype[sizes] or number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Input:
        found = _TENSOR.fullmatch(str(value))
        if found is None:
            try:
                return Input(None, value=ast.literal_eval(str(value)))
            except (ValueError, SyntaxError):
                self.fail(f"{value!r} is no input: write 'bf16[T=8, D=256]' or a number")
        sizes = [_SIZE.fullmatch(s) for s in found[2].split(",")] if found[2].strip() else []
        if None in sizes:
            self.fail(f"{value!r}: a size is a number, or NAME=number with a capital name, as in 'bf16[T=8, D=256]'")
        given = [s for s in sizes if s is not None]
        return Input(found[1], tuple(int(s[2]) for s in given), tuple(s[1] or "" for s in given))


@click.command("draft")
@click.argument("function")
@click.option("--input", "inputs", multiple=True, type=_InputType(), help="One for each argument, in order.")
@click.option("--name", help="Of the fusion; else that of the function.")
@json_option
def command(function: str, inputs: tuple[Input, ...], name: str | None, as_json: bool) -> None:
    """Write the .rw text of a Python function's graph.

    FUNCTION is module:function. Each --input describes an argument, as in --input 'bf16[T=8, D=256]' --input 'f32[1]';
    a size with a name becomes a dim. The text is checked, and tried on the graph that it came from; what the language
    cannot say ends with exit code 2 and the op that is in the way.
    """
    from fxrewrite.lowering.draft import Undraftable, draft, is_free, trace

    called = resolved(function)
    parameters = _parameters(called, function, inputs)
    name = str(name or getattr(called, "__name__", "drafted"))
    if not is_free(name):
        raise Misuse(f"`{name}` cannot name a fusion", "give another with --name: small letters, digits and _")
    sizes = _sizes(inputs)
    try:
        gm = trace(called, [i.make() for i in inputs])
    except Misuse:
        raise
    except Exception as error:
        raise Misuse(f"{function} cannot be traced: {first_line(error)}", "do the inputs fit it?") from error
    tensors = [p if is_free(p) else f"{p.lower()}_" for p, i in zip(parameters, inputs, strict=True) if i.dtype]
    try:
        text = _heading(function, parameters, inputs) + _laid_out(draft(gm, name, tensors, sizes))
    except Undraftable as error:
        raise Misuse(str(error), "declare an `op` for it, or draft the parts around it") from error
    findings = _tried(text, name, gm)
    if as_json:
        print_json({"function": function, "text": text, "findings": findings})
    else:
        said = findings or ["checked; it fires on the graph that it came from"]
        click.echo(text + "".join(f"# {line}\n" for f in said for line in f.splitlines()), nl=False)
    end(bool(findings))


def _parameters(called: Any, function: str, inputs: Sequence[Input]) -> list[str]:
    """The name of the argument that each input is for."""
    try:
        found = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):
        return [f"x{i}" for i in range(len(inputs))]
    needed = [p.name for p in found if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    positional = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind == p.VAR_POSITIONAL for p in found):
        positional += [f"x{i}" for i in range(len(positional), len(inputs))]
    if not len(needed) <= len(inputs) <= len(positional):
        hint = f"write --input 'bf16[T=8, D=256]', or a number, for each of {', '.join(positional)}"
        raise Misuse(f"{function} takes {len(needed)} arguments, and there are {len(inputs)} inputs", hint)
    return positional[: len(inputs)]


def _sizes(inputs: Sequence[Input]) -> dict[int, str]:
    """The name of each size. Raises Misuse where a name has two sizes or a size two names."""
    sizes: dict[int, str] = {}
    for size, name in ((s, n) for i in inputs for s, n in zip(i.sizes, i.names, strict=True) if n):
        if sizes.setdefault(size, name) != name:
            raise Misuse(f"{size} is {sizes[size]} and {name}", "give each dim a size of its own, as in T=8, D=256")
    names = list(sizes.values())
    double = next((n for n in names if names.count(n) > 1), None)
    if double is not None:
        raise Misuse(f"{double} has two sizes", "one name is one size")
    return sizes


def _heading(function: str, parameters: Sequence[str], inputs: Sequence[Input]) -> str:
    pairs = zip(parameters, inputs, strict=True)
    shown = [f"{p} = {i.value!r}" if i.dtype is None else f"{p}: {i.dtype}{list(i.sizes)}" for p, i in pairs]
    carried = "sizes and numbers of the trace stand here, attributes of ops are carried"
    return f"# Drafted from {function} on {', '.join(shown)}: {carried}.\n"


def _laid_out(text: str) -> str:
    """The canonical layout; the text as it is where it cannot be read, which is said elsewhere."""
    from fxrewrite.dsl.format import format_text

    return format_text(text, "draft.rw").text or text


def _tried(text: str, name: str, gm: Any) -> list[str]:
    """What is wrong with the text, and whether the rule fires on the graph that it came from."""
    from fxrewrite.dsl import packs
    from fxrewrite.dsl.parse import parse
    from fxrewrite.lowering.backend import rewrite
    from fxrewrite.patterns.events import record

    file, wrong = parse(text, f"{name}.rw")
    program, found = packs.check_packs([file])
    findings = [d.render(program.sources) for d in (*wrong, *found) if d.severity != "note"]
    if not findings:
        with record() as log:
            rewrite(gm, [file], providers=["op"])
        fired = sum(e.fired for e in log.events if e.rule == name)
        findings = [] if fired else [f"it does not fire on its own graph:\n{log.report()}"]
    return findings
