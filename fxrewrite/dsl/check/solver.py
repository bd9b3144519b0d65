"""Unification of types: dims as linear equations, leading axes, and the one dtype of a class. One solver an item."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from fxrewrite.dsl import dims
from fxrewrite.dsl.check.problem import Problem
from fxrewrite.dsl.core import Apply, Dtype, DtypeVar, Ref, Scalar, Size, TensorType
from fxrewrite.dsl.dims import Compound, Dim, Shape, Star
from fxrewrite.dsl.syntax import Span

DtypeExpr = Dtype | DtypeVar | Ref | None


@define
class Solver:
    """What is known about the names of an item. `rigid` names are the item's own: no equation may tie them to each other."""

    rigid: set[str] = field(factory=set)
    used: set[str] = field(factory=set)
    dims: dict[str, Dim] = field(factory=dict)
    stars: dict[str, Shape] = field(factory=dict)
    dtypes: dict[str, DtypeExpr] = field(factory=dict)
    guards: list[Scalar] = field(factory=list)

    def fresh(self, name: str) -> str:
        """`name`, or a variant of it where the item has the name already."""
        base = name.split("#")[0]
        candidate, n = base, 1
        while candidate in self.used:
            n += 1
            candidate = f"{base}#{n}"
        self.used.add(candidate)
        return candidate

    # ---- what is known by now

    def dim(self, dim: Dim) -> Dim:
        """`dim` with every solved name replaced."""
        while dims.names(dim) & self.dims.keys():
            dim = dims.substitute(dim, self.dims)
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
        return tuple(out)

    def dtype(self, dtype: DtypeExpr) -> DtypeExpr:
        """`dtype` with every solved class replaced."""
        while isinstance(dtype, DtypeVar) and dtype.key in self.dtypes:
            dtype = self.dtypes[dtype.key]
        return dtype

    def type(self, type_: TensorType) -> TensorType:
        """`type_` as far as it is solved."""
        return TensorType(self.dtype(type_.dtype), self.shape(type_.shape), type_.layout)

    # ---- equations

    def unify(self, declared: TensorType, actual: TensorType, span: Span, what: str) -> None:
        """Make the type of an argument fit the declared one, or raise RW301, RW303 or RW305."""
        self.unify_dtype(declared.dtype, actual.dtype, span, what)
        if declared.shape is not None and actual.shape is not None:
            self.unify_shape(declared.shape, actual.shape, span, what)

    def unify_dtype(self, declared: DtypeExpr, actual: DtypeExpr, span: Span, what: str) -> None:
        """One dtype on both sides; classes intersect."""
        declared, actual = self.dtype(declared), self.dtype(actual)
        if declared is None or actual is None or declared == actual or isinstance(declared, Ref):
            return
        if isinstance(declared, DtypeVar) and not isinstance(actual, DtypeVar):
            if isinstance(actual, Dtype) and actual.name not in declared.members:
                raise Problem("RW301", f"{what} is {declared} ({', '.join(declared.members)}), not {actual}", span)
            self.dtypes[declared.key] = actual
        elif isinstance(declared, DtypeVar) and isinstance(actual, DtypeVar):
            self._unify_classes(declared, actual, span, what)
        elif isinstance(actual, DtypeVar) and isinstance(declared, Dtype):
            if declared.name not in actual.members or actual.key in self.rigid:
                hint = f"write `{declared}({what.split()[-1]})`" if declared.name in ("f32", "f64") else ""
                raise Problem("RW301", f"{what} is {declared}, not {actual}", span, hint)
            self.dtypes[actual.key] = declared
        elif isinstance(actual, Dtype) and isinstance(declared, Dtype):
            raise Problem("RW301", f"{what} is {declared}, not {actual}", span)

    def _unify_classes(self, declared: DtypeVar, actual: DtypeVar, span: Span, what: str) -> None:
        both = tuple(m for m in actual.members if m in declared.members)
        if not both:
            raise Problem("RW301", f"{what} is {declared}, and no {actual} is one", span)
        if declared.key not in self.rigid:
            if both == actual.members:
                self.dtypes[declared.key] = actual
            elif actual.key in self.rigid:
                self.dtypes[declared.key] = actual
                self.guards.append(Apply("dtype_in", (actual, *map(Dtype, both))))
            else:
                narrow = DtypeVar(self.fresh(declared.key), both)
                self.dtypes[declared.key] = self.dtypes[actual.key] = narrow
        elif actual.key not in self.rigid and both == declared.members:
            self.dtypes[actual.key] = declared
        else:
            self.guards.append(Apply("==", (declared, actual)))

    def unify_shape(self, declared: Shape, actual: Shape, span: Span, what: str) -> None:
        """Equal ranks and dims. Shapes of one element are equal whatever their rank."""
        left, right = self.shape(declared) or (), self.shape(actual) or ()
        if left == right or (_one_element(left) and _one_element(right)):
            return
        star_l, tail_l = _split(left)
        star_r, tail_r = _split(right)
        if star_l and star_r and len(tail_l) != len(tail_r) and star_l.name == star_r.name:
            raise Problem("RW303", f"{what} has the shape {_show(left)}, not {_show(right)}", span)
        short, long = (tail_l, tail_r) if len(tail_l) <= len(tail_r) else (tail_r, tail_l)
        short_star, long_star = (star_l, star_r) if short is tail_l else (star_r, star_l)
        extra = long[: len(long) - len(short)]
        if len(tail_l) == len(tail_r) and star_l and star_r:
            if star_l != star_r:
                self._bind_star(star_l, star_r)
        elif short_star is not None:
            if short_star.name in self.rigid and not (long_star and long_star.name not in self.rigid):
                raise Problem("RW303", f"{what} has the shape {_show(left)}, not {_show(right)}", span)
            self.stars[short_star.name] = ((long_star,) if long_star else ()) + tuple(extra)
        elif long_star is not None and not extra:
            if long_star.name in self.rigid:
                raise Problem("RW303", f"{what} has the shape {_show(left)}, not {_show(right)}", span)
            self.stars[long_star.name] = ()
        elif extra or long_star is not None:
            raise Problem("RW303", f"{what} has the rank {len(left)} ({_show(left)}), not {len(right)}", span)
        for a, b in zip(short[::-1], long[::-1], strict=False):
            self.unify_dim(a, b, span, what)

    def _bind_star(self, a: Star, b: Star) -> None:
        loose, fixed = (a, b) if a.name not in self.rigid else (b, a)
        if loose.name not in self.rigid:
            self.stars[loose.name] = (fixed,)

    def unify_dim(self, a: Dim, b: Dim, span: Span, what: str) -> None:
        """Solve `a == b` for one name, note it as a guard where only sizes can tell, or raise RW305."""
        difference = dims.add(self.dim(a), self.dim(b), -1)
        if not difference.terms:
            if difference.const:
                raise Problem("RW305", f"{what}: a dim is {self.dim(a)} here and {self.dim(b)} there", span)
            return
        loose = [(n, c) for n, c in difference.terms if isinstance(n, str) and n not in self.rigid]
        loose.sort(key=lambda item: (abs(item[1]) != 1, "#" not in str(item[0])))
        for name, coefficient in loose:
            rest = dims.add(difference, dims.scale(dims.name(str(name)), -coefficient))
            if name in dims.names(rest):
                continue
            rest = dims.scale(rest, -1 if coefficient > 0 else 1)
            divisor = abs(coefficient)
            quotient = dims.exact_quotient(rest, divisor)
            if quotient is None:
                quotient = dims.combine("//", rest, dims.constant(divisor))
                remainder = dims.combine("%", rest, dims.constant(divisor))
                self.guards.append(Apply("==", (Size(remainder), Size(dims.constant(0)))))
            self.dims[str(name)] = quotient
            return
        rigid_only = all(isinstance(n, str) for n, _ in difference.terms)
        if rigid_only and len(difference.terms) == 2 and not difference.const:
            raise Problem("RW305", f"{what}: {self.dim(a)} and {self.dim(b)} are independent sizes", span)
        self.guards.append(Apply("==", (Size(self.dim(a)), Size(self.dim(b)))))

    # ---- results of elementwise primitives

    def promote(self, a: DtypeExpr, b: DtypeExpr, span: Span) -> DtypeExpr:
        """torch's promotion of two tensors of floats, or RW301 where it is not one dtype for every member of the classes."""
        a, b = self.dtype(a), self.dtype(b)
        if a is None or b is None or a == b:
            return a if b is None else b
        for wide, other in ((a, b), (b, a)):
            if isinstance(wide, Dtype) and wide.name in ("f64", "f32") and _at_most(other, wide.name):
                return wide
        raise Problem("RW301", f"the dtypes {a} and {b} do not meet here", span, "write the cast: `f32(...)`")

    def broadcast(self, a: Shape | None, b: Shape | None) -> Shape | None:
        """The shape of an elementwise result; None where it cannot be told."""
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
        for x, y in zip(left, right, strict=True):
            out.append(y if x.number == 1 else x)
        return tuple(out)

    def instance(self, attributes: Mapping[str, Scalar]) -> Instance:
        """Names for one call of a declared op."""
        return Instance(self, dict(attributes))


@define
class Instance:
    """One call: the callee's names, renamed into the item's."""

    solver: Solver
    attributes: dict[str, Scalar]
    names: dict[str, str] = field(factory=dict)
    star_names: set[str] = field(factory=set)

    def rename(self, name: str) -> str:
        if name not in self.names:
            self.names[name] = self.solver.fresh(name)
        return self.names[name]

    def dim(self, dim: Dim) -> Dim:
        values: dict[str, Dim] = {}
        for name in dims.names(dim):
            known = self.attributes.get(name)
            values[name] = as_dim(known) if known is not None else dims.name(self.rename(name))
        return dims.substitute(dim, values)

    def shape(self, shape: Shape | None) -> Shape | None:
        if shape is None:
            return None
        return tuple(Star(self.rename(d.name)) if isinstance(d, Star) else self.dim(d) for d in shape)

    def dtype(self, dtype: DtypeExpr) -> DtypeExpr:
        if isinstance(dtype, DtypeVar):
            return DtypeVar(self.rename(dtype.key), dtype.members)
        if isinstance(dtype, Ref):
            return as_dtype(self.attributes.get(dtype.name, dtype))
        return dtype

    def type(self, type_: TensorType) -> TensorType:
        layout = type_.layout
        if isinstance(layout, Ref):
            given = self.attributes.get(layout.name, layout)
            layout = given if isinstance(given, Ref) else getattr(given, "value", layout)
        return TensorType(self.dtype(type_.dtype), self.shape(type_.shape), layout)


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


def _at_most(dtype: DtypeExpr, wide: str) -> bool:
    low = {"bf16", "f16", "f32"} | ({"f64"} if wide == "f64" else set())
    members = dtype.members if isinstance(dtype, DtypeVar) else (dtype.name,) if isinstance(dtype, Dtype) else ("?",)
    return set(members) <= low


def _split(shape: Shape) -> tuple[Star | None, tuple[Dim, ...]]:
    if shape and isinstance(shape[0], Star):
        return shape[0], tuple(d for d in shape[1:] if isinstance(d, Dim))
    return None, tuple(d for d in shape if isinstance(d, Dim))


def _one_element(shape: Shape) -> bool:
    return all(isinstance(d, Dim) and d.number == 1 for d in shape)


def _show(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


__all__ = ["Compound", "Instance", "Solver", "as_dim", "as_dtype"]
