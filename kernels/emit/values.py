"""Values of nodes as lines of a kernel: one line a node and tile, written when it is first needed."""

from __future__ import annotations

from attrs import define, field
from fxrewrite_kernels.analyse import Analysis, is_far_from_zero, is_zero_where_masked
from fxrewrite_kernels.emit.tiles import Tiles
from fxrewrite_kernels.ir import COLUMNS, GROUPS, ONE, Node, Output

KEEPING_NAN = ", propagate_nan=tl.PropagateNan.ALL"
SYMBOLS = {"add": "+", "sub": "-", "mul": "*"}
DTYPES = {"f32": "tl.float32", "bf16": "tl.bfloat16", "f16": "tl.float16", "i8": "tl.int8"}
ON_DEVICE = {
    "abs": "tl.abs", "ceil": "tl.ceil", "erf": "libdevice.erf", "exp": "libdevice.exp", "exp2": "libdevice.exp2",
    "floor": "tl.floor", "log2": "libdevice.log2", "round": "libdevice.rint", "rsqrt": "libdevice.rsqrt",
    "sqrt": "tl.sqrt_rn", "tanh": "libdevice.tanh",
}  # fmt: skip
INTERPRETED = {
    "abs": "tl.abs", "ceil": "tl.ceil", "erf": "tl.erf", "exp": "tl.exp", "exp2": "tl.exp2", "floor": "tl.floor",
    "log2": "tl.log2", "round": "_round", "rsqrt": "tl.rsqrt", "sqrt": "tl.sqrt", "tanh": "_tanh",
}  # fmt: skip


@define(eq=False)
class Values(Tiles):
    """The kernel so far, and by what name each value goes in each tile. `extra`: names of packed forms of values."""

    facts: Analysis = field(kw_only=True)
    helpers: set[str] = field(init=False, factory=set[str])
    names: dict[tuple[int, str], str] = field(init=False, factory=dict[tuple[int, str], str])
    extra: set[str] = field(init=False, factory=set[str])

    def call(self, helper: str, *args: str) -> str:
        """A call of a helper of the prelude."""
        self.helpers.add(helper)
        return f"{helper}({', '.join(args)})"

    # ---- names of values

    def place(self, n: Node) -> str:
        """The tile under which a value is known: one a row is the same in all tiles."""
        return "" if n.axis == ONE else self.tile

    def known(self, n: Node) -> bool:
        """Has the value a name here?"""
        return n.op == "const" or (n.number, self.place(n)) in self.names

    def value(self, n: Node, user: Node | None = None) -> str:
        """The name of a value, or the number. `user`: who reads it, perhaps behind a reduction."""
        if n.op == "const":
            return number(n.attr[0])
        if user is not None and self._is_held(n, user):
            return self._held(n, user)
        return self.names[n.number, self.place(n)]

    def _is_held(self, n: Node, user: Node) -> bool:
        """Should this 16-bit value wait in its packed form for a user behind a reduction?"""
        if not self.schedule.hold or n.op != "to" or n.dtype != "f32" or n.axis != COLUMNS:
            return False
        source = n.args[0]
        behind = self.facts.level[user.number] > self.facts.level[n.number]
        return source.dtype == "bf16" and not is_lane(source) and behind and not self.target.interpreted

    def _held(self, n: Node, user: Node) -> str:
        level = self.facts.level[user.number]
        name = f"h{n.number}_{level}{self.tile}"
        if name not in self.extra:
            self.extra.add(name)
            self.line(f"{name} = {self.call('_hold', self.value(n.args[0]))}.to(tl.float32)")
        return name

    # ---- one value

    def define(self, n: Node, policy: str = "") -> None:
        """Write the line that computes a value, unless there is one. `policy`: an argument of loads."""
        if self.known(n):
            return
        if n.op == "load":
            text = self._load(n, policy)
        elif n.op in ("row_sum", "row_max"):
            text = self.reduced(n, self._combined(n))
        elif n.op == "group_max":
            text = self._maximum(self.masked(n), len(self.shape()) - 1, True)
        elif n.op == "to":
            text = self._cast(n)
        else:
            text = self._step(n)
        self.assign(n, text)

    def assign(self, n: Node, text: str) -> None:
        """Give a value its name, and make what it is to be divided by."""
        place = self.place(n)
        name = self.names[n.number, place] = f"v{n.number}{place}"
        self.line(f"{name} = {text}")
        if n.number in self.facts.divisors and not self.target.interpreted:
            safe, inverse = f"k{n.number}{place}", f"r{n.number}{place}"
            if n.number not in self.facts.tame:
                self.line(f"f{n.number}{place} = {self.call('_to_range', name)}")
                self.line(f"d{n.number}{place} = {name} * f{n.number}{place}")
                name = f"d{n.number}{place}"
            self.line(f"{safe} = {self.call('_in_range', name)}")
            self.line(f"{inverse} = tl.where({safe}, {self.call('_reciprocal', name)}, {self.call('_rcp', name)})")
            self.line(f"z{n.number}{place} = tl.where({safe}, {inverse}, 0.0)")
            self.line(f"b{n.number}{place} = tl.where({safe}, {name}, 0.0)")

    def _load(self, n: Node, policy: str) -> str:
        name, start, step = n.attr
        source = self.definition.input(name)
        if source.kind == "scalar":
            return f"tl.load(i_{name})"
        if step == 2:
            return self._lane(n, policy)
        mask = self.mask(source.kind == "rows", COLUMNS)
        at = f"i_{name} + " + (f"row * s_{name} + " if source.kind == "rows" else "") + (f"{start} + " if start else "")
        return f"tl.load({at}c{self.tile}{masked_by(mask, '0.0')}{policy or self._policy(source.kind)})"

    def _policy(self, kind: str) -> str:
        return ', cache_modifier=".cg"' if self.schedule.cg and kind == "rows" else ""

    def _lane(self, n: Node, policy: str) -> str:
        """One of two interleaved values, widened: a 32-bit word holds both, and no shuffle takes them apart."""
        name, start, _ = n.attr
        pair = f"p_{name}{self.tile}"
        if pair not in self.extra:
            self.extra.add(pair)
            mask = masked_by(self.mask(True, COLUMNS), "0")
            at = f"(i_{name} + row * s_{name}).to(tl.pointer_type(tl.int32)) + c{self.tile}"
            self.line(f"{pair} = tl.load({at}{mask}{policy or self._policy('rows')})")
        if n.dtype == "bf16":
            word = f"{pair} << 16" if start == 0 else f"{pair} & -65536"
            return f"({word}).to(tl.float32, bitcast=True)"
        half = pair if start == 0 else f"({pair} >> 16)"
        return f"{half}.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)"

    def _cast(self, n: Node) -> str:
        (x,) = n.args
        if n.dtype == "f32":
            if is_lane(x):
                return self.value(x)
            by_hand = x.dtype == "bf16" and self.target.interpreted
            return self.call("_f32", self.value(x)) if by_hand else f"{self.value(x)}.to(tl.float32)"
        given = self.value(x, n)
        if n.dtype == "e4m3fn":
            return self.call("_e4m3", given)
        if n.dtype == "bf16" and self.target.interpreted:
            return self.call("_bf16", given)
        return f"{given}.to({DTYPES[n.dtype]})"

    def _step(self, n: Node) -> str:
        args = [self.value(a, n) for a in n.args]
        if n.op in ("max", "min"):
            return f"tl.{n.op}imum({args[0]}, {args[1]}{KEEPING_NAN})"
        if n.op == "neg":
            return f"{args[0]} * -1.0"  # Triton's unary minus is 0 - x
        if n.op == "div":
            return self._quotient(n, args)
        if n.op == "mul" and n.number in self.facts.fused and not self.target.interpreted:
            return f"libdevice.mul_rn({', '.join(map(self._tensor, n.args, args))})"
        if n.op in SYMBOLS:
            return f"{args[0]} {SYMBOLS[n.op]} {args[1]}"
        if n.op == "exp" and self._is_approximate(n):
            return f"tl.exp({args[0]})"
        name = (INTERPRETED if self.target.interpreted else ON_DEVICE)[n.op]
        return self.call(name, *args) if name.startswith("_") else f"{name}({args[0]})"

    def _tensor(self, n: Node, text: str) -> str:
        """An argument of a function of libdevice, which takes no number."""
        return f"tl.full((), {text}, tl.float32)" if n.op == "const" else text

    def _is_approximate(self, n: Node) -> bool:
        return self.target.approximate and n.number in self.facts.unary

    # ---- division

    def _quotient(self, n: Node, args: list[str]) -> str:
        x, by = n.args
        if by.op == "const" and is_power_of_two(by.attr[0]):
            return f"{args[0]} * {number(1 / by.attr[0])}"
        if self._is_approximate(n):
            return self._approximate(x, by, args)
        if self.target.interpreted:
            return f"tl.div_rn({self._tensor(x, args[0])}, {self._tensor(by, args[1])})"
        if by.number in self.facts.divisors and n.number in self.facts.coarse:
            tame, place = by.number in self.facts.tame, self.place(by)
            helper = "_by_row_bounded" if tame and n.number in self.facts.bounded else "_by_row"
            given = args[0] if tame else f"{args[0]} * f{by.number}{place}"
            return self.call(helper, given, *(f"{letter}{by.number}{place}" for letter in "brz"))
        if by.op == "const" and by.attr[0] > 0 and is_far_from_zero(n, self.facts.users):
            inverse = number(1 / by.attr[0])
            return self.call("_by_row", args[0], args[1], inverse, inverse)
        return f"tl.div_rn({self._tensor(x, args[0])}, {self._tensor(by, args[1])})"

    def _approximate(self, x: Node, by: Node, args: list[str]) -> str:
        """A quotient in a function of one value, all of whose values were tried."""
        if by.op == "add" and by.args[0].op == "exp" and by.args[1].op == "const" and by.args[1].attr[0] == 1.0:
            quarter = number(0.25 * x.attr[0]) if x.op == "const" else f"({args[0]} * 0.25)"
            # e + 1 may be 3e38: a quarter of it has a reciprocal
            below = f"tl.fma({self.value(by.args[0])}, 0.25, 0.25)"
            return f"{quarter} * {self.call('_rcp', below)}"
        return f"{args[0]} / {args[1]}"

    # ---- reductions

    def masked(self, n: Node) -> str:
        """The argument of a reduction, harmless in columns that are none."""
        (arg,) = n.args
        x = self.value(arg, n)
        if self.tile in self.full or arg.axis != COLUMNS or n.op == "group_max":  # a masked group is not stored
            return x
        if is_zero_where_masked(arg) and (n.op == "row_sum" or arg.op == "abs"):
            return x
        return f"tl.where(cm{self.tile}, {x}, {start_of(n)})"

    def _combined(self, n: Node) -> str:
        """Tiles of a row, combined element by element: one reduction over the block follows."""
        parts: list[str] = []
        for tile in self.tiles:
            self.tile = tile
            parts.append(self.masked(n))
        self.tile = ""
        while len(parts) > 1:
            pairs = [self.joined(n, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[len(parts) - len(parts) % 2 :]
        return parts[0]

    def joined(self, n: Node, a: str, b: str) -> str:
        """Two partial results of a reduction as one."""
        return f"({a} + {b})" if n.op == "row_sum" else f"tl.maximum({a}, {b}{KEEPING_NAN})"

    def reduced(self, n: Node, x: str) -> str:
        """`x`, a tile, reduced along its columns."""
        last = len(self.shape()) - 1
        keep = self.schedule.rows > 1
        for axis in (last, last - 1) if self.definition.group else (last,):
            x = self._sum(x, axis, keep) if n.op == "row_sum" else self._maximum(x, axis, keep)
        return x

    def _sum(self, x: str, axis: int, keep: bool) -> str:
        return f"tl.sum({x}, {axis}{', keep_dims=True' if keep else ''})"

    def _maximum(self, x: str, axis: int, keep: bool) -> str:
        return self.call("_row_max", x, str(axis), str(keep))

    # ---- outputs

    def store(self, n: Node) -> None:
        """Write a value to the outputs that want it."""
        for output in self.definition.outputs:
            if output.node is n:
                mask = self.mask(True, n.axis)
                self.line(f"tl.store({self.address(output)}, {self.value(n)}{masked_by(mask)})")

    def address(self, output: Output) -> str:
        """Where the columns, groups or the one value of a row lie in an output."""
        width, group = self.definition.width, self.definition.group
        if output.node.axis == COLUMNS:
            return f"o_{output.name} + row * {width} + c{self.tile}"
        if output.node.axis == GROUPS:
            place = (
                f"row * {width // group} + g{self.tile}"
                if output.layout == "row"
                else f"row + g{self.tile} * u_{output.name}"
            )
            return f"o_{output.name} + {place}"
        return f"o_{output.name} + row"


def is_lane(n: Node) -> bool:
    """Is it one of two interleaved values? These are widened when they are taken apart."""
    return n.op == "load" and n.attr[2] == 2


def start_of(n: Node) -> str:
    """What a reduction begins with."""
    return "0.0" if n.op == "row_sum" else '-float("inf")'


def masked_by(mask: str, other: str = "") -> str:
    """The arguments of a load or store for a mask; none without one."""
    return "" if not mask else f", mask={mask}" + (f", other={other}" if other else "")


def number(value: float) -> str:
    """A number as text."""
    return repr(float(value)) if value == value and abs(value) != float("inf") else f'float("{value}")'


def is_power_of_two(value: float) -> bool:
    """Is the quotient by this number a product with its inverse?"""
    return value > 0 and float(value).hex().split("p")[0].rstrip("0") in ("0x1.", "0x1") and 2**-100 < value < 2**100
