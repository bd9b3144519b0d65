"""Unification of types: dims as linear equations, leading axes, and the one dtype of a class. One solver an item."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from fxrewrite.dsl import dims
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.core import Apply, Dtype, DtypeVar, Ref, Scalar, Size, TensorType
from fxrewrite.dsl.dims import Dim, Shape, Star
from fxrewrite.dsl.syntax import Span

DtypeExpr = Dtype | DtypeVar | Ref | None
Origin = tuple[str, Span | None]  # what a guard comes from: in words, and where


@define(eq=False, repr=False)
class Solver:
    """What is known about the names of an item.

    `rigid` names are the item's own: no equation may tie them to each other but one of `given` (what `requires` says).
    `domains`: the dtypes that a dtype attribute may be. `guards`: what only a site can tell;
    `origins`: what each comes from; `origin`: of those that are noted now.
    """

    rigid: set[str] = field(factory=set[str])
    used: set[str] = field(factory=set[str])
    dims: dict[str, Dim] = field(factory=dict[str, Dim])
    stars: dict[str, Shape] = field(factory=dict[str, Shape])
    dtypes: dict[str, DtypeExpr] = field(factory=dict[str, DtypeExpr])
    domains: dict[str, frozenset[str]] = field(factory=dict[str, frozenset[str]])
    given: list[Dim] = field(factory=list[Dim])
    guards: list[Scalar] = field(factory=list[Scalar])
    origin: Origin = ("", None)
    origins: dict[Scalar, Origin] = field(factory=dict[Scalar, "Origin"])
    variants: dict[str, int] = field(factory=dict[str, int])  # of a name, handed out so far

    def guard(self, condition: Scalar) -> None:
        """Note a condition that only a site can tell."""
        self.guards.append(condition)
        self.origins.setdefault(condition, self.origin)

    def fresh(self, name: str) -> str:
        """`name`, or a variant of it where the item has the name already."""
        base = name.split("#")[0]
        candidate, n = base, self.variants.get(base, 1)
        while candidate in self.used:
            n += 1
            candidate = f"{base}#{n}"
        self.variants[base] = n
        self.used.add(candidate)
        return candidate

    # ---- what is known by now

    def dim(self, dim: Dim) -> Dim:
        """`dim` with every solved name replaced."""
        while (known := dims.substitute(dim, self.dims)) is not dim:
            dim = known
        return dim

    def shape(self, shape: Shape | None) -> Shape | None:
        """`shape` with every solved name replaced."""
        if shape is None:
            return None
        out: list[Dim | Star] = []
        for item in shape:
            if isinstance(item, Star):
                inner = self.stars.get(item.name)
                out += [item] if inner is None else self.shape(inner) or ()
            else:
                out.append(self.dim(item))
        return same(shape, tuple(out))

    def dtype(self, dtype: DtypeExpr) -> DtypeExpr:
        """`dtype` with every solved class replaced."""
        while isinstance(dtype, DtypeVar) and dtype.key in self.dtypes:
            dtype = self.dtypes[dtype.key]
        return dtype

    def type(self, type_: TensorType) -> TensorType:
        """`type_` as far as it is solved."""
        return retyped(type_, self.dtype(type_.dtype), self.shape(type_.shape), type_.layout)

    # ---- equations

    def unify(self, declared: TensorType, actual: TensorType, span: Span, what: str) -> None:
        """Make the type of an argument fit the declared one, or raise RW301, RW303 or RW305."""
        self.unify_dtype(declared.dtype, actual.dtype, span, what)
        if declared.shape is not None and actual.shape is not None:
            self.unify_shape(declared.shape, actual.shape, span, what)

    def unify_dtype(self, declared: DtypeExpr, actual: DtypeExpr, span: Span, what: str) -> None:
        """One dtype on both sides; classes intersect. What an attribute must be becomes a guard."""
        declared, actual = self.dtype(declared), self.dtype(actual)
        if declared is None or actual is None or declared == actual:
            return
        if isinstance(declared, Ref) or isinstance(actual, Ref):
            self._attribute_dtype(declared, actual, span, what)
        elif isinstance(declared, DtypeVar) and isinstance(actual, DtypeVar):
            self._classes(declared, actual, span, what)
        elif isinstance(declared, DtypeVar) and isinstance(actual, Dtype):
            if actual.name not in declared.members:
                hint = f"write the cast: `to(..., {declared.members[0]})`"
                message = f"{what} is {declared} ({', '.join(declared.members)}), not {actual}"
                raise Problem("RW301", message, span, hint)
            self._class_is(declared, actual)
        elif isinstance(actual, DtypeVar) and isinstance(declared, Dtype):
            if declared.name not in actual.members or actual.key in self.rigid:
                raise Problem("RW301", f"{what} is {declared}, not {actual}", span, _cast(declared))
            self._class_is(actual, declared)
        else:
            raise Problem("RW301", f"{what} is {declared}, not {actual}", span, _cast(declared))

    def _class_is(self, class_: DtypeVar, dtype: Dtype) -> None:
        if class_.key in self.rigid:
            self.guard(Apply("==", (class_, dtype)))
        else:
            self.dtypes[class_.key] = dtype

    def _attribute_dtype(self, declared: DtypeExpr, actual: DtypeExpr, span: Span, what: str) -> None:
        """One side is a dtype attribute."""
        attribute, other = (declared, actual) if isinstance(declared, Ref) else (actual, declared)
        assert isinstance(attribute, Ref)
        domain = self.domains.get(attribute.name)
        if isinstance(other, DtypeVar):
            if domain is not None and not domain & set(other.members):
                message = f"{what} is {shown(declared)}, and `{attribute.name}` is never one"
                raise Problem("RW301", message, span, f"pin it: `{attribute.name}={other.members[0]}`")
            if other.key in self.rigid:
                self.guard(Apply("==", (attribute, other)))
                return
            if domain is None or not domain <= set(other.members):
                self.guard(Apply("dtype_in", (attribute, *map(Dtype, other.members))))
            self.dtypes[other.key] = attribute
            return
        if isinstance(other, Dtype) and domain is not None and other.name not in domain:
            hint = f"`{attribute.name}` is one of {', '.join(sorted(domain))}"
            raise Problem("RW301", f"{what}: `{attribute.name}` is never {other}", span, hint)
        assert other is not None
        self.guard(Apply("==", (attribute, other)))

    def _classes(self, declared: DtypeVar, actual: DtypeVar, span: Span, what: str) -> None:
        both = tuple(m for m in actual.members if m in declared.members)
        if not both:
            hint = f"write the cast: `to(..., {declared.members[0]})`"
            raise Problem("RW301", f"{what} is {declared}, and no {actual} is one", span, hint)
        if declared.key not in self.rigid:
            if both == actual.members:
                self.dtypes[declared.key] = actual
            elif actual.key in self.rigid:
                self.dtypes[declared.key] = actual
                self.guard(Apply("dtype_in", (actual, *map(Dtype, both))))
            else:
                narrow = DtypeVar(self.fresh(declared.key), both)
                self.dtypes[declared.key] = self.dtypes[actual.key] = narrow
        elif actual.key not in self.rigid and both == declared.members:
            self.dtypes[actual.key] = declared
        else:
            self.guard(Apply("==", (declared, actual)))

    def unify_shape(self, declared: Shape, actual: Shape, span: Span, what: str) -> None:
        """Equal ranks and dims. Shapes of one element are equal whatever their rank."""
        left, right = self.shape(declared) or (), self.shape(actual) or ()
        if left == right or (_one_element(left) and _one_element(right)):
            return
        (star_l, tail_l), (star_r, tail_r) = _split(left), _split(right)
        short_star, short, long_star, long = star_l, tail_l, star_r, tail_r
        if len(tail_l) > len(tail_r):
            short_star, short, long_star, long = star_r, tail_r, star_l, tail_l
        extra = long[: len(long) - len(short)]
        if short_star is None and (extra or (long_star is not None and long_star.name in self.rigid)):
            raise _other_rank(left, right, span, what)
        if short_star is not None and (extra or long_star is None):
            if short_star.name in self.rigid or short_star == long_star:
                raise _other_rank(left, right, span, what)
            self.stars[short_star.name] = ((long_star,) if long_star else ()) + tuple(extra)
        elif long_star is not None and short_star is None:
            self.stars[long_star.name] = ()
        elif short_star is not None and long_star is not None and short_star != long_star:
            self._same_star(short_star, long_star, span, what)
        for a, b in zip(short[::-1], long[::-1]):
            self.unify_dim(a, b, span, what)

    def _same_star(self, a: Star, b: Star, span: Span, what: str) -> None:
        loose, fixed = (a, b) if a.name not in self.rigid else (b, a)
        if loose.name in self.rigid:
            raise Problem("RW305", f"{what}: the leading axes {a} and {b} are independent", span, "give them one name")
        self.stars[loose.name] = (fixed,)

    def unify_dim(self, a: Dim, b: Dim, span: Span, what: str) -> None:
        """Solve `a == b` for one name, note it as a guard where only sizes can tell, or raise RW305."""
        difference = dims.add(self.dim(a), self.dim(b), -1)
        if impossible(difference):
            message = f"{what}: a dim is {self.dim(a)} here and {self.dim(b)} there"
            raise Problem("RW305", message, span, f"give both one size: `{self.dim(a)}` or `{self.dim(b)}`")
        if difference.terms and self._solved(difference):
            return
        if difference.terms and any(difference in (self.dim(g), dims.scale(self.dim(g), -1)) for g in self.given):
            return  # `requires` says so
        if len(difference.terms) == 2 and not difference.const and all(isinstance(n, str) for n, _ in difference.terms):
            left, right = self.dim(a), self.dim(b)
            hint = f"if they are equal, write `requires {left} == {right}`"
            raise Problem("RW305", f"{what}: {left} and {right} are independent sizes", span, hint)
        if difference.terms:
            self.guard(Apply("==", (Size(self.dim(a)), Size(self.dim(b)))))

    def _solved(self, difference: Dim) -> bool:
        """Bind one loose name so that `difference` is 0."""
        loose = [(n, c) for n, c in difference.terms if isinstance(n, str) and n not in self.rigid]
        loose.sort(key=lambda item: (abs(item[1]) != 1, "#" not in item[0]))
        for name, coefficient in loose:
            rest = dims.add(difference, dims.scale(dims.name(name), -coefficient))
            if name in dims.names(rest):
                continue
            self.dims[name] = self._quotient(dims.scale(rest, -1 if coefficient > 0 else 1), abs(coefficient))
            return True
        return False

    def _quotient(self, rest: Dim, divisor: int) -> Dim:
        exact = dims.exact_quotient(rest, divisor)
        if exact is not None:
            return exact
        remainder = dims.combine("%", rest, dims.constant(divisor))
        self.guard(Apply("==", (Size(remainder), Size(dims.constant(0)))))
        return dims.combine("//", rest, dims.constant(divisor))

    # ---- results of elementwise primitives

    def broadcast(self, a: Shape | None, b: Shape | None, span: Span) -> Shape | None:
        """The shape of an elementwise result; None where it cannot be told. RW305 where two sizes never agree."""
        a, b = self.shape(a), self.shape(b)
        if a is None or b is None:
            return None
        if a == b:
            return a
        (star_a, tail_a), (star_b, tail_b) = _split(a), _split(b)
        if star_a and star_b and star_a != star_b:
            return None
        size = max(len(tail_a), len(tail_b))
        star = star_a or star_b
        if star and len(tail_a if star_a else tail_b) < size and not (star_a and star_b):
            return None
        pad = dims.constant(1)
        left = [pad] * (size - len(tail_a)) + list(tail_a)
        right = [pad] * (size - len(tail_b)) + list(tail_b)
        out: list[Dim | Star] = [star] if star else []
        for x, y in zip(left, right):
            out.append(self._broadcast_dim(x, y, span))
        return tuple(out)

    def _broadcast_dim(self, x: Dim, y: Dim, span: Span) -> Dim:
        if y.number == 1:
            return x
        if x.number == 1:
            return y
        self.unify_dim(x, y, span, "an operand")
        return self.dim(x)

    def instance(self, attributes: Mapping[str, Scalar]) -> Instance:
        """Names for one call of a declared op."""
        return Instance(self, dict(attributes))


@define(eq=False, repr=False)
class Instance:
    """One call: the callee's names, renamed into the item's."""

    solver: Solver
    attributes: dict[str, Scalar]
    names: dict[str, str] = field(factory=dict[str, str])
    stars: set[str] = field(factory=set[str])
    classes: set[str] = field(factory=set[str])

    def rename(self, name: str) -> str:
        """The item's name for a name of the callee."""
        if name not in self.names:
            self.names[name] = self.solver.fresh(name)
        return self.names[name]

    def dim(self, dim: Dim) -> Dim:
        """A dim of the callee; an `int` attribute in it is what the call gives."""
        values: dict[str, Dim] = {}
        for name in dims.names(dim):
            known = self.attributes.get(name)
            if known is not None:
                values[name] = as_dim(known)
            elif (renamed := self.rename(name)) != name:
                values[name] = dims.name(renamed)
        return dims.substitute(dim, values)

    def axis(self, dim: Dim | Star) -> Dim | Star:
        """An item of a shape."""
        if not isinstance(dim, Star):
            return self.dim(dim)
        self.stars.add(dim.name)
        renamed = self.rename(dim.name)
        return dim if renamed == dim.name else Star(renamed)

    def shape(self, shape: Shape | None) -> Shape | None:
        """A shape of the callee."""
        return None if shape is None else same(shape, tuple(map(self.axis, shape)))

    def dtype(self, dtype: DtypeExpr) -> DtypeExpr:
        """A dtype of the callee."""
        if isinstance(dtype, DtypeVar):
            self.classes.add(dtype.key)
            renamed = self.rename(dtype.key)
            return dtype if renamed == dtype.key else DtypeVar(renamed, dtype.members)
        if isinstance(dtype, Ref):
            return as_dtype(self.attributes.get(dtype.name, dtype))
        return dtype

    def type(self, type_: TensorType) -> TensorType:
        """A type of the callee."""
        layout = type_.layout
        if isinstance(layout, Ref):
            given = self.attributes.get(layout.name, layout)
            layout = given if isinstance(given, Ref) else getattr(given, "value", layout)
        return retyped(type_, self.dtype(type_.dtype), self.shape(type_.shape), layout)


def same(old: Shape, new: Shape) -> Shape:
    """`new`, or `old` where that is equal: equal types are mostly one object, quick to compare and to store."""
    return old if new == old else new


def retyped(type_: TensorType, dtype: DtypeExpr, shape: Shape | None, layout: str | Ref) -> TensorType:
    """A type of these parts: `type_` where it has them."""
    if dtype is type_.dtype and shape is type_.shape and layout is type_.layout:
        return type_
    return TensorType(dtype, shape, layout)


def as_dim(scalar: Scalar) -> Dim:
    """An int scalar as a dim; one that is none becomes an opaque name."""
    if isinstance(scalar, Size):
        return scalar.dim
    if isinstance(scalar, Ref):
        return dims.name(scalar.name)
    value = getattr(scalar, "value", None)
    return dims.constant(value) if isinstance(value, int) else dims.name(f"?{scalar}")


def as_dtype(scalar: Scalar) -> DtypeExpr:
    """A dtype scalar as a dtype."""
    if isinstance(scalar, Dtype | DtypeVar | Ref):
        return scalar
    value = getattr(scalar, "value", None)
    return value if isinstance(value, Dtype) else None


def impossible(difference: Dim) -> bool:
    """Is `difference == 0` false for all sizes (one or more) of its names? Only where that is plain."""
    if not difference.terms:
        return difference.const != 0
    signs = {c > 0 for _, c in difference.terms}
    if len(signs) == 1 and all(isinstance(a, str) for a, _ in difference.terms):
        least = sum(abs(c) for _, c in difference.terms)
        const = difference.const if True in signs else -difference.const
        if least + const > 0:
            return True
    if len(difference.terms) == 1:
        return difference.const % difference.terms[0][1] != 0
    return False


def shown(dtype: DtypeExpr) -> str:
    """A dtype in a message."""
    return f"`{dtype.name}`" if isinstance(dtype, Ref) else str(dtype)


def show(shape: Shape) -> str:
    """A shape in a message."""
    return "[" + ", ".join(map(str, shape)) + "]"


def _other_rank(left: Shape, right: Shape, span: Span, what: str) -> Problem:
    star, tail = _split(left)
    axes = f"{len(tail)} {'axis' if len(tail) == 1 else 'axes'}" + (" or more" if star else "")
    hint = f"give it {axes}: `reshape`, or another type"
    return Problem("RW303", f"{what} has the shape {show(left)}, not {show(right)}", span, hint)


def _cast(dtype: DtypeExpr) -> str:
    return f"write the cast: `{dtype}(...)`" if isinstance(dtype, Dtype) else "write a cast: `to(..., t)`"


def _split(shape: Shape) -> tuple[Star | None, tuple[Dim, ...]]:
    star = shape[0] if shape and isinstance(shape[0], Star) else None
    return star, tuple(d for d in shape if isinstance(d, Dim))


def _one_element(shape: Shape) -> bool:
    return all(isinstance(d, Dim) and d.number == 1 for d in shape)
