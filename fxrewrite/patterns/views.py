"""The sweep: every value of a graph with the views that forms prove of it, then the rules over the finished views.

A *view* says that some values are the results of a declared op of some arguments. Forms match over the views of their
operands, so nested ops need one sweep, and several views of one value coexist. Nothing is edited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import define

from fxrewrite.dsl.core import (
    NO_DEFAULT,
    OpDef,
    RuleDef,
)  # fmt: skip
from fxrewrite.dsl.scalars import UNKNOWN
from fxrewrite.patterns.calls import Declared, view_of
from fxrewrite.patterns.construct import complete, construct
from fxrewrite.patterns.dialect import read_node
from fxrewrite.patterns.dtypes import to_graph
from fxrewrite.patterns.effects import Effects
from fxrewrite.patterns.fitting import Problem, attribute_fits, fits, fits_type, implied
from fxrewrite.patterns.forms import Library, Pattern
from fxrewrite.patterns.further import names
from fxrewrite.patterns.guards import SiteEnv, same
from fxrewrite.patterns.members import Members
from fxrewrite.patterns.replicated import Replicated
from fxrewrite.patterns.sizes import possible_rank, settle
from fxrewrite.patterns.state import UNSET, State, lookup
from fxrewrite.patterns.values import Table, Value, values_in
from fxrewrite.patterns.writes import Writes

MAX_VIEWS = 16  # of one op on one value: a guard against graphs made to blow up
MAX_MADE = 16  # results of forms on results of forms that no node is of: a guard against forms that go on without end


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

    `terms`: what `named` is in the rule. `site`: the first node of the first output, as it was when the graph was read.
    """

    rule: RuleDef
    site: torch.fx.Node | None
    pattern: Pattern
    bindings: dict[str, Any]
    outputs: tuple[Any, ...]
    named: tuple[Value, ...]
    views: tuple[View, ...] = ()
    terms: tuple[Any, ...] = ()


class Sweep:
    """One pass over a graph. `table`: its values. `found`: the matches of rules, in the order of their anchors.

    `truth` decides symbolic conditions for the whole range of sizes. `off`: patterns that take no part, by name;
    `failed` is told of one that raises.
    """

    def __init__(self, library: Library):
        self.library = library
        self.table = Table(self._visit)
        self.table.groups = library.groups
        self._predicates = {"replicated": Replicated(self.table, library.replicated)}
        self.by_args: dict[Any, View] = {}
        self.by_arg: dict[Any, list[View]] = {}  # (op name, a value among its arguments) -> views
        self.found: list[Found] = []
        self.anchors: set[tuple[Any, ...]] = set()
        self.truth: Any = None
        self.off: Mapping[str, str] = {}
        self.failed: Callable[[Pattern, Value, Exception], None] | None = None
        self.calls: list[tuple[torch.fx.Node, Declared]] = []  # of declared ops, in order
        self.unproved: list[tuple[Pattern, Value, Any]] = []  # where a form matched and may not be used, and why
        self._users: dict[Value, list[Value]] | None = None
        self._depth = 0  # of values that are made while forms are matched on others

    # ---- reading

    def read(self, graph: torch.fx.Graph) -> None:
        """Number every node of `graph`; views are found as values appear."""
        writes = self.table.writes = Writes(graph)
        effects = self.table.effects = Effects(self.library.kinds, graph.nodes)
        for node in graph.nodes:
            read_node(self.table, node)
            if writes:
                writes.read(self.table, node)
            if node in effects.calls:
                self._read_call(node, effects.calls[node])

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
        if self._depth < MAX_MADE:
            self._depth += 1
            try:
                self._under(self.library.index, v)
            finally:
                self._depth -= 1

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
        for v in list(self.table.all):  # not what matching makes: a rule would match that, and make more, without end
            self._under(rules, v)
            for name in list(v.views):
                self._over(rules, name, v)

    def attempt(self, pattern: Pattern, v: Value) -> None:
        """Match one pattern at one value; solutions go to `emit_view` or `emit_match`."""
        if pattern.name in self.off:
            return
        try:
            pattern.anchor(v, State(len(pattern.slots.index), self, v))
        except Exception as error:
            if self.failed is None:
                raise
            self.failed(pattern, v, error)

    def _over(self, index: dict[tuple[str, str | None], list[Pattern]], name: str, v: Value) -> None:
        """Patterns rooted at a declared op, and of these only those whose first operand is what they need."""
        root = "@" + name
        producers: dict[str | None, list[Any]] = {None: []}
        for view, i in v.views[name]:
            pair = self.library.swaps.get(name, (0,))
            for x in (view.args[j] for j in (pair if 0 in pair else (0,)) if i == 0):
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
        ranks = [(a, possible_rank(o.type.shape)) for a, o in zip(args, op.operands, strict=False)]
        if not all(fit is None or fit(a.shape) for a, fit in ranks if type(a) is Value):
            return
        if any(w.args == args for w, _ in v.views.get(op.name, ())):
            return
        results = [v if j == i else reshape(r, (*lead, r.shape[-1])) for j, r in enumerate(view.results)]
        self._register(View(op, args, results, carried=True))

    def _register(self, view: View, discover: bool = False) -> None:
        self.by_args.setdefault((view.op.name, view.args), view)
        for a in dict.fromkeys(a for a in view.args if type(a) is Value):
            self.by_arg.setdefault((view.op.name, a), []).append(view)
        for i, r in enumerate(view.results):
            r.views.setdefault(view.op.name, []).append((view, i))
        if discover:
            self._over(self.library.index, view.op.name, view.results[0])

    def users(self, v: Value) -> list[Value]:
        """The values that have `v` among their arguments, lists included, in order."""
        if self._users is None:
            self._users = {}
            for user in self.table.all:
                for a in dict.fromkeys(values_in(user.args)):
                    self._users.setdefault(a, []).append(user)
        return self._users.get(v, [])

    def construct(self, pattern: Pattern, t: Any, s: State) -> Any:
        """The value of a term whose names are bound, or None."""
        if s.deferred:
            settle(s, pattern.slots)
        return construct(self, pattern, t, s)

    # ---- solutions

    def emit_view(self, pattern: Pattern, s: State) -> bool:
        """A form matched: check its guards and note the view. Always goes on with other choices."""
        mark = len(s.trail)
        reason = self.check(pattern, s)
        if reason is None:
            results = complete(self, pattern, s, s.anchor)
            if results is not None and (pattern.against is None or self._is_proved(pattern, s, results[0])):
                self._add_view(pattern, s, results)
        s.undo(mark)
        return False

    def _is_proved(self, pattern: Pattern, s: State, result: Value) -> bool:
        """May a form that needs a proof be used? Where it may not, that is noted."""
        assert pattern.against is not None
        operands = values_in(s.v[pattern.slots.index[o.name]] for o in pattern.operands)
        nodes = (node_of(v.root) for v in operands if v.shape)
        found = pattern.against(next((n.meta["val"].device for n in nodes if n is not None), None))
        if found is not None:
            self.unproved.append((pattern, result, found))
        return found is None

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
            if pattern.members is not None:
                self._emit_each(pattern, pattern.members, s)
            else:
                outputs = complete(self, pattern, s, s.anchor)
                if outputs is not None:
                    self._add_match(pattern, s, outputs)
        s.undo(mark)
        return False

    def _add_match(self, pattern: Pattern, s: State, outputs: list[Any]) -> None:
        if any(node_of(v) is not None for v in outputs[: pattern.first]):
            return  # the pattern that begins at what is alive has found it
        index = pattern.slots.index
        bindings = {n: s.v[at] for n, at in index.items() if isinstance(n, str) and s.v[at] is not UNSET}
        key = (pattern.name, *((o,) if type(o) is Value else tuple(o) for o in outputs), *(
            _hashable(bindings.get(o.name)) for o in pattern.operands))  # fmt: skip
        if key in self.anchors:
            return
        self.anchors.add(key)
        flat = {id(x) for o in outputs for x in (o if isinstance(o, list) else [o])}
        named = [construct(self, pattern, t, s) for t in pattern.named]
        kept = [(n, t) for n, t in zip(named, pattern.named, strict=True) if type(n) is Value and id(n) not in flat]
        views = tuple(
            s.v[at] for n, at in index.items() if isinstance(n, tuple) and n[0] == "call" and s.v[at] is not UNSET
        )
        first = outputs[pattern.first]
        first = first[0] if isinstance(first, list) else first
        self.found.append(
            Found(
                pattern.owner, node_of(first), pattern, bindings, tuple(outputs), tuple(n for n, _ in kept), views,
                tuple(t for _, t in kept),
            )
        )  # fmt: skip

    def _emit_each(self, pattern: Pattern, members: Members, s: State) -> None:
        """All values of the form of an `each`, in graph order: anchored at the first of them."""
        elements = [o for o in pattern.operands if o.name in members.lists]

        of_lists = [g for g in pattern.guards if names(g) & members.lists.keys()]
        of_one = [g for g in pattern.guards if g not in of_lists]
        before, env = len(s.deferred), self.env(pattern, s)
        held: list[bool] = []

        def fits(s: State) -> bool:
            bound = [(o, s.v[pattern.slots.index[o.name]]) for o in elements]
            typed = all(type(x) is not Value or fits_type(pattern, o, x, s) is None for o, x in bound)
            fitting = typed and self._waiting(pattern, s, before) is None
            if fitting:
                held.append(all(env.holds(g) is True for g in of_one))
            return fitting

        found = members.find(s, fits)
        outputs = None if found is None else complete(self, pattern, s, found[0])
        if found is None or outputs is None or not all(held):
            return
        saved = list(s.v)
        for n, values in found[1].items():
            s.v[members.lists[n]] = values
        if all(env.holds(g) is True for g in of_lists):
            self._add_match(pattern, s, outputs)
        s.v[:] = saved

    # ---- guards

    def check(self, pattern: Pattern, s: State) -> Problem | None:
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
                known = implied(pattern, a.name, s) if known is UNSET else known
                if known is UNSET and a.default is NO_DEFAULT:
                    continue
                v[at] = known if known is not UNSET else to_graph(a.default)
                s.trail.append(at)
        given = dict(pattern.binds)
        for o in sorted(pattern.operands, key=lambda o: o.name in given):  # what is given may be made of their sizes
            if o.name in given:
                at = index[o.name]
                v[at] = self.construct(pattern, given[o.name], s)
                s.trail.append(at)
                if type(v[at]) is not Value:
                    return "other op", f"an operand {o.name}", None
            problem = fits(pattern, o, s)
            if problem is not None:
                return problem
        return self._rest(pattern, s)

    def _waiting(self, pattern: Pattern, s: State, since: int = 0) -> Problem | None:
        """What was put off until all is bound, from the one of number `since` on."""
        if s.deferred and not settle(s, pattern.slots):
            return "shape", "sizes that divide", None
        env = self.env(pattern, s)
        for expr, value in s.deferred[since:]:
            if callable(expr):
                if not expr(s):
                    return "other constant", None, None
                continue
            have = env.value(expr)
            if have is UNKNOWN or not same(have, value):
                return ("guard unknown" if have is UNKNOWN else "other constant"), expr, value
        return None

    def _rest(self, pattern: Pattern, s: State) -> Problem | None:
        problem = self._waiting(pattern, s)
        if problem is not None:
            return problem
        env = self.env(pattern, s)
        for a in pattern.attributes:
            at = pattern.slots.index[a.name]
            problem = attribute_fits(a, s.v[at])
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
            lookup(pattern.slots, s), pattern.machine, self.truth, self._predicates,
            lambda t: construct(self, pattern, t, s),
        )  # fmt: skip


def node_of(value: Value) -> torch.fx.Node | None:
    """The first node of a value, or of what it is a reshape of."""
    source: Value | None = value
    while source is not None:
        if source.nodes:
            return source.nodes[0]
        source = source.source
    return None


def _bare(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with absorbed casts removed: views that differ in these are twins."""
    return tuple(a.args[0] if type(a) is Value and a.op == "to" else a for a in args)


def _hashable(x: Any) -> Any:
    return tuple(x) if isinstance(x, list) else x


__all__ = ["Found", "Sweep", "View", "node_of"]
