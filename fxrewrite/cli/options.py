"""What verbs share: the options that say what is on, the program that is read, and how a verb ends."""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn
from zipfile import is_zipfile

import click

from fxrewrite.cli.exits import ABSENT, FINDINGS, MISUSE


class Misuse(click.ClickException):
    """The command line asks for what cannot be done: one line, and a hint that says what to type. Exit code 2."""

    exit_code = MISUSE

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint

    def show(self, file: Any = None) -> None:
        """Write the message and its hint to the error stream."""
        click.echo(f"fxrewrite: {self.message}" + (f"\n  hint: {self.hint}" if self.hint else ""), err=True)


# ---- options


class _Switch(click.ParamType):
    name = "name=on|off"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, bool]:
        name, _, word = str(value).partition("=")
        if not name or word not in ("on", "off"):
            self.fail(f"{value!r} is no switch: write {name or 'fuse_norm_quant'}=on or =off")
        return name, word == "on"


class _Group(click.ParamType):
    name = "name=ranks"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, int]:
        name, _, size = str(value).rpartition("=")
        if not name or not size.isdigit() or int(size) < 1:
            self.fail(f"{value!r} is no group of ranks: write {name or value or 'tp:0'}=2")
        return name, int(size)


class _Range(click.ParamType):
    name = "lo:hi"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, int | None]:
        low, colon, high = str(value).partition(":")
        if not colon or not low.isdigit() or (high and not high.isdigit()):
            self.fail(f"{value!r} is no range of token counts: write 1:256, or 1: for no upper bound")
        return int(low), int(high) if high else None


def _listed(ctx: Any, param: Any, value: tuple[str, ...] | str | None) -> tuple[str, ...] | None:
    """Names from an option that may be repeated, or hold several with commas between."""
    parts = (value,) if isinstance(value, str) else value or ()
    return tuple(n.strip() for v in parts for n in v.split(",") if n.strip()) or None


SWITCH, LISTED = _Switch(), _listed  # of options that verbs declare themselves


def settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what is on. The verb takes them as one argument `config`, made by `config_of`."""

    @wraps(function)  # with the options that it has already
    def verb(**given: Any) -> Any:
        names = "packs level flags providers tokens allow_relaxed allow_unproved groups replicated".split()
        return function(config=config_of({n: given.pop(n) for n in names}), **given)

    for option in reversed(
        [
            click.option(
                "--packs", multiple=True, callback=_listed, help="Packs and .rw files; `default` names those shipped."
            ),
            click.option("--level", default="O2", show_default=True, help="O0 (nothing) to O3."),
            click.option(
                "--flag", "flags", multiple=True, type=_Switch(), help="A flag, pack or pack.rule: name=on or =off."
            ),
            click.option(
                "--providers", callback=_listed, help="Providers in order: kernel, generated, definition, op, impls."
            ),
            click.option("--tokens", type=_Range(), help="A range of token counts that may be assumed."),
            click.option("--allow-relaxed", is_flag=True, help="Let providers in whose contract is relaxed."),
            click.option(
                "--group", "groups", multiple=True, type=_Group(), help="A process group and its ranks: tp:0=8."
            ),
            click.option(
                "--allow-unproved", is_flag=True, default=None, help="Use other packages' ops without a proof."
            ),
            click.option(
                "--replicated", multiple=True, help="Inputs that are equal on all ranks, by a pattern of their names."
            ),
        ]
    ):
        verb = option(verb)
    return verb


def config_of(given: Mapping[str, Any]) -> Any:
    """A `Config` of the options. Raises Misuse for a setting that means nothing."""
    from fxrewrite.lowering.config import ConfigError, make_config

    try:
        return make_config(**{**given, "flags": dict(given["flags"]), "groups": dict(given["groups"])})
    except ConfigError as error:
        raise Misuse(str(error)) from error


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")


# ---- rules and programs


def load_rules(config: Any, as_json: bool = False) -> Any:
    """The checked program of the packs. Where a file is wrong, says so and ends with exit code 1."""
    from fxrewrite.dsl.diagnostics import RuleError
    from fxrewrite.lowering.config import load_program

    try:
        return load_program(config)
    except RuleError as error:
        absent = next((d for d in error.diagnostics if d.code in ABSENT), None)
        if absent is not None:
            raise Misuse(absent.message, absent.hint) from error
        if as_json:
            print_json({"errors": [d.to_json() for d in error.diagnostics]})
        else:
            click.echo(str(error), err=True)
        sys.exit(FINDINGS)


def load_program(source: str, rules: Any) -> Any:
    """The exported program that `source` names: a `.pt2` file, or `module:function`, which returns (model, args).

    A factory may return an ExportedProgram itself. The ops of `rules` are registered first, so that a program which was
    rewritten before loads. Raises Misuse with a reason.
    """
    from fxrewrite.lowering import library

    library.register(rules)
    if source.endswith(".pt2"):
        return _saved(Path(source))
    if ":" not in source:
        hint = "a program is a .pt2 file, or module:function, a Python function that returns (model, args)"
        raise Misuse(f"{source!r} is no program", hint)
    return _exported(source, called(source, "(model, args)"))


def _saved(path: Path) -> Any:
    import torch

    if not path.is_file():
        raise Misuse(f"there is no file {path}")
    if not is_zipfile(path):
        raise Misuse(f"{path} is no exported program", "it must be a file of torch.export.save")
    logging.getLogger("torch.export").setLevel(logging.CRITICAL)  # it shows a traceback of what is raised here anyway
    try:
        return torch.export.load(path)
    except Exception as error:
        raise Misuse(
            f"{path} cannot be loaded: {first_line(error)}", "it must be a file of torch.export.save"
        ) from error


def called(source: str, returns: str) -> Any:
    """What the function that `module:function` names returns, called with nothing. Raises Misuse with a reason."""
    factory = resolved(source)
    needed = required(factory)
    if needed:
        hint = f"write one that takes nothing and returns {returns}; it may call {source.partition(':')[2]}"
        raise Misuse(f"{source} takes {', '.join(needed)}", hint)
    try:
        return factory()
    except Exception as error:
        raise Misuse(f"{source} raised {first_line(error)}", _place(error)) from error


def resolved(source: str) -> Any:
    """The function that `module:function` names. Raises Misuse with a reason."""
    module_name, _, name = source.partition(":")
    if not module_name or not name:
        raise Misuse(f"{source!r} names no function", "write module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name + ".").startswith(error.name + "."):
            raise Misuse(
                f"there is no module {error.name}", "it is looked for in this folder and on PYTHONPATH"
            ) from error
        raise Misuse(f"{module_name} cannot be imported: {first_line(error)}") from error
    except Exception as error:
        raise Misuse(f"{module_name} cannot be imported: {first_line(error)}", _place(error)) from error
    found = getattr(module, name, None)
    if not callable(found):
        from fxrewrite.dsl.check.problem import closest

        raise Misuse(
            f"{module_name} has no function {name!r}",
            closest(name, [n for n, f in vars(module).items() if callable(f)]),
        )
    return found


def required(function: Any) -> list[str]:
    """The parameters that a function cannot be called without."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _exported(source: str, made: Any) -> Any:
    import torch

    if isinstance(made, torch.export.ExportedProgram):
        return made
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        hint = "return (model, args): an nn.Module and the tuple of its arguments; or an ExportedProgram"
        raise Misuse(f"{source} returned {type(made).__name__}", hint)
    model, args = made
    args = tuple(args) if isinstance(args, tuple | list) else (args,)
    try:
        with torch.no_grad():
            return torch.export.export(model, args)
    except Exception as error:
        hint = "a factory may also return an ExportedProgram, made as this model needs it"
        raise Misuse(f"torch.export cannot trace the model of {source}: {first_line(error)}", hint) from error


def first_line(error: BaseException) -> str:
    """An exception in one line."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """Where an exception was raised, in the code that the user names."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<") and Path(file) != Path(__file__):
            place = f"raised in {file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def rewritten(program: Any, rules: Any, config: Any, graphs: bool = False) -> Any:
    """Rewrite an exported program in place; the log of it, with `graphs` for drawings. Raises Misuse where the graph
    cannot be read.
    """
    from fxrewrite.lowering.backend import make_pass, rewrite_by
    from fxrewrite.patterns.events import record

    with record(graphs) as log:
        try:
            rewrite_by(make_pass(config, rules), program)
        except ValueError as error:
            raise Misuse(f"the program cannot be read: {first_line(error)}") from error
    return log


# ---- what is shown


def console() -> Any:
    """Where text goes: wrapped by the terminal, with no markup read into it."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    click.echo(json.dumps(value, indent=2))


def end(findings: bool) -> NoReturn:
    """End the process: exit code 1 for findings, else 0."""
    sys.exit(FINDINGS if findings else 0)
