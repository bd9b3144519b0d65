"""What the checker concluded of one rule or fusion, as data: types, attributes, names, guards, order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, frozen

from fxrewrite.dsl.check.conditions import negate
from fxrewrite.dsl.check.problem import VARIANT
from fxrewrite.dsl.check.rivals import Rival, rivals
from fxrewrite.dsl.check.solver import Origin
from fxrewrite.dsl.check.termination import built_by, why_ends
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Attribute,
    Call,
    Dtype,
    Lit,
    OpDef,
    OperandInfo,
    Program,
    Ref,
    RuleDef,
    Scalar,
    Term,
    Wild,
    span_of,
)
from fxrewrite.dsl.syntax import Span
from fxrewrite.dsl.wording import said, text

Origins = Mapping[Span, Mapping[Scalar, Origin]]


@frozen
class Value:
    """An operand, a result or a named part: its type, what is to be said of it, and where it is bound."""

    name: str
    type: str
    notes: tuple[str, ...]
    at: Span | None


@frozen
class Carried:
    """An attribute: what becomes of it ("own", "inherited", "pinned", "dropped"), and the ops that have it."""

    name: str
    type: str
    how: str
    value: str
    ops: tuple[str, ...]
    at: Span | None


@frozen
class Guard:
    """A condition of each firing, what it comes from, and where that stands."""

    condition: str
    origin: str
    at: Span | None


@frozen
class Conclusions:
    """Everything that is known of one rule or fusion."""

    name: str
    kind: str
    at: Span | None
    doc: str
    policy: tuple[tuple[str, str], ...]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: tuple[Carried, ...]
    parts: tuple[Value, ...]
    guards: tuple[Guard, ...]
    prefer: tuple[str, ...]
    ends: str
    rivals: tuple[Rival, ...]


def found(program: Program, name: str) -> list[RuleDef | OpDef]:
    """The rules called `name` (`pack.rule`, or the bare name), else the fusion that no rule makes."""
    op = program.ops.get(name)
    return [*program.rules_called(name)] or ([op] if op is not None and op.is_fusion else [])


def names(program: Program) -> set[str]:
    """What `found` finds."""
    return program.rule_names() | {n for n, op in program.ops.items() if op.is_fusion}


def conclude(program: Program, item: RuleDef | OpDef, origins: Origins) -> Conclusions:
    """What is known of a rule, or of a fusion."""
    rule = item if isinstance(item, RuleDef) else _as_rule(item)
    made = program.ops.get(rule.name)
    fusion = made is not None and made.is_fusion and made.span == rule.span
    told = _Told(program, rule, fusion)
    fires = isinstance(item, RuleDef)
    ends = why_ends(program.ops.__getitem__, rule, built_by(program.rules))
    return Conclusions(
        rule.full_name, "fusion" if fusion else "rule", rule.span, made.doc if made is not None and fusion else "",
        told.policy(fires), tuple(told.operand(o) for o in rule.operands), told.results(), told.attributes(),
        told.parts(), told.guards(origins), tuple(said(p) for p in rule.prefer),
        (ends or "nothing says that it ends") if fires else "",
        tuple(rivals(rule, program.rules)) if fires else (),
    )  # fmt: skip


def _as_rule(op: OpDef) -> RuleDef:
    """A fusion that declares and does not fire, as the rule that it would be."""
    case = op.equations[0]
    return RuleDef(op.name, None, case.outputs, (), op.operands, op.attributes, case.named, guards=op.requires,
                   contract=op.contract, order=-1, span=op.span)  # fmt: skip


@define
class _Told:
    program: Program
    rule: RuleDef
    fusion: bool

    def policy(self, fires: bool) -> tuple[tuple[str, str], ...]:
        """Level, flag, stage, order: what is not the rule's own is its pack's."""
        rule = self.rule
        pack = self.program.packs.get(rule.pack or "")
        if not fires:
            return (("fires", "no: the vocabulary declares only"),)
        level = rule.level or (pack.level if pack else "O1")
        flag = rule.flag or (pack.flag if pack else None)
        contract = rule.contract.kind if rule.contract else "faithful"
        every = {"level": level or "none: only its flag turns it on", "flag": flag, "stage": rule.stage,
                 "over": ", ".join(rule.over), "contract": contract}  # fmt: skip
        return tuple((k, v) for k, v in every.items() if v)

    def operand(self, o: OperandInfo) -> Value:
        """An operand of the left side."""
        notes = [n for n, so in (("a list", o.star), ("may be none", o.optional), ("a str", o.kind == "str")) if so]
        return Value(o.name, _shown(o.type) if o.kind == "tensor" else "str", tuple(notes), o.span)

    def results(self) -> tuple[Value, ...]:
        """The outputs, with the names that they have on the right."""
        rule = self.rule
        op = self.program.ops.get(rule.name) if self.fusion else None
        out: list[Value] = []
        for i, left in enumerate(rule.left):
            type_ = op.results[i].type if op is not None else getattr(left, "type", None)
            name = op.results[i].name if op is not None else self.result_name(rule.right[i], i)
            layout = getattr(type_, "layout", "row")
            notes = () if layout == "row" else (f"layout {getattr(layout, 'name', layout)}",)
            out.append(Value(name, _shown(type_), notes, span_of(left)))
        return tuple(out)

    def result_name(self, term: Term, index: int) -> str:
        call = getattr(term, "call", None)
        if isinstance(call, Call):
            return self.program.ops[call.op].results[getattr(term, "index", 0)].name
        return getattr(term, "name", f"output {index}")

    def attributes(self) -> tuple[Carried, ...]:
        """Attributes that the item has, then those that its calls pin or drop."""
        calls = calls_of(self.rule.left)
        made = [self.carried(a, calls) for a in self.rule.attributes]
        for call in calls:
            for name, value in call.attrs:
                if isinstance(value, Lit | Dtype | Wild):
                    how = "dropped" if isinstance(value, Wild) else "pinned"
                    attribute = self.program.ops[call.op].attribute(name)
                    type_ = attribute.type if attribute else ""
                    made.append(
                        Carried(name, type_, how, "" if how == "dropped" else said(value), (call.op,), call.span)
                    )
        return tuple(made)

    def carried(self, a: Attribute, calls: Sequence[Call]) -> Carried:
        holders = [c for c in calls if any(v == Ref(a.name) for _, v in c.attrs)]
        own = a.span is not None and self.rule.span is not None and _within(a.span, self.rule.span)
        default = "" if a.default is NO_DEFAULT else text(a.default)
        domain = "" if a.domain is None else f" in {{{', '.join(map(text, a.domain))}}}"
        at = a.span if own else holders[0].span if holders else a.span
        return Carried(a.name, a.type + ("?" if a.optional else "") + domain, "own" if own else "inherited", default,
                       tuple(dict.fromkeys(c.op for c in holders)), at)  # fmt: skip

    def parts(self) -> tuple[Value, ...]:
        """The names under `where` of the left side: exclusive, unless kept or an output."""
        out: list[Value] = []
        for name, term in self.rule.named:
            exclusive = "an output" if term in self.rule.left else "exclusive: no user outside the match"
            note = "kept: others may use it" if name in self.rule.kept else exclusive
            out.append(Value(name, _shown(getattr(term, "type", "")), (note,), span_of(term)))
        return tuple(out)

    def guards(self, origins: Origins) -> tuple[Guard, ...]:
        """What each firing needs, with what it comes from."""
        known = dict(origins.get(self.rule.span, {})) if self.rule.span else {}
        out: list[Guard] = []
        for g in self.rule.guards:
            origin, at = known.get(g) or known.get(negate(negate(g))) or (f"`requires` of this {self.kind}", None)
            out.append(Guard(VARIANT.sub("", said(g)), origin or "the types here", at))
        return tuple(out)

    @property
    def kind(self) -> str:
        return "fusion" if self.fusion else "rule"


def _shown(type_: object) -> str:
    """A type with the names of dims as the text has them."""
    return VARIANT.sub("", str(type_))


def _within(inner: Span, outer: Span) -> bool:
    same = inner.file == outer.file
    return same and (outer.line, outer.column) <= (inner.line, inner.column) <= (outer.end_line, outer.end_column)
