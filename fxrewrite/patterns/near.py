"""Near misses: for each rule the sites where it could have fired and no match was found, with the deepest point that
was reached.

A site of a rule is a value that is a view of its root op, or of the first op of its definition when no root follows.
Only asked for when somebody listens: matching itself keeps no such notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node

from fxrewrite.dsl.check.terms import calls_of
from fxrewrite.dsl.core import Apply, Call, Each, Lit, Prim, Result, RuleDef, span_of
from fxrewrite.dsl.syntax import Span
from fxrewrite.patterns.construct import construct
from fxrewrite.patterns.dialect import VIEWS
from fxrewrite.patterns.events import COMPLETE, Event, source_line
from fxrewrite.patterns.fitting import Problem
from fxrewrite.patterns.forms import Library, Pattern
from fxrewrite.patterns.hints import SPECIALIZE, attribute_hint, place_of_term
from fxrewrite.patterns.state import State, Trace
from fxrewrite.patterns.values import Value
from fxrewrite.patterns.views import Sweep, View, node_of
from fxrewrite.patterns.wording import expected_text, found_text, node_text, text, type_found, type_wanted, values_text

READERS = 4  # users of a value that are told of


def near_misses(sweep: Sweep, library: Library) -> list[Event]:
    """Events for the sites of every rule without a match. To be asked before anything is rewritten."""
    matched = {(f.rule.full_name, id(_anchor(f.outputs[0]))) for f in sweep.found}
    sites: dict[str, list[Value]] = {}
    for v in sweep.table.all:
        if v.nodes:
            for name in v.views:
                if _is_site(sweep, v, name):
                    sites.setdefault(name, []).append(v)
    events: list[Event] = []
    for pattern in library.patterns.values():
        if pattern.name in sweep.off:
            continue
        rule: RuleDef = pattern.owner
        ops, missed = chain(pattern.normal(rule.left[0])), list[Event]()
        if ops:
            root, first = ops[0], ops[-1]
            for v in sites.get(root, ()):
                if (rule.full_name, id(v)) not in matched:
                    missed.append(_root_miss(sweep, pattern, v))
            for v in sites.get(first, ()) if first != root else ():
                if not _feeds(sweep, v, ops[-2]):
                    missed.append(_first_miss(pattern, v, first, root))
        events += _with_unproved(missed, _unproved(sweep, rule))
    return events


def _anchor(output: Any) -> Any:
    return output[0] if isinstance(output, list) else output


def _is_site(sweep: Sweep, v: Value, op: str) -> bool:
    """Is `v` the first result of `op`, found here and not carried over from another shape, and no inner part of a
    larger such view?
    """
    own = [view for view, i in v.views[op] if i == 0 and not view.carried]
    return bool(own) and not any(_inner(sweep, v, view) for view in own)


def _inner(sweep: Sweep, v: Value, view: View) -> bool:
    """Do all users of `v` make the same op of the same operand (a norm before its weight)?"""
    larger = {id(w.results[0]) for w in sweep.by_arg.get((view.op.name, view.args[0]), ()) if w.results[0].n > v.n}
    users = [sweep.table.of_node.get(u) for n in v.nodes for u in n.users]
    return bool(users) and all(id(u) in larger for u in users)


def chain(t: Any) -> list[str]:
    """The declared ops of a left side from the root along first operands."""
    out: list[str] = []
    while True:
        if isinstance(t, Each):
            t = t.body
        elif isinstance(t, Result):
            out.append(t.call.op)
            t = t.call.args[0] if t.call.args else None
        elif isinstance(t, Prim) and t.op in ("to", "reshape"):
            t = t.args[0]
        else:
            return out


def _feeds(sweep: Sweep, v: Value, above: str) -> bool:
    """Is `v`, or a cast or reshape of it, the first operand of a view of `above`?"""
    seen: set[int] = set()
    todo: list[Value] = [v]
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if sweep.by_arg.get((above, x)):
            return True
        for n in x.nodes:
            for u in n.users:
                w = sweep.table.of_node.get(u)
                if isinstance(w, Value) and (w.op in ("to", "reshape") or w.source is x or w.root is x.root):
                    todo.append(w)
    return False


# ---- one site


def _root_miss(sweep: Sweep, pattern: Pattern, v: Value) -> Event:
    rule: RuleDef = pattern.owner
    trace = Trace()
    problems = _problems(sweep, pattern, v, trace)
    node = v.nodes[0]
    if problems:
        reason, expected, found = problems[0]
        return _event(rule, node, reason, text(expected), text(found), rule.left_span, depth=COMPLETE)
    if pattern.members is not None and trace.depth < 0:
        return _event(rule, node, "other op", "two or more values of one form", "one", rule.left_span)
    about = trace.found.nodes[:1] if isinstance(trace.found, Value) else ()
    refused = _refused_form(sweep, trace)
    if refused is not None:
        form, found = refused
        place = span_of(trace.term) or rule.left_span
        return _event(
            rule, node, "not proved", _proof(form), found.why, place, about, found.hint, depth=max(trace.depth, 0)
        )
    typed = trace.reason == "dtype"
    expected, found = (type_wanted, type_found) if typed else (expected_text, found_text)
    return _event(
        rule, node, trace.reason or "other op", expected(trace.term), found(trace.found),
        span_of(_owner(trace.term)) or rule.left_span, about, _hint(sweep, rule, trace),
        _closest_form(sweep, trace), max(trace.depth, 0),
    )  # fmt: skip


def _refused_form(sweep: Sweep, trace: Trace) -> tuple[Pattern, Any] | None:
    """Where an op was expected: the form of it that matched there and is not proved, and why."""
    if not isinstance(trace.term, Result) or not isinstance(trace.found, Value):
        return None
    name, behind = trace.term.call.op, _behind(trace.found)
    return next(((p, why) for p, v, why in sweep.unproved if p.owner.name == name and v in behind), None)


def _unproved(sweep: Sweep, rule: RuleDef) -> list[Event]:
    """Where a form of one of the ops of a rule is not proved."""
    ops = {c.op for c in calls_of(rule.left)} if sweep.unproved else set[str]()
    return [
        _event(rule, node, "not proved", _proof(form), found.why, rule.left_span, [node], found.hint)
        for form, v, found in sweep.unproved
        if form.owner.name in ops and (node := node_of(v)) is not None
    ]


def _with_unproved(missed: list[Event], unproved: list[Event]) -> list[Event]:
    """Each of these once: what an op before it says of a form that is not proved says the form."""
    told = {n for e in missed if e.reason == "not proved" for n in e.nodes}
    new = [e for e in unproved if told.isdisjoint(e.nodes)]
    return [e for e in missed if e.reason == "not proved" or not any({*e.nodes} & {*u.nodes} for u in new)] + new


def _proof(form: Pattern) -> str:
    return f"a proof of the form {form.name.replace('.', '/', 1)}"


def _closest_form(sweep: Sweep, trace: Trace) -> str:
    """Where an op was expected and its forms failed at what was found: how far the best of them came."""
    if not isinstance(trace.term, Result) or not isinstance(trace.found, Value):
        return ""
    name = trace.term.call.op
    best: Trace | None = None
    for v in _behind(trace.found):
        for (root, _), patterns in sweep.library.index.items():
            if root != v.root.op and root.removeprefix("@") not in v.views:
                continue
            for pattern in patterns:
                if pattern.owner.name == name and pattern.name not in sweep.off:
                    inner = Trace()
                    pattern.anchor(v, State(len(pattern.slots.index), sweep, v, inner))
                    if inner.depth > 0 and (best is None or inner.depth > best.depth):
                        best = inner
    if best is None:
        return ""
    return (
        f"{name} needs {expected_text(best.term)} where {found_text(best.found)} stands ({span_of(_owner(best.term))})"
    )


def _behind(value: Value) -> list[Value]:
    """A value, and what it is a cast or a reshape of."""
    out: list[Value] = []
    v: Value | None = value
    while v is not None and v not in out:
        out.append(v)
        v = v.source or (v.args[0] if v.op in ("to", "reshape") else None)
    return out


def _problems(sweep: Sweep, pattern: Pattern, v: Value, trace: Trace) -> list[Problem]:
    """What complete matches of the anchor at `v` fail on; `trace` notes how far the others came."""
    problems: list[Problem] = []

    def emit(p: Pattern, s: State) -> bool:
        mark = len(s.trail)
        problem = sweep.check(p, s) or _undetermined(sweep, p, s)
        if problem is not None:
            problems.append(_with_values(sweep, p, s, problem))
        s.undo(mark)
        return False

    pattern.anchor(v, State(len(pattern.slots.index), sweep, v, trace, emit))
    return problems


def _with_values(sweep: Sweep, pattern: Pattern, s: State, problem: Problem) -> Problem:
    """A condition that does not hold, with what its names are here."""
    reason, expected, found = problem
    if reason not in ("guard false", "guard unknown") or found is not None or not isinstance(expected, Apply):
        return problem
    return reason, expected, values_text(expected, sweep.env(pattern, s))


def _first_miss(pattern: Pattern, v: Value, first: str, root: str) -> Event:
    rule: RuleDef = pattern.owner
    readers = _readers(v.nodes)
    shown = ", ".join(map(node_text, readers[:READERS])) or "nobody"
    return _event(
        rule,
        v.nodes[0],
        "other op",
        f"a {root} among its users",
        f"{first} is used by {shown}",
        rule.left_span,
        readers,
    )


def _readers(nodes: list[Any]) -> list[Any]:
    """The users of nodes, looking through views."""
    out: dict[Any, None] = {}
    todo, seen = [u for n in reversed(nodes) for u in reversed(n.users)], set[Any]()
    while todo:
        u = todo.pop()
        if u in seen:
            continue
        seen.add(u)
        if u.target in VIEWS and u.users:
            todo += reversed(u.users)
        else:
            out[u] = None
    return list(out)


def _undetermined(sweep: Sweep, pattern: Pattern, s: State) -> Problem | None:
    """The first further output that what the first one binds does not lead to."""
    for term in pattern.outputs[1:] if pattern.members is None else ():
        if not isinstance(construct(sweep, pattern, term, s), Value):
            return "other op", expected_text(term), "no value that the first output determines"
    return None


def _event(
    rule: RuleDef, node: Node, reason: str, expected: str, found: str, span: Span | None,
    about: Sequence[Node] = (), hint: str = "", nearest: str = "", depth: int = 0,
) -> Event:  # fmt: skip
    return Event(
        rule.pack, rule.name, node.name, False, reason, expected, found, span, source_line(node), hint,
        nodes=tuple(n.name for n in about), nearest=nearest, depth=depth,
    )  # fmt: skip


def _owner(term: Any) -> Any:
    """What has a place in the text: of an attribute of a call (call, scalar) the call."""
    return term[0] if isinstance(term, tuple) and len(term) == 2 and isinstance(term[0], Call) else term


def _hint(sweep: Sweep, rule: RuleDef, trace: Trace) -> str:
    """What makes an attribute fit."""
    if trace.reason != "other constant":
        return ""
    if isinstance(trace.found, Value):
        return SPECIALIZE if not trace.found.shape else ""
    op, term = sweep.library.program.ops.get(rule.name), trace.term
    if op is None or not op.is_fusion or not isinstance(term, tuple) or place_of_term(rule, _owner(term)) is None:
        return ""
    call, value = term
    name = next((n for n, s in call.attrs if s is value and isinstance(s, Lit)), "")
    return attribute_hint(call, name, value) if name else ""
