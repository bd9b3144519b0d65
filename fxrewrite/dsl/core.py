"""The core: a checked definition as a typed DAG of primitives. Every consumer reads this and nothing else.

Two layers. A *scalar* is a number, a dtype, a size or a condition over attributes, dims and types. A *term* is a
tensor: an operand, a primitive of terms, a result of a call of another op, or a choice between terms by conditions on
attributes. `def`s are gone, attributes are resolved, types are solved. Equal terms of one item are one object.

`evaluate` walks a definition for given operands and attributes; what a primitive *means* is the caller's algebra (torch
tensors, nodes of a graph, sets of numbers, kernel code): one table each.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from fxrewrite.dsl.dims import Dim, Shape
from fxrewrite.dsl.syntax import Contract, Span


class _NoDefault:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Any = _NoDefault()

# ---- scalars


@frozen
class Dtype:
    """A fixed dtype, by its short name."""

    name: str

    def __str__(self) -> str:
        return self.name


@frozen
class DtypeVar:
    """The one dtype that a class has in one signature."""

    key: str
    members: tuple[str, ...] = field(eq=False)

    def __str__(self) -> str:
        return self.key.split("#")[0]


@frozen
class Lit:
    """int, float, bool, str, None, a `Dtype`, or a tuple of these."""

    value: Any

    def __eq__(self, other: object) -> bool:  # 1, 1.0 and True are three literals
        return isinstance(other, Lit) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value).__name__, self.value))


@frozen
class Ref:
    """The value of an attribute, or of a name that stands for one."""

    name: str


@frozen
class Size:
    """An int made of dims."""

    dim: Dim


MARK = "native:"  # before the source of a native, in the `op` of an `Apply`


@frozen(cache_hash=True)
class Apply:
    """An operation on scalars and terms: arithmetic, comparisons (`==`), `and or not`, `is_none`, `finfo.max`, `dtype`,
    `shape`, `list`, natives (`native:pkg:f`), facts (`rows`, `bytes`, `contiguous`, ...) and the machine (`sm`,
    `world`, `rocm`, `tokens`).
    """

    op: str
    args: tuple[Any, ...] = ()


@frozen
class Wild:
    """`_`: any value, dropped on purpose."""


Scalar = Dtype | DtypeVar | Lit | Ref | Size | Apply | Wild

# ---- types


@frozen
class TensorType:
    """dtype and dims; `shape` is None where the rank is not known.

    `layout` names how a result is stored ("row", or an attribute).
    """

    dtype: Dtype | DtypeVar | Ref | None
    shape: Shape | None
    layout: str | Ref = "row"

    def __str__(self) -> str:
        dtype = self.dtype.name if isinstance(self.dtype, Ref) else str(self.dtype or "?")
        return dtype if self.shape is None else f"{dtype}[{', '.join(map(str, self.shape))}]"


UNKNOWN = TensorType(None, None)

# ---- terms


@frozen
class Operand:
    """An operand of the item, or a name that a rule binds. `star`: a list; `element`: one of a list (inside `each`)."""

    name: str
    type: TensorType = field(eq=False)
    optional: bool = False
    star: bool = False
    element: bool = False
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen
class Number:
    """A scalar where a tensor operand may stand."""

    value: Scalar


@frozen(cache_hash=True)
class Prim:
    """A primitive of `PRIMITIVES`, or a torch op under its dotted name.

    `params` are its non-tensor arguments, in the order that the table states. `result`: which result of a torch op that
    has several.
    """

    op: str
    args: tuple[Term, ...]
    params: tuple[Scalar, ...] = ()
    result: int = 0
    type: TensorType = field(eq=False, default=UNKNOWN)
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen(cache_hash=True)
class TorchCall:
    """A torch op by its dotted name, arguments by schema position and by name.

    An argument is a term, a scalar, a list of them, `Fresh` (a buffer that the call fills), `Taken` (an operand that it
    overwrites) or alternatives. `rest`: others may have any value.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    rest: bool = False
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen
class Fresh:
    """An argument `out`: a buffer of this type that nobody else sees.

    `slot` numbers the written arguments of the call.
    """

    type: TensorType = field(eq=False)
    slot: int


@frozen(cache_hash=True)
class Taken:
    """An argument `mut`: `value` goes in, the call overwrites it."""

    value: Term
    slot: int


@frozen
class OneOf:
    """Alternative arguments of a torch call."""

    choices: tuple[Any, ...]


@frozen(cache_hash=True)
class Extern:
    """What a torch call returns (`returned`, by position) or writes (`written`, by slot).

    Neither: all that it returns, as a list.
    """

    call: TorchCall
    returned: int | None
    written: int | None
    type: TensorType = field(eq=False, default=UNKNOWN)
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen(cache_hash=True)
class Call:
    """A call of a declared op: operands in order (None where `none`), every attribute by name.

    `key` tells two calls of one op with equal arguments apart never: equal calls are one.
    """

    op: str
    args: tuple[Any, ...]
    attrs: tuple[tuple[str, Scalar], ...]
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen(cache_hash=True)
class Result:
    """Result `index` of a call."""

    call: Call
    index: int
    type: TensorType = field(eq=False, default=UNKNOWN)


@frozen(cache_hash=True)
class Choose:
    """The first case whose conditions hold."""

    cases: tuple[tuple[tuple[Scalar, ...], Term], ...]
    type: TensorType = field(eq=False, default=UNKNOWN)
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen(cache_hash=True)
class Either:
    """Alternatives on a matched side."""

    choices: tuple[Term, ...]
    type: TensorType = field(eq=False, default=UNKNOWN)


@frozen(cache_hash=True)
class Each:
    """All values of the form `body`; `lists` are the names bound inside it, `body` uses them as elements."""

    body: Term
    lists: tuple[str, ...]
    type: TensorType = field(eq=False, default=UNKNOWN)


@frozen
class Nothing:
    """`none` where an operand may stand."""

    type: TensorType = field(eq=False, default=UNKNOWN)


Term = Operand | Number | Prim | Extern | Result | Choose | Either | Each | Nothing

# ---- declarations


@frozen
class OperandInfo:
    """A declared operand.

    `kind`: "tensor" or "str" (a name that a host passes through). `has_default`: may be left out, then `none`.
    """

    name: str
    type: TensorType
    optional: bool = False
    has_default: bool = False
    star: bool = False
    kind: str = "tensor"
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen
class Attribute:
    """A carried attribute. `type`: float int bool str list group layout dtype. `domain`: allowed values, or None."""

    name: str
    type: str
    optional: bool = False
    domain: tuple[Any, ...] | None = None
    default: Any = NO_DEFAULT
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen
class ResultInfo:
    """A result: its name and type. `star`: a list of tensors."""

    name: str
    type: TensorType
    star: bool = False


@frozen
class Sample:
    """Inputs for a proof: an operand, attribute or dim called `name`.

    One of `values`, or drawn: `distribution` is normal (mean `a`, deviation `b`), uniform or log_uniform (from `a` to
    `b`).
    """

    name: str
    values: tuple[Any, ...] = ()
    distribution: str | None = None
    a: float = 0.0
    b: float = 1.0


@frozen
class Case:
    """One way to spell an op: an equation, a form or a provider.

    `outputs`: one term a result. `pins`: attributes that this case fixes. `guards`: what else must hold. `named`: the
    values that the text names, with their names (exclusive on a matched side). `binds`: operands given in terms of the
    names that a form binds.
    """

    name: str
    outputs: tuple[Term, ...]
    pins: tuple[tuple[str, Any], ...] = ()
    guards: tuple[Scalar, ...] = ()
    named: tuple[tuple[str, Term], ...] = ()
    contract: Contract | None = None
    span: Span | None = field(eq=False, default=None, repr=False)
    binds: tuple[tuple[str, Term], ...] = ()

    @property
    def torch_call(self) -> TorchCall | None:
        """The call, where the spelling is one bound call."""
        calls = {o.call for o in self.outputs if isinstance(o, Extern)}
        return calls.pop() if len(calls) == 1 and all(isinstance(o, Extern) for o in self.outputs) else None


@frozen
class OpDef:
    """A checked op or fusion."""

    name: str
    operands: tuple[OperandInfo, ...]
    attributes: tuple[Attribute, ...]
    results: tuple[ResultInfo, ...]
    equations: tuple[Case, ...]
    forms: tuple[Case, ...] = ()
    impls: tuple[Case, ...] = ()
    requires: tuple[Scalar, ...] = ()
    rowwise: tuple[str, ...] = ()
    is_fusion: bool = False
    ref: str | None = None
    contract: Contract | None = None
    doc: str = ""
    span: Span | None = field(eq=False, default=None, repr=False)
    effects: tuple[tuple[str, str], ...] = ()  # (kind, operand or attribute): ("writes", "layer")
    swaps: tuple[str, ...] = ()  # two operands that may be exchanged
    samples: tuple[Sample, ...] = field(eq=False, default=())  # they change nothing that is matched
    elementwise: tuple[str, ...] = ()  # those of `rowwise` that are so in columns too

    def attribute(self, name: str) -> Attribute | None:
        """The attribute called `name`."""
        return next((a for a in self.attributes if a.name == name), None)


@frozen
class RuleDef:
    """A checked rewrite: left outputs, right outputs (one for one), and what must hold.

    `named`: values that the left side names; `kept`: names bound with `keep`. `operands`: what the left side binds.
    `guards` are `requires`; `prefer` is profit. `stage`: canonicalize, fuse or lower.
    """

    name: str
    pack: str | None
    left: tuple[Term, ...]
    right: tuple[Term, ...]
    operands: tuple[OperandInfo, ...]
    attributes: tuple[Attribute, ...] = ()
    named: tuple[tuple[str, Term], ...] = ()
    kept: tuple[str, ...] = ()
    guards: tuple[Scalar, ...] = ()
    prefer: tuple[Scalar, ...] = ()
    over: tuple[str, ...] = ()
    level: str | None = None
    flag: str | None = None
    stage: str = "fuse"
    contract: Contract | None = None
    order: int = 0
    span: Span | None = field(eq=False, default=None, repr=False)
    left_span: Span | None = field(eq=False, default=None, repr=False)
    decreasing: Scalar | None = None  # a number that falls with each firing
    is_named: bool = True  # False: the name comes from its ops
    samples: tuple[Sample, ...] = field(eq=False, default=())

    @property
    def full_name(self) -> str:
        """`pack.rule`, as flags and reports name it."""
        return f"{self.pack}.{self.name}" if self.pack else self.name


@frozen
class PackDef:
    """The policy of a file. `level` None: only its flag turns it on."""

    name: str
    level: str | None
    flag: str | None
    stage: str
    after: tuple[str, ...]
    when: tuple[Scalar, ...]
    file: str
    doc: str = ""
    span: Span | None = field(eq=False, default=None, repr=False)


@frozen
class Program:
    """Everything that a set of files declares, checked. `sources`: file name to text, for carets."""

    ops: dict[str, OpDef]
    rules: tuple[RuleDef, ...]
    packs: dict[str, PackDef]
    dtypes: dict[str, tuple[str, ...]]
    sources: dict[str, str] = field(repr=False, factory=dict[str, str])

    def rules_called(self, name: str) -> list[RuleDef]:
        """The rules whose name, alone or as `pack.rule`, is `name`."""
        return [r for r in self.rules if name in (r.name, r.full_name)]

    def rule_names(self) -> set[str]:
        """Every name that a rule is called by."""
        return {name for r in self.rules for name in (r.name, r.full_name)}


# ---- primitives: name -> (tensor arguments, parameters). One line each; consumers have one table from name to meaning.

UNARY = (
    "abs neg exp exp2 log log1p log2 sqrt rsqrt reciprocal sigmoid tanh erf ceil floor round".split()
)  # elementwise, one rounding to the dtype of the operand
BINARY = "add sub mul div fdiv maximum minimum".split()  # elementwise with broadcasting; `fdiv`: see contract.md

PRIMITIVES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(UNARY, ("x",)),
    **dict.fromkeys(BINARY, ("x", "y")),
    "clamp": ("x", "lo", "hi"),  # lo, hi: numbers, or none
    "to": ("x", ";", "dtype"),
    "reshape": ("x", ";", "shape"),
    "permute": ("x", ";", "order"),
    "expand": ("x", ";", "shape"),
    "slice": ("x", ";", "dim", "start", "stop", "step"),
    "slice_scatter": ("x", "y", ";", "dim", "start", "stop", "step"),
    "cat": ("*xs", ";", "dim"),
    "clone": ("x",),
    "amax": ("x", ";", "dims", "keepdim"),
    "mean": ("x", ";", "dims", "keepdim"),
    "sum": ("x", ";", "dims", "keepdim"),
    "var": ("x", ";", "dims", "keepdim"),  # divides by n
    "matmul": ("x", "y"),
    "round_e2m1": ("x",),  # f32 to the nearest value of E2M1, ties to even, at most 6; NaN is 6
    "pack2": ("x",),  # two values of E2M1 to a byte, the first in the low nibble
    "pack4": ("x",),  # four e8m0fnu exponents to an i32, the first in the low byte
    "swizzle": ("x",),  # block scales [T, C] in tiles of 128 by 4, padded with zero bytes
    "psum": ("x", ";", "group"),  # over the ranks of a group
    "pshard": ("x", ";", "dim", "group"),
    "pconcat": ("x", ";", "dim", "group"),
}


def span_of(term: Any) -> Span | None:
    """The place in the `.rw` text that a term comes from."""
    if isinstance(term, Result):
        return term.call.span
    return getattr(term, "span", None)
