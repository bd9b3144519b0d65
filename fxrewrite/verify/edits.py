"""Small changes of the graph of a left side: one number, argument, op, order, user or write at a time.

What must come of each is decided from the term that a node comes from: a literal is another rule, `+` and `*` have no
order, an output may have any user, a value between two ops none. Where nothing is decided, what fires must be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, cast

import torch
from attrs import frozen
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node

from fxrewrite.dsl.check.terms import calls_of, names_of
from fxrewrite.dsl.core import BINARY, UNARY, Lit, Number, Prim
from fxrewrite.patterns.functionalized import EMPTY
from fxrewrite.verify.graphs import copied, propagate
from fxrewrite.verify.sites import Site, Subject
from fxrewrite.verify.written import NoGraph

Expected = Literal["fires", "stays", "other", "right"]
"""`fires` once; `stays`; `other`: another function: it stays, or is right with other attributes; `right` either way."""

aten = torch.ops.aten
REDUCTIONS = {
    aten.amax.default: aten.amin.default,
    aten.mean.dim: aten.sum.dim_IntList,
    aten.sum.dim_IntList: aten.mean.dim,
}
KEYWORDS: dict[str, tuple[Any, ...]] = {  # values of arguments that graphs mostly leave at their defaults, by type
    "Number": (2,), "float": (2.0,), "int": (1, 0), "bool": (True, False), "str": ("floor", "tanh"),
    "Optional[str]": ("floor", "tanh"), "Optional[ScalarType]": (torch.float64, torch.float16), "Optional[int]": (1,),
    "Optional[float]": (2.0,), "Optional[bool]": (True,), "Optional[MemoryFormat]": (torch.contiguous_format,),
    "Optional[number]": (0.5,),
}  # fmt: skip


@frozen
class Edit:
    """A change of a graph; `apply` makes it in a copy and returns the first node that is new or changed."""

    name: str
    expected: Expected
    apply: Callable[[Graph], Node]

    def site(self, site: Site) -> Site:
        """The site with the change. Raises NoGraph where that is no graph."""
        graph = copied(site.graph)
        try:
            propagate(graph, self.apply(graph))
            graph.lint()
        except Exception as error:
            raise NoGraph(f"{self.name}: {error}") from error
        return site.on(graph)


def edits(subject: Subject, site: Site) -> Iterator[Edit]:
    """Every change of a left side."""
    calls = [n for n in site.graph.nodes if n.op == "call_function" and isinstance(n.target, OpOverload)]
    yield from _users(subject, site)
    yield from _dead(site)
    for node in calls:
        term = site.origins.get(node.name)
        yield from _numbers(node, term)
        yield from _arguments(node)
        yield from _orders(node)
        yield from _other_op(node)
        if isinstance(node.meta.get("val"), Tensor):
            yield from _between(node)
    yield from _written_operands(site)


# ---- numbers, arguments, order, op


def _numbers(node: Node, term: Any) -> Iterator[Edit]:
    """Another number in the place of each that an op computes with."""
    for i, (argument, given) in enumerate(zip(node.target._schema.arguments, node.args)):  # type: ignore[union-attr]
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if is_number and str(argument.type) in ("number", "float", "Tensor", "Optional[number]", "Optional[float]"):
            number = cast("float", given)
            other = number * 2 if number else 1.0
            yield Edit(f"{node}: {given} -> {other}", _of_number(term, number), partial(_argument, node.name, i, other))


def _of_number(term: Any, given: float) -> Expected:
    """A literal of the text makes another function; a captured attribute is right with another value."""
    numbers = [a.value for a in term.args if isinstance(a, Number)] if isinstance(term, Prim) else []
    if any(names_of(n) for n in numbers):
        return "right"
    return "other" if any(isinstance(n, Lit) and n.value == given for n in numbers) else "right"


def _arguments(node: Node) -> Iterator[Edit]:
    """Every other argument: axes, orders, flags and dtypes that are given, and what is left at its default."""
    for i, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        positional = i < len(node.args) and not argument.kwarg_only
        where: int | str = i if positional else argument.name
        for other in _others(str(argument.type), given, node):
            yield Edit(f"{node}: {argument.name} = {other}", "right", partial(_argument, node.name, where, other))


def _others(kind: str, given: Any, node: Node) -> Iterator[Any]:
    if isinstance(given, Node) or kind in ("Tensor", "number"):
        return
    if isinstance(given, list | tuple) and all(isinstance(g, int) for g in given):
        yield from _other_lists(list(given))
    elif isinstance(given, bool):
        yield not given
    elif isinstance(given, torch.dtype):
        yield torch.float16 if given != torch.float16 else torch.bfloat16
    elif isinstance(given, int) and kind in ("int", "SymInt", "Optional[int]"):
        yield from (given + 1, given - 1)
    else:
        yield from (v for v in KEYWORDS.get(kind, ()) if v != given)


def _other_lists(given: list[int]) -> Iterator[list[int]]:
    if len(given) > 1 and given != given[::-1]:
        yield [*given[:-2], given[-1], given[-2]]
    if len(given) == 1:
        yield [given[0] - 1]


def _orders(node: Node) -> Iterator[Edit]:
    """The first two operands exchanged."""
    first = [a for a in node.args[:2] if isinstance(a, Node)]
    if len(first) == 2 and first[0] is not first[1]:
        either = node.target in (aten.add.Tensor, aten.mul.Tensor) and not node.kwargs and len(node.args) == 2
        yield Edit(f"{node}: operands exchanged", "fires" if either else "right", partial(_exchanged, node.name))
    if node.target is aten.cat.default and len(node.args[0]) > 1:  # type: ignore[arg-type]
        names = [n.name for n in reversed(cast("list[Node]", node.args[0]))]
        yield Edit(f"{node}: operands exchanged", "right", partial(_relisted, node.name, names))


def _other_op(node: Node) -> Iterator[Edit]:
    """The next op of the same kind."""
    other: Any = REDUCTIONS.get(cast("OpOverload", node.target))
    name = node.target._opname  # type: ignore[union-attr]
    for family in (UNARY, BINARY):
        if name in family:
            following = family[(family.index(name) + 1) % len(family)]
            packet = getattr(aten, "minimum" if following == "fdiv" else following)
            other = getattr(packet, node.target._overloadname, None)  # type: ignore[union-attr]
    if other is not None:
        yield Edit(f"{node}: {other} for {node.target}", "right", partial(_retargeted, node.name, other))


# ---- what stands in between


def _between(node: Node) -> Iterator[Edit]:
    """An op, a copy, a write behind a value, before whoever reads it."""
    name = node.name
    if not node.users or all(u.op == "output" for u in node.users):
        return
    if node.meta["val"].dtype.is_floating_point and node.meta["val"].element_size() > 1:
        yield Edit(f"{node} times 2 before it is read", "right", partial(_inserted, name, aten.mul.Tensor, (2,)))
        yield Edit(f"{node} is written", "right", partial(_inserted, name, aten.add_.Tensor, (1,)))
    yield Edit(f"{node} is copied", "right", partial(_inserted, name, aten.clone.default, ()))


def _written_operands(site: Site) -> Iterator[Edit]:
    """An operand is written after its first reader, and after all of them."""
    for node in site.graph.nodes:
        val = node.meta.get("val")
        if not _is_operand(node, site) or not val.dtype.is_floating_point or val.element_size() == 1:
            continue
        readers = [u for u in site.graph.nodes if u in node.users and u.op == "call_function"]
        for when, reader in (("after its first reader", readers[:1]), ("after its last reader", readers[-1:])):
            if reader:
                yield written_after(node, reader[0], when)


def written_after(node: Node, reader: Node, when: str = "") -> Edit:
    """A write to a value after one of its readers."""
    return Edit(f"{node} is written {when}", "right", partial(_write_after, node.name, reader.name))


def _is_operand(node: Node, site: Site) -> bool:
    """Is it an operand of the rule: an input, or what a clean-up rule is given for one (`sites.py`)?"""
    before = node.op == "call_function" and site.origins.get(node.name) is None
    return node.op == "placeholder" or (before and all(n.op == "placeholder" for n in node.all_input_nodes))


# ---- users and outputs


def _users(subject: Subject, site: Site) -> Iterator[Edit]:
    """Somebody else reads a value: one between two ops stays for him, an output does not mind."""
    inner = {name: label for label, name in site.inner.items()}
    outputs = set(_outputs(site.graph)[: site.outputs])
    for node in site.graph.nodes:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), Tensor) or not node.users:
            continue
        if node.target in EMPTY:  # what is read there is not known
            continue
        if node.name in inner:
            what, expected = f"{inner[node.name]} is read by others", "stays"
        elif node in outputs:
            what, expected = f"output {node} is read by others", "fires"
        elif all(u.op == "output" for u in node.users):
            continue
        else:
            what, expected = f"{node} is read by others", "right"
        yield Edit(what, expected, partial(_read, node.name))  # type: ignore[arg-type]
    if subject.rule.stage == "fuse" and _rowwise(subject):
        for label, name in site.inner.items():
            if site.node(name).meta["val"].ndim > 1:
                yield Edit(f"{label} is viewed in between", "fires", partial(_viewed, name))


def _rowwise(subject: Subject) -> bool:
    ops = [subject.claim.program.ops[c.op] for c in calls_of(subject.rule.left)]
    return len(ops) > 1 and all(op.rowwise for op in ops)


def _dead(site: Site) -> Iterator[Edit]:
    """Nobody reads an output: where the others are computed from it nothing else goes, and the rest still fires."""
    if site.outputs < 2:
        return
    outputs = _outputs(site.graph)
    for i in range(site.outputs):
        stays = any(u.op != "output" for u in outputs[i].users) and outputs.count(outputs[i]) == 1
        yield Edit(f"output {i} is dead", "fires" if stays else "right", partial(_dropped, i))


# ---- how it is done


def _node(graph: Graph, name: str) -> Node:
    return next(n for n in graph.nodes if n.name == name)


def _outputs(graph: Graph) -> list[Node]:
    return list(graph.output_node().args[0])  # type: ignore[arg-type]


def _argument(name: str, where: int | str, value: Any, graph: Graph) -> Node:
    node = _node(graph, name)
    if isinstance(where, int):
        node.update_arg(where, value)
    else:
        node.update_kwarg(where, value)
    return node


def _exchanged(name: str, graph: Graph) -> Node:
    node = _node(graph, name)
    node.args = (node.args[1], node.args[0], *node.args[2:])
    return node


def _relisted(name: str, names: list[str], graph: Graph) -> Node:
    node = _node(graph, name)
    node.args = ([_node(graph, n) for n in names], *node.args[1:])
    return node


def _retargeted(name: str, target: Any, graph: Graph) -> Node:
    node = _node(graph, name)
    node.target = target
    return node


def _inserted(name: str, target: Any, rest: tuple[Any, ...], graph: Graph) -> Node:
    node = _node(graph, name)
    with graph.inserting_after(node):
        new = graph.call_function(target, (node, *rest))
    node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
    return new


def _write_after(name: str, reader: str, graph: Graph) -> Node:
    with graph.inserting_after(_node(graph, reader)):
        return graph.call_function(aten.add_.Tensor, (_node(graph, name), 1))


def _read(name: str, graph: Graph) -> Node:
    node, output = _node(graph, name), graph.output_node()
    with graph.inserting_before(output):
        new = graph.call_function(
            aten.abs.default if node.meta["val"].element_size() > 1 else aten.clone.default, (node,)
        )
    output.args = ((*_outputs(graph), new),)
    return new


def _viewed(name: str, graph: Graph) -> Node:
    node = _node(graph, name)
    shape = list(node.meta["val"].shape)
    with graph.inserting_after(node):
        wide = graph.call_function(aten.reshape.default, (node, [1, *shape]))
    with graph.inserting_after(wide):
        back = graph.call_function(aten.reshape.default, (wide, shape))
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not wide)
    return wide


def _dropped(index: int, graph: Graph) -> Node:
    outputs = _outputs(graph)
    graph.output_node().args = (tuple(o for i, o in enumerate(outputs) if i != index),)
    graph.eliminate_dead_code()
    return graph.output_node()
