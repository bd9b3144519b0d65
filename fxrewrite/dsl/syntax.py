"""The syntax tree: one class a grammar rule, every node with the place that it came from.

Nothing here knows what a name means; `fxrewrite.dsl.check` does. Every class is frozen. Two nodes are equal when they
say the same thing, wherever they stand: `span` takes no part in equality.
"""

from __future__ import annotations

from attrs import field, frozen


@frozen
class Span:
    """A stretch of a source file. Lines and columns count from 1; the end is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@frozen
class Node:
    """What every class below has."""

    span: Span = field(eq=False, repr=False)


# ---- expressions


@frozen
class Var(Node):
    """A name: operand, attribute, dim, dtype or part."""

    name: str


@frozen
class Number(Node):
    """`1`, `1e-6`, `64KiB` (`value` is then in bytes)."""

    value: int | float


@frozen
class String(Node):
    """`"tanh"`."""

    value: str


@frozen
class Bool(Node):
    """`true` or `false`."""

    value: bool


@frozen
class NoneLit(Node):
    """`none`."""


@frozen
class Any(Node):
    """`_` alone: matches anything."""


@frozen
class Call(Node):
    """`f(a, *bs, k=v, ...)`. `args` holds expressions and `Splat`; `rest` is the explicit `...`."""

    func: str  # dotted: "silu", "aten.add.Tensor"
    args: tuple[Expr | Splat, ...]
    kwargs: tuple[Kwarg, ...] = ()
    rest: bool = False
    func_span: Span | None = field(default=None, eq=False, repr=False)


@frozen
class Kwarg(Node):
    """`k=v` in a call or among pins."""

    name: str
    value: Expr


@frozen
class Pipe(Node):
    """`x |> f(a)`: the call `f(x, a)`.

    `stage.args` does not hold `left`; `bare` is true for `x |> f` without brackets.
    """

    left: Expr
    stage: Call
    bare: bool = False


@frozen
class Binary(Node):
    """`op` is one of `or and + - * / // % @`."""

    op: str
    left: Expr
    right: Expr


@frozen
class Unary(Node):
    """`op` is `-` or `not`."""

    op: str
    operand: Expr


@frozen
class Compare(Node):
    """`first op1 e1 op2 e2 ...`, chained as in Python."""

    first: Expr
    rest: tuple[tuple[str, Expr], ...]


@frozen
class Member(Node):
    """`item in {..}` (a tuple) or `item in NAME` (a dtype class)."""

    item: Expr
    choices: tuple[Expr, ...] | str


@frozen
class Attr(Node):
    """`value.name`."""

    value: Expr
    name: str


@frozen
class Proj(Node):
    """`value.0`: a result by position."""

    value: Expr
    index: int


@frozen
class Index(Node):
    """`value[items]`; an item is an expression, a `Slice` or `Rest`."""

    value: Expr
    items: tuple[Expr | Slice | Rest, ...]


@frozen
class Slice(Node):
    """`start:stop:step`, each may be absent."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@frozen
class Rest(Node):
    """`...` among indices."""


@frozen
class Alternatives(Node):
    """`( a | b )`."""

    choices: tuple[Expr, ...]


@frozen
class Tuple(Node):
    """`(a, b)`."""

    items: tuple[Expr, ...]


@frozen
class List(Node):
    """`[a, *b]`."""

    items: tuple[Expr | Splat, ...]


@frozen
class Splat(Node):
    """`*name`, in calls, lists, dims, and output lists."""

    name: str


Expr = (
    Var | Number | String | Bool | NoneLit | Any | Call | Pipe | Binary | Unary | Compare | Member
    | Attr | Proj | Index | Alternatives | Tuple | List
)  # fmt: skip


# ---- types and signatures


@frozen
class Type(Node):
    """`name[dims; layout]?`.

    `dims` is None where no brackets stand (attribute types, `f32` alone). `layout` is an attribute's name (`Var`) or a
    `String`. `dtype` as a type has the name "dtype".
    """

    name: str
    dims: tuple[Expr | Splat, ...] | None = None
    layout: Var | String | None = None
    optional: bool = False


@frozen
class Param(Node):
    """`*name: type in domain = default`. Whether it is an operand or an attribute: see `Params`."""

    name: str
    type: Type | None = None
    domain: tuple[Expr, ...] | str | None = None
    default: Expr | None = None
    star: bool = False


@frozen
class Params(Node):
    """`(operands; attributes)`."""

    operands: tuple[Param, ...]
    attributes: tuple[Param, ...] = ()


@frozen
class Result(Node):
    """`name: type`. An unnamed single result has the name "y"."""

    name: str
    type: Type


# ---- clauses


@frozen
class Bind(Node):
    """`target = value` under `where`.

    `kind` is "bind", "keep" or "each"; `targets` has one name, or several for `(a, b) = ...`.
    """

    kind: str
    targets: tuple[str, ...]
    value: Expr
    tuple_target: bool = False  # written with brackets


@frozen
class Equation(Node):
    """`= e1, e2 when c1, c2`."""

    outputs: tuple[Expr | Splat, ...]
    when: tuple[Expr, ...] = ()


@frozen
class Out(Node):
    """`out q: T`, `out q`, `out` in a bound call."""

    name: str | None = None
    type: Type | None = None


@frozen
class Mut(Node):
    """`mut x as h` in a bound call."""

    name: str
    becomes: str | None = None


@frozen
class SlotKw(Node):
    """`output=out q` in a bound call."""

    name: str
    slot: Out | Mut


@frozen
class BoundCall(Node):
    """`path(args)` with slots, of a torch op.

    `args` holds expressions, `Splat`, `Out` and `Mut` in order; keyword slots are in `slots`.
    """

    func: str
    args: tuple[Expr | Splat | Out | Mut, ...]
    kwargs: tuple[Kwarg, ...] = ()
    slots: tuple[SlotKw, ...] = ()
    rest: bool = False
    index: int | None = None  # the `.0` behind it


@frozen
class Form(Node):
    """`form name(pins) spelling where ... when ...`; `owner` is the op's name where it stands as an item (`form f.name
    ...`).
    """

    name: str
    spelling: BoundCall | tuple[Expr | Splat, ...]
    pins: tuple[Kwarg, ...] = ()
    where: tuple[Bind, ...] = ()
    when: tuple[Expr, ...] = ()
    owner: str | None = None
    doc: str = ""


@frozen
class Impl(Node):
    """`impl name(pins) contract c spelling where ... when ...`."""

    name: str
    spelling: BoundCall | tuple[Expr | Splat, ...]
    pins: tuple[Kwarg, ...] = ()
    contract: Contract | None = None
    where: tuple[Bind, ...] = ()
    when: tuple[Expr, ...] = ()
    owner: str | None = None
    doc: str = ""


@frozen
class Property(Node):
    """`rowwise(x, r)`."""

    name: str
    names: tuple[str, ...] = ()


@frozen
class Sample(Node):
    """`name ~ expr` (`source` an expression) or `name in {..}` (a tuple)."""

    name: str
    source: Expr | tuple[Expr, ...]


@frozen
class Contract(Node):
    """`bitwise`, `faithful`, `relaxed k codes` (`codes`), `relaxed rtol r atol a`."""

    kind: str
    codes: int | None = None
    rtol: float | None = None
    atol: float | None = None


# ---- items. `doc` is the text of the `##` lines above, without the marks.


@frozen
class Pack(Node):
    """`pack name ...`. `level` is "O0".."O3" or "none"; None where it is not written."""

    name: str
    level: str | None = None
    flag: str | None = None
    stage: str | None = None
    after: tuple[str, ...] = ()
    when: tuple[Expr, ...] = ()
    prefer: tuple[Expr, ...] = ()
    contract: Contract | None = None
    doc: str = ""


@frozen
class Use(Node):
    """`use path (names)`; `names` is empty where none are written."""

    path: str
    names: tuple[str, ...] = ()
    doc: str = ""


@frozen
class DtypeClass(Node):
    """`dtype lowp = {bf16, f16}`."""

    name: str
    members: tuple[Expr, ...]
    doc: str = ""


@frozen
class Native(Node):
    """`native f(x: T) -> bool from "pkg:f"`."""

    name: str
    params: Params
    result: Type
    source: str
    doc: str = ""


@frozen
class Def(Node):
    """`def f(x: T) = e when c`."""

    name: str
    params: Params
    equations: tuple[Equation, ...]
    where: tuple[Bind, ...] = ()
    doc: str = ""


@frozen
class Op(Node):
    """`op f(operands; attributes) -> results`."""

    name: str
    params: Params
    results: tuple[Result, ...]
    equations: tuple[Equation, ...] = ()
    where: tuple[Bind, ...] = ()
    requires: tuple[Expr, ...] = ()
    forms: tuple[Form, ...] = ()
    impls: tuple[Impl, ...] = ()
    ref: str | None = None
    properties: tuple[Property, ...] = ()
    samples: tuple[Sample, ...] = ()
    contract: Contract | None = None
    doc: str = ""


@frozen
class Fusion(Node):
    """`fusion f(operands; attributes) level O2 flag f over a = e`.

    `level` and `flag` are None where the pack decides.
    """

    name: str
    params: Params
    outputs: tuple[Expr | Splat, ...]
    where: tuple[Bind, ...] = ()
    level: str | None = None
    flag: str | None = None
    over: tuple[str, ...] = ()
    requires: tuple[Expr, ...] = ()
    prefer: tuple[Expr, ...] = ()
    impls: tuple[Impl, ...] = ()
    properties: tuple[Property, ...] = ()
    samples: tuple[Sample, ...] = ()
    contract: Contract | None = None
    doc: str = ""


@frozen
class Rule(Node):
    """`rule name(params) head: left => right`, or a bare `left => right` (`name` is then None)."""

    name: str | None
    left: tuple[Expr | Splat, ...]
    right: tuple[Expr | Splat, ...]
    params: Params | None = None
    where: tuple[Bind, ...] = ()
    level: str | None = None
    flag: str | None = None
    over: tuple[str, ...] = ()
    requires: tuple[Expr, ...] = ()
    prefer: tuple[Expr, ...] = ()
    decreasing: Expr | None = None
    samples: tuple[Sample, ...] = ()
    contract: Contract | None = None
    doc: str = ""


Item = Pack | Use | DtypeClass | Native | Def | Op | Fusion | Rule | Form | Impl


@frozen
class File:
    """A parsed file: the items that could be read, in order. What could not is among the diagnostics of `parse`."""

    path: str
    items: tuple[Item, ...]
    source: str = field(eq=False, repr=False, default="")
