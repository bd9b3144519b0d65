"""Forms and rules as patterns in the normal form, and their index.

A *form* of an op is an anchor (its first result) with a matcher, further results that follow from the bindings, and
guards. A rule's left side is compiled the same way; `Library` holds both and says which can begin at a value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import torch
from attrs import define, field

from fxrewrite.dsl import dims, registered
from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    UNKNOWN,
    Apply,
    Case,
    Choose,
    DtypeVar,
    Each,
    Either,
    Extern,
    Lit,
    Number,
    OpDef,
    OperandInfo,
    Prim,
    Program,
    Ref,
    Result,
    RuleDef,
    Term,
)  # fmt: skip
from fxrewrite.dsl.dims import Star
from fxrewrite.patterns.calls import Declared
from fxrewrite.patterns.dtypes import DTYPES, to_graph
from fxrewrite.patterns.effects import Kinds, declarations
from fxrewrite.patterns.filled import filled
from fxrewrite.patterns.further import find_further, names
from fxrewrite.patterns.groups import Groups
from fxrewrite.patterns.guards import SiteEnv
from fxrewrite.patterns.matcher import Compiler, SchemaMismatch, extern_name
from fxrewrite.patterns.members import Members
from fxrewrite.patterns.normal import Normal
from fxrewrite.patterns.sizes import allowed_dtypes
from fxrewrite.patterns.state import Next, Slots, State, Step, lookup
from fxrewrite.patterns.symmetry import Swaps
from fxrewrite.patterns.values import Symbol

Against = Callable[[torch.device | None], Any]  # a device -> why a form may not be used on it, None where it may


class MissingOp(Exception):
    """This build of torch has no such op."""


def torch_op(path: str) -> torch._ops.OpOverload:
    """`aten.silu` or `_C.scaled_fp4_quant.out` as an overload. Raises MissingOp.

    A name without overload is the default, or the only overload that takes tensors and writes nothing.
    """
    namespace, *rest = path.split(".")
    try:
        packet = getattr(getattr(torch.ops, namespace), rest[0])
        return getattr(packet, rest[1] if len(rest) > 1 else _overload(packet))
    except (AttributeError, IndexError, RuntimeError) as error:
        raise MissingOp(path) from error


def _overload(packet: torch._ops.OpOverloadPacket) -> str:
    names = packet.overloads()
    schemas = {n: getattr(packet, n)._schema for n in names if n != "default"}
    able = [n for n, s in schemas.items() if not s.is_mutable and any("Tensor" in str(a.type) for a in s.arguments)]
    return able[0] if "default" not in names and len(able) == 1 else "default"


def _torch_op_if_any(path: str) -> torch._ops.OpOverload | None:
    try:
        return torch_op(path)
    except MissingOp:
        return None


def _positions(op: OpDef) -> tuple[int, int]:
    names = [o.name for o in op.operands]
    return names.index(op.swaps[0]), names.index(op.swaps[1])


@define(eq=False)
class Pattern:
    """A compiled left side: `anchor` matches output `first`; `outputs` are all of them, as written.

    `operands`, `attributes`: what a match binds, in this order. `members`: of an `each`, where there is one. `binds`:
    operands that a form gives by what it matches. `against`: what speaks against a form that needs a proof.
    """

    name: str
    slots: Slots
    anchor: Step
    outputs: tuple[Term, ...]
    normal: Normal
    operands: tuple[OperandInfo, ...]
    attributes: tuple[Any, ...]
    guards: tuple[Any, ...]
    pins: tuple[tuple[str, Any], ...]
    named: tuple[Term, ...]
    machine: dict[str, Any] = field(factory=dict)
    first: int = 0
    members: Members | None = None
    binds: tuple[tuple[str, Term], ...] = ()
    keys: frozenset[tuple[str, str | None]] = frozenset()
    dtypes: frozenset[Any] | None = None
    numbers: tuple[tuple[int, float], ...] = ()
    owner: Any = None  # OpDef or RuleDef
    against: Against | None = None


def compile_pattern(
    name: str, outputs: tuple[Term, ...], operands: tuple[OperandInfo, ...], attributes: tuple[Any, ...],
    guards: tuple[Any, ...], pins: tuple[tuple[str, Any], ...], named: tuple[Term, ...],
    emit: Callable[[Any, State], bool], machine: dict[str, Any], raw: bool = False, further: bool = False,
    first: int = 0, swaps: Swaps | None = None, binds: tuple[tuple[str, Term], ...] = (),
) -> Pattern:  # fmt: skip
    """Compile. `emit(pattern, state)` gets each solution and says whether to stop. `raw`: without a normal form.
    `further`: outputs that name what the first does not are looked for. `first`: the output that is matched first.

    Raises MissingOp where a torch op that the text names is not in this build, SchemaMismatch where its arguments are
    others.
    """
    normal, slots = Normal(), Slots()
    for o in operands:
        slots(o.name)
    for a in attributes:
        slots(a.name)
    for slot in type_names(operands):
        slots(slot)
    normals = outputs if raw else tuple(normal(t) for t in outputs)
    strings = frozenset(o.name for o in operands if o.kind == "str")
    compiler = Compiler(
        slots, lambda s: SiteEnv(lookup(slots, s), machine), torch_op, raw, strings, (normals, guards, binds), swaps
    )
    cell: list[Pattern] = []

    def found(s: State) -> bool:
        return emit(cell[0], s)

    then: Next = found
    if further:
        ordered = (normals[first], *normals[:first], *normals[first + 1 :])
        then = find_further(ordered, slots, compiler.term, lambda t, s: s.sweep.construct(cell[0], t, s), then)
    anchor = compiler.term(normals[first], then)
    root: Any = normals[first]
    root = root.body if isinstance(root, Each) else root
    pattern = Pattern(
        name, slots, anchor, outputs, normal, operands, attributes, guards,
        tuple((n, to_graph(v)) for n, v in pins),
        named, machine, first, keys=frozenset(keys(root)), dtypes=result_dtypes(root, attributes),
        numbers=numbers(root), binds=binds,
    )  # fmt: skip
    if isinstance(normals[0], Each):
        pattern.members = Members.make(
            normals[0], slots, compiler.term, lambda t, s: s.sweep.construct(pattern, t, s), operands
        )
    cell.append(pattern)
    return pattern


def type_names(operands: tuple[OperandInfo, ...]) -> list[str]:
    """The slots that the types of operands bind: dims, leading axes, classes, dtypes."""
    out: list[str] = []
    for o in operands:
        if isinstance(o.type.dtype, DtypeVar):
            out.append("dtype:" + o.type.dtype.key)
        elif isinstance(o.type.dtype, Ref):
            out.append(o.type.dtype.name)
        for d in o.type.shape or ():
            out += ["star:" + d.name] if isinstance(d, Star) else ["dim:" + n for n in sorted(dims.names(d))]
    return out


def keys(t: Any) -> set[tuple[str, str | None]]:
    """(root, child) pairs, one of which a value must have to match: the op at its root, casts peeled off, and one among
    its operands (None: any). `@name` is a declared op; below that, the child is what the first operand is a result of.
    """
    if isinstance(t, Prim):
        if t.op == "to":
            return keys(t.args[0])
        children = [roots(a) for a in t.args]
        telling = min((c for c in children if c), key=len, default=None)
        return {(t.op, c) for c in telling} if telling else {(t.op, None)}
    if isinstance(t, Result):
        return {("@" + t.call.op, producer(t))}
    if isinstance(t, Extern):
        return {(_extern_root(t), None)}
    if isinstance(t, Choose):
        return set().union(*(keys(v) for _, v in t.cases))
    if isinstance(t, Either):
        return set().union(*map(keys, t.choices))
    return set()


def roots(t: Any) -> set[str]:
    """The ops that a value may have at its root, casts peeled off; empty where it may be anything."""
    if isinstance(t, Prim) and t.op == "reshape":
        return {"reshape"} if _changes_rank(t) else set()  # else it may be no node at all
    if isinstance(t, Choose | Either):
        parts = [roots(v) for _, v in t.cases] if isinstance(t, Choose) else list(map(roots, t.choices))
        return set().union(*parts) if all(parts) else set()
    if isinstance(t, Prim) and t.op == "to":
        return roots(t.args[0])
    return {root for root, _ in keys(t)} if isinstance(t, Prim | Result | Extern) else set()


def _changes_rank(t: Prim) -> bool:
    """Has a reshape another number of axes than its operand, whatever the sizes are?"""
    shapes = (t.type.shape, getattr(t.args[0], "type", UNKNOWN).shape)
    counts = {len(s) for s in shapes if s is not None and not any(isinstance(d, Star) for d in s)}
    return None not in shapes and len(counts) == 2


def _extern_root(t: Extern) -> str:
    op = torch_op(t.call.op)
    several = not op._schema.is_mutable and len(op._schema.returns) > 1
    return "getitem" if several else extern_name(t, op)


def producer(t: Any) -> str | None:
    """The declared op that the first operand of a root op must be a result of."""
    if not isinstance(t, Result) or not t.call.args:
        return None
    first = t.call.args[0]
    return first.call.op if isinstance(first, Result) else None


def numbers(t: Any) -> tuple[tuple[int, float], ...]:
    """The numbers that the op below the root must have as attributes: (position in its arguments, number)."""
    first = t.call.args[0] if isinstance(t, Result) and t.call.args else None
    if not isinstance(first, Result):
        return ()
    literals = ((len(first.call.args) + j, s.value) for j, (_, s) in enumerate(first.call.attrs) if isinstance(s, Lit))
    return tuple((j, x) for j, x in literals if type(x) in (int, float) and abs(x) < 1e300)


class Numbered:
    """Patterns by the numbers that they must find: of any count of them that differ in a literal, few are tried."""

    def __init__(self) -> None:
        self.tables: dict[tuple[int, ...], dict[tuple[str | None, ...], list[Pattern]]] = {}

    def add(self, pattern: Pattern) -> None:
        """A number is found under its digits and those of its neighbours, which count as equal (`guards.same`)."""
        table = self.tables.setdefault(tuple(j for j, _ in pattern.numbers), {})
        for key in product(*({digits(x * (1 - 1e-6)), digits(x * (1 + 1e-6))} for _, x in pattern.numbers)):
            table.setdefault(key, []).append(pattern)

    def under(self, arguments: Iterable[tuple[Any, ...]]) -> list[Pattern]:
        """The patterns that may hold above a view with one of these arguments."""
        found: dict[Pattern, None] = {}
        for args in arguments:
            for positions, table in self.tables.items():
                found.update(dict.fromkeys(table.get(tuple(digits(args[j]) for j in positions), ())))
        return list(found)


def digits(x: Any) -> str | None:
    """The first digits of a number; None for what is none."""
    x = x.expr if type(x) is Symbol else x
    return f"{x:.4e}" if isinstance(x, int | float) and not isinstance(x, bool) else None


def result_dtypes(t: Any, attributes: tuple[Any, ...]) -> frozenset[Any] | None:
    """The dtypes that the anchor may have, where the type, or the domain of the attribute that it is, says."""
    dtype = t.type.dtype if not isinstance(t, Number) else None
    if isinstance(dtype, Ref):
        domain = next((a.domain for a in attributes if a.name == dtype.name), None)
        return None if domain is None else frozenset(DTYPES[d.name] for d in domain)
    return allowed_dtypes(dtype)


def exclusive_terms(rule: RuleDef) -> tuple[Term, ...]:
    """What a rule names: every value between its ops, but outputs and what is bound with `keep`."""
    kept = {t for n, t in rule.named if n in rule.kept}
    outputs = set(rule.left)
    found: list[Term] = []

    def walk(t: Any, top: bool) -> None:
        if isinstance(t, tuple):
            for x in t:
                walk(x, False)
        elif isinstance(t, Each):
            walk(t.body, top)
        elif isinstance(t, Result):
            if not top and t not in found and t not in kept and t not in outputs:
                found.append(t)
            for a in t.call.args:
                walk(a, False)
        elif isinstance(t, Prim):
            if (
                not top
                and t.op not in ("to", "reshape", "slice")
                and t not in found
                and t not in kept
                and t not in outputs
            ):
                found.append(t)
            for a in t.args:
                walk(a, False)
        elif isinstance(t, Choose):
            for _, v in t.cases:
                walk(v, top)
        elif isinstance(t, Apply):
            for a in t.args:
                walk(a, False)

    for t in rule.left:
        walk(t, True)
    return tuple(found)


def others_to_begin_at(rule: RuleDef) -> list[int]:
    """The outputs that name all that a rule binds: one of them is matched first where what stands before it is dead.

    Only primitives may be dead: where a declared op is not found, it is not there.
    """
    wanted = names(rule.left) - {a.name for a in rule.attributes if a.default is not NO_DEFAULT}
    found: list[int] = []
    for i, t in enumerate(rule.left):
        if i and isinstance(t, Prim | Result) and wanted <= names(t):
            found.append(i)
        if not isinstance(t, Prim):
            break
    return found


@define
class Off:
    """A form or a rule that does not take part, and why. `span` is its place in the text."""

    name: str
    reason: str
    detail: str
    span: Any


def needed(program: Program, rules: Iterable[RuleDef]) -> set[str]:
    """The ops that rules match, and those that the forms of these are made of: no other op needs to be recognised."""
    found: set[str] = set()
    todo = [c.op for r in rules for c in calls_of(r.left)]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            op = program.ops[name]
            todo += [c.op for case in (*op.equations, *op.forms) for c in calls_of(case.outputs)]
    return found


class Library:
    """The forms and rules of a program, indexed by the op at the root of the anchor and what its first operand is.

    The forms are those of the ops that the rules need; of every op where there are no rules.
    """

    def __init__(
        self, program: Program, rules: tuple[RuleDef, ...], emit_view: Any, emit_match: Any, machine: dict[str, Any],
        declared: Callable[[Any], Declared | None] = lambda target: None, groups: Groups | None = None,
        replicated: Sequence[str] = (), proof_of: Callable[[OpDef, Case], Against | None] = lambda op, case: None,
    ):  # fmt: skip
        self.program, self.proof_of = program, proof_of
        self.swaps = {op.name: _positions(op) for op in program.ops.values() if op.swaps}
        self.groups, self.replicated = groups or Groups(), replicated
        self.effects = declarations(program, _torch_op_if_any)
        self.kinds = Kinds(self.effects, declared)  # `declared`: what a torch op is in the language
        self.index: dict[tuple[str, str | None], list[Pattern]] = defaultdict(list)
        self.rules: dict[tuple[str, str | None], list[Pattern]] = defaultdict(list)
        self.numbered: dict[tuple[str, str | None], Numbered] = defaultdict(Numbered)  # rules that name a number
        self.patterns: dict[str, Pattern] = {}  # of rules, by full name
        self.off: list[Off] = []
        wanted = needed(program, rules) if rules else program.ops.keys()
        for op in program.ops.values():
            if not op.is_fusion and op.name in wanted:
                self._add_op(op, emit_view, machine)
        for rule in rules:
            try:
                self._add_rule(rule, emit_match, machine)
            except RecursionError:
                self.off.append(Off(rule.full_name, "not applied", "its definition nests too deep", rule.span))
        self.ops_of = {id(index): frozenset(root for root, _ in index) for index in (self.index, self.rules)}

    @cached_property
    def filled(self) -> frozenset[tuple[Any, str]]:
        """The arguments of torch ops that a call fills, by forms."""
        return filled(self.program, _torch_op_if_any)

    def _add_op(self, op: OpDef, emit: Any, machine: dict[str, Any]) -> None:
        seen: set[Any] = set()
        for case in (*op.equations, *op.forms):
            guards = (*case.guards, *op.requires)
            absent = registered.missing(guards)
            if absent is not None:
                self.off.append(Off(f"{op.name}.{case.name}", "missing native", absent, case.span))
                continue
            pattern = self._compiled(
                op, f"{op.name}.{case.name}", case.span, case.outputs, op.operands, op.attributes, guards, case.pins,
                (), emit, machine, binds=case.binds,
            )  # fmt: skip
            if pattern is None:
                continue
            spelled = (tuple(map(pattern.normal, case.outputs)), frozenset(case.pins), case.guards, case.binds)
            if spelled in seen:
                continue  # spelled as another form is, once both are in the normal form
            seen.add(spelled)
            pattern.against = None if any(case is e for e in op.equations) else self.proof_of(op, case)
            for key in pattern.keys:
                self.index[key].append(pattern)

    def _add_rule(self, rule: RuleDef, emit: Any, machine: dict[str, Any]) -> None:
        for first in (0, *others_to_begin_at(rule)):
            pattern = self._compiled(
                rule, rule.full_name, rule.span, rule.left, rule.operands, rule.attributes, rule.guards, (),
                exclusive_terms(rule), emit, machine, False, len(rule.left) > 1, first,
            )  # fmt: skip
            if pattern is None:
                return
            self.patterns.setdefault(rule.full_name, pattern)
            self._index(pattern)

    def _index(self, pattern: Pattern) -> None:
        for key in pattern.keys:
            if pattern.numbers:
                self.numbered[key].add(pattern)
                self.rules.setdefault(key, [])
            else:
                self.rules[key].append(pattern)

    def _compiled(self, owner: OpDef | RuleDef, name: str, span: Any, *parts: Any, **more: Any) -> Pattern | None:
        """A pattern, or None where this build does not have what it names."""
        try:
            pattern = compile_pattern(name, *parts, swaps=self.swaps, **more)
        except MissingOp as error:
            self.off.append(Off(name, "missing op", f"{error} is not in this build", span))
            return None
        except SchemaMismatch as error:
            self.off.append(Off(name, "schema", str(error), span))
            return None
        pattern.owner = owner
        return pattern


__all__ = ["Library", "MissingOp", "Off", "Pattern", "torch_op"]
