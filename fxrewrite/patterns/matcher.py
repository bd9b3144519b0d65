"""Terms compiled to matchers. A matcher is a chain of closures: each step tests one value, binds what it names, and
calls the next.

A step returns True to stop the search and False to go on with other choices; the last step records a solution. Choice
points (operand order, cases of a `def`, several views of a value, a cast that changes nothing) undo what was bound
since. Matching never edits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxrewrite.dsl.core import (
    Apply,
    Call,
    Choose,
    Dtype,
    Each,
    Either,
    Extern,
    Fresh,
    Lit,
    Nothing,
    Number,
    OneOf,
    Operand,
    Prim,
    Ref,
    Result,
    Taken,
    TorchCall,
    Wild,
)  # fmt: skip
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.dsl.wording import said
from fxrewrite.patterns.arguments import overload_name
from fxrewrite.patterns.constants import Constants
from fxrewrite.patterns.dtypes import DTYPES
from fxrewrite.patterns.guards import SiteEnv, same
from fxrewrite.patterns.sizes import allowed_dtypes, evaluate_shape, possible_rank, settle
from fxrewrite.patterns.state import POP, UNSET, Next, Slots, State, Step, bind, miss
from fxrewrite.patterns.symmetry import Swaps, interchangeable
from fxrewrite.patterns.values import COMMUTATIVE, ELEMENTWISE, FRESH, Value

WHOLE = frozenset({"reshape", "expand", "permute"})  # their attributes are one list


class Compiler:
    """Compiles terms of one pattern. `torch_op` finds an overload by its dotted name. `raw`: for values that are one
    node each, as clean-up reads them: a cast that is not there is not matched. `strings`: operands that are no tensors.
    `parts`: all terms and guards of the pattern, where names may have roles. `swaps`: operands of declared ops that may
    be exchanged.
    """

    def __init__(
        self, slots: Slots, env: Callable[[State], SiteEnv], torch_op: Callable[[str], Any], raw: bool = False,
        strings: frozenset[str] = frozenset(), parts: Any = (), swaps: Swaps | None = None,
    ):  # fmt: skip
        self.slots, self.env, self.torch_op, self.raw, self.strings = slots, env, torch_op, raw, strings
        self.parts, self.swaps = parts, swaps or {}
        self.constants = Constants(slots, env)

    # ---- tensors

    def term(self, t: Any, then: Next) -> Step:
        """The step that matches `t` and goes on with `then`."""
        if isinstance(t, Operand):
            return self.operand(t, then)
        if isinstance(t, Number):
            return self.number(t, then)
        if isinstance(t, Nothing):
            return lambda v, s: then(s) if v is None else miss(s, t, v, "other op")
        if isinstance(t, Choose):
            return self.choose(t, then)
        if isinstance(t, Either):
            return self.either([self.term(c, then) for c in t.choices])
        if isinstance(t, Each):
            return self.term(t.body, then)
        return self.shared(t, then)

    def operand(self, t: Operand, then: Next) -> Step:
        """A name: binds what stands there, or is what it is bound to."""
        at, optional, dtypes = self.slots(t.name), t.optional, allowed_dtypes(t.type.dtype)
        named = t.name in self.strings
        rank = None if self.raw else possible_rank(t.type.shape)

        def step(v: Any, s: State) -> bool:
            have = s.v[at]
            if have is UNSET:
                if type(v) is Value:
                    if dtypes is not None and v.dtype not in dtypes:
                        return miss(s, t, v, "dtype")
                    if rank is not None and s.reached is None and not rank(v.shape):
                        return False  # who asks how far an attempt came is told when the types are checked
                elif type(v) is not str if named else v is not None or not optional:
                    return miss(s, t, v, "other constant")
                s.v[at] = v
                s.trail.append(at)
                return then(s)
            return then(s) if have is v else miss(s, t, v, "other op")

        return step

    def number(self, t: Number, then: Next) -> Step:
        """A constant; an attribute may also be a 0-d float value."""
        scalar = t.value
        unify = self.constants.scalar(scalar)
        if not isinstance(scalar, Ref):
            return lambda v, s: unify(v, s) and then(s) if type(v) is not Value else miss(s, t, v, "other constant")
        at = self.slots(scalar.name)

        def step(v: Any, s: State) -> bool:
            if type(v) is not Value:
                return then(s) if unify(v, s) else miss(s, t, v, "other constant")
            if v.shape or v.dtype is None or not v.dtype.is_floating_point:
                return miss(s, t, v, "other constant")
            return then(s) if bind(s, at, v) else miss(s, t, v, "other constant")

        return step

    def shared(self, t: Prim | Result | Extern, then: Next) -> Step:
        """A term that may occur twice: the second time it is the value that it was."""
        at, dtypes = self.slots.of_term(t), allowed_dtypes(t.type.dtype)
        inner = (
            self.extern(t, then)
            if isinstance(t, Extern)
            else self.result(t, then)
            if isinstance(t, Result)
            else self.prim(t, then)
        )

        def step(v: Any, s: State) -> bool:
            have = s.v[at]
            if have is not UNSET:
                return then(s) if have is v else miss(s, t, v, "other op")
            if type(v) is not Value:
                return miss(s, t, v, "other op")
            if dtypes is not None and s.reached is None and v.dtype not in dtypes:
                return False  # who asks how far an attempt came is told where below it the types part
            s.v[at] = v
            s.trail.append(at)
            return inner(v, s)

        return step

    def prim(self, t: Prim, then: Next) -> Step:
        """A primitive and its operands."""
        if t.op == "to":
            return self.cast(t, then)
        if t.op == "reshape" and not self.raw:
            return self.reshape(t, then)
        if t.op in COMMUTATIVE:
            return self.commutative(t, then)
        op, count, whole = t.op, len(t.args), t.op in WHOLE
        params = [self.constants.scalar(p) for p in t.params]
        inner = self.arguments(t.args, self.slots.of_term(t), then)

        def step(v: Value, s: State) -> bool:
            attrs = (v.attrs,) if whole else v.attrs
            if v.op != op or len(v.args) < count or len(attrs) != len(params):
                return miss(s, t, v, "other op")
            for unify, attr in zip(params, attrs, strict=True):
                if not unify(attr, s):
                    return miss(s, t, v, "other constant")
            return inner(s)

        return step

    def arguments(self, args: tuple[Any, ...], at: int, then: Next) -> Next:
        """Match the arguments of the value (or view) in slot `at`, most telling first."""
        for j in sorted(range(len(args)), key=lambda j: _weight(args[j]), reverse=True):
            then = self._argument(self.term(args[j], then), at, j)
        return then

    def _argument(self, step: Step, at: int, j: int) -> Next:
        return lambda s: step(s.v[at].args[j], s)

    def commutative(self, t: Prim, then: Next) -> Step:
        """A primitive whose operands match in both orders."""
        op = t.op
        a, b = t.args
        swap = _weight(b) < _weight(a)
        first, second = (b, a) if swap else (a, b)
        other = self.slots(("other", t))
        rest = self.term(second, then)
        start = self.term(first, lambda s: rest(s.v[other], s))
        names = [o for o in (a, b) if isinstance(o, Operand)]
        slots = [self.slots(o.name) for o in names]
        alike = self.alike(a, b)
        same_types = alike and names[0].type == names[1].type

        def attempt(x: Any, y: Any, s: State) -> bool:
            s.v[other] = y
            s.trail.append(other)
            return start(x, s)

        def step(v: Value, s: State) -> bool:
            if v.op != op:
                return miss(s, t, v, "other op")
            x, y = (v.args[1], v.args[0]) if swap else v.args
            unordered = not alike or s.v[slots[0]] is not UNSET or s.v[slots[1]] is not UNSET
            if not unordered and not same_types and type(x) is Value and type(y) is Value:
                unordered = (x.dtype, x.shape) != (y.dtype, y.shape)
            mark = len(s.trail)
            if attempt(x, y, s):
                return True
            s.undo(mark)
            return unordered and x is not y and attempt(y, x, s)

        return step

    def alike(self, a: Any, b: Any) -> bool:
        """Are two operands names that may change places everywhere in the pattern?"""
        both = isinstance(a, Operand) and isinstance(b, Operand)
        return both and interchangeable(self.parts, a.name, b.name, self.swaps)

    def cast(self, t: Prim, then: Next) -> Step:
        """A cast, or what needs none: a cast that changes nothing is not in the graph."""
        unify, inner, raw = self.constants.scalar(t.params[0]), self.term(t.args[0], then), self.raw

        def step(v: Value, s: State) -> bool:
            if not unify(v.dtype, s):
                return miss(s, t, v, "dtype")
            if v.op == "to":
                mark = len(s.trail)
                if inner(v.args[0], s):
                    return True
                s.undo(mark)
            return not raw and inner(v, s)

        return step

    def reshape(self, t: Prim, then: Next) -> Step:
        """`reshape(x, S)` is v where x is v in the shape that x has: by its type, if its dims are known, else below v's
        own reshape.
        """
        x = t.args[0]
        inner = self.term(x, then)
        target = t.params[0]
        unify = self.constants.shape(target.args) if isinstance(target, Apply) and target.op == "shape_list" else None
        declared = None if isinstance(x, Number | Nothing) else x.type.shape
        solid = isinstance(x, Prim) and x.op not in ("reshape", *ELEMENTWISE)  # what a new reshape never is
        env = self.env

        def step(v: Value, s: State) -> bool:
            if unify is None or not unify(v.shape, s):
                return miss(s, t, v, "shape")
            settle(s, self.slots)
            shape = None
            if isinstance(x, Operand) and type(s.v[self.slots(x.name)]) is Value:
                shape = s.v[self.slots(x.name)].shape
            elif declared is not None:
                shape = evaluate_shape(declared, env(s))
            if solid and shape not in (None, v.shape) and not (v.op == "reshape" and v.args[0].shape == shape):
                return miss(s, x, v, "other op")
            if shape is not None:
                return inner(s.sweep.table.reshape(v, shape), s)
            return inner(v.args[0] if v.op == "reshape" else v, s)

        return step

    def choose(self, t: Choose, then: Next) -> Step:
        """The cases of a `def`, each with its conditions."""
        cases = self.either([self.case(conds, self.term(value, then), t) for conds, value in t.cases])
        dtypes = allowed_dtypes(t.type.dtype)
        if dtypes is None:
            return cases
        return lambda v, s: (s.reached is not None or type(v) is not Value or v.dtype in dtypes) and cases(v, s)

    def either(self, steps: list[Step]) -> Step:
        """Any of several steps."""

        def step(v: Any, s: State) -> bool:
            mark = len(s.trail)
            for one in steps:
                if one(v, s):
                    return True
                if len(s.trail) != mark:
                    s.undo(mark)
            return False

        return step

    def case(self, conds: tuple[Any, ...], inner: Step, t: Any) -> Step:
        """A case: its conditions, then its term."""
        tests = [self.condition(c) for c in conds]

        def step(v: Any, s: State) -> bool:
            for test in tests:
                if not test(s):
                    return miss(s, t, v, "other constant")
            return inner(v, s)

        return step

    def condition(self, c: Any) -> Next:
        """A condition of a case: it binds what it fixes, is tested if it can be, else waits."""
        fixed = self.fixes(c)
        if fixed is not None:
            at, value = fixed
            return lambda s: bind(s, at, value)
        opposite = self.fixes(c.args[0]) if isinstance(c, Apply) and c.op == "not" else None
        if opposite is not None:
            return self.differs(*opposite)

        def test(s: State) -> bool:
            found = self.env(s).holds(c)
            if found is UNKNOWN:
                s.deferred.append((c, True))
                s.trail.append(POP)
                return True
            return found is True

        return test

    def differs(self, at: int, value: Any) -> Next:
        """The slot has another value than this, now or when the match is complete."""

        def later(s: State) -> bool:
            have = s.v[at]
            return have is not UNSET and (type(have) is Value or (have is not value and not same(have, value)))

        def test(s: State) -> bool:
            if s.v[at] is not UNSET:
                return later(s)
            s.deferred.append((later, True))
            s.trail.append(POP)
            return True

        return test

    def fixes(self, c: Any) -> tuple[int, Any] | None:
        """The slot and the value that a condition fixes."""
        if isinstance(c, Ref):
            return self.slots(c.name), True
        if isinstance(c, Apply):
            inner = c.args[0] if c.args else None
            if c.op == "not" and isinstance(inner, Ref):
                return self.slots(inner.name), False
            if c.op == "is_none" and isinstance(inner, Operand):
                return self.slots(inner.name), None
            if c.op == "==" and isinstance(inner, Ref) and isinstance(c.args[1], Lit | Dtype):
                other = c.args[1]
                return self.slots(inner.name), DTYPES[other.name] if isinstance(other, Dtype) else other.value
        return None

    def result(self, t: Result, then: Next) -> Step:
        """A result of a declared op: over the views of the value."""
        call = t.call
        at, name, index = self.slots(("call", call)), call.op, t.index
        orders = self.orders(call)
        inner = [self.call_arguments(call, at, order, then) for order in orders]

        def step(v: Value, s: State) -> bool:
            views = s.sweep.views_of(v, name)
            if not views:
                return miss(s, t, v, "other op")
            have = s.v[at]
            for view, i in list(views):
                if i != index or (have is not UNSET and have is not view):
                    continue
                mark = len(s.trail)
                if have is UNSET:
                    s.v[at] = view
                    s.trail.append(at)
                bound = len(s.trail)
                for arguments in inner:
                    if arguments(s):
                        return True
                    s.undo(bound)
                s.undo(mark)
            return False

        return step

    def orders(self, call: Call) -> list[tuple[int, ...]]:
        """The orders of the operands of a call to try: two, where two operands may be exchanged and it matters here."""
        given = tuple(range(len(call.args)))
        j, k = self.swaps.get(call.op, (0, 0))
        if j == k or self.alike(call.args[j], call.args[k]):
            return [given]
        return [given, tuple({j: k, k: j}.get(i, i) for i in given)]

    def call_arguments(self, call: Call, at: int, order: tuple[int, ...], then: Next) -> Next:
        """Operands, in this order, and attributes of the view in slot `at`."""
        operands = len(call.args)
        for j in sorted(range(operands), key=lambda j: _weight(call.args[j]), reverse=True):
            arg = call.args[j]
            step = (
                self.list_operand(arg, then)
                if isinstance(arg, tuple)
                else self.term(arg, then)
                if hasattr(arg, "type")
                else self.plain(arg, then)
            )
            then = self._argument(step, at, order[j])
        for j, (_, scalar) in reversed(list(enumerate(call.attrs))):
            then = self._argument(self.attribute(scalar, then, call), at, operands + j)
        return then

    def plain(self, arg: Any, then: Next) -> Step:
        """A constant of the graph."""
        unify = self.constants.scalar(arg)
        return lambda v, s: then(s) if unify(v, s) else miss(s, arg, v, "other constant")

    def list_operand(self, args: tuple[Any, ...], then: Next) -> Step:
        """A list of tensors: only `each` matches one."""
        raise NotImplementedError("a list operand on a matched side")

    def attribute(self, scalar: Any, then: Next, call: Call) -> Step:
        """An attribute of a view: a constant, or a 0-d float value (`compile(dynamic=True)` makes an eps an input)."""
        unify = self.constants.scalar(scalar)
        at = self.slots(scalar.name) if isinstance(scalar, Ref) else None

        def step(v: Any, s: State) -> bool:
            if type(v) is Value:
                if at is None or not bind(s, at, v):
                    return (isinstance(scalar, Wild) and then(s)) or miss(s, scalar, v, "other constant")
                return then(s)
            return then(s) if unify(v, s) else miss(s, (call, scalar), v, "other constant")

        return step

    # ---- torch ops

    def extern(self, t: Extern, then: Next) -> Step:
        """What a torch op returns or writes."""
        name, several, args = self.torch_arguments(t.call, t)
        at = self.slots(("torch", t.call))
        inner = self.torch_steps(args, at, then)
        index = t.returned

        def step(v: Value, s: State) -> bool:
            if several:
                if v.op != "getitem" or v.args[1] != index or v.args[0].op != name:
                    return miss(s, t, v, "other op")
                v = v.args[0]
            elif v.op != name:
                return miss(s, t, v, "other op")
            have = s.v[at]
            if have is not UNSET and have.args is not v.args and have.args != v.args:
                return miss(s, t, v, "other op")
            if have is UNSET:
                s.v[at] = v
                s.trail.append(at)
            return inner(s)

        return step

    def torch_arguments(self, call: TorchCall, t: Extern) -> tuple[str, bool, list[Any]]:
        """The name that values of this call have, whether it returns several, and a pattern for each argument of the
        schema.
        """
        op = self.torch_op(call.op)
        schema = op._schema
        by_name = dict(call.kwargs)
        args: list[Any] = list(call.args)
        for a in schema.arguments[len(args) :]:
            args.append(by_name.pop(a.name) if a.name in by_name else Wild() if call.rest else Default(a.default_value))
        if by_name or len(args) > len(schema.arguments):
            raise SchemaMismatch(f"{call.op} has no argument {', '.join(by_name) or len(schema.arguments) + 1}")
        return extern_name(t, op), not schema.is_mutable and len(schema.returns) > 1, args

    def torch_steps(self, args: list[Any], at: int, then: Next) -> Next:
        """The arguments of a torch call, most telling first."""
        for j in sorted(range(len(args)), key=lambda j: _weight(args[j]), reverse=True):
            then = self._argument(self.torch_argument(args[j], then), at, j)
        return then

    def torch_argument(self, a: Any, then: Next) -> Step:
        """One argument of a torch call."""
        if isinstance(a, Fresh):
            return lambda v, s: then(s) if v is FRESH or v in s.sweep.table.scratch else miss(s, a, v, "other op")
        if isinstance(a, Taken):
            return self.term(a.value, then)
        if isinstance(a, OneOf):
            return self.either([self.torch_argument(c, then) for c in a.choices])
        if isinstance(a, Default):
            return lambda v, s: then(s) if _is_default(v, a.value) else miss(s, a, v, "other constant")
        if isinstance(a, Number):
            a = a.value
        if isinstance(a, Operand | Prim | Result | Extern | Choose | Either | Nothing):
            return self.term(a, then)
        if isinstance(a, Ref):
            return self.attribute(a, then, None)  # type: ignore[arg-type]
        if isinstance(a, Apply) and a.op == "list" and any(hasattr(x, "type") for x in a.args):
            return self.tensors(a, then)
        return self.plain(a, then)

    def tensors(self, a: Apply, then: Next) -> Step:
        """A list with tensors in it."""
        at, count = self.slots(("list", a)), len(a.args)
        for j in reversed(range(count)):
            then = _item(self.torch_argument(a.args[j], then), at, j)
        first = then

        def step(v: Any, s: State) -> bool:
            if not isinstance(v, tuple) or len(v) != count:
                return miss(s, a, v, "other constant")
            s.v[at] = v
            s.trail.append(at)
            return first(s)

        return step


def _item(step: Step, at: int, j: int) -> Next:
    return lambda s: step(s.v[at][j], s)


def extern_name(t: Extern, op: Any) -> str:
    """How values call what `op` returns or writes: of a mutable op, `op#k` (`dialect.functionalized`)."""
    name, which = overload_name(op), t.returned if t.written is None else t.written
    if not op._schema.is_mutable:
        return name
    if t.written is not None and isinstance(which, int):
        which = op._schema.arguments[which].name
    return f"{name}#{which}"


class Default:
    """An argument that is not written: the default of the schema."""

    def __init__(self, value: Any):
        self.value = value

    def __str__(self) -> str:
        return said(self.value)


class SchemaMismatch(Exception):
    """A form writes an argument that the schema of this build does not have."""


def _is_default(v: Any, default: Any) -> bool:
    if isinstance(default, list):
        default = tuple(default)
    return v is default or same(v, default)


def _weight(t: Any) -> int:
    """Which argument to try first: literals, then what has structure, then names."""
    if isinstance(t, Number):
        return 0 if isinstance(t.value, Lit) else 3
    if isinstance(t, Lit | Dtype | Fresh | Default | Nothing):
        return 0
    if isinstance(t, Result | Extern):
        return 1
    if isinstance(t, Prim) and t.op in ("to", "reshape"):
        return max(2, _weight(t.args[0]))  # of a name it tells no more than the name
    return 2 if isinstance(t, Prim | Choose | Either | Each) else 4
