"""The head of a pack: its policy, and the names of its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check.contradiction import possible
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.core import PackDef, RuleDef

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

STAGES = ("canonicalize", "fuse", "lower")


def distinct(rules: list[RuleDef]) -> list[RuleDef]:
    """Bare rules that got one name from their ops are told apart by number."""
    taken = {r.full_name for r in rules if r.is_named}
    out: list[RuleDef] = []
    for rule in rules:
        name, n = rule.full_name, 1
        while not rule.is_named and name in taken:
            n += 1
            name = f"{rule.full_name}_{n}"
        taken.add(name)
        out.append(rule if n == 1 else evolve(rule, name=f"{rule.name}_{n}"))
    return out


def plain_pack(pack: syntax.Pack, path: str) -> PackDef:
    """The policy that the head of a file says, its conditions apart."""
    level = None if pack.level == "none" else pack.level or "O1"
    return PackDef(pack.name, level, pack.flag, pack.stage or "fuse", pack.after, (), path, pack.doc, pack.span)


def checked_pack(checker: Checker, pack: syntax.Pack, path: str) -> PackDef:
    """The policy of a pack with its conditions. Raises Problem."""
    if pack.stage not in (None, *STAGES):
        place = checker.places.word(pack.span, pack.stage or "")
        hint = closest(pack.stage or "", STAGES) or "write `canonicalize`, `fuse` or `lower`"
        raise Problem("RW129", f"unknown stage `{pack.stage}`", place, hint)
    for name in pack.after:
        place = checker.places.word(pack.span, name, pack.name == name)
        if name == pack.name:
            raise Problem("RW209", f"the pack {name} comes after itself", place, "remove it")
        hint = "" if name in checker.visible.packs() else closest(name, checker.visible.packs())
        if hint:
            raise Problem("RW223", f"`after` names the pack `{name}`, which is not known", place, hint)
    checker.pack_prefer(pack)
    when = checker.pack_conditions(pack, pack.when, profit=False)
    possible(when, (), pack.when, lambda e: checker.pack_conditions(pack, (e,), profit=False), pack.span)
    return evolve(plain_pack(pack, path), when=when)
