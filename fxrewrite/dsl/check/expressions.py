"""Expressions to core: names are looked up, calls resolved, attributes carried, `def`s expanded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check import conditions, typing
from fxrewrite.dsl.check.builtins import BUILTINS, FACTS, PREDICATES, REQUIRED
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.check.scope import Item, Part, Scope, Value
from fxrewrite.dsl.check.solver import as_dim
from fxrewrite.dsl.core import (
    UNKNOWN, Apply, Choose, Dtype, DtypeVar, Each, Either, Extern, Lit, Nothing, Number, OneOf, Operand, Prim, Ref,
    Result, Scalar, Size, TensorType, Term, TorchCall, Wild,
)  # fmt: skip
from fxrewrite.dsl.dims import Dim, Star

if TYPE_CHECKING:
    from fxrewrite.dsl.check.program import Checker

DTYPES = "bf16 f16 f32 f64 e4m3fn e4m3fnuz e5m2 e8m0fnu i8 i16 i32 i64 u8 bool".split()
TERMS = (Operand, Number, Prim, Extern, Result, Choose, Either, Each, Nothing)
OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
TORCH_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "matmul": "matmul", "mm": "matmul"}


@define
class Elaborator:
    """Turns the expressions of one item into terms and scalars."""

    checker: Checker
    item: Item

    # ---- entry points

    def term(self, e: syntax.Expr, scope: Scope) -> Term:
        """One tensor."""
        return self.as_term(self.value(e, scope), e)

    def as_term(self, value: Value, e: syntax.Expr) -> Term:
        if isinstance(value, tuple):
            if len(value) == 1:
                return self.as_term(value[0], e)
            raise Problem(
                "RW203",
                f"{_said(e)} has {len(value)} results",
                e.span,
                "name them under `where`: `(a, b) = ...`, or pick one: `.0`",
            )
        if isinstance(value, TERMS):
            return value
        if isinstance(value, list):
            raise Problem("RW220", "a list stands where one tensor is needed", e.span)
        return Nothing() if value == Lit(None) else Number(value)

    def scalar(self, e: syntax.Expr, scope: Scope) -> Scalar:
        """One scalar."""
        value = self.value(e, scope)
        if isinstance(value, Number):
            return value.value
        if isinstance(value, list):
            return _list(value)
        if isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        if isinstance(value, Operand) and scope.binds and value.name in self.item.bound:
            self.item.bound[value.name] = Ref(value.name)
            return Ref(value.name)
        if isinstance(value, TERMS) and not isinstance(value, Nothing):
            raise Problem("RW310", f"{_said(e)} is a tensor; a number is needed here", e.span)
        return Lit(None) if isinstance(value, Nothing) else value

    def condition(self, e: syntax.Expr, scope: Scope) -> Scalar:
        """A condition; tensors may stand in it (`w == none`, `contiguous(x)`)."""
        value = self.value(e, scope.child(binds=False))
        if isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        return value.value if isinstance(value, Number) else value

    def outputs(self, es: tuple[syntax.Expr | syntax.Splat, ...], scope: Scope) -> list[tuple[str | None, Term]]:
        """The output list, each with the name that it gives: a call with two results is two outputs."""
        out: list[tuple[str | None, Term]] = []
        for e in es:
            if isinstance(e, syntax.Splat):
                out.append(
                    (e.name, self.as_term(self.name(e.name, e, scope.child(element=True)), syntax.Var(e.span, e.name)))
                )
                continue
            value = self.value(e, scope)
            many = value if isinstance(value, tuple) else (value,)
            for v in many:
                name = e.name if isinstance(e, syntax.Var) else None
                out.append((name or self._result_name(v), self.as_term(v, e)))
        return out

    def _result_name(self, value: Value) -> str | None:
        if isinstance(value, Result):
            return self.checker.signature(value.call.op).results[value.index].name
        if isinstance(value, Each):
            return self._result_name(value.body)
        return None

    # ---- one expression

    def value(self, e: syntax.Expr, scope: Scope) -> Value:
        """What an expression is: a term, a scalar, several results, or a list."""
        return getattr(self, "_" + type(e).__name__.lower())(e, scope)

    def _number(self, e: syntax.Number, scope: Scope) -> Value:
        return Lit(e.value)

    def _string(self, e: syntax.String, scope: Scope) -> Value:
        return Lit(e.value)

    def _bool(self, e: syntax.Bool, scope: Scope) -> Value:
        return Lit(e.value)

    def _nonelit(self, e: syntax.NoneLit, scope: Scope) -> Value:
        return Lit(None)

    def _any(self, e: syntax.Any, scope: Scope) -> Value:
        return Wild()

    def _var(self, e: syntax.Var, scope: Scope) -> Value:
        return self.name(e.name, e, scope)

    def name(self, name: str, e: syntax.Node, scope: Scope) -> Value:
        """What a name stands for here."""
        if name in scope.names:
            value = scope.names[name]
            if isinstance(value, Operand) and value.star and not scope.element:
                raise Problem("RW220", f"`{name}` is a list; spread it (`*{name}`) or use it under `each`", e.span)
            if isinstance(value, Operand) and value.name in scope.present and value.optional:
                return self.item.intern(Operand(value.name, value.type, span=value.span))
            return value
        if name in scope.parts:
            return self.part(scope.parts[name], scope)
        if name in scope.dims:
            found = scope.dims[name]
            return found if isinstance(found, Star) else Size(self.item.solver.dim(found))
        if name in scope.given:
            return scope.given[name]
        if name in DTYPES:
            return Dtype(name)
        if name in self.checker.dtypes:
            return scope.classes.get(name) or DtypeVar(name, self.checker.dtypes[name])
        if name in FACTS:
            return Apply(name)
        if name in self.item.bound:
            return self.item.bound[name]
        if scope.matched and name in self.item.captured:
            return Ref(name)
        if not scope.binds and name in self.item.captured:
            return Ref(name)
        if name in self.item.solver.used and name[0].isupper():
            return Size(self.item.solver.dim(dims.name(name)))
        if scope.binds:
            return self.bind(name, e)
        known = [*scope.names, *scope.parts, *scope.dims, *self.item.captured]
        raise Problem("RW202", f"`{name}` is not bound here", e.span, closest(name, known))

    def bind(self, name: str, e: syntax.Node) -> Value:
        """A name that its first use on the left binds: an operand until it is used as a number."""
        operand = Operand(name, UNKNOWN, span=e.span)
        self.item.bound[name] = operand
        return operand

    def part(self, part: Part, scope: Scope) -> Value:
        """The value of a name under `where`, computed once."""
        cell = part.cell
        if cell.busy:
            raise Problem("RW209", f"`{part.bind.targets[part.index]}` is made of itself", part.bind.span)
        if cell.value is None:
            cell.busy = True
            value = self.each(part.bind, scope) if part.bind.kind == "each" else self.value(part.bind.value, scope)
            cell.busy = False
            if isinstance(value, Extern) and len(part.bind.targets) > 1:
                value = tuple(
                    self.item.intern(Extern(value.call, i, None, UNKNOWN, value.span))
                    for i in range(len(part.bind.targets))
                )
            count = len(value) if isinstance(value, tuple) else 1
            if count != len(part.bind.targets):
                raise Problem(
                    "RW218",
                    f"{count} values for {len(part.bind.targets)} names: {', '.join(part.bind.targets)}",
                    part.bind.span,
                )
            cell.value = value if isinstance(value, tuple) else (value,)
            for target, v in zip(part.bind.targets, cell.value, strict=True):
                if scope.matched and isinstance(v, TERMS):
                    self.item.named.append((target, v))
                if part.bind.kind == "keep":
                    self.item.kept.append(target)
        return cell.value[part.index]

    def each(self, bind: syntax.Bind, scope: Scope) -> Value:
        """`each y = body`: the body with list operands as elements."""
        value = self.value(bind.value, scope.child(element=True))
        many = value if isinstance(value, tuple) else (value,)
        lists = tuple(sorted({n.name for n in syntax_names(bind.value) if self._is_list(n.name, scope)}))
        made = tuple(self.item.intern(Each(self.as_term(v, bind.value), lists, self.item.type_of(v))) for v in many)
        return made if len(made) > 1 else made[0]

    def _is_list(self, name: str, scope: Scope) -> bool:
        value = scope.names.get(name)
        return isinstance(value, Operand) and value.star

    # ---- operators

    def _binary(self, e: syntax.Binary, scope: Scope) -> Value:
        if e.op in ("and", "or"):
            left, right = self.condition(e.left, scope), self.condition(e.right, scope)
            return conditions.both(left, right) if e.op == "and" else conditions.either(left, right)
        left, right = self.value(e.left, scope), self.value(e.right, scope)
        left, right = (v[0] if isinstance(v, tuple) and len(v) == 1 else v for v in (left, right))
        tensors = [v for v in (left, right) if isinstance(v, TERMS) and not isinstance(v, Number)]
        if tensors or isinstance(left, tuple) or isinstance(right, tuple):
            a, b = self.as_term(left, e.left), self.as_term(right, e.right)
            if e.op == "@":
                return typing.matmul(self.item, a, b, e.span)
            if e.op not in OPERATORS:
                raise Problem("RW129", f"`{e.op}` is for numbers and sizes, not for tensors", e.span)
            return typing.binary(self.item, OPERATORS[e.op], a, b, e.span)
        return arithmetic(e.op, conditions.constant(left), conditions.constant(right))

    def _unary(self, e: syntax.Unary, scope: Scope) -> Value:
        if e.op == "not":
            return conditions.negate(self.condition(e.operand, scope))
        value = self.value(e.operand, scope)
        if isinstance(value, TERMS) and not isinstance(value, Number):
            return typing.build(self.item, "neg", {"x": value}, e.span)
        value = conditions.constant(value)
        if isinstance(value, Lit):
            return Lit(-value.value)
        return Size(dims.scale(value.dim, -1)) if isinstance(value, Size) else Apply("neg", (value,))

    def _compare(self, e: syntax.Compare, scope: Scope) -> Value:
        result: Scalar = conditions.TRUE
        left = self.condition(e.first, scope)
        for op, right_e in e.rest:
            right = self.condition(right_e, scope)
            if op in ("==", "!="):
                test = conditions.equal(left, right)
                test = conditions.negate(test) if op == "!=" else test
            else:
                test = Apply(op, (left, right))
            result = conditions.both(result, test)
            left = right
        return result

    def _member(self, e: syntax.Member, scope: Scope) -> Value:
        item = self.condition(e.item, scope)
        if isinstance(e.choices, str):
            members = self.checker.dtypes.get(e.choices)
            if members is None:
                raise Problem(
                    "RW217", f"unknown dtype class `{e.choices}`", e.span, closest(e.choices, self.checker.dtypes)
                )
            choices: list[Any] = [Dtype(m) for m in members]
        else:
            choices = [self.condition(c, scope) for c in e.choices]
        result: Scalar = conditions.FALSE
        for choice in choices:
            result = conditions.either(result, conditions.equal(item, choice))
        return result

    def _attr(self, e: syntax.Attr, scope: Scope) -> Value:
        inner = e.value
        if isinstance(inner, syntax.Call) and inner.func == "finfo":
            dtype = self.scalar(inner.args[0], scope)  # type: ignore[arg-type]
            return Apply("finfo." + e.name, (dtype,))
        value = self.value(inner, scope)
        if e.name == "dtype" and isinstance(value, TERMS):
            type_ = self.item.type_of(value)
            return type_.dtype if type_.dtype is not None else Apply("dtype", (value,))
        if e.name == "shape" and isinstance(value, TERMS):
            return Apply("shape", (value,))
        if e.name in ("name", "size") and isinstance(value, Ref):
            return Apply("group." + e.name, (value,))
        raise Problem("RW216", f"there are no methods and no `.{e.name}`", e.span, f"write `{e.name}(...)`")

    def _proj(self, e: syntax.Proj, scope: Scope) -> Value:
        value = self.value(e.value, scope)
        if isinstance(value, Extern):
            return self.item.intern(Extern(value.call, e.index, None, UNKNOWN, e.span))
        many = value if isinstance(value, tuple) else (value,)
        if e.index >= len(many):
            raise Problem("RW203", f"{_said(e.value)} has {len(many)} results; there is no `.{e.index}`", e.span)
        return many[e.index]

    def _index(self, e: syntax.Index, scope: Scope) -> Value:
        value = self.value(e.value, scope)
        if isinstance(value, Apply) and value.op == "shape":
            at = self.scalar(e.items[0], scope)  # type: ignore[arg-type]
            shape = self.item.type_of(value.args[0]).shape
            if isinstance(at, Lit) and shape is not None and -len(shape) <= at.value < len(shape):
                found = shape[at.value]
                if isinstance(found, Dim) and (at.value < 0 or not any(isinstance(d, Star) for d in shape)):
                    return Size(found)
            return Apply("shape", (value.args[0], at))
        if len(e.items) == 2 and isinstance(e.items[0], syntax.Rest) and isinstance(e.items[1], syntax.Slice):
            s = e.items[1]
            bounds = [None if b is None else self.scalar(b, scope) for b in (s.start, s.stop, s.step)]
            return typing.slice_last(self.item, self.as_term(value, e.value), *bounds, e.span)
        if isinstance(value, Ref | Apply):
            return Apply("item", (value, self.scalar(e.items[0], scope)))  # type: ignore[arg-type]
        raise Problem("RW129", "an index is `[..., a:b:c]` on the last axis", e.span)

    def _alternatives(self, e: syntax.Alternatives, scope: Scope) -> Value:
        values = [self.value(c, scope) for c in e.choices]
        if all(isinstance(v, TERMS) for v in values):
            return self.item.intern(Either(tuple(values), self.item.type_of(values[0])))
        return OneOf(tuple(_list(v) if isinstance(v, list) else v for v in values))

    def _tuple(self, e: syntax.Tuple, scope: Scope) -> Value:
        return tuple(self.value(i, scope) for i in e.items)

    def _list(self, e: syntax.List, scope: Scope) -> Value:
        return self.spread(e.items, scope)

    def spread(self, items: tuple[syntax.Expr | syntax.Splat, ...], scope: Scope) -> list[Value]:
        """List items, `*name` spread."""
        out: list[Value] = []
        for i in items:
            if isinstance(i, syntax.Splat):
                value = self.name(i.name, i, scope.child(element=True))
                out += value if isinstance(value, list) else [value]
            else:
                value = self.value(i, scope)
                out += [value[0]] if isinstance(value, tuple) and len(value) == 1 else [value]
        return out

    def _pipe(self, e: syntax.Pipe, scope: Scope) -> Value:
        value = self.value(e.left, scope)
        if isinstance(value, tuple):
            self.as_term(value, e.left)
        call = syntax.Call(
            e.span, e.stage.func, (e.left, *e.stage.args), e.stage.kwargs, e.stage.rest, e.stage.func_span
        )
        return self.call(call, scope, first=value)

    def _call(self, e: syntax.Call, scope: Scope) -> Value:
        return self.call(e, scope)

    # ---- calls

    def call(self, e: syntax.Call, scope: Scope, first: Value = None) -> Value:
        """A call, by what the name is: built-in, cast, `def`, op, native, torch op. `first`: the piped operand, evaluated."""
        name = e.func
        at = e.func_span or e.span
        if "." in name:
            head = name.split(".")[0]
            if head in scope.names or head in scope.parts or head in self.item.bound:
                method = name.split(".")[-1]
                raise Problem("RW216", f"there are no methods: `.{method}`", at, f"write `{method}({head}, ...)`")
            return self.torch_call(e, scope, first)
        if name in DTYPES:
            return typing.cast(self.item, self.one_argument(e, scope, first), Dtype(name), e.span)
        if name in BUILTINS:
            return self.builtin(e, scope, first)
        if name in PREDICATES or name in self.checker.natives:
            return self.predicate(e, scope, first)
        if name in self.checker.defs:
            from fxrewrite.dsl.check.calls import expand_def

            return expand_def(self, e, scope, first)
        if self.checker.knows_op(name, self.item):
            from fxrewrite.dsl.check.calls import call_op

            return call_op(self, e, scope, first)
        raise Problem("RW205", f"unknown op `{name}`", at, self.checker.suggest(name))

    def one_argument(self, e: syntax.Call, scope: Scope, first: Value) -> Term:
        values = self.arguments(e, scope, first)
        if len(values) != 1 or e.kwargs:
            raise Problem("RW204", f"{e.func} takes 1 operand, not {len(values)}", e.span)
        return self.as_term(values[0], e.args[0])  # type: ignore[arg-type]

    def arguments(self, e: syntax.Call, scope: Scope, first: Value) -> list[Value]:
        """Positional arguments, spread; `first` stands for `e.args[0]` where it is given."""
        if first is None:
            return self.spread(e.args, scope)
        return [first[0] if isinstance(first, tuple) else first, *self.spread(e.args[1:], scope)]

    def builtin(self, e: syntax.Call, scope: Scope, first: Value) -> Value:
        spec = BUILTINS[e.func]
        given: dict[str, Value] = {}
        values = self.arguments(e, scope.child(), first)
        if len(values) > len(spec.arguments):
            raise Problem("RW204", f"{e.func} takes at most {len(spec.arguments)} arguments, not {len(values)}", e.span)
        for argument, value, expr in zip(spec.arguments, values, e.args, strict=False):
            given[argument.name] = self.argument(argument.kind, value, expr, scope)
        for kwarg in e.kwargs:
            argument = next(
                (a for a in spec.arguments if a.name == kwarg.name or kwarg.name == "dim" and a.name == "dims"), None
            )
            if argument is None:
                raise Problem(
                    "RW211", f"{e.func} has no argument `{kwarg.name}`", kwarg.span,
                    closest(kwarg.name, [a.name for a in spec.arguments]),
                )  # fmt: skip
            given[argument.name] = self.argument(argument.kind, self.value(kwarg.value, scope), kwarg.value, scope)
        for argument in spec.arguments:
            if argument.name not in given:
                if argument.default is REQUIRED:
                    raise Problem("RW204", f"{e.func} needs `{argument.name}`", e.span)
                given[argument.name] = argument.default
        x = given.get("x")
        if isinstance(x, Number) and isinstance(x.value, Lit):
            raise Problem("RW310", f"{e.func} takes a tensor, not a number", e.span)
        return typing.build(self.item, spec.prim, given, e.span)

    def argument(self, kind: str, value: Value, e: Any, scope: Scope) -> Value:
        if kind == "tensors":
            if not isinstance(value, list):
                raise Problem("RW220", "a list of tensors is needed: `[a, b]`", e.span)
            return [self.as_term(v, e) for v in value]
        if kind == "tensor":
            return value if value == Lit(None) else self.as_term(value, e)
        if isinstance(value, Operand) and scope.binds and value.name in self.item.bound:
            self.item.bound[value.name] = Ref(value.name)
            return Ref(value.name)
        if isinstance(value, list):
            return _list(value)
        return value.value if isinstance(value, Number) else value

    def predicate(self, e: syntax.Call, scope: Scope, first: Value) -> Value:
        values = self.arguments(e, scope, first)
        args = tuple(_list(v) if isinstance(v, list) else v for v in values)
        if e.func == "up":
            return Size(dims.combine("up", as_dim(args[0]), as_dim(args[1])))
        native = self.checker.natives.get(e.func)
        return Apply(f"native:{native.source}" if native else e.func, args)

    def torch_call(self, e: syntax.Call, scope: Scope, first: Value) -> Value:
        """A torch op by its dotted name. What is a primitive is read as one."""
        base = e.func.split(".")
        if base[0] == "aten" and len(base) <= 3 and not e.rest:
            known = TORCH_OPERATORS.get(base[1]) or (base[1] if base[1] in BUILTINS else None)
            if known is not None and not (e.kwargs and known in TORCH_OPERATORS.values()):
                return self.builtin(syntax.Call(e.span, known, e.args, e.kwargs, False, e.func_span), scope, first)
        args = tuple(_list(v) if isinstance(v, list) else v for v in self.arguments(e, scope, first))
        kwargs = tuple((k.name, self.torch_argument(k.value, scope)) for k in e.kwargs)
        call = self.item.intern(TorchCall(e.func, args, kwargs, e.rest, e.span))
        return self.item.intern(Extern(call, 0, None, UNKNOWN, e.span))

    def torch_argument(self, e: syntax.Expr, scope: Scope) -> Any:
        value = self.value(e, scope)
        if isinstance(value, list):
            return _list(value)
        return value[0] if isinstance(value, tuple) and len(value) == 1 else value

    def typed(self, term: Term, type_: TensorType) -> Term:
        """`term` where nothing is known of its type: with this one."""
        if isinstance(term, Extern) and term.type == UNKNOWN:
            return self.item.intern(Extern(term.call, term.returned, term.written, type_, term.span))
        return term


def arithmetic(op: str, left: Any, right: Any) -> Scalar:
    """`left op right` of scalars, folded where both are numbers or sizes."""
    if (
        isinstance(left, Lit)
        and isinstance(right, Lit)
        and all(isinstance(v.value, int | float) for v in (left, right))
    ):
        a, b = left.value, right.value
        folded = {"+": a + b, "-": a - b, "*": a * b}.get(op)
        if folded is None and b:
            folded = {"/": a / b, "//": a // b, "%": a % b}.get(op)
        if folded is not None:
            return Lit(folded)
    sizes = (Size, Ref, Lit)
    if op in ("+", "-", "*", "//", "%") and isinstance(left, sizes) and isinstance(right, sizes):
        if isinstance(left, Size) or isinstance(right, Size) or op in ("//", "%"):
            return Size(dims.combine(op, as_dim(left), as_dim(right)))
    return Apply(op, (left, right))


def syntax_names(e: Any) -> list[syntax.Var]:
    """Every name in an expression."""
    if isinstance(e, syntax.Var):
        return [e]
    if isinstance(e, tuple):
        return [n for item in e for n in syntax_names(item)]
    if not isinstance(e, syntax.Node):
        return []
    found: list[syntax.Var] = []
    for name in getattr(type(e), "__attrs_attrs__", ()):
        if name.name != "span":
            found += syntax_names(getattr(e, name.name))
    return found


def _list(values: list[Any] | Any) -> Any:
    if not isinstance(values, list):
        return values
    plain = [conditions.constant(v) for v in values]
    if all(isinstance(v, Lit) for v in plain):
        return Lit(tuple(v.value for v in plain))
    return Apply("list", tuple(plain))


def _said(e: syntax.Expr) -> str:
    """How a message calls an expression."""
    if isinstance(e, syntax.Pipe):
        return e.stage.func
    if isinstance(e, syntax.Call):
        return e.func
    return f"`{e.name}`" if isinstance(e, syntax.Var) else "this expression"
