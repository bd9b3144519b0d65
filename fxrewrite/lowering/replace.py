"""One rewrite as a transaction: what dies, where the new nodes go, what must still be true, and the edit.

`Plan` is made without touching the graph. `fire` writes the new nodes, compares every output with what it replaces, and
only then lets users see them; if anything is refused, all that it wrote is removed again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from copy import copy
from functools import cache
from typing import Any

import sympy
import torch
from attrs import define, field
from torch.fx import Graph, Node
from torch.fx.node import _side_effectful_functions
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from fxrewrite.dsl.core import Operand, Prim, Term
from fxrewrite.patterns.dialect import BOOKKEEPING, VIEWS
from fxrewrite.patterns.effects import Effects, call_of, ordered
from fxrewrite.patterns.values import Dims, Table, Value, dims_of, values_in
from fxrewrite.patterns.views import Found
from fxrewrite.patterns.wording import describe
from fxrewrite.patterns.writers import WRITERS, Dialect
from fxrewrite.patterns.writes import Writes, memory, returned
from fxrewrite.patterns.writes import writes as is_write

aten = torch.ops.aten
LARGER = "a larger match"  # what eats a site whose nodes went before its rule had its turn
MARK = "fxrewrite"  # node.meta key: the rule and its place
# metadata that the new node inherits
COPIED = ("stack_trace", "nn_module_stack", "custom", "source_fn_stack", "from_node", "seq_nr")


class Refusal(Exception):
    """A site where a rule does not fire: a reason of the closed list, with what was expected and found.

    `node`: whose line of the model is shown. `about`: the nodes that `found` tells of. `term`: the part of the rule.
    """

    def __init__(
        self, reason: str, found: str = "", expected: str = "", node: Node | None = None, hint: str = "",
        about: Iterable[Node] = (), term: Any = None,
    ):  # fmt: skip
        super().__init__(f"{reason}: {found}" if found else reason)
        self.reason, self.found, self.expected, self.node, self.hint = reason, found, expected, node, hint
        self.about = tuple(about) or ((node,) if node is not None else ())
        self.term = term


@define(eq=False)
class Output:
    """A node that will be replaced: by result `index` (element `element` of a list), viewed back to the node's own
    shape.
    """

    index: int
    element: int | None
    node: Node
    value: Value


@define(eq=False)
class Plan:
    """Everything that an edit needs. `dead` dies with the outputs; `last` is the last capture; `moved` users come
    before it.
    """

    found: Found
    outputs: list[Output]
    dead: set[Node]
    captures: list[Node]
    last: Node | None
    moved: list[Node] = field(factory=list)

    @property
    def anchor(self) -> Node:
        """The first node that is replaced: what the site is called after."""
        return min((o.node for o in self.outputs if o.index == 0), default=self.outputs[0].node)


Allows = Callable[[Plan], bool]  # may a plan take part? Asked before those that fire are chosen


def live(value: Value) -> list[Node]:
    """The nodes of a value that are still in the graph."""
    return [n for n in value.nodes if not n._erased]


# ---- planning


def plan(found: Found, table: Table) -> Plan:
    """What firing would do. Raises Refusal; changes nothing."""
    writes, effects = table.writes, table.effects
    outputs = _outputs(found, effects)
    if not outputs:
        gone = found.site is not None and found.site._erased
        raise Refusal("eaten by", LARGER) if gone else Refusal("other op", "no output of the rule is used")
    for o in outputs:
        if o.node in table.written:
            raise Refusal("eaten by", table.written[o.node], node=o.node)
        if writes.to(o.node):  # a duplicate, or a view, would be written with it
            raise Refusal(
                "mutation between", describe(writes.to(o.node)[0]), f"nothing writes to {describe(o.node)}", o.node
            )
    first = min(o.node for o in outputs)
    operands = values_in(found.bindings.values())
    captures = list(dict.fromkeys(n for v in operands for n in leaves(v, first, writes)))
    for o in outputs:
        if o.node in captures and not all(_is_view(side[o.index]) for side in (found.rule.left, found.rule.right)):
            raise Refusal("cycle", f"{describe(o.node)} is read by the rule and is what it gives", node=o.node)
    dead = dying({o.node for o in outputs if o.node not in captures}, set(captures), effects)
    _exclusive(found, dead, set(captures), effects)
    _nothing_lost(found, dead, effects)
    last = max(captures) if captures else None
    result = Plan(found, outputs, dead, captures, last)
    if writes:
        _unwritten(result, first, writes)
    if last is not None:
        result.moved = _early_users(result, last, effects)
    if effects:
        _in_order(result, effects)
    return result


def _outputs(found: Found, effects: Effects) -> list[Output]:
    """Every live node of every output, also in the shape that the output was before it was viewed. A node that nobody
    reads is one only where its effect is wanted.
    """
    out: list[Output] = []
    seen: set[Node] = set()
    views = [_is_view(t) for t in found.rule.left]
    for i, value in enumerate(found.outputs):
        if views[i] and not all(views):
            continue  # beside what is computed it costs nothing: it stays, in the strides that it has
        for j, one in enumerate(value if isinstance(value, list) else [value]):
            source: Value | None = one
            while source is not None:
                for n in live(source):
                    if n not in seen:
                        seen.add(n)
                        out.append(Output(i, j if isinstance(value, list) else None, n, source))
                source = source.source
    return [o for o in out if o.node.users or (effects and effects.has(call_of(o.node)))]


def _is_view(term: Term) -> bool:
    """Is an output a view of an operand?"""
    while isinstance(term, Prim) and term.op in ("slice", "reshape", "permute", "expand"):
        term = term.args[0]
    return isinstance(term, Operand)


def leaves(value: Value, first: Node, writes: Writes) -> list[Node]:
    """The nodes from which a captured value is had before the node `first`: its own, or those below it where it has
    none.
    """
    out: list[Node] = []
    todo = [value]
    while todo:
        v = todo.pop()
        nodes = [n for n in live(v) if writes.holds(n, v, first)]
        before = next((n for n in nodes if n < first), None)
        if before is not None:
            out.append(before)
        elif nodes and v.op != "reshape":  # a later node: the users of the outputs move behind it
            out.append(nodes[0])
        elif v.nodes and not nodes and (live(v) or not v.args):  # what it is made of would be computed again
            node = v.nodes[0]
            by = ", ".join(map(describe, writes.to(node)[:3]))
            raise Refusal("mutation between", f"{describe(node)} was written to by {by}", node=node)
        else:
            todo += [a for a in reversed(v.args) if isinstance(a, Value)]
    return out


def _unwritten(p: Plan, first: Node, writes: Writes) -> None:
    """Refuse where a write to what dies, is replaced or is read stands between them; where users move, any write."""
    touched: list[Node] = [*p.dead, *(o.node for o in p.outputs), *p.captures]
    low, moves = min(p.dead, default=first), p.last is not None and first < p.last
    theirs = {w for n in touched for w in writes.to(n)}
    write = next((w for w in writes.within(min(low, first), max(touched)) if moves or w in theirs), None)
    if write is not None:
        raise Refusal("mutation between", describe(write), node=write)
    before = writes.before(first)
    if before is not None and (p.last is None or p.last < before):
        p.last = before


def idle(node: Node, effects: Effects | None = None, known: set[Node] | None = None) -> bool:
    """Is `node` no user to speak of: bookkeeping, dead code without an effect, or a view that only such nodes read?

    `known`: nodes that are shown to be idle; those of this question are added.
    """
    todo, seen = [node], set[Node]()
    while todo:
        n = todo.pop()
        if n in seen or (known and n in known):
            continue
        seen.add(n)
        view = n.target in VIEWS or n.target is operator.getitem
        if n.op != "call_function" or (n.users and not view):
            return False
        if n.target not in BOOKKEEPING and (n.is_impure() or (effects and effects.has(n))):
            return False
        todo += n.users
    if known is not None:
        known |= seen
    return True


def dying(dead: set[Node], captures: set[Node], effects: Effects | None = None) -> set[Node]:
    """`dead` with every node that only they use, down to the captures."""
    todo = list(dead)
    while todo:
        for a in todo.pop().all_input_nodes:
            if a in dead or a in captures or a.op != "call_function":
                continue
            if all(u in dead or idle(u, effects) for u in a.users):
                dead.add(a)
                todo.append(a)
    return dead


def _exclusive(found: Found, dead: set[Node], captures: set[Node], effects: Effects) -> None:
    """Refuse where a value that the rule names has users outside the match, looking through its casts and reshapes."""
    known: set[Node] = set()
    for value, term in zip(found.named, found.terms, strict=True):
        one: Value | None = value
        while one is not None:
            for n in live(one):
                if n not in dead and n not in captures:
                    others = (u for u in n.users if u not in dead and u.target not in BOOKKEEPING)
                    users = [u for u in others if not idle(u, effects, known)]
                    if users:
                        raise Refusal(
                            "shared value", "used by " + ", ".join(map(describe, users[:3])), node=n,
                            expected=f"{_view_name(found, value)} has no other users", about=users, term=term,
                        )  # fmt: skip
            one = one.source or (one.args[0] if one.op == "to" else None)


def _view_name(found: Found, value: Value) -> str:
    for view in found.views:
        if value in view.results:
            return view.op.name
    return value.op


def _ordered_calls(found: Found) -> set[Node]:
    """The calls with a hidden effect that a rule takes."""
    return {call_of(n) for v in found.views if ordered(v.op) for r in v.results for n in live(r)}


def _nothing_lost(found: Found, dead: set[Node], effects: Effects) -> None:
    """Refuse where a call that writes, draws, or has a hidden effect would go, and is not what the rule takes: what
    stands where a rule has `_` or `...` dies with the match.
    """
    taken: set[Node] | None = None
    for n in dead:
        hidden = bool(effects) and effects.has(n)
        if hidden or is_write(n) or _is_ordered(n):
            taken = _ordered_calls(found) if taken is None else taken
            if n not in taken:
                raise Refusal("effect order", f"{describe(n)} would go, and the rule does not name it", node=n)


def _in_order(p: Plan, effects: Effects) -> None:
    """Refuse where an effect would be lost or doubled, or would pass another that it must keep its order with."""
    calls = _ordered_calls(p.found)
    gone = {*p.dead, *(o.node for o in p.outputs)}
    first = min(o.node for o in p.outputs)
    place = first if p.last is None or p.last < first else p.last
    for call in calls:
        users = [u for u in call.users if u not in gone and not idle(u, effects)]
        if call not in gone and (users or not call.users):
            raise Refusal(
                "effect order", f"{describe(call)} stays: {', '.join(map(describe, users))} reads it", node=call
            )
        crossed = effects.between(call, min(call, place), max(call, place), calls)
        if crossed is not None:
            raise Refusal("effect order", f"{describe(call)} would move past {describe(crossed)}", node=crossed)


def _early_users(p: Plan, last: Node, effects: Effects) -> list[Node]:
    """Users of outputs that stand before the last capture: they move behind it. A capture among them is a cycle."""
    captures = set(p.captures)
    todo = [u for o in p.outputs for u in o.node.users if u not in p.dead and (u < last or u is last)]
    seen: set[Node] = set()
    while todo:
        u = todo.pop()
        if u in seen:
            continue
        if u in captures:
            raise Refusal("cycle", f"{describe(u)} is read by the rule and depends on its output", node=u)
        if is_write(u):
            raise Refusal("mutation between", describe(u), node=u)
        if _is_ordered(u):
            raise Refusal("effect order", f"{describe(u)} would move past another", node=u)
        seen.add(u)
        todo += [w for w in u.users if w < last or w is last]
    for u in seen if effects else ():
        crossed = effects.between(u, u, last, seen)
        if crossed is not None:
            raise Refusal("effect order", f"{describe(u)} would move past {describe(crossed)}", node=u)
    return sorted(seen)


def _is_ordered(node: Node) -> bool:
    """Has a node an effect, or does it draw random numbers? Then it stays where it is. What checks a value moves."""
    if node.target in BOOKKEEPING or node.target is torch.ops._c10d_functional.wait_tensor.default:
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return _is_ordered_op(node.target)
    return node.is_impure()


@cache
def _is_ordered_op(target: torch._ops.OpOverload) -> bool:
    seeded = torch.Tag.nondeterministic_seeded in target.tags
    return seeded or target._schema.is_mutable or target in _side_effectful_functions


# ---- editing


@define(eq=False)
class Editor:
    """Writes nodes into one graph. `put` is where the next node goes; `made` is what can be taken back."""

    graph: Graph
    table: Table
    dialect: Dialect
    fake_mode: Any
    truth: Callable[[Any], bool | None] | None = None
    made: list[Node] = field(factory=list)
    cursor: Node | None = None

    def call(self, target: Any, *args: Any, val: Any = None, like: Node | None = None, **kwargs: Any) -> Node:
        """A new node behind the cursor. `val`: its fake value where it is known; else the op's fake kernel gives it."""
        assert self.cursor is not None
        with self.graph.inserting_after(self.cursor):
            node = self.graph.call_function(target, args, kwargs)
        self.cursor = node
        self.made.append(node)
        if self.table.writes:
            self.table.writes.note(node)
        if self.table.effects is not None:
            self.table.effects.note(node)
        vals, kwvals = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        if val is None:
            if target in (operator.getitem, operator.add, operator.mul):
                val = target(*vals)
            else:
                with self.fake_mode:
                    val = target(*vals, **kwvals)
        node.meta["val"] = val
        if isinstance(target, torch._ops.OpOverload) or target is torch.ops.higher_order.auto_functionalized:
            node.meta["eager_input_vals"] = (vals, kwvals)
        if isinstance(val, torch.Tensor):
            node.meta["tensor_meta"] = _extract_tensor_metadata(val)
        if like is not None:
            node.meta.update({k: copy(like.meta[k]) for k in COPIED if k in like.meta})  # passes append to `from_node`
        return node

    def node(self, value: Value) -> Node:
        """The node of a value; one that has none is written down."""
        made: dict[Value, Node] = {}
        todo = [value]  # no recursion: a chain of values without nodes may be as long as the graph
        while todo:
            v = todo[-1]
            found = made.get(v) or self._existing(v)
            if found is None:
                if v.op not in WRITERS:
                    raise Refusal("shape", f"a value of {v.op} has no node")
                args = [(made.get(a) or self._existing(a)) if isinstance(a, Value) else a for a in v.args]
                lacking = [a for a, n in zip(v.args, args, strict=True) if isinstance(a, Value) and n is None]
                if lacking:
                    todo += reversed(lacking)
                    continue
                found = self._written(v, args)
            made[v] = found
            todo.pop()
        return made[value]

    def _existing(self, value: Value) -> Node | None:
        """A node that holds a value where the next one goes."""
        assert self.cursor is not None
        ready = (n for n in live(value) if n is self.cursor or n < self.cursor)
        return next((n for n in ready if self.holds(n, value)), None)

    def _written(self, value: Value, args: list[Any]) -> Node:
        """A new node for a value of these arguments."""
        if value.op == "reshape":
            node = self.call(self.dialect.reshape, args[0], self.sizes(value.shape))
        else:
            node = WRITERS[value.op](self.dialect, self.call, *args, *value.attrs)
        value.nodes.append(node)
        self.table.of_node[node] = value
        return node

    def holds(self, node: Node, value: Value) -> bool:
        """Does `node` hold `value` where the next node goes?"""
        writes = self.table.writes
        return not writes or (self.cursor is not None and writes.holds(node, value, self.cursor))

    def sizes(self, shape: Dims) -> list[Any]:
        """A shape as arguments of a reshape: numbers, nodes that hold a size here, and one -1 where a size has no
        node.
        """
        found = [s if isinstance(s, int) else self.size_node(s) for s in shape]
        if found.count(None) > 1:
            found = [self.written_size(s) if n is None else n for s, n in zip(shape, found, strict=True)]
        return [-1 if n is None else n for n in found]

    def size_node(self, expr: Any) -> Node | None:
        """A node before the cursor that holds a size."""
        for node in self.table.size_nodes.get(expr, ()):
            if not node._erased and (self.cursor is None or node is self.cursor or node < self.cursor):
                return node
        return None

    def written_size(self, expr: Any) -> Any:
        """A node for a size, made of those that there are."""
        found = int(expr) if isinstance(expr, sympy.Integer) else self.size_node(expr)
        if found is not None:
            return found
        if not isinstance(expr, sympy.Add | sympy.Mul):
            return self.size_of_a_tensor(expr)
        op = operator.add if isinstance(expr, sympy.Add) else operator.mul
        parts = [self.written_size(a) for a in expr.args]
        result = parts[0]
        for part in parts[1:]:
            result = self.call(op, result, part)
        self.table.size_nodes.setdefault(expr, []).append(result)
        return result

    def size_of_a_tensor(self, expr: Any) -> Node:
        """A new node for a size that a tensor before the cursor has."""
        for node in self.graph.nodes:
            val = node.meta.get("val")
            if isinstance(val, torch.Tensor) and expr in dims_of(val):
                result = self.call(aten.sym_size.int, node, dims_of(val).index(expr))
                self.table.size_nodes.setdefault(expr, []).append(result)
                return result
            if node is self.cursor:
                break
        raise Refusal("shape", f"no node has the size {expr}")

    def undo(self, keep: int = 0, cursor: Node | None = None) -> None:
        """Remove everything that was written but the first `keep` nodes; the next one goes behind `cursor`."""
        for node in reversed(self.made[keep:]):
            value = self.table.of_node.pop(node, None)
            if isinstance(value, Value) and node in value.nodes:
                value.nodes.remove(node)
            self.graph.erase_node(node)
        del self.made[keep:]
        self.cursor = cursor


def fire(p: Plan, editor: Editor, emit: Callable[[Editor, Plan], list[Any]], mark: dict[str, Any]) -> None:
    """Carry out a plan. `emit` writes the right side and returns a node (or a list of nodes) for each output.

    Raises Refusal, the graph as it was, where an output would differ in dtype, shape, device or strides; and whatever
    `emit` raises, the graph as it was.
    """
    after_inputs = p.last is None or p.last.op in ("placeholder", "get_attr")
    editor.cursor = min(o.node for o in p.outputs).prev if after_inputs else p.last
    editor.made = []
    try:
        pairs = _pairs(editor, p, emit(editor, p))
        for o, new in pairs:
            if not o.node.users.keys() <= p.dead:  # else nobody sees it
                compatible(o.node, new, editor.truth)
                _unaliased(o.node, new, editor)
    except Exception:
        editor.undo()
        raise
    _move(p, editor)
    _substitute(p, editor, pairs, mark)


def _pairs(editor: Editor, p: Plan, results: list[Any]) -> list[tuple[Output, Node]]:
    """Each output with the node that replaces it."""
    pairs: list[tuple[Output, Node]] = []
    owners: dict[Node, Node] = {}  # memory of a new node -> the old memory in whose place it stands
    copies: dict[tuple[Node, Node], Node] = {}
    for o in p.outputs:
        new = results[o.index] if o.element is None else results[o.index][o.element]
        mine, old = memory(new), memory(o.node)
        if mine is not old and returned(o.node) and (_is_taken(mine) or owners.setdefault(mine, old) is not old):
            if (new, old) not in copies:
                copies[new, old] = editor.call(aten.clone.default, new, like=o.node)
            new = copies[new, old]
        pairs.append((o, _back(editor, new, o, p.found.outputs[o.index])))
    return pairs


def _is_taken(owner: Node) -> bool:
    """Is memory the caller's, or returned already? Outputs share none that they did not share before."""
    return owner.op != "call_function" or returned(owner)


def _back(editor: Editor, new: Node, o: Output, value: Any) -> Node:
    """The new node for an output, in the shape of the node that it replaces: that may be another than the shape of
    `value`, which is what the rule gives.
    """
    old, val = o.node.meta["val"], new.meta["val"]
    shape, found = dims_of(old), dims_of(val)
    if found == shape:
        return new
    wanted = (value if o.element is None else value[o.element]).shape
    if not _same_sizes(found, wanted, editor.truth) and {*found, *wanted} != {1}:
        raise Refusal("shape", str(list(found)), str(list(wanted)), o.node)
    known = val.dtype == old.dtype and val.device == old.device and val.is_contiguous() and old.is_contiguous()
    return editor.call(editor.dialect.reshape, new, editor.sizes(shape), val=old if known else None, like=o.node)


def compatible(old: Node, new: Node, truth: Any = None) -> None:
    """Refuse where `new` differs from `old` in dtype, device, shape, or strides of dims above 1."""
    a, b = old.meta["val"], new.meta["val"]
    if a.dtype != b.dtype:
        raise Refusal("dtype", str(b.dtype), str(a.dtype), old)
    if a.device != b.device:
        raise Refusal("shape", f"on {b.device}", f"on {a.device}", old)
    shape = dims_of(a)
    if not _same_sizes(dims_of(b), shape, truth):
        raise Refusal("shape", str(list(dims_of(b))), str(list(shape)), old)
    for size, s, t in zip(shape, _strides(a), _strides(b), strict=True):
        if size == 1 or size == 0 or s == t:
            continue
        if truth is not None and not isinstance(size, int) and truth(sympy.Eq(s, t)) is True:
            continue
        raise Refusal("strides", str(list(_strides(b))), str(list(_strides(a))), old)


def _same_sizes(found: Dims, wanted: Dims, truth: Any) -> bool:
    """Are two shapes equal for every size in the range? `2 * (T // 2)` is T where T is known to be even."""
    if found == wanted:
        return True
    return len(found) == len(wanted) and all(
        a == b or (truth is not None and truth(sympy.Eq(a, b)) is True) for a, b in zip(found, wanted, strict=True)
    )


def _unaliased(old: Node, new: Node, editor: Editor) -> None:
    """Refuse where `new`, an operand that comes out as it is, lies in memory that is written after `old`."""
    written = editor.table.writes.to(new) if editor.table.writes else ()
    write = next((w for w in written if old < w and w not in editor.made), None)
    if write is not None:
        raise Refusal("mutation between", describe(write), f"nothing writes to {describe(memory(new))}", write)


def _strides(t: torch.Tensor) -> tuple[Any, ...]:
    return tuple(s if isinstance(s, int) else s.node.expr for s in t.stride())


def _move(p: Plan, editor: Editor) -> None:
    for user in p.moved:
        assert editor.cursor is not None
        editor.cursor.append(user)
        editor.cursor = user


def _substitute(p: Plan, editor: Editor, pairs: list[tuple[Output, Node]], mark: dict[str, Any]) -> None:
    for node in editor.made:
        if node not in editor.table.of_node:  # what was written for a capture is a value like any other
            node.meta[MARK] = mark
            editor.table.written[node] = mark["rule"]
    for o, new in pairs:
        o.node.replace_all_uses_with(new, delete_user_cb=lambda u: u not in p.dead, propagate_meta=False)
        value = o.value
        value.nodes = [new, *(n for n in value.nodes if n is not o.node)]
        editor.table.of_node.setdefault(new, value)  # an operand that comes out as it is keeps the value that it has
    for n in sorted(p.dead, reverse=True):
        for u in list(n.users):
            if idle(u, editor.table.effects):
                _erase(u)
        if not n.users and not n._erased:
            editor.graph.erase_node(n)
    for n in reversed(editor.made):  # results that nobody reads
        if not (n._erased or n.users) and idle(n, editor.table.effects):
            editor.graph.erase_node(n)
    editor.made = [n for n in editor.made if not n._erased]


def _erase(node: Node) -> None:
    """Erase an idle node, and before it those that read it."""
    gone, todo = {node}, [node]
    while todo:
        users = set(todo.pop().users) - gone
        gone |= users
        todo += users
    for n in sorted(gone, reverse=True):
        n.graph.erase_node(n)
