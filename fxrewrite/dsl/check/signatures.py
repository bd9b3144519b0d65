"""Written signatures: types, operands, attributes, results."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from attrs import define, field

from fxrewrite.dsl import dims, syntax
from fxrewrite.dsl.check.builtins import DTYPES
from fxrewrite.dsl.check.places import Places, names_in
from fxrewrite.dsl.check.problem import Problem, closest
from fxrewrite.dsl.core import NO_DEFAULT, Attribute, Dtype, DtypeVar, OpDef, OperandInfo, Ref, ResultInfo, TensorType
from fxrewrite.dsl.dims import Dim, Star
from fxrewrite.dsl.formats import DTYPE_HINTS
from fxrewrite.dsl.wording import text

_NO_ATTRIBUTES: Mapping[str, str] = {}
ATTRIBUTE_TYPES = "int float bool str list group layout dtype".split()
LAYOUTS = ("row", "col", "tma", "swizzled")
LAYOUT_HINT = 'write "row", "col", "tma" or "swizzled"'
INT64 = 2**63  # attributes are ints of a torch schema
ATTRIBUTE_HINT = "an attribute is int, float, bool, str, list, group, layout or dtype"


@define(eq=False, repr=False)
class Signatures:
    """Reads types. `classes`: the dtype classes that a file may use."""

    places: Places
    classes: Callable[[str], dict[str, tuple[str, ...]]] = field(default=lambda _: {})

    def tensor(self, t: syntax.Type, attributes: Mapping[str, str]) -> TensorType:
        """A tensor type; `attributes`: names that a dtype, a dim or a layout may be, with their types."""
        classes = self.classes(t.span.file)
        dtype: Any
        if t.name in DTYPES:
            dtype = Dtype(t.name)
        elif t.name in classes:
            dtype = DtypeVar(t.name, classes[t.name])
        elif t.name in attributes:
            self._is_attribute(t.name, "dtype", attributes, self.places.word(t.span, t.name), "RW310")
            dtype = Ref(t.name)
        else:
            known = [*DTYPES, *classes, *attributes]
            raise unknown_dtype(t.name, self.places.word(t.span, t.name), known)
        return TensorType(dtype, self.shape(t.dims, attributes), self.layout(t, attributes))

    def _is_attribute(
        self, name: str, wanted: str, attributes: Mapping[str, str], span: syntax.Span, code: str
    ) -> None:
        """`code` where an attribute that a type names is of another type than `wanted`."""
        if attributes[name] != wanted:
            message = f"`{name}` is an attribute of type {attributes[name]}, and {_article(wanted)} is needed here"
            raise Problem(code, message, span, f"declare it so: `; {name}: {wanted}`")

    def shape(
        self, axes: tuple[Any, ...] | None, attributes: Mapping[str, str] = _NO_ATTRIBUTES
    ) -> tuple[Dim | Star, ...] | None:
        """The dims of a type."""
        if axes is None:
            return None
        for axis in axes[1:]:
            if isinstance(axis, syntax.Splat):
                hint = f"write `[*{axis.name}, ...]`"
                raise Problem("RW303", f"`*{axis.name}` stands for the leading axes: it comes first", axis.span, hint)
        for name in names_in(axes):
            self._dim_name(name, attributes)
        return tuple(self.dim(d) for d in axes)

    def _dim_name(self, found: syntax.Var, attributes: Mapping[str, str]) -> None:
        """RW304 where a name in a type is neither a dim nor an attribute that is a whole number."""
        name = found.name
        place = self.places.word(found.span, name)
        if name in attributes:
            self._is_attribute(name, "int", attributes, place, "RW310")
        elif not name[0].isupper():
            hint = f"write `{name.capitalize()}`" if name[0].isalpha() else "write a capital name"
            raise Problem("RW304", f"`{name}` is no dim: those have capital names", place, hint)

    def layout(self, t: syntax.Type, attributes: Mapping[str, str]) -> str | Ref:
        """The layout of a type: a name, or the attribute that holds it."""
        if t.layout is None:
            return "row"
        if isinstance(t.layout, syntax.Var):
            if t.layout.name not in attributes:
                hint = closest(t.layout.name, attributes) or LAYOUT_HINT
                raise Problem("RW311", f"`{t.layout.name}` is no attribute of type layout", t.layout.span, hint)
            self._is_attribute(t.layout.name, "layout", attributes, t.layout.span, "RW311")
            return Ref(t.layout.name)
        if t.layout.value not in LAYOUTS:
            raise Problem("RW311", f'"{t.layout.value}" is no layout', t.layout.span, LAYOUT_HINT)
        return t.layout.value

    def dim(self, d: Any) -> Dim | Star:
        """A dim expression of a type."""
        if isinstance(d, syntax.Splat):
            return Star(d.name)
        if isinstance(d, syntax.Var):
            return dims.name(d.name)
        if isinstance(d, syntax.Number) and isinstance(d.value, int):
            return dims.constant(d.value)
        operands: tuple[Any, ...] = ()
        op = ""
        if isinstance(d, syntax.Binary) and d.op in ("+", "-", "*", "//", "%"):
            op, operands = d.op, (d.left, d.right)
        elif isinstance(d, syntax.Call) and d.func == "up" and len(d.args) == 2 and not d.kwargs:
            op, operands = "up", d.args
        made = [self.dim(o) for o in operands]
        if len(made) == 2 and isinstance(made[0], Dim) and isinstance(made[1], Dim):
            divides = op in ("//", "%", "up")
            if divides and made[1].number is not None and made[1].number < 1:
                raise Problem("RW305", f"`{op}` by {made[1]} gives no size", d.span, "divide by 1 or more")
            size = dims.combine(op, made[0], made[1])
            if size.number is not None and size.number < 0:
                raise Problem("RW305", f"a size is never {size}", d.span, "a size is 1 or more")
            return size
        open_size = isinstance(d, syntax.Any) or (isinstance(d, syntax.Unary) and isinstance(d.operand, syntax.Number))
        hint = "any size gets a name: `T`; leading axes are `*B`" if open_size else "`D`, `2*D`, `D//G`, `up(D, 4)`"
        raise Problem("RW305", "a dim is a name or an integer expression of names", d.span, hint)

    def operand(self, p: syntax.Param, attributes: Mapping[str, str]) -> OperandInfo | None:
        """A declared operand; None for one without a type."""
        callable_by_name(p.name, self.places.word(p.span, p.name))
        if p.default is not None and not isinstance(p.default, syntax.NoneLit):
            hint = f"`; {p.name}: float = ...` is an attribute"
            raise Problem("RW310", f"the default of the operand `{p.name}` can only be `none`", p.default.span, hint)
        if p.type is None:
            return None
        default = p.default is not None
        if p.type.name == "str" and p.type.dims is None:
            return OperandInfo(p.name, TensorType(None, None), p.type.optional, default, p.star, "str", p.span)
        if p.type.name in ATTRIBUTE_TYPES and p.type.dims is None:
            hint = f"attributes stand after `;`: `; {p.name}: {p.type.name}`"
            place = self.places.word(p.span, p.name)
            raise Problem("RW310", f"`{p.name}` is of type {p.type.name}: an attribute", place, hint)
        type_ = self.tensor(p.type, attributes)
        if default and not p.type.optional:
            message = f"`{p.name}` has the default `none`, and its type does not allow it"
            raise Problem("RW307", message, self.places.word(p.span, p.name), f"write `{p.name}: {type_}? = none`")
        return OperandInfo(p.name, type_, p.type.optional, default, p.star, "tensor", p.span)

    def attribute(self, p: syntax.Param) -> Attribute:
        """A declared attribute."""
        place = self.places.word(p.span, p.name)
        callable_by_name(p.name, place)
        if p.type is None or p.type.name not in ATTRIBUTE_TYPES or p.type.dims is not None:
            found = f"has the type {p.type.name}" if p.type else "has no type"
            raise Problem("RW310", f"`{p.name}` stands after `;` and {found}", place, ATTRIBUTE_HINT)
        domain: tuple[Any, ...] | None = None
        if isinstance(p.domain, str):
            classes = self.classes(p.span.file)
            if p.domain not in classes:
                at = self.places.word(p.span, p.domain)
                raise Problem(
                    "RW217",
                    f"unknown dtype class `{p.domain}`",
                    at,
                    closest(p.domain, classes) or f"a class is declared: `dtype {p.domain} = {{bf16, f16}}`",
                )
            domain = tuple(Dtype(m) for m in classes[p.domain])
            if p.type.name != "dtype":
                hint = f"write a set: `{p.name}: {p.type.name} in {{...}}`"
                raise Problem("RW310", f"`{p.domain}` is a class of dtypes, and `{p.name}` is no dtype", place, hint)
        elif p.domain is not None:
            domain = tuple(plain(e) for e in p.domain)
            member = Attribute(p.name, p.type.name, p.type.optional)
            for e, value in zip(p.domain, domain):
                check_attribute(member, value, e.span, "this signature")
        default = NO_DEFAULT if p.default is None else plain(p.default)
        if default is not NO_DEFAULT and p.type.name == "float" and type(default) is int:
            default = float(default)
        made = Attribute(p.name, p.type.name, p.type.optional, domain, default, self.places.word(p.span, p.name))
        if p.default is not None and default is not NO_DEFAULT:
            check_attribute(made, default, p.default.span, "this signature")
        return made

    def result(self, r: syntax.Result, attributes: Mapping[str, str], own: set[str]) -> ResultInfo:
        """A declared result; RW302 where its dtype is a class that no operand has."""
        type_ = self.tensor(r.type, attributes)
        if isinstance(type_.dtype, DtypeVar) and type_.dtype.key not in own:
            key = type_.dtype.key
            message = f"the class {key} is only in a result: nothing says which dtype it is"
            hint = f"take it as an attribute: `; qt: dtype in {key} = {type_.dtype.members[0]}`"
            raise Problem("RW302", message, self.places.word(r.type.span, key), hint)
        return ResultInfo(r.name, type_)


def unknown_dtype(name: str, span: syntax.Span, known: Iterable[str]) -> Problem:
    """RW217, with what another library's name is called here."""
    known = list(known)
    hint = f"write `{DTYPE_HINTS[name]}`" if name in DTYPE_HINTS else closest(name, known)
    if not hint or name.lower() in ("tensor", "float", "array", "any"):
        classes = ", ".join(k for k in known if k not in DTYPES)
        hint = "a type is a dtype or a class with dims: `bf16[T, D]`" + (f"; here: {classes}" if classes else "")
    return Problem("RW217", f"unknown dtype `{name}`", span, hint)


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
        return tuple(plain(i) for i in e.items if not isinstance(i, syntax.Splat))
    raise Problem("RW310", "a literal is needed here", e.span, 'a number, `true`, `none`, a string `"..."` or a dtype')


PYTHON_TYPES: dict[str, Any] = {
    "float": int | float,
    "int": int,
    "bool": bool,
    "str": str,
    "layout": str,
    "list": tuple,
    "dtype": Dtype,
}


def callable_by_name(name: str, place: syntax.Span) -> None:
    """RW208 for a name of an op, operand or attribute that Python cannot call by it."""
    if keyword.iskeyword(name):
        raise Problem(
            "RW208", f"`{name}` is a reserved word of Python, where ops are called", place, f"write `{name}_`"
        )


def check_attribute(a: Attribute, value: Any, span: syntax.Span, op: str) -> None:
    """RW310 (RW311 for a layout) where a plain value does not fit the type or the domain of an attribute."""
    if value is None and a.optional:
        return
    said = say(value)
    python = PYTHON_TYPES.get(a.type)
    if python is not None and (not isinstance(value, python) or isinstance(value, bool) != (a.type == "bool")):
        raise Problem("RW310", f"`{a.name}` of {op} is {_article(a.type)}, not {said}", span, _EXAMPLES[a.type])
    if type(value) is int and not -INT64 <= value < INT64:
        raise Problem("RW310", f"{value} does not fit in 64 bits", span, f"{INT64 - 1} is the largest whole number")
    if a.domain is not None and value not in a.domain:
        allowed = ", ".join(map(say, a.domain))
        raise Problem(
            "RW310",
            f"`{a.name}` of {op} is one of {allowed}; not {said}",
            span,
            closest(text(value), map(text, a.domain)) or "write one of them, or nothing for the default",
        )
    if a.type == "layout" and value not in LAYOUTS:
        raise Problem("RW311", f"{said} is no layout", span, closest(str(value), LAYOUTS) or LAYOUT_HINT)


def check_size(name: str, value: Any, op: OpDef, span: syntax.Span) -> None:
    """RW310 where an attribute that types have as a size is given a number that no size has."""
    if type(value) is int and value < 1 and name in _sizes(op):
        raise Problem("RW310", f"`{name}` of {op.name} is a size, and {value} is none", span, "a size is 1 or more")


def _sizes(op: OpDef) -> set[str]:
    types = [o.type for o in op.operands] + [r.type for r in op.results]
    return {n for t in types for d in t.shape or () if isinstance(d, Dim) for n in dims.names(d)}


_EXAMPLES = {
    "float": "write a number: `1e-6`",
    "int": "write a whole number",
    "bool": "write `true` or `false`",
    "str": 'write a string: `"..."`',
    "layout": LAYOUT_HINT,
    "list": "write a list: `[1, 2]`",
    "dtype": "write a dtype: `bf16`",
}


def _article(type_: str) -> str:
    return f"an {type_}" if type_[0] in "aeiou" else f"a {type_}"


def say(value: Any) -> str:
    """A plain value as the text of a rule has it."""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if value is None:
        return "`none`"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"`[{', '.join(say(v).strip('`') for v in cast('tuple[Any, ...]', value))}]`"
    return f"`{value}`"


def determined(types: Iterable[TensorType], attributes: set[str]) -> set[str]:
    """The dim names that the sizes of operands determine, one unknown an equation."""
    known, open_dims = set(attributes), [d for t in types for d in t.shape or () if isinstance(d, Dim)]
    progress = True
    while progress:
        progress = False
        for dim in open_dims:
            name = _one_unknown(dim, known)
            if name is not None:
                known.add(name)
                progress = True
    return known


def _one_unknown(dim: Dim, known: set[str]) -> str | None:
    """The one name that `dim == a size` is solved for. `D // 2 == n` leaves two numbers for D."""
    atoms = [a for a, _ in dim.terms if not (dims.names(Dim(((a, 1),))) <= known)]
    return atoms[0] if len(atoms) == 1 and isinstance(atoms[0], str) else None
