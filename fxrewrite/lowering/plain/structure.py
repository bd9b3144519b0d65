"""A spelling as a pattern expression: text that builds it, and what a match of it binds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import define, field
from torch.fx import Node

from fxrewrite.lowering.plain.layout import Item, Keyed, call, filled, line, listed
from fxrewrite.lowering.plain.names import safe
from fxrewrite.lowering.plain.sizes import Free
from fxrewrite.lowering.plain.spelled import Spelled

aten, prims = torch.ops.aten, torch.ops.prims
COMMUTATIVE = (aten.add.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default)
WITH_NUMBERS: dict[Any, Any] = {
    aten.add.Tensor: aten.add.Scalar,
    aten.sub.Tensor: aten.sub.Scalar,
    aten.mul.Tensor: aten.mul.Scalar,
    aten.div.Tensor: aten.div.Scalar,
}


@define(eq=False)
class Structure:
    """The expression of one spelling: `made`, the statements `n0 = ...`, and what is `returned`.

    They have `{0}`, `{1}`, ... where casts have their dtype: `dtypes`.

    `captures`: the names that a match binds, but for dtypes. `sizes`: for a capture that is a size or a list of them,
    what it must be. `pairs`: how many ops may have their operands in the other order.
    """

    spelled: Spelled
    made: list[Item] = field(factory=list)
    returned: Item = ""
    captures: list[str] = field(factory=list)
    dtypes: list[torch.dtype] = field(factory=list)
    sizes: dict[str, Any] = field(factory=dict)
    pairs: int = 0
    text: dict[Node, str] = field(factory=dict)  # the name of each op
    users: dict[Node, int] = field(factory=dict)

    def lines(self, casts: Sequence[str]) -> list[str]:
        """The statements, with the dtypes of casts."""
        made = [x for i, m in enumerate(self.made) for x in line(filled(m, casts), f"n{i} = ", depth=1)]
        return [*made, *line(self.returned, "return ", depth=1)]

    @property
    def operand_dtypes(self) -> dict[str, torch.dtype]:
        """The dtype of each operand that is there."""
        return {n: o.meta["val"].dtype for n, o in self.spelled.operands.items() if o is not None}

    @property
    def numbers(self) -> list[str]:
        """The captures that are numbers."""
        return [n for n in self.captures if n in self.spelled.numbers]


def structure_of(spelled: Spelled) -> Structure:
    """The expression of a spelling."""
    s = Structure(spelled)
    nodes = _reached(spelled.outputs)
    for node in nodes:
        for source in node.all_input_nodes:
            s.users[source] = s.users.get(source, 0) + 1
    for node in nodes:
        if node.op == "call_function":
            s.made.append(_expression(s, node))
            s.text[node] = f"n{len(s.text)}"
    names = [s.text[o] for o in spelled.outputs]
    s.returned = names[0] if len(names) == 1 else call("MultiOutputPattern", listed(names))
    return s


def _reached(outputs: list[Node]) -> list[Node]:
    """The nodes that outputs are computed from, each behind what it reads."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in found:
            for source in node.all_input_nodes:
                visit(source)
            found[node] = None

    for output in outputs:
        visit(output)
    return list(found)


def _expression(s: Structure, node: Node) -> Item:
    args: list[Item] = []
    if node.target in COMMUTATIVE and _has_two_orders(s, node):
        at, s.pairs = s.pairs, s.pairs + 1
        args.append(call("*either", f"order[{at}]", *(_argument(s, a) for a in node.args)))
    else:
        args += [_argument(s, a) for a in _traced(node)]
    args += [Keyed(f"{k}=", _argument(s, a)) for k, a in node.kwargs.items()]
    if s.users.get(node, 1) != 1 and node not in s.spelled.outputs:
        args.append(f"_users={s.users[node]}")
    return call("CallFunction", _target(s, node), *args)


def _traced(node: Node) -> tuple[Any, ...]:
    """The arguments as a trace has them: without defaults at the end."""
    given = node.args
    declared = node.target._schema.arguments  # type: ignore[union-attr]
    while (
        given and declared[len(given) - 1].has_default_value() and given[-1] is declared[len(given) - 1].default_value
    ):
        given = given[:-1]
    return given


def _has_two_orders(s: Structure, node: Node) -> bool:
    """Two operands that are not the same, and not two names that nothing else has: either order finds the same."""
    a, b = node.args
    if a is b or not all(isinstance(x, Node) and "val" in x.meta for x in (a, b)):
        return False
    return not all(isinstance(x, Node) and x.op == "placeholder" and s.users[x] == 1 for x in (a, b))


def _target(s: Structure, node: Node) -> Item:
    other = WITH_NUMBERS.get(node.target)
    if other is not None and not all(isinstance(a, Node) and "val" in a.meta for a in node.args):
        return listed([str(node.target), str(other)])
    return str(node.target)


def _argument(s: Structure, a: Any) -> Item:
    if isinstance(a, Node):
        return _capture(s, a) if a.op == "placeholder" else s.text[a]
    if isinstance(a, torch.dtype):
        s.dtypes.append(a)
        return f"{{{len(s.dtypes) - 1}}}"
    if isinstance(a, list | tuple):
        return _sized(s, "shape", list(a)) if any(isinstance(x, Free) for x in a) else _items(s, a)
    return _sized(s, "size", a) if isinstance(a, Free) else repr(a)


def _items(s: Structure, items: Any) -> Item:
    return listed(_argument(s, x) for x in items)


def _capture(s: Structure, placeholder: Node) -> str:
    name = str(placeholder.target)
    if name in s.spelled.numbers and name in s.spelled.fixed:
        return repr(s.spelled.fixed[name])
    if name not in s.captures:
        s.captures.append(name)
    return safe(name)


def _sized(s: Structure, kind: str, size: Any) -> str:
    known = next((n for n, have in s.sizes.items() if have == size and n.startswith(kind)), None)
    if known is None:
        known = f"{kind}_{len(s.sizes)}"
        s.sizes[known] = size
        s.captures.append(known)
    return known


__all__ = ["Structure", "structure_of"]
