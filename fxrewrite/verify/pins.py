"""Files of pins (`expect.toml`): which rule fires how often in a program, under which packs, on which torch.

Read and written here; `expect.py` compares. Nothing here needs torch.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.diagnostics import Diagnostic, RuleError
from fxrewrite.dsl.sources import read
from fxrewrite.dsl.syntax import Span

_HEAD = re.compile(r"\s*\[\[\s*model\s*\]\]")
FIRED = "fired"
EXAMPLE = 'write a file with two lines, [[model]] and program = "module:function"; --update writes the counts into it'


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(holds, value))


def _table_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(holds, value.values()))


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {  # of a model: what its value is, and an example
    "program": (_is_text, 'program = "module:function"'),
    "torch": (_is_text, 'torch = "2.13.0"'),
    "packs": (_list_of(_is_text), 'packs = ["default"]'),
    "level": (_is_text, 'level = "O2"'),
    "flags": (_table_of(_is_switch), "flags = { fuse_norm_quant = false }"),
    "providers": (_list_of(_is_text), 'providers = ["op"]'),
    "tokens": (lambda v: _list_of(_is_count)(v) and len(v) in (1, 2), "tokens = [1, 256], or [1] for no bound"),
    "allow_relaxed": (_is_switch, "allow_relaxed = true"),
    "allow_unproved": (_is_switch, "allow_unproved = true"),
    "groups": (_table_of(_is_count), 'groups = { "tp:0" = 8 }'),
    "replicated": (_list_of(_is_text), 'replicated = ["*norm*"]'),
    FIRED: (_table_of(_is_count), '"norm_quant.rms_norm_fp8" = 4 under [model.fired]'),
}
SETTINGS = tuple(k for k in KEYS if k not in ("program", "torch", FIRED))


@frozen
class Pin:
    """One program under one configuration. `settings`: of `make_config`. `fired`: rule -> count; others fire nowhere.

    `above`: the lines of comment above it. `index`: which `[[model]]` of the file it is, None for one that was added.
    """

    program: str
    settings: Mapping[str, Any] = field(factory=dict[str, Any])
    torch: str | None = None
    fired: Mapping[str, int] = field(factory=dict[str, int])
    above: str = ""
    index: int | None = None

    def fits(self, release: str) -> bool:
        """Is it of this release of torch ("2.13" is of 2.13.0)?"""
        return self.torch is None or f"{release}.".startswith(f"{self.torch}.")

    def with_counts(self, counts: Mapping[str, int], release: str) -> Pin:
        """The same with what fires now. A rule that is pinned to 0 stays, where it still fires nowhere."""
        kept = {r: counts.get(r, 0) for r, n in self.fired.items() if r in counts or n == 0}
        fired = {**kept, **{r: counts[r] for r in sorted(counts)}}
        return evolve(self, fired=fired, torch=self.torch if self.torch and self.fits(release) else release)


@frozen
class PinFile:
    """A file of pins, in order. `below`: the lines of comment after the last."""

    path: Path
    text: str
    pins: tuple[Pin, ...]
    below: str = ""

    def place(self, pin: Pin | None = None, word: str | None = None) -> Span:
        """Where `word` stands in a pin, or in the whole file; else where that begins."""
        lines = self.text.split("\n")
        heads = [i for i, line in enumerate(lines) if _HEAD.match(line)]
        at = pin.index if pin is not None else None
        start = heads[at] if at is not None and at < len(heads) else 0
        end = heads[at + 1] if at is not None and at + 1 < len(heads) else len(lines)
        for number in range(start, end) if word else ():
            found = re.search(rf"(?<!\w){re.escape(str(word))}(?!\w)", lines[number].partition("#")[0])
            if found:
                return Span(str(self.path), number + 1, found.start() + 1, number + 1, found.end() + 1)
        first = len(lines[start]) - len(lines[start].lstrip())
        return Span(str(self.path), start + 1, first + 1, start + 1, len(lines[start].rstrip()) + 1)

    def wrong(
        self, code: str, message: str, hint: str = "", pin: Pin | None = None, word: str | None = None
    ) -> RuleError:
        """A finding about a pin of this file."""
        return RuleError([Diagnostic(code, message, self.place(pin, word), hint)], {str(self.path): self.text})


# ---- reading


def read_pins(path: Path) -> PinFile:
    """The pins of a file. Raises RuleError where it cannot be read or says what means nothing."""
    source = read(path)
    if source.trouble is not None:
        hint = EXAMPLE if source.trouble.code == "RW001" else ""
        raise RuleError([evolve(source.trouble, hint=hint)])
    file = PinFile(path, source.text, ())
    try:
        data = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(file, str(error)) from error
    except RecursionError as error:
        raise _not_toml(file, "brackets are nested too deeply") from error
    unknown = next((k for k in data if k != "model"), None)
    if unknown is not None:
        raise file.wrong(
            "RW502", f"unknown table or key `{unknown}`", "a file of pins holds [[model]] tables", None, unknown
        )
    tables = data.get("model", [])
    if not isinstance(tables, list) or not tables:
        raise file.wrong("RW502", "no model is pinned", EXAMPLE)
    above, below = _comments(source.text, len(tables))
    pins = (_pin(file, i, table, above[i]) for i, table in enumerate(tables))
    return evolve(file, pins=tuple(pins), below=below)


def _not_toml(file: PinFile, said: str) -> RuleError:
    """A fault of the syntax, at the place that the message of Python names."""
    found = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", said)
    last = file.text.rstrip().count("\n") + 1
    line, column = (int(found[1]), int(found[2])) if found and found[1] else (last, 1)
    span = Span(str(file.path), line, column, line, column + 1)
    message = f"this is no TOML: {said[: found.start()] if found else said}"
    return RuleError(
        [Diagnostic("RW501", message, span, "a line is key = value, text in double quotes")],
        {str(file.path): file.text},
    )


def _pin(file: PinFile, index: int, table: Any, above: str) -> Pin:
    pin = Pin("", above=above, index=index)
    if not isinstance(table, dict):
        raise file.wrong("RW502", "`model` holds what is no table", "write [[model]], and below it its keys", pin)
    for key, value in table.items():
        if key not in KEYS:
            hint = closest(key, KEYS) or f"keys of a model: {', '.join(KEYS)}"
            raise file.wrong("RW502", f"unknown key `{key}`", hint, pin, key)
        holds, example = KEYS[key]
        if not holds(value):
            raise file.wrong("RW502", f"the value of `{key}` is of another kind", f"write {example}", pin, key)
    if "program" not in table:
        raise file.wrong("RW502", "a model has no `program`", f"write {KEYS['program'][1]}, or a .pt2 file", pin)
    settings = {k: table[k] for k in SETTINGS if k in table}
    return evolve(
        pin, program=table["program"], settings=settings, torch=table.get("torch"), fired=table.get(FIRED, {})
    )


def _comments(text: str, count: int) -> tuple[list[str], str]:
    """For each model the comment above it, and the comment at the end. What stands between its keys is not kept."""
    runs: list[str] = []
    run: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("#") or not line.strip():
            run.append(line.rstrip())
            continue
        if _HEAD.match(line):
            runs.append("\n".join(run).strip("\n"))
        run = []
    return (runs if len(runs) == count else [""] * count), "\n".join(run).strip("\n")


# ---- writing


def written(file: PinFile) -> str:
    """The text of a file of pins, in its one layout."""
    parts = [_text_of(pin) for pin in file.pins]
    return "\n\n".join([*parts, *([file.below] if file.below else [])]) + "\n"


def _text_of(pin: Pin) -> str:
    lines = [*([pin.above] if pin.above else []), "[[model]]", f"program = {_value(pin.program)}"]
    lines += [f"torch = {_value(pin.torch)}"] if pin.torch is not None else []
    lines += [f"{key} = {_value(pin.settings[key])}" for key in SETTINGS if key in pin.settings]
    return "\n".join([*lines, "", f"[model.{FIRED}]", *(f"{_value(r)} = {n}" for r, n in pin.fired.items())])


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # of JSON only that is no TOML


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _value(name)
