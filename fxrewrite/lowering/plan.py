"""What firing a match would do: what dies, where the new nodes go, every reason why it may not. Nothing is edited."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, field
from torch.fx import Node

from fxrewrite.dsl.core import Operand, Prim, Term
from fxrewrite.patterns.dialect import BOOKKEEPING, VIEWS
from fxrewrite.patterns.effects import Effects, call_of, ordered, stays
from fxrewrite.patterns.values import Table, Value, values_in
from fxrewrite.patterns.views import Found
from fxrewrite.patterns.wording import describe
from fxrewrite.patterns.writes import Writes
from fxrewrite.patterns.writes import writes as is_write

LARGER = "a larger match"  # what eats a site whose nodes went before its rule had its turn


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
        if not view and n.target not in BOOKKEEPING and (n.is_impure() or (effects and effects.has(n))):
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
            if a.users.keys() <= dead or all(u in dead or idle(u, effects) for u in a.users):
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
    kept = dead & effects.kept
    lost = min(kept - _ordered_calls(found), default=None) if kept else None
    if lost is not None:
        raise Refusal("effect order", f"{describe(lost)} would go, and the rule does not name it", node=lost)


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
        if stays(u):
            raise Refusal("effect order", f"{describe(u)} would move past another", node=u)
        seen.add(u)
        todo += [w for w in u.users if w < last or w is last]
    for u in seen if effects else ():
        crossed = effects.between(u, u, last, seen)
        if crossed is not None:
            raise Refusal("effect order", f"{describe(u)} would move past {describe(crossed)}", node=u)
    return sorted(seen)
