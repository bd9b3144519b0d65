"""`fxrewrite kernel NAME --width D --tokens T`: the generated source of an op, and the schedule that was chosen."""

from __future__ import annotations

import sys
from typing import Any

import click

from fxrewrite.cli.exits import FINDINGS
from fxrewrite.cli.options import LISTED, Misuse, json_option, load_rules, print_json
from fxrewrite.dsl.check.problem import closest

DTYPES = ("bf16", "f16")
WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}


def _attribute(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """`eps=1e-5 G=64 L=tma` as values."""
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise click.BadParameter(f"{one!r} is not NAME=VALUE")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    if text in WORDS:
        return WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@click.command("kernel")
@click.argument("name")
@click.option(
    "--width", type=click.IntRange(1), default=4096, show_default=True, help="Columns of a row of the result."
)
@click.option("--tokens", type=click.IntRange(1), default=1024, show_default=True, help="They choose the schedule.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="bf16", show_default=True, help="Of activations and weights."
)
@click.option(
    "--set", "attributes", multiple=True, callback=_attribute, help="An attribute: eps=1e-5, G=64, wide=true."
)
@click.option("--packs", multiple=True, callback=LISTED, help="Packs and .rw files that declare the op.")
@json_option
def command(
    name: str,
    width: int,
    tokens: int,
    dtype: str,
    attributes: dict[str, Any],
    packs: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Print the Triton source that is generated for the op or fusion NAME, and its schedule.

    It needs neither a GPU nor Triton. Where the definition is no row-wise program, it says which part, and ends with 1.
    """
    from fxrewrite.lowering.config import make_config

    program = load_rules(make_config(packs), as_json)
    if name not in program.ops:
        raise Misuse(f"no op is called {name!r}", closest(name, program.ops) or "`fxrewrite packs` lists them")
    found = generate(program, name, width, tokens, dtype, attributes)
    if as_json:
        print_json(found)
    elif "reason" in found:
        click.echo(f"no kernel for {name}: {found['reason']}", err=True)
    else:
        click.echo(f"# {name}, {width} columns, {tokens} tokens: class {found['class']}, {_schedule(found)}")
        click.echo(found["source"], nl=False)
    if "reason" in found:
        sys.exit(FINDINGS)


def _schedule(found: dict[str, Any]) -> str:
    """A schedule in words."""
    return ", ".join(f"{name} {value}" for name, value in found["schedule"].items() if value)


def generate(
    program: Any, name: str, width: int, tokens: int, dtype: str, attributes: dict[str, Any]
) -> dict[str, Any]:
    """The kernel as JSON: source, schedule, class; or the reason why there is none."""
    from attrs import asdict
    from fxrewrite_kernels.emit import DEVICE, emit
    from fxrewrite_kernels.schedule import choose, class_of

    from fxrewrite.dsl.evaluate import EvaluationError
    from fxrewrite.lowering.codegen import lower
    from fxrewrite.lowering.generated import attributes_of, typical

    op = program.ops[name]
    unknown = sorted(n for n in attributes if op.attribute(n) is None)
    if unknown:
        known = [a.name for a in op.attributes]
        raise Misuse(
            f"{name} has no attribute {unknown[0]!r}", closest(unknown[0], known) or f"it has {', '.join(known)}"
        )
    try:
        operands = typical(op, width, dtype)
        definition = lower(program, name, operands, attributes_of(op, attributes)).definition
    except EvaluationError as error:
        return {"op": name, "reason": str(error)}
    schedule = choose(definition, tokens)
    source = emit(definition, schedule, DEVICE)
    return {
        "op": name, "width": width, "tokens": tokens, "class": class_of(definition), "schedule": asdict(schedule),
        "source": source.text, "kernel": source.name,
    }  # fmt: skip
