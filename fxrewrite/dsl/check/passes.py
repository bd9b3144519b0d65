"""The passes over all files: declarations, ops, forms and providers, rules, choice."""

from __future__ import annotations

from typing import Any, TypeVar

from attrs import define, evolve, field

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import fusions, ops, rules
from fxrewrite.dsl.check.checker import Checker
from fxrewrite.dsl.check.claims import check_claims
from fxrewrite.dsl.check.def_items import check_def
from fxrewrite.dsl.check.natives import check_native
from fxrewrite.dsl.check.overlap import check_overlaps
from fxrewrite.dsl.check.pack_policy import checked_pack, distinct, plain_pack
from fxrewrite.dsl.check.problem import Broken, Problem, closest
from fxrewrite.dsl.check.termination import built_by, check_ends
from fxrewrite.dsl.check.ties import tied
from fxrewrite.dsl.check.visible import is_vocabulary, pack_of
from fxrewrite.dsl.core import OpDef, PackDef, Program, RuleDef
from fxrewrite.dsl.diagnostics import Diagnostic, Related

T = TypeVar("T")


def _reached(name: str, called: dict[str, set[str]]) -> set[str]:
    """The ops that the equations of an op call, directly or through others."""
    found: set[str] = set()
    todo = [*called[name]]
    while todo:
        n = todo.pop()
        if n not in found:
            found.add(n)
            todo += called.get(n, ())
    return found


@define(eq=False, repr=False)
class Passes:
    """The passes over all files, in order."""

    checker: Checker
    files: list[syntax.File]
    fires: set[str]
    ops: dict[str, OpDef] = field(factory=dict[str, OpDef])
    rules: list[RuleDef] = field(factory=list[RuleDef])
    texts: dict[int, syntax.Rule] = field(factory=dict[int, syntax.Rule])
    packs: dict[str, PackDef] = field(factory=dict[str, PackDef])

    def check(self, sources: dict[str, str]) -> Program:
        """Run them. `sources`: the texts of all files."""
        checker = self.checker
        for item in self.items():
            if checker.guard(lambda item=item: checker.declare(item) or True) is None:
                checker.refused.append(item)
        files = [f.path for f in self.files]
        for item in self.items(syntax.Use):
            checker.guard(lambda item=item: checker.visible.read_use(item, files))
        for d in self.items(syntax.Def):
            checker.guard(lambda d=d: check_def(checker, d), d.name)
        for native in self.items(syntax.Native):
            checker.guard(lambda native=native: check_native(checker, native), native.name)
        self.check_ops()
        self.check_cycles()
        for item in (*self.items(syntax.Form), *self.items(syntax.Impl)):
            checker.guard(lambda item=item: self.attach(item))
        for f in self.files:
            self.check_rules(f)
        self.check_heads()
        check_overlaps(checker, self.rules)
        built = built_by(self.rules)
        for rule in self.rules:
            text = self.texts.get(rule.order)
            if text is not None:
                checker.guard(lambda rule=rule, text=text: check_ends(checker, rule, text, built))
        return Program(self.ops, tuple(distinct(self.rules)), self.packs, dict(checker.dtypes), sources)

    def items(self, kind: type[T] | None = None) -> list[Any]:
        """The items of all files, those that were refused apart."""
        found = [i for f in self.files for i in f.items if kind is None or isinstance(i, kind)]
        return [i for i in found if not any(i is r for r in self.checker.refused)]

    # ---- ops

    def check_ops(self) -> None:
        """Every op and fusion."""
        checker = self.checker
        for name, source in checker.op_items.items():
            sig = checker.guard(lambda name=name: checker.signature(name), name)
            if sig is not None:
                made = checker.guard(lambda source=source, sig=sig: ops.with_requires(checker, source, sig), name)
                checker.signed[name] = made or sig
        for name, source in (*checker.op_items.items(), *checker.fusions.items()):
            sig = checker.guard(lambda name=name: checker.signature(name), name)
            if sig is None:
                continue
            if isinstance(source, syntax.Op):
                self.ops[name] = ops.check_op(checker, source, sig)
            else:
                found = checker.guard(lambda source=source, sig=sig: ops.samples_of(checker, source.samples, sig))
                sig = evolve(sig, samples=found or ())
                checker.guard(lambda source=source, sig=sig: check_claims(checker, source.properties, sig))
                self.ops[name] = ops.with_spellings(checker, sig, (), source.impls)

    def attach(self, item: syntax.Form | syntax.Impl) -> None:
        """A form or provider for an op of another item."""
        owner = item.owner or ""
        op = self.ops.get(owner)
        place = self.checker.places.word(item.span, owner)
        if op is None:
            if owner in self.checker.broken:
                raise Broken(owner)
            raise Problem("RW205", f"unknown op `{owner}`", place, self.checker.suggest(owner))
        self.ops[owner] = ops.add_spelling(self.checker, op, item)

    # ---- rules and packs

    def check_cycles(self) -> None:
        """RW209 for an op whose equations reach it again; it is then no op of the program."""
        from fxrewrite.dsl.check.terms import calls_of

        called = {n: {c.op for e in op.equations for t in e.outputs for c in calls_of(t)} for n, op in self.ops.items()}
        for name in [n for n in called if n in _reached(n, called)]:
            message, hint = f"the definition of {name} reaches itself", "a definition is finite: break the cycle"
            self.checker.diagnostics.append(Diagnostic("RW209", message, self.checker.spans[name], hint))
            self.checker.broken.add(name)
            del self.ops[name]

    def check_rules(self, f: syntax.File) -> None:
        """The pack of a file, and the rules that its items make."""
        checker, active = self.checker, f.path in self.fires
        heads = [i for i in f.items if isinstance(i, syntax.Pack)]
        pack = heads[0] if heads else None
        for extra in heads[1:]:
            related = [Related(heads[0].span, "the pack is here")]
            found = Diagnostic("RW208", "a file is one pack", extra.span, "remove one head", tuple(related))
            checker.diagnostics.append(found)
        if pack is not None and active:
            made = checker.guard(lambda: checked_pack(checker, pack, f.path))
            self.packs[pack.name] = made or plain_pack(pack, f.path)
        refused = {id(i) for i in checker.refused}
        for item in f.items:
            if id(item) not in refused and isinstance(item, syntax.Fusion | syntax.Rule):
                self.add_rule(f, item, pack, active)

    def add_rule(
        self, f: syntax.File, item: syntax.Fusion | syntax.Rule, pack: syntax.Pack | None, active: bool
    ) -> None:
        """The rule of one item, where its file fires."""
        checker, order = self.checker, len(self.rules)
        if isinstance(item, syntax.Rule):
            rule = checker.guard(lambda: rules.check_rule(checker, item, pack, order))
        elif item.name in checker.broken:
            return
        else:
            rule = checker.guard(lambda: fusions.fusion_rule(checker, self.ops[item.name], item, pack, order))
            note = tied(item, self.ops[item.name], self.ops) if active else None
            checker.diagnostics += [note] if note is not None else []
        vocabulary = pack is None and is_vocabulary(f.path)
        if rule is None or not active or (vocabulary and isinstance(item, syntax.Fusion)):
            return
        if isinstance(item, syntax.Rule):
            self.texts[order] = item
        self.rules.append(rule if pack is not None else evolve(rule, pack=pack_of(f.path)))

    def check_heads(self) -> None:
        """RW223 where `over` names nothing."""
        checker = self.checker
        for item in (*self.items(syntax.Rule), *self.items(syntax.Fusion)):
            for rival in item.over:
                checker.guard(lambda item=item, rival=rival: self.rival(item, rival))

    def rival(self, item: syntax.Rule | syntax.Fusion, rival: str) -> None:
        """RW223 where `rival` is no rule or fusion of any pack."""
        checker = self.checker
        before = (n for n, op in self.ops.items() if op.is_fusion)
        known = {*checker.rules, *checker.fusions, *before, *(r.name for r in self.rules)}
        if rival == item.name:
            place = checker.places.word(item.span, rival, 1)
            raise Problem("RW223", f"{rival} stands over itself", place, "name the rule that this one stands over")
        if rival in known or rival in checker.visible.elsewhere():
            return
        place = checker.places.word(item.span, rival)
        hint = closest(rival, known) or "`over` names the rule that this one stands over"
        raise Problem("RW223", f"`over` names `{rival}`, which is no rule or fusion", place, hint)
