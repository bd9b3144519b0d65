"""Written signatures: types, operands, attributes, results."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.core import NO_DEFAULT, Attribute, Dtype, DtypeVar, OperandInfo, Ref, ResultInfo, TensorType
from fxrewrite.dsl.dims import Dim, Star

DTYPES = "bf16 f16 f32 f64 e4m3fn e4m3fnuz e5m2 e8m0fnu i8 i16 i32 i64 u8 bool".split()
ATTRIBUTE_TYPES = "int float bool str list group layout dtype".split()
LAYOUTS = ("row", "col", "tma", "swizzled")


@define
class Signatures:
    """Reads types against the dtype classes of the program."""

    classes: dict[str, tuple[str, ...]] = field(factory=dict)

    def tensor(self, t: syntax.Type, attributes: set[str]) -> TensorType:
        """A tensor type; `attributes` are names that a dtype, a dim or a layout may be."""
        dtype: Any
        if t.name in DTYPES:
            dtype = Dtype(t.name)
        elif t.name in self.classes:
            dtype = DtypeVar(t.name, self.classes[t.name])
        elif t.name in attributes:
            dtype = Ref(t.name)
        else:
            known = [*DTYPES, *self.classes, *attributes]
            hints = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float": "f32", "half": "f16", "int8": "i8",
                     "float8_e4m3fn": "e4m3fn", "fp32": "f32", "fp16": "f16", "uint8": "u8", "int32": "i32"}  # fmt: skip
            hint = f"write `{hints[t.name]}`" if t.name in hints else closest(t.name, known)
            raise Problem("RW217", f"unknown dtype `{t.name}`", t.span, hint)
        shape = None if t.dims is None else tuple(self.dim(d) for d in t.dims)
        return TensorType(dtype, shape, self.layout(t, attributes))

    def layout(self, t: syntax.Type, attributes: set[str]) -> str | Ref:
        if t.layout is None:
            return "row"
        if isinstance(t.layout, syntax.Var):
            if t.layout.name not in attributes:
                raise Problem("RW311", f"`{t.layout.name}` is no attribute of type layout", t.layout.span)
            return Ref(t.layout.name)
        if t.layout.value not in LAYOUTS:
            raise Problem(
                "RW311", f'"{t.layout.value}" is no layout', t.layout.span, 'write "row", "col", "tma" or "swizzled"'
            )
        return t.layout.value

    def dim(self, d: Any) -> Dim | Star:
        """A dim expression of a type."""
        if isinstance(d, syntax.Splat):
            return Star(d.name)
        if isinstance(d, syntax.Var):
            return dims.name(d.name)
        if isinstance(d, syntax.Number) and isinstance(d.value, int):
            return dims.constant(d.value)
        if isinstance(d, syntax.Binary) and d.op in ("+", "-", "*", "//", "%"):
            left, right = self.dim(d.left), self.dim(d.right)
            if isinstance(left, Dim) and isinstance(right, Dim):
                return dims.combine(d.op, left, right)
        if isinstance(d, syntax.Call) and d.func == "up" and len(d.args) == 2:
            left, right = self.dim(d.args[0]), self.dim(d.args[1])
            if isinstance(left, Dim) and isinstance(right, Dim):
                return dims.combine("up", left, right)
        raise Problem("RW305", "a dim is a name or an integer expression of names", d.span)

    def operand(self, p: syntax.Param, attributes: set[str]) -> OperandInfo | None:
        """A declared operand; None for one without a type."""
        if p.type is None:
            return None
        if p.type.name == "str":
            return OperandInfo(
                p.name, TensorType(None, None), p.type.optional, p.default is not None, p.star, "str", p.span
            )
        if p.type.name in ATTRIBUTE_TYPES and p.type.dims is None:
            raise Problem(
                "RW310", f"`{p.name}` is of type {p.type.name}: an attribute", p.span, "attributes stand after `;`"
            )
        if p.default is not None and not isinstance(p.default, syntax.NoneLit):
            raise Problem("RW310", f"an operand has no default but `none`: `{p.name}`", p.default.span)
        return OperandInfo(
            p.name, self.tensor(p.type, attributes), p.type.optional, p.default is not None, p.star, "tensor", p.span
        )

    def attribute(self, p: syntax.Param) -> Attribute:
        """A declared attribute."""
        if p.type is None or p.type.name not in ATTRIBUTE_TYPES:
            found = p.type.name if p.type else "nothing"
            raise Problem("RW310", f"`{p.name}` stands after `;` and has the type {found}", p.span,
                          "an attribute is int, float, bool, str, list, group, layout or dtype")  # fmt: skip
        domain: tuple[Any, ...] | None = None
        if isinstance(p.domain, str):
            if p.domain not in self.classes:
                raise Problem("RW217", f"unknown dtype class `{p.domain}`", p.span, closest(p.domain, self.classes))
            domain = tuple(Dtype(m) for m in self.classes[p.domain])
        elif p.domain is not None:
            domain = tuple(plain(e) for e in p.domain)
        default = NO_DEFAULT if p.default is None else plain(p.default)
        if default is not NO_DEFAULT and p.type.name == "float" and type(default) is int:
            default = float(default)
        return Attribute(p.name, p.type.name, p.type.optional, domain, default, p.span)

    def result(self, r: syntax.Result, attributes: set[str], own: set[str]) -> ResultInfo:
        """A declared result; RW302 where its dtype is a class that no operand has."""
        type_ = self.tensor(r.type, attributes)
        if isinstance(type_.dtype, DtypeVar) and type_.dtype.key not in own:
            raise Problem(
                "RW302", f"the class {type_.dtype.key} is only in a result: nothing says which dtype it is", r.type.span,
                f"take it as an attribute: `; qt: dtype in {type_.dtype.key} = {type_.dtype.members[0]}`",
            )  # fmt: skip
        return ResultInfo(r.name, type_)


def plain(e: syntax.Expr) -> Any:
    """The value of a literal."""
    if isinstance(e, syntax.Number | syntax.String | syntax.Bool):
        return e.value
    if isinstance(e, syntax.NoneLit):
        return None
    if isinstance(e, syntax.Unary) and e.op == "-" and isinstance(e.operand, syntax.Number):
        return -e.operand.value
    if isinstance(e, syntax.Var) and e.name in DTYPES:
        return Dtype(e.name)
    if isinstance(e, syntax.List):
        return tuple(plain(i) for i in e.items)  # type: ignore[arg-type]
    raise Problem("RW310", "a literal is needed here", e.span)
