"""Near misses: for each rule the sites where it could have fired and no match was found, with the deepest point that was reached.

A site of a rule is a value that is a view of its root op, or of the first op of its definition when no root follows. Only asked for
when somebody listens: matching itself keeps no such notes.
"""

from __future__ import annotations

from typing import Any

from fxrewrite.dsl.core import (
    Apply, Call, Choose, Each, Extern, Lit, Number, Operand, Prim, Ref, Result, RuleDef, span_of,
)  # fmt: skip
from fxrewrite.patterns.events import Event, source_line
from fxrewrite.patterns.forms import Library, Pattern
from fxrewrite.patterns.matcher import State, Trace
from fxrewrite.patterns.values import Value
from fxrewrite.patterns.views import Sweep, View


def near_misses(sweep: Sweep, library: Library) -> list[Event]:
    """Events for the sites of every rule without a match."""
    matched = {(f.rule.full_name, id(_anchor(f.outputs[0]))) for f in sweep.found}
    by_op: dict[str, list[Value]] = {}
    for v in sweep.table.all:
        if v.nodes:
            for name in v.views:
                by_op.setdefault(name, []).append(v)
    events: list[Event] = []
    for pattern in library.patterns.values():
        rule: RuleDef = pattern.owner
        ops = chain(pattern.normal(rule.left[0]))
        if not ops:
            continue
        root, first = ops[0], ops[-1]
        events += [_root_miss(sweep, pattern, v, root) for v in _anchors(by_op, root) if (rule.full_name, id(v)) not in matched]
        if first != root:
            events += [_first_miss(pattern, v, first, root) for v in _anchors(by_op, first) if not _feeds(sweep, v, ops)]
    return events


def _anchor(output: Any) -> Any:
    return output[0] if isinstance(output, list) else output


def _anchors(by_op: dict[str, list[Value]], op: str) -> list[Value]:
    """Values that are the first result of a view of `op` with a node in the graph, each once."""
    return [v for v in by_op.get(op, ()) if any(i == 0 for _, i in v.views[op])]


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


def _feeds(sweep: Sweep, v: Value, ops: list[str]) -> bool:
    """Is `v`, or a view of it, an operand of a view of the op above it?"""
    above = ops[-2]
    seen: set[int] = set()
    todo: list[Value] = [v]
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if sweep.by_first.get((above, x)):
            return True
        for n in x.nodes:
            for u in n.users:
                w = sweep.table.of_node.get(u)
                if isinstance(w, Value) and (w.op in ("to", "reshape") or w.source is x or w.root is x.root):
                    todo.append(w)
    return False


# ---- one site


def _root_miss(sweep: Sweep, pattern: Pattern, v: Value, root: str) -> Event:
    rule: RuleDef = pattern.owner
    trace = Trace()
    s = State(len(pattern.slots.index), sweep, v, trace)
    problems: list[tuple[str, Any, Any]] = []
    quiet = pattern_check(sweep, pattern, problems)
    quiet(v, s)
    node = v.nodes[0]
    if problems:
        reason, expected, found = problems[0]
        return _event(rule, node, reason, _text(expected), _text(found), rule.left_span)
    if pattern.each is not None and trace.depth < 0:
        return _event(rule, node, "other op", "two or more values of one form", "one", rule.left_span)
    return _event(
        rule, node, trace.reason or "other op", expected_text(trace.term), found_text(trace.found),
        _span(trace.term) or rule.left_span, _hint(trace),
    )  # fmt: skip


def pattern_check(sweep: Sweep, pattern: Pattern, problems: list[tuple[str, Any, Any]]) -> Any:
    """The anchor of a pattern with the last step replaced: what a complete match fails on is noted."""

    def run(v: Value, s: State) -> None:
        original = sweep.emit_match

        def emit(p: Pattern, state: State) -> bool:
            mark = len(state.trail)
            problem = sweep.check(p, state)
            if problem is not None:
                problems.append(problem)
            state.undo(mark)
            return False

        sweep.emit_match = emit  # type: ignore[method-assign]
        try:
            pattern.anchor(v, s)
        finally:
            sweep.emit_match = original  # type: ignore[method-assign]

    return run


def _first_miss(pattern: Pattern, v: Value, first: str, root: str) -> Event:
    rule: RuleDef = pattern.owner
    users = [u for n in v.nodes for u in n.users]
    shown = ", ".join(_node_text(u) for u in users[:4]) or "nobody"
    return _event(rule, v.nodes[0], "other op", f"a {root} among its users", f"{first} is used by {shown}", rule.left_span)


def _event(
    rule: RuleDef, node: Any, reason: str, expected: str, found: str, span: Any, hint: str = ""
) -> Event:
    return Event(rule.pack, rule.name, node.name, False, reason, expected, found, span, source_line(node), hint)


# ---- words


def expected_text(t: Any) -> str:
    """What a term asks for."""
    if isinstance(t, tuple) and len(t) == 2 and isinstance(t[0], Call):
        name = next((n for n, s in t[0].attrs if s is t[1]), "")
        return f"{t[0].op}: {name} = {_text(t[1])}"
    if isinstance(t, Result):
        return f"a result of {t.call.op}"
    if isinstance(t, Prim):
        return f"`{t.op}`"
    if isinstance(t, Operand):
        return f"the value that `{t.name}` is" if not t.optional else f"`{t.name}`"
    if isinstance(t, Extern):
        return f"a result of {t.call.op}"
    if isinstance(t, Choose):
        return "one of the cases"
    return _text(t)


def found_text(v: Any) -> str:
    """What stood there."""
    if isinstance(v, Value):
        names = list(dict.fromkeys(name for name, views in v.views.items() for w, i in views))
        node = f" ({_node_text(v.nodes[0])})" if v.nodes else ""
        if names:
            return f"a result of {' or '.join(names)}{node}"
        return f"{_op_text(v)}{node}"
    return _text(v)


def _op_text(v: Value) -> str:
    return "an input of the graph" if v.op == "input" else f"`{v.op}`"


def _node_text(node: Any) -> str:
    target = getattr(node.target, "_schema", None)
    name = target.name.split("::")[-1] if target is not None else getattr(node.target, "__name__", str(node.target))
    return node.name if node.op != "call_function" else f"{node.name}: {name}"


def _text(x: Any) -> str:
    if isinstance(x, str):
        return x
    if isinstance(x, Lit):
        return _text(x.value)
    if isinstance(x, Ref):
        return x.name
    if isinstance(x, Number):
        return _text(x.value)
    if isinstance(x, View):
        return x.op.name
    if isinstance(x, Apply):
        from fxrewrite.dsl.wording import text

        return text(x)
    if x is None:
        return "none"
    return {True: "true", False: "false"}[x] if isinstance(x, bool) else str(x)


def _span(t: Any) -> Any:
    if isinstance(t, tuple) and len(t) == 2 and isinstance(t[0], Call):
        return t[0].span
    return span_of(t)


def _hint(trace: Trace) -> str:
    if trace.reason == "other constant" and isinstance(trace.found, Value) and not trace.found.shape:
        return "torch._dynamo.config.specialize_float = True keeps module floats as constants"
    return ""
