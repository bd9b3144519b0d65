"""What all items of all files declare, and what is known of it so far: what the parts of the checker ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, field

from fxrewrite.dsl import syntax
from fxrewrite.dsl.check import conditions, fusions, ops
from fxrewrite.dsl.check.base import Base
from fxrewrite.dsl.check.builtins import DTYPES, RESERVED
from fxrewrite.dsl.check.expressions import Elaborator
from fxrewrite.dsl.check.places import Places
from fxrewrite.dsl.check.problem import Broken, Problem
from fxrewrite.dsl.check.scope import Item, Scope
from fxrewrite.dsl.check.signatures import ATTRIBUTE_TYPES, Signatures, callable_by_name
from fxrewrite.dsl.check.solver import Origin
from fxrewrite.dsl.check.visible import Visibility
from fxrewrite.dsl.core import OpDef, Scalar, TensorType
from fxrewrite.dsl.diagnostics import Diagnostic, Related
from fxrewrite.dsl.schemas.snapshot import Schemas, Snapshot

T = TypeVar("T")
MAX_ASKED = 100  # unknown names for which one like it is looked for, which takes a while
MAX_EXPANSIONS = 5_000  # of `def`s, of all files: some 25 times those of the library


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
