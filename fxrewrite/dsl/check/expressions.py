"""Expressions to core: operators, facts, lists. Names are in `names`, calls in `calls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import accessors, arguments, build, calls, conditions, kinds, names, typing
from fxrewrite.dsl.check.connected import anchored
from fxrewrite.dsl.check.places import Places
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Item, Listed, Many, Scope, Value
from fxrewrite.dsl.check.terms import TERMS, names_of, operands_of
from fxrewrite.dsl.check.values import arithmetic, is_condition, is_truth, listed, said, single, stage_span
from fxrewrite.dsl.core import (
    UNKNOWN,
    Apply,
    Dtype,
    DtypeVar,
    Each,
    Either,
    Extern,
    Lit,
    Nothing,
    Number,
    OneOf,
    Operand,
    Ref,
    Result,
    Scalar,
    Size,
    Term,
    Wild,
)
from fxrewrite.dsl.dims import Star

if TYPE_CHECKING:
    from fxrewrite.dsl.check.checker import Checker

OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_OF_TENSORS = {"//": "write `floor(a / b)`", "%": "write `a - floor(a / b) * b`"}
SCALARS = (Dtype, DtypeVar, Lit, Ref, Size, Apply)
_ARGUMENTS = (*TERMS, Number, Nothing)  # what stands where one tensor does


@define(eq=False, repr=False)
class Elaborator:
    """Turns the expressions of one item into terms and scalars."""

    checker: Checker
    item: Item

    @property
    def places(self) -> Places:
        """Where words stand in the text."""
        return self.checker.places

    # ---- entry points

    def value(self, e: Any, scope: Scope) -> Value:
        """What an expression is: a term, a scalar, several results, or a list."""
        return _EXPRESSIONS[type(e)](self, e, scope)

    def one(self, e: Any, scope: Scope) -> Value:
        """The same; a tuple of one is that."""
        return single(self.value(e, scope))

    def term(self, e: Any, scope: Scope) -> Term:
        """One tensor."""
        return self.as_term(self.value(e, scope), e)

    def as_term(self, value: Value, e: Any) -> Term:
        """A value as one tensor; `e` is the text that it comes from."""
        if isinstance(value, Many):
            if len(value.values) == 1:
                return self.as_term(value.values[0], e)
            raise self.several(value, e)
        if isinstance(value, Operand):
            self.item.tensors.setdefault(value.name, e.span)
            return value
        if isinstance(value, Extern) and value.returned is None and value.written is None:
            raise Problem("RW220", f"{said(e)} is a list of tensors; one is needed here", e.span)
        if isinstance(value, _ARGUMENTS):
            return value
        if isinstance(value, Listed | Star):
            raise Problem(
                "RW220", f"{said(e)} is a list; one tensor is needed here", e.span, "take it apart: `split`, `each`"
            )
        if isinstance(value, OneOf):
            raise Problem("RW219", "the alternatives are not all tensors", e.span)
        return Nothing() if value == Lit(None) else Number(value)

    def several(self, value: Many, e: Any) -> Problem:
        """RW203: several results stand where one value is needed."""
        infos = [self.result_name(v) for v in value.values]
        shown = f" ({', '.join(n for n in infos if n)})" if all(infos) else ""
        hint = f"name them under `where`: `({', '.join(n or 'y' for n in infos)}) = ...`, or pick one: `.0`"
        return Problem("RW203", f"{said(e)} has {len(value.values)} results{shown}", stage_span(e), hint)

    def scalar(self, e: Any, scope: Scope) -> Scalar:
        """One scalar."""
        return self.as_scalar(self.one(e, scope), e, scope)

    def as_scalar(self, value: Value, e: Any, scope: Scope) -> Scalar:
        """A value as a scalar. A name that the left side of a rule binds becomes a number by that."""
        value = single(value)
        if isinstance(value, Number):
            return value.value
        if isinstance(value, Listed):
            return listed(Listed(tuple(self.as_scalar(v, e, scope) for v in value.values)))
        if isinstance(value, Operand) and value.name in self.item.bound and value.name not in self.item.tensors:
            self.item.bound[value.name] = Ref(value.name)
            return Ref(value.name)
        if isinstance(value, Nothing):
            return Lit(None)
        if isinstance(value, Many):
            raise self.several(value, e)
        if isinstance(value, TERMS):
            declared = isinstance(value, Operand) and value.name in scope.names
            hint = f"declare it behind `;`: `; {said(e).strip('`')}: float`" if declared else "tensors are operands"
            raise Problem("RW310", f"{said(e)} is a tensor; a number is needed here", e.span, hint)
        return value

    def condition(self, e: Any, scope: Scope) -> Scalar:
        """A condition; tensors may stand in it (`w == none`, `contiguous(x)`)."""
        value = self.one(e, scope.child(binds=False, wild=False))
        return value.value if isinstance(value, Number) else value

    def conditions(self, es: tuple[Any, ...], scope: Scope) -> tuple[Scalar, ...]:
        """Conditions as conjuncts. RW310 for what is neither true nor false."""
        found: list[Scalar] = []
        for e in es:
            value = self.condition(e, scope)
            if not is_condition(value) or kinds.kind_of(self, value) not in (None, "bool"):
                hint = "a condition compares: `n == 4`, `x.dtype == bf16`, `w != none`"
                raise Problem("RW310", f"{kinds.shown(self, e)} is no condition", e.span, hint)
            found.append(value)
        return tuple(conditions.conjuncts(found))

    def outputs(self, es: tuple[Any, ...], scope: Scope) -> list[tuple[str | None, Term, Any]]:
        """The output list: name, term, text. A call with two results is two outputs."""
        out: list[tuple[str | None, Term, Any]] = []
        for e in es:
            if isinstance(e, syntax.Splat):
                value = names.lookup(self, e.name, e, scope.child(spread=True))
                if not isinstance(value, Each | Operand | Extern):
                    raise Problem(
                        "RW220", f"`{e.name}` is no list: there is nothing to spread", e.span, f"write `{e.name}`"
                    )
                if isinstance(value, Each) and scope.matched:
                    anchored(value, e)
                out.append((e.name, value, e))
                continue
            value = self.value(e, scope)
            name = e.name if isinstance(e, syntax.Var) else None
            for v in value.values if isinstance(value, Many) else (value,):
                made = v if isinstance(v, Extern) else self.as_term(v, e)
                if isinstance(made, Number | Nothing):
                    raise Problem("RW310", f"{kinds.shown(self, e)} is no tensor: an output is one", e.span,
                                  "give a tensor; a constant one is `zeros([T, D], f32)`")  # fmt: skip
                out.append((name or self.result_name(v), made, e))
        return out

    def result_name(self, value: Value) -> str | None:
        """The name that a call gives to a result."""
        if isinstance(value, Result):
            return self.checker.signature(value.call.op).results[value.index].name
        return self.result_name(value.body) if isinstance(value, Each) else None

    def present(self, term: Term, what: str, span: syntax.Span) -> None:
        """RW307 where an operand that may be `none` stands where it may not."""
        if isinstance(term, Operand) and term.optional:
            hint = f"write `when {term.name} != none`, or `requires {term.name} != none` in a rule"
            raise Problem("RW307", f"{what} may not be `none`, and `{term.name}` may", span, hint)
        if isinstance(term, Nothing):
            raise Problem("RW307", f"{what} may not be `none`", span, "give a tensor")
        if isinstance(term, Operand) and term.name in self.item.texts:
            hint = f"declare it with the type of a tensor: `{term.name}: real[*B, D]`"
            raise Problem("RW310", f"{what} is a tensor, and `{term.name}` is a str", span, hint)
        self.item.needs(term)

    def typed(self, term: Term, type_: Any) -> Term:
        """`term`; where nothing is known of the type of a torch op's result: it has this one."""
        if isinstance(term, Extern) and self.item.type_of(term) == UNKNOWN:
            self.item.known[term] = type_
        return term


# ---- literals and names


def _literal(elab: Elaborator, e: Any, scope: Scope) -> Value:
    return Lit(e.value)


def _none(elab: Elaborator, e: syntax.NoneLit, scope: Scope) -> Value:
    return Lit(None)


def _any(elab: Elaborator, e: syntax.Any, scope: Scope) -> Value:
    if not scope.wild:
        message = "`_` matches anything, and this text says what is computed"
        raise Problem("RW212", message, e.span, "write the value, or take it as a parameter")
    return Wild()


def _var(elab: Elaborator, e: syntax.Var, scope: Scope) -> Value:
    return names.lookup(elab, e.name, e, scope)


# ---- operators


def _binary(elab: Elaborator, e: syntax.Binary, scope: Scope) -> Value:
    if e.op in ("and", "or"):
        left, right = (elab.conditions((part,), scope) for part in (e.left, e.right))
        pair = conditions.all_of(left), conditions.all_of(right)
        return conditions.both(*pair) if e.op == "and" else conditions.either(*pair)
    left, right = elab.value(e.left, scope), elab.value(e.right, scope)
    left, right = single(left), single(right)
    if any(isinstance(v, (*TERMS, Many)) for v in (left, right)):
        return _tensors(elab, e, left, right, scope)
    a, b = (_operand_of_arithmetic(v, part) for v, part in ((left, e.left), (right, e.right)))
    kinds.must_not_divide_by_zero(e.op, b, e.right)
    return arithmetic(e.op, a, b)


def _tensors(elab: Elaborator, e: syntax.Binary, left: Value, right: Value, scope: Scope) -> Value:
    a, b = elab.as_term(left, e.left), elab.as_term(right, e.right)
    for term, part in ((a, e.left), (b, e.right)):
        elab.present(term, f"an operand of `{e.op}`", part.span)
        kinds.must_be_number(elab, term, part, scope)
    if e.op == "@":
        return typing.matmul(elab.item, a, b, e.span)
    if e.op not in OPERATORS:
        raise Problem("RW129", f"`{e.op}` is for numbers and sizes, not for tensors", e.span, _OF_TENSORS.get(e.op, ""))
    return typing.binary(elab.item, OPERATORS[e.op], a, b, e.span)


def _operand_of_arithmetic(value: Value, e: Any) -> Scalar:
    value = conditions.constant(value)
    plain = isinstance(value, Lit) and not conditions.number(value)
    if plain or not isinstance(value, SCALARS) or isinstance(value, Dtype | DtypeVar) or is_truth(value):
        raise Problem("RW310", f"{said(e)} is no number", e.span, "arithmetic takes numbers, sizes and tensors")
    return value


def _unary(elab: Elaborator, e: syntax.Unary, scope: Scope) -> Value:
    if e.op == "not":
        return conditions.negate(conditions.all_of(elab.conditions((e.operand,), scope)))
    value = elab.one(e.operand, scope)
    if isinstance(value, TERMS):
        elab.present(value, "an operand of `-`", e.operand.span)
        elab.as_term(value, e.operand)
        return build.build(elab.item, "neg", {"x": value}, e.span)
    value = _operand_of_arithmetic(value, e.operand)
    if isinstance(value, Lit):
        return Lit(-value.value)
    return Size(dims.scale(value.dim, -1)) if isinstance(value, Size) else Apply("neg", (value,))


def _compare(elab: Elaborator, e: syntax.Compare, scope: Scope) -> Value:
    result: Scalar = conditions.TRUE
    left, left_e = elab.condition(e.first, scope), e.first
    for op, right_e in e.rest:
        right = elab.condition(right_e, scope)
        if op in ("==", "!="):
            test = _equal(elab, left, right)
            test = conditions.negate(test) if op == "!=" else test
        else:
            test = conditions.compare(op, conditions.constant(left), conditions.constant(right))
        kinds.may_be_compared(elab, op, (left, right), (left_e, right_e))
        result = conditions.both(result, test)
        left, left_e = right, right_e
    return result


def _equal(elab: Elaborator, left: Value, right: Value) -> Scalar:
    left, right = (listed(v) if isinstance(v, Listed) else v for v in (left, right))
    for a, b in ((left, right), (right, left)):
        if conditions.is_none(b) and isinstance(a, Operand) and a.name in elab.item.types:
            return Apply("is_none", (a,))  # how it is used, which is not known yet, says whether it may be
        if conditions.is_none(b) and isinstance(a, Operand) and a.name in elab.item.bound:
            return Apply("is_none", (a,))
    return conditions.equal(left, right)


def _member(elab: Elaborator, e: syntax.Member, scope: Scope) -> Value:
    item = elab.condition(e.item, scope)
    if isinstance(e.choices, str):
        classes = elab.checker.classes(scope.file)
        if e.choices not in classes:
            place = elab.places.word(syntax_after(e), e.choices)
            raise Problem(
                "RW217", f"unknown dtype class `{e.choices}`", place, closest(e.choices, classes) or "`{a, b}` is a set"
            )
        choices: list[Any] = [Dtype(m) for m in classes[e.choices]]
    else:
        choices = [elab.condition(c, scope) for c in e.choices]
        for choice, text in zip(choices, e.choices):
            kinds.may_be_compared(elab, "==", (item, choice), (e.item, text))
    result: Scalar = conditions.FALSE
    for choice in choices:
        result = conditions.either(result, _equal(elab, item, choice))
    return result


def syntax_after(e: syntax.Member) -> syntax.Span:
    """What stands behind the item of `item in NAME`."""
    return syntax.Span(e.span.file, e.item.span.end_line, e.item.span.end_column, e.span.end_line, e.span.end_column)


# ---- lists and alternatives


def _alternatives(elab: Elaborator, e: syntax.Alternatives, scope: Scope) -> Value:
    if not scope.wild:
        raise Problem(
            "RW219", "alternatives stand on matched sides of rules and in forms only", e.span, "write one of them"
        )
    values = [elab.one(c, scope) for c in e.choices]
    if not all(isinstance(v, TERMS) for v in values):
        return OneOf(tuple(listed(v) if isinstance(v, Listed) else v for v in values))
    terms = [elab.as_term(v, c) for v, c in zip(values, e.choices)]
    _same_names(e, terms)
    first = elab.item.type_of(terms[0])
    for term, choice in zip(terms[1:], e.choices[1:]):
        try:
            elab.item.solver.unify(first, elab.item.type_of(term), choice.span, "an alternative")
        except Problem as problem:
            raise Problem("RW219", problem.diagnostic.message, choice.span, "alternatives have one type") from problem
    return elab.item.intern(Either(tuple(terms), first))


def _same_names(e: syntax.Alternatives, terms: list[Term]) -> None:
    """RW219 where one alternative binds or captures what another does not."""
    found = [{o.name for o in operands_of(t)} | names_of(t) for t in terms]
    for other, names_there in zip(e.choices[1:], found[1:]):
        for missing, has, lacks in (
            (found[0] - names_there, e.choices[0], other),
            (names_there - found[0], other, e.choices[0]),
        ):
            if missing:
                name = min(missing)
                message = f"the alternatives differ: only {said(has)} binds or captures `{name}`"
                raise Problem("RW219", message, lacks.span, f"pin it (`{name}=...`), or write two rules")


def _tuple(elab: Elaborator, e: syntax.Tuple, scope: Scope) -> Value:
    return Many(tuple(elab.one(i, scope) for i in e.items))


def _list(elab: Elaborator, e: syntax.List, scope: Scope) -> Value:
    """A list; `_` in it is the size that fits, on built sides too."""
    return Listed(
        tuple(arguments.spread(elab, e.items, scope.child(wild=True) if syntax.Any in map(type, e.items) else scope))
    )


def _pipe(elab: Elaborator, e: syntax.Pipe, scope: Scope) -> Value:
    value = elab.value(e.left, scope)
    if isinstance(value, Many) and len(value.values) != 1:
        raise elab.several(value, e.left)
    stage = e.stage
    call = syntax.Call(e.span, stage.func, (e.left, *stage.args), stage.kwargs, stage.rest, stage.func_span)
    return calls.call(elab, call, scope, single(value))


def _call(elab: Elaborator, e: syntax.Call, scope: Scope) -> Value:
    return calls.call(elab, e, scope, None)


def _stray(elab: Elaborator, e: Any, scope: Scope) -> Value:
    raise Problem("RW129", "this stands only in an index", e.span, "`x[..., a:b]`")


_EXPRESSIONS: dict[type, Any] = {
    syntax.Number: _literal,
    syntax.String: _literal,
    syntax.Bool: _literal,
    syntax.NoneLit: _none,
    syntax.Any: _any,
    syntax.Var: _var,
    syntax.Binary: _binary,
    syntax.Unary: _unary,
    syntax.Compare: _compare,
    syntax.Member: _member,
    syntax.Attr: accessors.attribute,
    syntax.Proj: accessors.projection,
    syntax.Index: accessors.index,
    syntax.Alternatives: _alternatives,
    syntax.Tuple: _tuple,
    syntax.List: _list,
    syntax.Pipe: _pipe,
    syntax.Call: _call,
    syntax.Slice: _stray,
    syntax.Rest: _stray,
}
