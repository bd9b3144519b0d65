"""What is on: packs, level, flags, providers, and the token range that may be assumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen

from fxrewrite.dsl import packs as pack_files
from fxrewrite.dsl import registered
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.core import Program, RuleDef
from fxrewrite.dsl.diagnostics import RuleError
from fxrewrite.dsl.scalars import Env, holds
from fxrewrite.dsl.syntax import File
from fxrewrite.lowering.proofs import allowed
from fxrewrite.lowering.providers import DEFAULT
from fxrewrite.lowering.running import Running

LEVELS = ("O0", "O1", "O2", "O3")
Packs = Sequence[str | Path | File]


class ConfigError(ValueError):
    """A setting that means nothing: an unknown level, flag or token range."""


@frozen
class Config:
    """The settings of a backend or pass.

    `packs`: names of shipped packs, "default" for the shipped list, paths of `.rw` files. `level`: O0 to O3. `flags`:
    flag, pack, or `pack.rule` -> on or off; they beat the level. `providers`: names in order. `tokens`: the range (lo,
    hi) of token counts that is assumed, hi None for no bound. `strict`: an error in a rule raises. `groups`: name of a
    process group -> its number of ranks, for groups that torch does not know. `replicated`: patterns of the names of
    inputs and parameters that are equal on all ranks (`*norm*`).
    """

    packs: tuple[str | Path | File, ...] = ("default",)
    level: str = "O2"
    flags: Mapping[str, bool] = field(factory=dict)
    providers: tuple[str, ...] = DEFAULT
    allow_relaxed: bool = False
    allow_unproved: bool = False
    tokens: tuple[int, int | None] | None = None
    strict: bool = False
    groups: Mapping[str, int] = field(factory=dict)
    replicated: tuple[str, ...] = ()


def make_config(
    packs: Packs | str | Path | None = None, level: str = "O2", flags: Mapping[str, bool] | None = None,
    providers: Iterable[str] | None = None, allow_relaxed: bool = False, tokens: tuple[int, int | None] | None = None,
    strict: bool = False, groups: Mapping[str, int] | None = None, replicated: Iterable[str] = (),
    allow_unproved: bool | None = None,
) -> Config:  # fmt: skip
    """A checked `Config`. Raises ConfigError for a level that is none and a token range that is empty."""
    if level not in LEVELS:
        raise ConfigError(f"no level is called {level!r}; levels are {', '.join(LEVELS)}")
    for name, on in dict(flags or {}).items():
        if not isinstance(on, bool):
            raise ConfigError(f"flags[{name!r}] is {on!r}; a flag is True or False")
    if tokens is not None:
        if len(tokens) != 2 or not all(type(n) is int or (n is None and i) for i, n in enumerate(tokens)):
            raise ConfigError(f"tokens={tokens!r} is no range: give (lowest, highest), highest None for no bound")
        low, high = tokens
        if low < 0 or (high is not None and high < low):
            raise ConfigError(f"tokens=({low}, {high}) is no range: give (lowest, highest), highest None for no bound")
    if isinstance(packs, str | Path):
        packs = [packs]
    if isinstance(providers, str):
        providers = [providers]
    if providers is not None and not (providers := list(providers)):
        raise ConfigError("providers=[] serves nothing; name at least one, or leave it out")
    for name, size in dict(groups or {}).items():
        if type(size) is not int or size < 1:
            raise ConfigError(f"groups[{name!r}] is {size!r}; a group has 1 rank or more")
    return Config(
        ("default",) if packs is None else tuple(packs), level, dict(flags or {}),
        DEFAULT if providers is None else tuple(providers), allow_relaxed, allowed(allow_unproved), tokens, strict,
        dict(groups or {}),
        (replicated,) if isinstance(replicated, str) else tuple(replicated),
    )  # fmt: skip


@frozen
class Status:
    """Is a rule on, and what decided."""

    on: bool
    reason: str = ""  # "pack off", "missing native" or "level" where it is off
    by: str = ""


def rule_status(program: Program, rule: RuleDef, config: Config) -> Status:
    """Whether `rule` takes part: what it needs, its natives and flag, `when` and flag of its pack, then the level."""
    pack = program.packs.get(rule.pack or "")
    flag = rule.flag or (pack.flag if pack else None)
    if pack is not None and pack.when:
        held = holds(pack.when, Env(facts=machine_facts(config)))
        if held is not True:
            return Status(
                False, "pack off", f"pack {pack.name}: its `when` is {'unknown' if held is None else 'false'} here"
            )
    absent = registered.missing((rule.guards, rule.prefer))
    if absent is not None:
        return Status(False, "missing native", absent)
    for name in (rule.full_name, rule.name, flag, rule.pack):
        if name is not None and name in config.flags:
            on = config.flags[name]
            return Status(on, "" if on else "pack off", f"flag {name} = {str(on).lower()}")
    level = rule.level or (pack.level if pack else "O0")
    if level in (None, "none"):
        return Status(False, "level", f"only its flag {flag} turns it on" if flag else "only its flag turns it on")
    if level > config.level:
        return Status(False, "level", f"it needs {level}, and the level is {config.level}")
    if config.level == "O0" and pack is not None:
        return Status(False, "level", "the level is O0")
    return Status(True, "", f"level {config.level}")


def check_flags(program: Program, config: Config) -> list[str]:
    """One line for each flag that names nothing that is loaded."""
    known: set[str] = set()
    for rule in program.rules:
        pack = program.packs.get(rule.pack or "")
        known |= {rule.full_name, rule.name, rule.pack or "", rule.flag or "", (pack.flag if pack else "") or ""}
    return [
        f"the flag {name!r} names no loaded pack, rule or flag; {closest(name, known) or 'see `fxrewrite packs`'}"
        for name in config.flags
        if name not in known
    ]


def machine_facts(config: Config) -> dict[str, Any]:
    """What conditions may ask of the machine: `sm` (90 for an H100; 0 without CUDA), `rocm`, `world` (of torch, or of
    the largest group that is declared).
    """
    cuda = torch.cuda.is_available()
    major, minor = torch.cuda.get_device_capability() if cuda and torch.version.hip is None else (0, 0)
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return {
        "sm": major * 10 + minor,
        "rocm": torch.version.hip is not None,
        "world": torch.distributed.get_world_size() if distributed else max(config.groups.values(), default=1),
    }


def load_program(config: Config) -> Program:
    """The checked program of the packs. Raises RuleError with every diagnostic.

    A call of a torch op that the snapshot refuses is right where the torch that is installed has it so.
    """
    try:
        return pack_files.load(config.packs)
    except RuleError:
        return pack_files.load(config.packs, Running(lenient=True))
