"""The interpreter of definitions: walks a checked op for given operands; primitives mean what the algebra says.

evaluate(program, "rms_norm_fp8", [x, w], {"eps": 1e-6}, algebra)   # a value for each result
bindings = bind(program, op, operands, attributes, algebra)         # the same in two steps:
evaluate_case(case, bindings)                                       # an equation, or a form or provider `= e`
evaluate_terms(terms, bindings)                                     # any terms of the item
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from attrs import define, field, frozen

from fxrewrite.dsl import core, dims, scalars
from fxrewrite.dsl.binding import EvaluationError, bind_operands, fill_attributes, is_element
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.check.terms import children
from fxrewrite.dsl.core import Apply, Case, Dtype, OpDef, Prim, Program, TensorType
from fxrewrite.dsl.deep import deep_terms
from fxrewrite.dsl.dims import Dim
from fxrewrite.dsl.scalars import UNKNOWN, Env, holds, scalar, sizes, value
from fxrewrite.dsl.wording import said, text, with_values

__all__ = [
    "UNKNOWN", "Algebra", "Bindings", "Buffer", "Env", "EvaluationError", "Overwritten", "bind", "choose",
    "evaluate", "evaluate_bound", "evaluate_case", "evaluate_terms", "fill_attributes", "holds", "scalar", "value",
]  # fmt: skip


@frozen
class Buffer:
    """An argument of a torch call that it fills: dtype, sizes, layout. `slot` is its position or name in the call."""

    dtype: Dtype | None
    shape: tuple[Any, ...] | None
    layout: str
    slot: Any


@frozen
class Overwritten:
    """An argument of a torch call that it overwrites."""

    value: Any
    slot: Any


class Algebra(Protocol):
    """What primitives mean. A value is whatever the algebra makes; numbers are Python's, or as attributes gave them."""

    def primitive(self, op: str, args: Sequence[Any], params: Sequence[Any], term: Prim) -> Any:
        """The value of a primitive of `core.PRIMITIVES`.

        `args` are values, or numbers where the text has a number (None for a missing bound of `clamp`); `params` in the
        order of the table, dtypes as `Dtype`, lists as tuples.
        """
        ...

    def dtype(self, value: Any) -> str | None:
        """The short name of the dtype of a value, None where it is unknown."""
        ...

    def shape(self, value: Any) -> Sequence[Any] | None:
        """The sizes of a value, None where they are unknown."""
        ...

    def number(self, value: Any) -> Any:
        """A number where a tensor operand may stand, as `primitive` wants it."""
        return value

    def torch_call(
        self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[Any, Any]]:
        """A torch op by its dotted name: what it returns, by position, and what it leaves in each written argument, by
        slot. Such arguments are `Buffer` and `Overwritten`."""
        raise EvaluationError(f"the torch op {op} has no meaning here")

    def reference(self, op: OpDef, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
        """The results of an op that has only `ref`."""
        raise EvaluationError(f'{op.name} has no equation here, and no package registers its ref "{op.ref}"')

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """A fact about values, or a native; UNKNOWN where it cannot be told."""
        return UNKNOWN

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """`left op right` of two numbers: True, False or UNKNOWN."""
        return scalars.compare(op, left, right)


@define
class Bindings(Env):
    """Everything that the names of one op stand for, and the values of its terms so far."""

    program: Program = field(kw_only=True)
    op: OpDef = field(kw_only=True)
    algebra: Algebra = field(kw_only=True)
    done: dict[int, Any] = field(factory=dict[int, Any], kw_only=True)  # by identity: equal terms are one object

    def at(self, sizes: Mapping[str, Any]) -> Bindings:
        """The same with other sizes; what terms are may depend on them."""
        inner = cast("Bindings", super().at(sizes))
        inner.done = {}
        return inner

    def term(self, term: Any) -> Any:
        """The value of a term, computed once."""
        found = self.done.get(id(term), UNKNOWN)
        if found is UNKNOWN:
            found = self.done[id(term)] = _TERMS[type(term)](term, self)
        return found

    def dtype_of(self, value: Any) -> Any:
        """The `Dtype` of a value, as the algebra knows it."""
        found = self.algebra.dtype(value)
        return UNKNOWN if found is None else Dtype(found)

    def shape_of(self, value: Any) -> Any:
        """The sizes of a value, as the algebra knows them."""
        found = self.algebra.shape(value)
        return UNKNOWN if found is None else tuple(found)

    def predicate(self, name: str, args: tuple[Any, ...]) -> Any:
        """A fact that the algebra knows."""
        return self.algebra.predicate(name, args)

    def decide(self, op: str, left: Any, right: Any) -> Any:
        """A comparison that the algebra decides; of lists, element by element."""
        if isinstance(left, tuple) and isinstance(right, tuple) and op == "==":
            return scalars.equal_tuples(cast("tuple[Any, ...]", left), cast("tuple[Any, ...]", right), self.decide)
        found = scalars.compare(op, left, right)
        return self.algebra.decide(op, left, right) if found is UNKNOWN else found


# ---- entry points


def evaluate(
    program: Program,
    op: str | OpDef,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    algebra: Algebra,
    facts: Mapping[str, Any] | None = None,
) -> tuple[Any, ...]:
    """One value for each result of `op` (a list for a list result).

    `operands`: values of the algebra in order, None for `none`, a list for a list operand; those that have a default
    may be left out at the end. `attributes`: by name, defaults filled in. Raises EvaluationError with a reason that a
    user can read: wrong operands or attributes, a width that does not divide, `requires` not met, no equation.
    """
    return evaluate_bound(bind(program, op, operands, attributes, algebra, facts))


def evaluate_bound(bindings: Bindings) -> tuple[Any, ...]:
    """One value for each result of the op that is bound: its first equation that holds, else its `ref`."""
    op = bindings.op
    case = choose(bindings) if op.ref is None else _holding(bindings)
    if case is not None:
        return evaluate_terms(case.outputs, bindings)
    values = [bindings.operands[o.name] for o in op.operands]
    return tuple(bindings.algebra.reference(op, values, bindings.attributes))


def bind(
    program: Program,
    op: str | OpDef,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    algebra: Algebra,
    facts: Mapping[str, Any] | None = None,
) -> Bindings:
    """Names of the op bound and checked: operands, attributes, dims, leading axes, dtypes, `requires`."""
    definition = _lookup(program, op) if isinstance(op, str) else op
    bindings = Bindings(program=program, op=definition, algebra=algebra, facts=facts or {})
    bindings.attributes = fill_attributes(definition, attributes)
    bind_operands(definition, operands, bindings)
    for condition in definition.requires:
        if holds((condition,), bindings) is False:
            raise EvaluationError(f"{definition.name} requires {with_values(condition, bindings)}")
    return bindings


def choose(bindings: Bindings) -> Case:
    """The first equation that holds. Raises EvaluationError where none does, or where that cannot be told."""
    found = _holding(bindings)
    if found is not None:
        return found
    pinned = sorted({name for case in bindings.op.equations for name, _ in case.pins if name in bindings.attributes})
    given = ", ".join(f"{n} = {text(bindings.attributes[n])}" for n in pinned)
    raise EvaluationError(f"{bindings.op.name} has no equation that holds" + (f" for {given}" if given else " here"))


def _holding(bindings: Bindings) -> Case | None:
    """The first equation that holds, if one does. Raises EvaluationError where that cannot be told."""
    for case in bindings.op.equations:
        found = case_holds(case, bindings)
        if found is None:
            raise EvaluationError(f"{bindings.op.name}: whether its equation `{case.name}` holds cannot be told here")
        if found:
            return case
    return None


def case_holds(case: Case, bindings: Env) -> bool | None:
    """Do the pins and guards of an equation, form or provider hold? None where that is unknown."""
    pins = [_pin_holds(name, pinned, bindings) for name, pinned in case.pins]
    if any(p is False for p in pins):
        return False
    guards = holds(case.guards, bindings)
    return guards if guards is False or all(p is True for p in pins) else None


def evaluate_case(case: Case, bindings: Bindings) -> tuple[Any, ...]:
    """One value for each result, as the case spells them. EvaluationError where its pins or guards do not hold."""
    if not case_holds(case, bindings):
        raise EvaluationError(f"`{case.name}` of {bindings.op.name} does not stand for these operands and attributes")
    return evaluate_terms(case.outputs, bindings)


def evaluate_terms(terms: Iterable[core.Term], bindings: Bindings) -> tuple[Any, ...]:
    """The values of terms."""
    with deep_terms():
        return tuple([bindings.term(t) for t in terms])


def _lookup(program: Program, name: str) -> OpDef:
    found = program.ops.get(name)
    if found is None:
        raise EvaluationError(f"no op is called `{name}`; {closest(name, program.ops)}".rstrip("; "))
    return found


def _pin_holds(name: str, pinned: Any, bindings: Env) -> Any:
    if name in bindings.attributes:
        found = bindings.attributes[name]
    elif name in bindings.operands:
        return bindings.operands[name] is None
    else:
        found = bindings.dim(name)
    if found is UNKNOWN:
        return UNKNOWN
    return found is pinned if found is None or pinned is None else bindings.decide("==", found, pinned)


# ---- terms


def _operand(term: core.Operand, bindings: Bindings) -> Any:
    if term.name not in bindings.operands:
        raise EvaluationError(f"`{term.name}` of {bindings.op.name} is not bound")
    found = bindings.operands[term.name]
    return _element(term.type, found, bindings) if found is not None and is_element(term.type) else found


def _element(type_: TensorType, found: Any, bindings: Bindings) -> Any:
    """A value of one element in the rank that its type declares."""
    if isinstance(found, list | tuple):
        return [_element(type_, f, bindings) for f in cast("Sequence[Any]", found)]
    shape, want = bindings.algebra.shape(found), sizes(type_.shape or (), bindings)
    if shape is None or len(shape) == len(want):
        return found
    term = Prim("reshape", (), (Apply("shape_list", type_.shape or ()),), type=type_)
    return bindings.algebra.primitive("reshape", [found], [want], term)


def _number(term: core.Number, bindings: Bindings) -> Any:
    return bindings.algebra.number(_known(term.value, bindings))


def _known(x: Any, bindings: Bindings) -> Any:
    found = value(x, bindings)
    if found is UNKNOWN:
        raise EvaluationError(f"{bindings.op.name}: {said(x)} is not known here")
    return found


def _prim(term: Prim, bindings: Bindings) -> Any:
    args = [bindings.term(a) for a in term.args]
    params = [_known(p, bindings) for p in term.params]
    return bindings.algebra.primitive(term.op, args, params, term)


def _result(term: core.Result, bindings: Bindings) -> Any:
    call = term.call
    results = bindings.done.get(id(call), UNKNOWN)
    if results is UNKNOWN:
        args = [_argument(a, bindings) for a in call.args]
        attributes = {name: _known(a, bindings) for name, a in call.attrs if not isinstance(a, core.Wild)}
        results = evaluate(bindings.program, call.op, args, attributes, bindings.algebra, bindings.facts)
        bindings.done[id(call)] = results
    return results[term.index]


def _argument(argument: Any, bindings: Bindings) -> Any:
    """An argument of a call: a term, a list of them, a string."""
    if isinstance(argument, tuple):
        return [bindings.term(a) for a in cast("tuple[Any, ...]", argument)]
    return value(argument, bindings)


def _choose(term: core.Choose, bindings: Bindings) -> Any:
    for conditions, case in term.cases:
        found = holds(conditions, bindings)
        if found is None:
            unsure = next(c for c in conditions if value(c, bindings) is UNKNOWN)
            raise EvaluationError(f"{bindings.op.name}: whether {said(unsure)} cannot be told here")
        if found:
            return bindings.term(case)
    tried = " nor ".join(said(c) for conditions, _ in term.cases for c in conditions)
    raise EvaluationError(f"{bindings.op.name}: neither {tried} holds")


def _either(term: core.Either, bindings: Bindings) -> Any:
    return bindings.term(term.choices[0])


def _each(term: core.Each, bindings: Bindings) -> list[Any]:
    """The body for each element of its lists; what does not depend on them is computed once."""
    lists = {name: list(bindings.operands[name]) for name in term.lists}
    lengths = {len(items) for items in lists.values()}
    if len(lengths) != 1:
        raise EvaluationError(f"{bindings.op.name}: the lists {', '.join(lists)} must be equally long")
    inner: dict[int, Any] = {}
    _depends(term.body, bindings.elements.union(term.lists), inner)
    out: list[Any] = []
    for i in range(lengths.pop()):
        sizes = {n: bindings.stars[n][i] for n in bindings.elements}
        one = Bindings(
            {**bindings.operands, **{n: items[i] for n, items in lists.items()}}, bindings.attributes,
            {**bindings.dims, **sizes}, bindings.stars, bindings.dtypes, bindings.facts, program=bindings.program,
            op=bindings.op, algebra=bindings.algebra, done=bindings.done,
        )  # fmt: skip
        out.append(one.term(term.body))
        for key, depends in inner.items():
            if depends:
                bindings.done.pop(key, None)
    return out


def _depends(x: Any, lists: frozenset[str], found: dict[int, Any]) -> bool:
    """Does `x` read an element of one of the lists? The answer for every part of it goes into `found`, by identity."""
    if isinstance(x, core.Operand):
        return found.setdefault(id(x), x.name in lists)
    if isinstance(x, Dim):
        return found.setdefault(id(x), not lists.isdisjoint(dims.names(x)))
    if isinstance(x, tuple):
        return _any_depends(cast("tuple[Any, ...]", x), lists, found)
    if id(x) not in found:
        found[id(x)] = _any_depends(children(x), lists, found)
    return found[id(x)]


def _any_depends(parts: Iterable[Any], lists: frozenset[str], found: dict[int, Any]) -> bool:
    answers = [_depends(p, lists, found) for p in parts]  # all of them: each leaves its answer in `found`
    return any(answers)


def _extern(term: core.Extern, bindings: Bindings) -> Any:
    call = term.call
    found = bindings.done.get(id(call), UNKNOWN)
    if found is UNKNOWN:
        args = [_torch_argument(a, bindings) for a in call.args]
        kwargs = {name: _torch_argument(a, bindings) for name, a in call.kwargs}
        found = bindings.done[id(call)] = bindings.algebra.torch_call(call.op, args, kwargs)
    returned, written = found
    return returned[term.returned] if term.returned is not None else written[term.written]


def _torch_argument(argument: Any, bindings: Bindings) -> Any:
    if isinstance(argument, core.Fresh):
        type_ = argument.type
        dtype = None if type_.dtype is None else _known(type_.dtype, bindings)
        shape = None if type_.shape is None else sizes(type_.shape, bindings)
        layout = type_.layout if isinstance(type_.layout, str) else _known(type_.layout, bindings)
        return Buffer(dtype, shape, layout, argument.slot)
    if isinstance(argument, core.Taken):
        return Overwritten(bindings.term(argument.value), argument.slot)
    if isinstance(argument, core.OneOf):
        return _torch_argument(argument.choices[0], bindings)
    if isinstance(argument, tuple):
        return tuple(_torch_argument(a, bindings) for a in cast("tuple[Any, ...]", argument))
    return _known(argument, bindings)


_TERMS: dict[type, Callable[[Any, Bindings], Any]] = {
    core.Operand: _operand,
    core.Number: _number,
    Prim: _prim,
    core.Extern: _extern,
    core.Result: _result,
    core.Choose: _choose,
    core.Either: _either,
    core.Each: _each,
    core.Nothing: lambda term, bindings: None,
}
