"""Files to a checked program. Every item is checked by itself: a broken one hides no other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import define, evolve, field

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import conditions, items
from fxrewrite.dsl.check.expressions import DTYPES, Elaborator
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.signatures import ATTRIBUTE_TYPES, Signatures
from fxrewrite.dsl.core import OpDef, PackDef, Program, RuleDef, Scalar, TensorType
from fxrewrite.dsl.diagnostics import Diagnostic, Related


@define
class Checker:
    """What all items of all files declare, and what is known of it so far."""

    dtypes: dict[str, tuple[str, ...]] = field(factory=dict)
    natives: dict[str, syntax.Native] = field(factory=dict)
    defs: dict[str, syntax.Def] = field(factory=dict)
    op_names: dict[str, syntax.Op] = field(factory=dict)
    fusions: dict[str, syntax.Fusion] = field(factory=dict)
    spans: dict[str, syntax.Span] = field(factory=dict)
    signed: dict[str, OpDef] = field(factory=dict)
    busy: list[str] = field(factory=list)
    broken: set[str] = field(factory=set)
    diagnostics: list[Diagnostic] = field(factory=list)
    signatures: Signatures = field(factory=Signatures)

    # ---- what expressions ask

    def knows_op(self, name: str, item: Item | None = None) -> bool:
        """Is `name` an op or a fusion?"""
        return name in self.op_names or name in self.fusions

    def signature(self, name: str, item: Item | None = None) -> OpDef:
        """The signature of an op or fusion; a fusion is inferred when it is first asked for."""
        found = self.signed.get(name)
        if found is not None:
            return found
        source = self.op_names.get(name) or self.fusions[name]
        if name in self.broken:
            raise Broken(name)
        if name in self.busy:
            cycle = ", ".join([*self.busy[self.busy.index(name) :], name])
            raise Problem("RW209", f"the definition of {name} reaches itself: {cycle}", source.span)
        self.busy.append(name)
        try:
            if isinstance(source, syntax.Op):
                self.signed[name] = items.op_signature(self, source)
            else:
                self.signed[name] = items.check_fusion(self, source)
        finally:
            self.busy.pop()
        return self.signed[name]

    def param_type(self, p: syntax.Param) -> TensorType | str | None:
        """The type of a parameter of a `def`: a tensor's, the name of a scalar type, or None."""
        if p.type is None:
            return None
        if p.type.name in ATTRIBUTE_TYPES and p.type.dims is None:
            return p.type.name
        return self.signatures.tensor(p.type, set())

    def suggest(self, name: str) -> str:
        """A hint for a name that is no op."""
        return closest(name, [*self.op_names, *self.fusions, *self.defs, *self.natives])

    def is_constant(self, name: str) -> bool:
        return name in DTYPES or name in self.dtypes

    def pack_prefer(self, pack: syntax.Pack | None) -> tuple[Scalar, ...]:
        """The `prefer` of a pack, which holds for each of its rules."""
        if pack is None:
            return ()
        return self.pack_conditions(pack, pack.prefer)

    def pack_conditions(self, pack: syntax.Pack, es: tuple[syntax.Expr, ...]) -> tuple[Scalar, ...]:
        elab = Elaborator(self, Item(pack.name))
        return tuple(conditions.conjuncts(tuple(elab.condition(e, Scope(elab.item)) for e in es)))

    def prefer(self, es: tuple[syntax.Expr, ...], sig: OpDef) -> tuple[Scalar, ...]:
        """`prefer` of a fusion."""
        elab, scope = items.op_scope(self, sig)
        return tuple(conditions.conjuncts(tuple(elab.condition(e, scope) for e in es)))

    # ---- declaring

    def declare(self, item: syntax.Item) -> None:
        """Note an item under its name; RW208 where another has it."""
        name = getattr(item, "name", None)
        if isinstance(item, syntax.Pack | syntax.Use | syntax.Form | syntax.Impl) or name is None:
            return
        kind = "rule" if isinstance(item, syntax.Rule) else "name"
        key = f"{kind}:{name}"
        if key in self.spans:
            raise Problem("RW208", f"{name} is declared twice", item.span, "choose another name",
                          [Related(self.spans[key], f"{name} is declared here")])  # fmt: skip
        self.spans[key] = item.span
        if isinstance(item, syntax.DtypeClass):
            self.dtypes[name] = tuple(self._member(m) for m in item.members)
            self.signatures.classes = self.dtypes
        elif isinstance(item, syntax.Native):
            self.natives[name] = item
        elif isinstance(item, syntax.Def):
            self.defs[name] = item
        elif isinstance(item, syntax.Op):
            self.op_names[name] = item
        elif isinstance(item, syntax.Fusion):
            self.fusions[name] = item

    def _member(self, e: syntax.Expr) -> str:
        if isinstance(e, syntax.Var) and e.name in DTYPES:
            return e.name
        text = e.name if isinstance(e, syntax.Var) else "this"
        raise Problem("RW217", f"unknown dtype `{text}`", e.span, closest(text, DTYPES))

    def guard(self, what: Any, name: str | None = None) -> Any:
        """Run a check; what it refuses becomes a diagnostic and None."""
        try:
            return what()
        except Problem as problem:
            if problem.diagnostic not in self.diagnostics:
                self.diagnostics.append(problem.diagnostic)
        except Broken:
            pass
        except RecursionError:
            self.diagnostics.append(
                Diagnostic("RW130", "an expression is nested too deep", self.spans.get(f"name:{name}") or _NOWHERE)
            )
        if name is not None:
            self.broken.add(name)
        return None


class Broken(Exception):
    """An item uses another one that was refused already: said once, there."""


_NOWHERE = syntax.Span("<rules>", 1, 1, 1, 1)


def check(files: Iterable[syntax.File], firing: Iterable[str] | None = None) -> tuple[Program, list[Diagnostic]]:
    """Check files together. `firing`: the paths whose rules fire (all where None); of the others only the names are visible.

    Returns the program of what could be checked, and the diagnostics of the rest in the order of the files.
    """
    files = list(files)
    checker = Checker()
    for f in files:
        for item in f.items:
            checker.guard(lambda item=item: checker.declare(item))
    ops: dict[str, OpDef] = {}
    for name, source in (*checker.op_names.items(), *checker.fusions.items()):
        sig = checker.guard(lambda name=name: checker.signature(name), name)
        if sig is None:
            continue
        checked = checker.guard(lambda source=source, sig=sig: _finish(checker, source, sig), name)
        ops[name] = checked or sig
    rules: list[RuleDef] = []
    packs: dict[str, PackDef] = {}
    fires = None if firing is None else set(firing)
    for f in files:
        pack = next((i for i in f.items if isinstance(i, syntax.Pack)), None)
        active = fires is None or f.path in fires
        if pack is not None and active:
            packs[pack.name] = checker.guard(lambda pack=pack, f=f: _pack(checker, pack, f.path)) or _plain_pack(
                pack, f.path
            )
        for item in f.items:
            if isinstance(item, syntax.Form | syntax.Impl):
                checker.guard(lambda item=item: _attach(checker, ops, item))
            elif isinstance(item, syntax.Fusion) and item.name in ops and item.name not in checker.broken:
                rule = checker.guard(
                    lambda item=item, pack=pack: items.fusion_rule(ops[item.name], item, pack, len(rules), checker)
                )
                if rule is not None and active and (pack is not None or not _is_vocabulary(f)):
                    rules.append(_named_by_file(rule, f, pack))
            elif isinstance(item, syntax.Rule):
                rule = checker.guard(lambda item=item, pack=pack: items.check_rule(checker, item, pack, len(rules)))
                if rule is not None and active:
                    rules.append(_named_by_file(rule, f, pack))
    sources = {f.path: f.source for f in files}
    order = {f.path: i for i, f in enumerate(files)}
    checker.diagnostics.sort(key=lambda d: (order.get(d.span.file, 0), d.span.line, d.span.column))
    return Program(ops, tuple(_distinct(rules)), packs, dict(checker.dtypes), sources), checker.diagnostics


def _distinct(rules: list[RuleDef]) -> list[RuleDef]:
    """Bare rules that got one name from their ops are told apart by number."""
    seen: dict[str, int] = {}
    out: list[RuleDef] = []
    for rule in rules:
        n = seen[rule.full_name] = seen.get(rule.full_name, 0) + 1
        out.append(rule if n == 1 else evolve(rule, name=f"{rule.name}_{n}"))
    return out


def _is_vocabulary(f: syntax.File) -> bool:
    return "/vocab/" in f.path.replace("\\", "/")


def _named_by_file(rule: RuleDef, f: syntax.File, pack: syntax.Pack | None) -> RuleDef:
    if pack is not None:
        return rule
    stem = f.path.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".rw")
    return evolve(rule, pack=stem)


def _finish(checker: Checker, source: syntax.Op | syntax.Fusion, sig: OpDef) -> OpDef:
    if isinstance(source, syntax.Op):
        return items.check_op(checker, source, sig)
    return evolve(sig, impls=tuple(items.check_spelling(checker, sig, i, "impl") for i in source.impls))


def _attach(checker: Checker, ops: dict[str, OpDef], item: syntax.Form | syntax.Impl) -> None:
    op = ops.get(item.owner or "")
    if op is None:
        raise Problem("RW205", f"unknown op `{item.owner}`", item.span, checker.suggest(item.owner or ""))
    kind = "form" if isinstance(item, syntax.Form) else "impl"
    case = items.check_spelling(checker, op, item, kind)
    have = op.forms if kind == "form" else op.impls
    if any(c.name == case.name for c in have):
        raise Problem(
            "RW208", f"{op.name} has {'a' if kind == 'form' else 'an'} {kind} called `{case.name}` already", item.span
        )
    ops[op.name] = evolve(op, forms=(*op.forms, case)) if kind == "form" else evolve(op, impls=(*op.impls, case))


def _plain_pack(pack: syntax.Pack, path: str) -> PackDef:
    level = None if pack.level == "none" else pack.level or "O1"
    return PackDef(pack.name, level, pack.flag, pack.stage or "fuse", pack.after, (), path, pack.doc, pack.span)


def _pack(checker: Checker, pack: syntax.Pack, path: str) -> PackDef:
    if pack.stage not in (None, "canonicalize", "fuse", "lower"):
        raise Problem("RW129", f"unknown stage `{pack.stage}`", pack.span, "write `canonicalize`, `fuse` or `lower`")
    return evolve(_plain_pack(pack, path), when=checker.pack_conditions(pack, pack.when))
