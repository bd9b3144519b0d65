"""The sweep: every value of a graph with the views that forms prove of it, then the rules over the finished views.

A *view* says that some values are the results of a declared op of some arguments. Forms match over the views of their
operands, so nested ops need one sweep, and several views of one value coexist. Nothing is edited.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import define

from fxrewrite.dsl import dims
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Choose,
    Dtype,
    DtypeVar,
    Each,
    Extern,
    Number,
    OpDef,
    Operand,
    OperandInfo,
    Prim,
    Ref,
    Result,
    RuleDef,
    Size,
    TensorType,
    Term,
)  # fmt: skip
from fxrewrite.dsl.dims import Star
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.patterns.calls import Declared, view_of
from fxrewrite.patterns.dialect import read_node
from fxrewrite.patterns.dtypes import DTYPES, NAMES, to_graph
from fxrewrite.patterns.forms import Library, Pattern, torch_op
from fxrewrite.patterns.guards import SiteEnv, same
from fxrewrite.patterns.matcher import UNSET, State, evaluate_shape, extern_name, lookup, settle
from fxrewrite.patterns.values import Table, Value, constant
from fxrewrite.patterns.writes import Writes

MAX_VIEWS = 16  # of one op on one value: a guard against graphs made to blow up


class View:
    """`results` are what `op` gives for `args` (operands, then attributes). `carried`: on other leading axes."""

    __slots__ = ("args", "carried", "op", "results")

    def __init__(self, op: OpDef, args: tuple[Any, ...], results: list[Any], carried: bool = False):
        self.op, self.args, self.results, self.carried = op, args, results, carried

    def __repr__(self) -> str:
        return f"{self.op.name}{self.args}"


@define(eq=False)
class Found:
    """A match of a rule: bindings by name, the values of its outputs (lists for list outputs) and what it names.

    `site`: the first node of the first output, as it was when the graph was read.
    """

    rule: RuleDef
    site: torch.fx.Node | None
    pattern: Pattern
    bindings: dict[str, Any]
    outputs: tuple[Any, ...]
    named: tuple[Value, ...]
    views: tuple[View, ...] = ()


class Sweep:
    """One pass over a graph. `table`: its values. `found`: the matches of rules, in the order of their anchors.

    `truth` decides symbolic conditions for the whole range of sizes; `tokens` is the assumed range of token counts.
    """

    def __init__(self, library: Library):
        self.library = library
        self.table = Table(self._visit)
        self.by_args: dict[Any, View] = {}
        self.by_first: dict[Any, list[View]] = {}
        self.found: list[Found] = []
        self.anchors: set[tuple[Any, ...]] = set()
        self.truth: Any = None
        self.calls: list[tuple[torch.fx.Node, Declared]] = []  # of declared ops, in order

    # ---- reading

    def read(self, graph: torch.fx.Graph) -> None:
        """Number every node of `graph`; views are found as values appear."""
        writes = self.table.writes = Writes(graph)
        declared = self.library.declared
        for node in graph.nodes:
            read_node(self.table, node)
            if writes:
                writes.read(self.table, node)
            known = declared(node.target) if node.op == "call_function" else None
            if known is not None:
                self._read_call(node, known)

    def _read_call(self, node: torch.fx.Node, declared: Declared) -> None:
        """Note a call of a declared op, and the view that it is."""
        self.calls.append((node, declared))
        op = self.library.program.ops[declared.op.name] if declared.visible else None
        found = view_of(self.table, node, op) if op is not None else None
        if op is not None and found is not None:
            args, results = found
            if not any(w.args == args for w, _ in results[0].views.get(op.name, ())):
                self._register(View(op, args, results), discover=True)

    def _visit(self, v: Value) -> None:
        self._under(self.library.index, v)

    def _under(self, index: dict[tuple[str, str | None], list[Pattern]], v: Value) -> None:
        """Patterns that begin at a primitive, and of these only those whose operands can be what they need."""
        root = v.root
        op = root.op
        if op not in self.library.ops_of[id(index)]:
            return
        children: dict[str | None, None] = {None: None}
        for a in root.args:
            if type(a) is Value:
                children[a.root.op] = None
                for name in a.views:
                    children["@" + name] = None
                if a.source is not None:
                    children.update(dict.fromkeys("@" + name for name in a.source.views))
        tried: list[Pattern] = []
        for child in children:
            for pattern in index.get((op, child), ()):
                if (pattern.dtypes is None or v.dtype in pattern.dtypes) and pattern not in tried:
                    tried.append(pattern)
                    self.attempt(pattern, v)

    # ---- rules

    def match_rules(self) -> None:
        """Match every rule over the finished views."""
        rules = self.library.rules
        for v in self.table.all:
            self._under(rules, v)
            for name in list(v.views):
                self._over(rules, name, v)

    def attempt(self, pattern: Pattern, v: Value) -> None:
        """Match one pattern at one value; solutions go to `emit_view` or `emit_match`."""
        pattern.anchor(v, State(len(pattern.slots.index), self, v))

    def _over(self, index: dict[tuple[str, str | None], list[Pattern]], name: str, v: Value) -> None:
        """Patterns rooted at a declared op, and of these only those whose first operand is what they need."""
        root = "@" + name
        producers: dict[str | None, list[Any]] = {None: []}
        for view, i in v.views[name]:
            x = view.args[0] if i == 0 else None
            while type(x) is Value:
                for one in (x, x.args[0]) if x.op == "to" else (x,):  # absorbed casts
                    for producer, views in one.views.items():
                        producers.setdefault(producer, []).extend(views)
                x = x.source
        numbered = self.library.numbered if index is self.library.rules else {}
        for p, below in producers.items():
            patterns = index.get((root, p), ())
            if (root, p) in numbered:
                patterns = [*patterns, *numbered[root, p].under(w.args for w, _ in below)]
            for pattern in patterns:
                if pattern.dtypes is None or v.dtype in pattern.dtypes:
                    self.attempt(pattern, v)

    # ---- views of a value

    def views_of(self, v: Value, name: str) -> list[Any]:
        """Views of `v` as `name`, those of what `v` is a reshape of included where the op is row-wise."""
        own = v.views.get(name, ())
        source = v.source
        if source is None or not source.shape or not v.shape or source.shape[-1] != v.shape[-1]:
            return own  # type: ignore[return-value]
        if v.seen is None:
            v.seen = set()
        if name not in v.seen:
            v.seen.add(name)
            for view, i in list(self.views_of(source, name)):
                self._carry(view, i, v)
            own = v.views.get(name, ())
        return own  # type: ignore[return-value]

    def _carry(self, view: View, i: int, v: Value) -> None:
        """The view of a row-wise op on other leading axes."""
        op = view.op
        if not op.rowwise:
            return
        lead = v.shape[:-1]
        reshape = self.table.reshape
        args = tuple(
            reshape(a, (*lead, a.shape[-1])) if type(a) is Value and o is not None and o.name in op.rowwise else a
            for a, o in zip(view.args, (*op.operands, *[None] * len(op.attributes)), strict=True)
        )
        if not all(
            _rank_fits(a.shape, o.type.shape) for a, o in zip(args, op.operands, strict=False) if type(a) is Value
        ):
            return
        if any(w.args == args for w, _ in v.views.get(op.name, ())):
            return
        results = [v if j == i else reshape(r, (*lead, r.shape[-1])) for j, r in enumerate(view.results)]
        self._register(View(op, args, results, carried=True))

    def _register(self, view: View, discover: bool = False) -> None:
        self.by_args.setdefault((view.op.name, view.args), view)
        first = view.args[0] if view.args else None
        if type(first) is Value:
            self.by_first.setdefault((view.op.name, first), []).append(view)
        for i, r in enumerate(view.results):
            r.views.setdefault(view.op.name, []).append((view, i))
        if discover:
            self._over(self.library.index, view.op.name, view.results[0])

    # ---- solutions

    def emit_view(self, pattern: Pattern, s: State) -> bool:
        """A form matched: check its guards and note the view. Always goes on with other choices."""
        mark = len(s.trail)
        reason = self.check(pattern, s)
        if reason is None:
            results = self._complete(pattern, s, s.anchor)
            if results is not None:
                self._add_view(pattern, s, results)
        s.undo(mark)
        return False

    def _add_view(self, pattern: Pattern, s: State, results: list[Value]) -> None:
        op: OpDef = pattern.owner
        args = tuple(s.v[pattern.slots.index[n.name]] for n in (*op.operands, *op.attributes))
        have = results[0].views.get(op.name, ())
        bare = _bare(args)
        if len(have) < MAX_VIEWS and not any(i == 0 and _bare(w.args) == bare for w, i in have):
            self._register(View(op, args, results), discover=True)

    def emit_match(self, pattern: Pattern, s: State) -> bool:
        """A rule matched: note it with its bindings, or give it to who asked for this attempt."""
        if s.emit is not None:
            return s.emit(pattern, s)
        mark = len(s.trail)
        if self.check(pattern, s) is None:
            first = pattern.normal(pattern.outputs[0])
            if isinstance(first, Each):
                self._emit_each(pattern, s, first)
            else:
                outputs = self._complete(pattern, s, s.anchor)
                if outputs is not None:
                    self._add_match(pattern, s, outputs)
        s.undo(mark)
        return False

    def _add_match(self, pattern: Pattern, s: State, outputs: list[Any]) -> None:
        index = pattern.slots.index
        bindings = {n: s.v[at] for n, at in index.items() if isinstance(n, str) and s.v[at] is not UNSET}
        key = (pattern.name, *((o,) if type(o) is Value else tuple(o) for o in outputs), *(
            _hashable(bindings.get(o.name)) for o in pattern.operands))  # fmt: skip
        if key in self.anchors:
            return
        self.anchors.add(key)
        flat = {id(x) for o in outputs for x in (o if isinstance(o, list) else [o])}
        named = [self.construct(pattern, t, s) for t in pattern.named]
        kept = tuple(n for n in named if type(n) is Value and id(n) not in flat)
        views = tuple(
            s.v[at] for n, at in index.items() if isinstance(n, tuple) and n[0] == "call" and s.v[at] is not UNSET
        )
        first = outputs[0][0] if isinstance(outputs[0], list) else outputs[0]
        self.found.append(Found(pattern.owner, _node_of(first), pattern, bindings, tuple(outputs), kept, views))

    def _emit_each(self, pattern: Pattern, s: State, each: Each) -> None:
        """All values of the form of an `each`, in graph order: anchored at the first of them."""
        body: Any = each.body
        at_view = pattern.slots(("call", body.call))
        view: View = s.v[at_view]
        members: list[tuple[Value, dict[str, Any]]] = []
        own = [pattern.slots.index[n] for n in each.lists]
        inner = [pattern.slots.of_term(body), at_view, *own]
        saved = [s.v[i] for i in inner]
        for sibling in list(self.by_first.get((view.op.name, view.args[0]), ())):
            for i in inner:
                s.v[i] = UNSET
            value = sibling.results[body.index]
            mark = len(s.trail)
            if pattern.element is not None and pattern.element(value, s) and all(m[0] is not value for m in members):
                members.append((value, {n: s.v[pattern.slots.index[n]] for n in each.lists}))
            s.undo(mark)
        for i, x in zip(inner, saved, strict=True):
            s.v[i] = x
        members = sorted((m for m in members if m[0].nodes or m[0].source is not None), key=lambda m: m[0].n)
        if len(members) < 2 or members[0][0] is not s.anchor:
            return
        outputs = self._complete(pattern, s, [m[0] for m in members])
        if outputs is not None:
            lists = {n: [m[1][n] for m in members] for n in each.lists}
            for n in each.lists:
                s.v[pattern.slots.index[n]] = tuple(lists[n])
            self._add_match(pattern, s, outputs)
            for i, x in zip(inner, saved, strict=True):
                s.v[i] = x

    # ---- further results

    def _complete(self, pattern: Pattern, s: State, first: Any) -> list[Any] | None:
        """`first` and the further results, built from what is bound; None where one cannot be."""
        results = [first]
        for term in pattern.outputs[1:]:
            value = self.construct(pattern, term, s)
            if type(value) is not Value:
                return None
            results.append(value)
        return results

    def construct(self, pattern: Pattern, t: Term, s: State) -> Any:
        """The value of a term whose names are bound: looked up, or made (it may have no node), or None."""
        normal: Any = pattern.normal(t)
        if isinstance(normal, Prim | Result | Extern):
            at = pattern.slots.index.get(("term", normal))
            if at is not None and s.v[at] is not UNSET:
                return s.v[at]
        if isinstance(t, Operand):
            found = s.v[pattern.slots(t.name)]
            return None if found is UNSET else found
        if isinstance(t, Number):
            found = self.env(pattern, s).value(t.value)
            return None if found is UNKNOWN else found
        if isinstance(t, Choose):
            return self._chosen(pattern, t, s)
        if isinstance(t, Result):
            return self._result(pattern, t, s)
        if isinstance(t, Extern):
            return self._written(pattern, t, s)
        return self._prim(pattern, t, s) if isinstance(t, Prim) else None

    def _chosen(self, pattern: Pattern, t: Choose, s: State) -> Any:
        env = self.env(pattern, s)
        for conds, value in t.cases:
            if all(env.holds(c) is True for c in conds):
                return self.construct(pattern, value, s)
        return None

    def _result(self, pattern: Pattern, t: Result, s: State) -> Any:
        normal: Any = pattern.normal(t)
        at = pattern.slots.index.get(("call", normal.call))
        if at is not None and s.v[at] is not UNSET:
            return s.v[at].results[t.index]
        args = [self.construct(pattern, a, s) if hasattr(a, "type") else a for a in t.call.args]
        env = self.env(pattern, s)
        attrs = [env.value(v) for _, v in t.call.attrs]
        view = self.by_args.get((t.call.op, (*args, *attrs))) if _all_hashable((*args, *attrs)) else None
        return view.results[t.index] if view is not None else None

    def _written(self, pattern: Pattern, t: Extern, s: State) -> Any:
        """Another result of a torch call that is bound: the sibling value of the same call."""
        normal = pattern.normal(t)
        at = pattern.slots.index.get(("torch", normal.call if isinstance(normal, Extern) else t.call))
        call = UNSET if at is None else s.v[at]
        if call is UNSET:
            return None
        name, args = "getitem", (call, t.returned)
        if "#" in call.op:
            name, args = extern_name(t, torch_op(t.call.op)), call.args
            if name.split("#")[0] != call.op.split("#")[0]:
                return None
        value = self.table.find(name, args)
        if value is None and t.type.shape is not None:
            env = self.env(pattern, s)
            shape, dtype = evaluate_shape(t.type.shape, env), _dtype(t.type, env)
            if shape is not None and dtype is not None:
                value = self.table.cons(name, args, (), dtype, shape)
        return value

    def _prim(self, pattern: Pattern, t: Prim, s: State) -> Any:
        env = self.env(pattern, s)
        args = [self.construct(pattern, a, s) for a in t.args]
        x = args[0]
        if type(x) is not Value or any(a is None and not _none(b) for a, b in zip(args[1:], t.args[1:], strict=True)):
            return None
        table = self.table
        if t.op == "to":
            dtype = env.value(t.params[0])
            return table.cast(x, dtype) if isinstance(dtype, torch.dtype) else None
        if t.op == "reshape":
            shape = evaluate_shape(t.params[0].args, env)  # type: ignore[union-attr]
            return None if shape is None else table.reshape(x, shape)
        if t.op == "clamp":
            return table.clamp(x, *(None if b is None else _rounded(b, x.dtype) for b in args[1:]))
        if t.op in ("add", "sub", "mul", "div", "fdiv", "maximum", "minimum"):
            y = args[1] if type(args[1]) is Value else _rounded(args[1], x.dtype)
            if type(y) is Value and (y.dtype != x.dtype or y.shape != x.shape):
                return None
            return table.binary(t.op, x, y, x.dtype, x.shape)
        return table.unary(t.op, x) if len(t.args) == 1 and not t.params else None

    # ---- guards

    def check(self, pattern: Pattern, s: State) -> tuple[str, Any, Any] | None:
        """None if everything that the match depends on holds, else (reason, expected, found)."""
        v, index = s.v, pattern.slots.index
        for name, value in pattern.pins:
            at = index[name]
            if v[at] is UNSET:
                v[at] = value
                s.trail.append(at)
            elif not same(v[at], value) and v[at] is not value:
                return "other constant", f"{name}={value}", v[at]
        for a in pattern.attributes:
            at = index[a.name]
            if v[at] is UNSET:
                dim = index.get("dim:" + a.name)
                known = UNSET if dim is None else v[dim]
                if known is UNSET and a.default is NO_DEFAULT:
                    continue
                v[at] = known if known is not UNSET else to_graph(a.default)
                s.trail.append(at)
        for o in pattern.operands:
            problem = self.fits(pattern, o, s)
            if problem is not None:
                return problem
        return self._rest(pattern, s)

    def _rest(self, pattern: Pattern, s: State) -> tuple[str, Any, Any] | None:
        if s.deferred and not settle(s, pattern.slots):
            return "shape", "sizes that divide", None
        env = self.env(pattern, s)
        for expr, value in s.deferred:
            if callable(expr):
                if not expr(s):
                    return "other constant", None, None
                continue
            have = env.value(expr)
            if have is UNKNOWN or not same(have, value):
                return ("guard unknown" if have is UNKNOWN else "other constant"), expr, value
        for a in pattern.attributes:
            at = pattern.slots.index[a.name]
            problem = _attribute_fits(a, s.v[at])
            if problem is not None:
                return problem
        for guard in pattern.guards:
            held = env.holds(guard)
            if held is not True:
                return ("guard unknown" if held is UNKNOWN else "guard false"), guard, None
        return None

    def env(self, pattern: Pattern, s: State) -> SiteEnv:
        """What `s` has bound, with what the graph knows."""
        return SiteEnv(
            lookup(pattern.slots, s), pattern.machine, self.truth, terms=lambda t: self.construct(pattern, t, s)
        )

    def fits(self, pattern: Pattern, o: OperandInfo, s: State) -> tuple[str, Any, Any] | None:
        """Does what an operand is bound to have its declared type? Binds dims and classes."""
        at = pattern.slots.index[o.name]
        value = s.v[at]
        if value is UNSET:
            if o.optional or o.has_default:
                s.v[at] = None
                s.trail.append(at)
                return None
            return (
                ("other op", f"an operand {o.name}", None) if not o.star and isinstance(pattern.owner, OpDef) else None
            )
        if value is None:
            return None if o.optional else ("guard false", f"{o.name} != none", None)
        if type(value) is not Value:
            return None
        return self.fits_type(pattern, o, value, s)

    def fits_type(self, pattern: Pattern, o: OperandInfo, value: Value, s: State) -> tuple[str, Any, Any] | None:
        """Has a value the declared type of an operand?"""
        type_, slots = o.type, pattern.slots
        if isinstance(type_.dtype, DtypeVar):
            if NAMES.get(value.dtype) not in type_.dtype.members:
                return "dtype", f"{o.name}: {type_}", value.dtype
            if not _set(s, slots("dtype:" + type_.dtype.key), value.dtype):
                return "dtype", f"{o.name}: {type_}", value.dtype
        elif isinstance(type_.dtype, Dtype) and value.dtype != DTYPES[type_.dtype.name]:
            return "dtype", f"{o.name}: {type_}", value.dtype
        if isinstance(type_.dtype, Ref) and not _set(s, slots(type_.dtype.name), value.dtype):
            return "dtype", f"{o.name}: {type_}", value.dtype
        if type_.shape is None or self._fits_shape(pattern, type_.shape, value.shape, s):
            return None
        return "shape", f"{o.name}: {type_}", list(value.shape)

    def _fits_shape(self, pattern: Pattern, declared: tuple[Any, ...], shape: tuple[Any, ...], s: State) -> bool:
        if len(declared) == 1 and not isinstance(declared[0], Star) and declared[0].number == 1:
            return all(d == 1 for d in shape)  # one element, any rank
        star = declared[0] if declared and isinstance(declared[0], Star) else None
        tail = declared[1:] if star is not None else declared
        cut = len(shape) - len(tail)
        if cut < 0 or (cut and star is None):
            return False
        if star is not None and not _set(s, pattern.slots("star:" + star.name), tuple(shape[:cut])):
            return False
        return all(self._fits_dim(pattern, d, x, s) for d, x in zip(tail, shape[cut:], strict=True))

    def _fits_dim(self, pattern: Pattern, dim: Any, size: Any, s: State) -> bool:
        if dim.number is not None:
            return dim.number == size
        find = lookup(pattern.slots, s)

        def known(name: str) -> Any:
            found = find("dim:" + name)
            found = find(name) if found is UNKNOWN else found
            return None if found is UNKNOWN or type(found) is Value else found

        if dim.name is not None:
            have = known(dim.name)
            return _set(s, pattern.slots("dim:" + dim.name), size) if have is None else have == size
        if all(known(n) is not None for n in dims.names(dim)):
            return dims.evaluate(dim, known) == size
        solved = dims.solve(dim, known, size)
        if solved is None:
            s.deferred.append((Size(dim), size))
            s.trail.append(-1)
            return True
        name, numerator, divisor = solved
        remainder = numerator % divisor if divisor != 1 else 0
        if remainder != 0:
            return False
        return _set(s, pattern.slots("dim:" + name), numerator // divisor if divisor != 1 else numerator)


def _node_of(value: Value) -> torch.fx.Node | None:
    """The first node of a value, or of what it is a reshape of."""
    source: Value | None = value
    while source is not None:
        if source.nodes:
            return source.nodes[0]
        source = source.source
    return None


def _set(s: State, at: int, value: Any) -> bool:
    while at >= len(s.v):  # a name that only types mention
        s.v.append(UNSET)
    if s.v[at] is UNSET:
        s.v[at] = value
        s.trail.append(at)
        return True
    return s.v[at] == value


def _attribute_fits(a: Any, value: Any) -> tuple[str, Any, Any] | None:
    """Has a captured attribute its declared type and a value of its domain?"""
    if value is UNSET or type(value) is Value:
        return None if value is not UNSET and a.type == "float" else ("other constant", f"a value of {a.name}", None)
    if value is None:
        return None if a.optional else ("other constant", f"{a.name}: {a.type}", None)
    wants: Any = {"float": (float, int), "int": int, "bool": bool, "str": str, "dtype": torch.dtype, "layout": str}.get(
        a.type
    )
    if wants is not None and (not isinstance(value, wants) or isinstance(value, bool) != (a.type == "bool")):
        return "other constant", f"{a.name}: {a.type}", value
    if a.domain is not None:
        allowed = [to_graph(d) for d in a.domain]
        if value not in allowed:
            return "other constant", f"{a.name} in {allowed}", value
    return None


def _bare(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with absorbed casts removed: views that differ in these are twins."""
    return tuple(a.args[0] if type(a) is Value and a.op == "to" else a for a in args)


def _rank_fits(shape: tuple[Any, ...], declared: Any) -> bool:
    if declared is None:
        return True
    if declared and isinstance(declared[0], Star):
        return len(shape) >= len(declared) - 1
    return len(shape) == len(declared) or all(d == 1 for d in shape)


def _dtype(type_: TensorType, env: SiteEnv) -> Any:
    found = env.value(type_.dtype) if type_.dtype is not None else UNKNOWN
    return found if isinstance(found, torch.dtype) else None


def _rounded(number: Any, dtype: torch.dtype) -> Any:
    return constant(number, dtype) if isinstance(number, int | float) else number


def _none(t: Any) -> bool:
    return isinstance(t, Number) and getattr(t.value, "value", 0) is None


def _hashable(x: Any) -> Any:
    return tuple(x) if isinstance(x, list) else x


def _all_hashable(xs: tuple[Any, ...]) -> bool:
    return all(x is not UNKNOWN and not isinstance(x, list) for x in xs)


__all__ = ["Found", "Sweep", "View"]
