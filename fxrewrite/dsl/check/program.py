"""Files to a checked program. Every part of an item is checked by itself: a broken one hides no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

from attrs import define, evolve, field

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import conditions, fusions, ops, rules
from fxrewrite.dsl.check.base import Base
from fxrewrite.dsl.check.builtins import DTYPES, RESERVED
from fxrewrite.dsl.check.claims import check_claims
from fxrewrite.dsl.check.def_items import check_def
from fxrewrite.dsl.check.expressions import Elaborator
from fxrewrite.dsl.check.natives import check_native
from fxrewrite.dsl.check.overlap import check_overlaps
from fxrewrite.dsl.check.pack_policy import checked_pack, distinct, plain_pack
from fxrewrite.dsl.check.places import Places
from fxrewrite.dsl.check.problem import Broken, Problem, closest
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.signatures import ATTRIBUTE_TYPES, Signatures, callable_by_name
from fxrewrite.dsl.check.solver import Origin
from fxrewrite.dsl.check.termination import built_by, check_ends
from fxrewrite.dsl.check.ties import tied
from fxrewrite.dsl.check.visible import Visibility, is_vocabulary, pack_of
from fxrewrite.dsl.core import OpDef, PackDef, Program, RuleDef, Scalar, TensorType
from fxrewrite.dsl.diagnostics import Diagnostic, Related
from fxrewrite.dsl.schemas.snapshot import Schemas, Snapshot

T = TypeVar("T")
MAX_ASKED = 100  # unknown names for which one like it is looked for, which takes a while
MAX_EXPANSIONS = 5_000  # of `def`s, of all files: some 25 times those of the library
RECURSION = 10_000  # frames: an expression of the greatest depth takes about 2,000


@define(eq=False, repr=False)
class Checker:
    """What all items of all files declare, and what is known of it so far."""

    places: Places
    visible: Visibility
    signatures: Signatures
    dtypes: dict[str, tuple[str, ...]] = field(factory=dict[str, tuple[str, ...]])
    natives: dict[str, syntax.Native] = field(factory=dict[str, syntax.Native])
    defs: dict[str, syntax.Def] = field(factory=dict[str, syntax.Def])
    op_items: dict[str, syntax.Op] = field(factory=dict[str, syntax.Op])
    fusions: dict[str, syntax.Fusion] = field(factory=dict[str, syntax.Fusion])
    rules: dict[str, syntax.Rule] = field(factory=dict[str, syntax.Rule])
    spans: dict[str, syntax.Span] = field(factory=dict[str, syntax.Span])
    signed: dict[str, OpDef] = field(factory=dict[str, OpDef])
    busy: list[str] = field(factory=list[str])
    broken: set[str] = field(factory=set[str])
    origins: dict[syntax.Span, dict[Scalar, Origin]] = field(factory=dict[syntax.Span, "dict[Scalar, Origin]"])
    refused: list[syntax.Item] = field(factory=list[syntax.Item])
    diagnostics: list[Diagnostic] = field(factory=list[Diagnostic])
    said: set[Diagnostic] = field(factory=set[Diagnostic])
    expansions: int = 0
    asked: int = 0
    nesting: dict[str, int] = field(factory=dict[str, int])  # how deep the fusions in a fusion lie
    schemas: Schemas = field(factory=Snapshot)
    noted: dict[str, set[str]] = field(factory=dict[str, set[str]])  # file that gets notes -> ops with a note

    def stand_on(self, base: Base) -> None:
        """Take over what was checked before."""
        self.dtypes |= base.program.dtypes
        self.natives |= base.natives
        self.defs |= base.defs
        self.spans |= base.spans
        self.visible.owners |= base.owners
        self.broken |= set(base.broken)
        self.signed |= base.program.ops

    # ---- what expressions ask

    def knows_op(self, name: str) -> bool:
        """Is `name` an op or a fusion?"""
        return name in self.signed or name in self.op_items or name in self.fusions

    def need_visible(self, name: str, file: str, span: syntax.Span) -> None:
        """RW205 where `file` may not use `name`."""
        self.visible.need(file, name, span)

    def classes(self, file: str) -> dict[str, tuple[str, ...]]:
        """The dtype classes that a file may use."""
        return {n: members for n, members in self.dtypes.items() if self.visible.sees(file, n)}

    def owner_of(self, name: str) -> str | None:
        """The file that declares `name`."""
        return self.visible.owners.get(name)

    def signature(self, name: str) -> OpDef:
        """The signature of an op or fusion; a fusion is inferred when it is first asked for."""
        found = self.signed.get(name)
        if found is not None:
            return found
        if name in self.broken:
            raise Broken(name)
        source = self.op_items.get(name) or self.fusions[name]
        if name in self.busy:
            raise self._cycle(name, source)
        self.busy.append(name)
        try:
            make: Callable[[], OpDef] = (
                (lambda: ops.op_signature(self, source))
                if isinstance(source, syntax.Op)
                else (lambda: fusions.check_fusion(self, source))
            )
            self.signed[name] = make()
        except (Problem, Broken):
            self.broken.add(name)
            raise
        finally:
            self.busy.pop()
        return self.signed[name]

    def _cycle(self, name: str, source: syntax.Op | syntax.Fusion) -> Problem:
        names = self.busy[self.busy.index(name) :]
        related = [Related(self.places.word(self.fusions[n].span, n), f"{n} is defined here") for n in names[1:]]
        self.broken |= set(names)
        message = f"the definition of {name} reaches itself: {', '.join([*names, name])}"
        return Problem(
            "RW209", message, self.places.word(source.span, name), "a definition is finite: break the cycle", related
        )

    def count_expansion(self, name: str, span: syntax.Span) -> None:
        """RW130 where `def`s are expanded without end in sight."""
        self.expansions += 1
        if self.expansions > MAX_EXPANSIONS + 1:
            raise Broken(name)  # said once
        if self.expansions > MAX_EXPANSIONS:
            message = f"{name} is one of more than {MAX_EXPANSIONS} helpers that these files expand"
            raise Problem("RW130", message, span, "make parts of it ops")

    def param_type(self, p: syntax.Param, params: syntax.Params) -> TensorType | str | None:
        """The type of one of `params` of a `def`: a tensor's, the name of a scalar type, or None."""
        if p.type is None:
            return None
        if p.type.name in ATTRIBUTE_TYPES and p.type.dims is None:
            return p.type.name
        return self.signatures.tensor(p.type, scalar_types(params))

    def suggest(self, name: str) -> str:
        """A hint for a name that is no op; what is spelled alike is looked for only so often."""
        self.asked += 1
        if self.asked > MAX_ASKED:
            return self.visible.hint(name, ())
        return self.visible.hint(
            name, [*self.signed, *self.op_items, *self.fusions, *self.defs, *self.natives, *RESERVED]
        )

    def operand_hint(self, name: str, item: Item) -> str:
        """A hint where `name` is an operand of an op that the item calls and that the call leaves out."""
        from fxrewrite.dsl.check.terms import calls_of

        for call in (c for t in item.terms for c in calls_of(t)):
            if any(o.name == name for o in self.signature(call.op).operands):
                return f"{call.op} has an operand of that name: give it on the left"
        return ""

    def remark(self, op: str, span: syntax.Span) -> None:
        """Note once a file what a check of the calls of a torch op leaves open."""
        noted = self.noted.get(span.file)
        if noted is None or op in noted:
            return
        noted.add(op)
        found = self.schemas.remark(op)
        if found is not None:
            self.diagnostics.append(Diagnostic(found.code, found.message, span, found.hint, severity="note"))

    def is_constant(self, name: str, file: str) -> bool:
        """Is `name` a dtype, or a class that the file may use?"""
        return name in DTYPES or name in self.classes(file)

    def note_origins(self, source: syntax.Item, item: Item, zonk: Callable[[Any], Any]) -> None:
        """Keep what the derived guards of an item come from, for those who ask."""
        made: dict[Scalar, Origin] = {}
        for condition, origin in item.solver.origins.items():
            for part in conditions.conjuncts((zonk(condition),)):
                made.setdefault(part, origin)
        self.origins[source.span] = made

    # ---- packs

    def pack_prefer(self, pack: syntax.Pack | None) -> tuple[Scalar, ...]:
        """The `prefer` of a pack, which holds for each of its rules."""
        return () if pack is None else self.pack_conditions(pack, pack.prefer, profit=True)

    def pack_conditions(self, pack: syntax.Pack, es: tuple[syntax.Expr, ...], profit: bool) -> tuple[Scalar, ...]:
        """Conditions in the head of a pack: of the machine, or of the tokens of a site."""
        elab = Elaborator(self, Item(pack.name, self.places, pack.span))
        return elab.conditions(es, Scope(elab.item, pack.span.file, profit=profit))

    # ---- declaring

    def declare(self, item: syntax.Item) -> None:
        """Note an item under its name; RW208 where another has it."""
        name = getattr(item, "name", None)
        if isinstance(item, syntax.Pack | syntax.Use | syntax.Form | syntax.Impl) or name is None:
            return
        place = self.places.word(item.span, name)
        if name in RESERVED and not isinstance(item, syntax.Rule):
            raise Problem("RW208", f"`{name}` is built in", place, "choose another name")
        if isinstance(item, syntax.Op | syntax.Fusion):
            callable_by_name(name, place)
        if name in self.spans:
            raise Problem("RW208", f"{name} is declared twice", place, "choose another name",
                          [Related(self.spans[name], f"{name} is declared here")])  # fmt: skip
        self.spans[name] = place
        self.visible.owners[name] = item.span.file
        if isinstance(item, syntax.DtypeClass):
            self.dtypes[name] = self._members(item)
            return
        tables: dict[type, dict[str, Any]] = {
            syntax.Native: self.natives,
            syntax.Def: self.defs,
            syntax.Op: self.op_items,
            syntax.Fusion: self.fusions,
            syntax.Rule: self.rules,
        }
        tables[type(item)][name] = item

    def _members(self, item: syntax.DtypeClass) -> tuple[str, ...]:
        """The dtypes of a class, each once."""
        found: list[str] = []
        for e in item.members:
            member = self._member(e)
            if member in found:
                raise Problem("RW208", f"`{member}` is in this class already", e.span, "remove one")
            found.append(member)
        return tuple(found)

    def _member(self, e: syntax.Expr) -> str:
        if isinstance(e, syntax.Var) and e.name in DTYPES:
            return e.name
        from fxrewrite.dsl.check.signatures import unknown_dtype

        raise unknown_dtype(e.name if isinstance(e, syntax.Var) else self.places.text(e.span), e.span, DTYPES)

    def guard(self, what: Callable[[], T], name: str | None = None) -> T | None:
        """Run a check; what it refuses becomes a diagnostic and None, and `name` counts as broken."""
        try:
            return what()
        except Problem as problem:
            if problem.diagnostic not in self.said:
                self.said.add(problem.diagnostic)
                self.diagnostics.append(problem.diagnostic)
        except Broken:
            pass
        except RecursionError:
            here = self.spans.get(name or "", _NOWHERE)
            hint = "name parts of it under `where`"
            self.diagnostics.append(Diagnostic("RW130", "definitions are nested too deep", here, hint))
        if name is not None:
            self.broken.add(name)
        return None


def scalar_types(params: syntax.Params) -> dict[str, str]:
    """The parameters that types may name, with their types."""
    typed = [(p.name, p.type) for p in (*params.operands, *params.attributes) if p.type is not None]
    return {n: t.name for n, t in typed if t.name in ATTRIBUTE_TYPES and t.dims is None}


_NOWHERE = syntax.Span("<rules>", 1, 1, 1, 1)


def check(
    files: Iterable[syntax.File],
    firing: Iterable[str] | None = None,
    elsewhere: Callable[[], dict[str, str]] = dict[str, str],
    base: Base | None = None,
    schemas: Schemas | None = None,
) -> tuple[Program, list[Diagnostic], dict[syntax.Span, dict[Scalar, Origin]]]:
    """Check files together, after those of `base`.

    `firing`: the paths whose rules fire (all where None); of the others only the names are visible. `elsewhere`: names
    of packs that are not among the files, with their pack, for hints. `schemas`: those of torch ops, with notes on
    every file (None: the snapshot, with notes on what fires). Returns the program of what could be checked, the
    diagnostics of the rest, in no order, and what the derived guards of each item of the files come from.
    """
    files = list(files)
    fires = {f.path for f in files} if firing is None else set(firing)
    checker, program, diagnostics = _checked(files, fires, elsewhere, base, schemas)
    return program, diagnostics, checker.origins


def check_base(parsed: Iterable[tuple[syntax.File, Iterable[Diagnostic]]]) -> Base:
    """Check the files on which others stand, each with what was wrong with its text."""
    parsed = list(parsed)
    checker, program, found = _checked([f for f, _ in parsed], set(), dict[str, str], None, None)
    wrong = (*(d for _, ds in parsed for d in ds), *found)
    owners, broken = checker.visible.owners, tuple(sorted(checker.broken))
    return Base(program, checker.natives, checker.defs, checker.spans, owners, broken, wrong)


def _checked(
    files: list[syntax.File],
    fires: set[str],
    elsewhere: Callable[[], dict[str, str]],
    base: Base | None,
    schemas: Schemas | None,
) -> tuple[Checker, Program, list[Diagnostic]]:
    sources = {**(base.program.sources if base else {}), **{f.path: f.source for f in files}}
    places = Places(sources)
    checker = Checker(places, Visibility(places, elsewhere), Signatures(places), schemas=schemas or Snapshot())
    checker.noted = {path: set() for path in (fires if schemas is None else [f.path for f in files])}
    checker.signatures.classes = checker.classes
    if base is not None:
        checker.stand_on(base)
    with _deep():
        program = _Program(checker, files, fires, dict(base.program.ops) if base else {}).check(sources)
    return checker, program, [*(base.diagnostics if base else ()), *checker.diagnostics]


@contextmanager
def _deep() -> Generator[None]:
    """Room for the recursion that the deepest text needs."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


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
class _Program:
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
                checker.guard(lambda source=source, sig=sig: ops.samples_of(checker, source.samples, sig))
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
