"""Programs of a few torch statements, made from a number, that are text: they can be printed, run, and cut down.

    program = program_of(17)      # of tests/random_chains.py, or verify/context.py
    print(program.source())
    outputs = program.function()(*program.arguments())

A value is `v0`, `v1`, ..., an input `x0`, `x1`, ...; a statement reads whatever of these stands in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import torch
from attrs import define, evolve, field, frozen
from torch import Tensor
from torch.nn import functional as F

NAME = re.compile(r"\b[vx]\d+\b")
HOSTILE = (0.0, -0.0, 1e-40, 6e-8, 1e-5, 448.0, 464.0, 3e4, torch.inf, -torch.inf, torch.nan)
LAYOUTS = ("rows of more", "columns of more", "transposed", "one row")
OTHER_ROWS = 3  # how many more rows a dynamic program gets when it is run on another size


class Impossible(Exception):
    """What was to be done next does not fit the values that there are."""


@frozen
class Input:
    """An input: random numbers of `seed`, a dtype by its torch name, a shape, and how it lies in memory.

    `twin`: the input that is the same tensor, "" where there is none.
    """

    name: str
    seed: int
    dtype: str
    shape: tuple[int, ...]
    layout: str = "plain"
    twin: str = ""

    def text(self) -> str:
        """The tensor, in Python."""
        if self.twin:
            return self.twin
        layout = "" if self.layout == "plain" else f", {self.layout!r}"
        return f"tensor({self.seed}, torch.{self.dtype}, {self.shape}{layout})"

    def longer(self) -> Input:
        """The same with more rows."""
        return evolve(self, shape=(self.shape[0] + OTHER_ROWS, *self.shape[1:])) if len(self.shape) > 1 else self

    def make(self) -> Tensor:
        """The tensor."""
        return tensor(self.seed, getattr(torch, self.dtype), self.shape, self.layout)


def tensor(seed: int, dtype: torch.dtype, shape: tuple[int, ...], layout: str = "plain") -> Tensor:
    """Random numbers of a random size, often with hostile ones among them. One number alone is a scale: positive."""
    draw = Random(seed)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if x.numel() == 1:
        return (x.abs() + 0.25).to(dtype)
    x = x * draw.choice((1.0, 1.0, 1e-3, 300.0))
    for _ in range(draw.choice((0, 0, 2, 6))):
        x.view(-1)[draw.randrange(x.numel())] = draw.choice(HOSTILE)
    return laid_out(x.to(dtype), layout)


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same values with other strides."""
    if layout == "rows of more":
        parent = x.new_zeros((2 * x.shape[0] + 1, *x.shape[1:]))
        parent[1::2] = x
        return parent[1::2]
    if layout == "columns of more":
        parent = x.new_zeros((*x.shape[:-1], x.shape[-1] + 2))
        parent[..., 1:-1] = x
        return parent[..., 1:-1]
    if layout == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    return x[:1].expand(x.shape) if layout == "one row" else x


@frozen
class Statement:
    """`targets = text`, or `text` alone where it is done for what it writes."""

    targets: tuple[str, ...]
    text: str

    def line(self) -> str:
        """The statement, in Python."""
        return f"{', '.join(self.targets)} = {self.text}" if self.targets else self.text

    def reads(self) -> set[str]:
        """The values in its text."""
        return set(NAME.findall(self.text))

    def renamed(self, names: Mapping[str, str]) -> Statement:
        """The same of other values."""
        return Statement(
            tuple(names.get(t, t) for t in self.targets), NAME.sub(lambda m: names.get(m[0], m[0]), self.text)
        )


@frozen
class Program:
    """Statements between inputs and outputs; `how` says how it is captured."""

    how: str
    inputs: tuple[Input, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]

    def source(self) -> str:
        """A Python function."""
        body = [*(s.line() for s in self.statements), f"return {', '.join(self.outputs)},"]
        return f"def program({', '.join(i.name for i in self.inputs)}):\n" + "".join(f"    {b}\n" for b in body)

    def function(self) -> Callable[..., Any]:
        """The function that `source` is."""
        scope: dict[str, Any] = {"torch": torch, "F": F}
        exec(self.source(), scope)
        return scope["program"]

    def arguments(self, longer: bool = False) -> list[Tensor]:
        """A tensor for each input; `longer`: with more rows."""
        made = {i.name: (i.longer() if longer else i).make() for i in self.inputs}
        return [made.get(i.twin, made[i.name]) for i in self.inputs]

    def script(self, module: str) -> str:
        """Everything that is needed to see it fail; `check` of `module` looks at it."""
        made = "".join(f"{i.name} = {i.text()}\n" for i in sorted(self.inputs, key=lambda i: i.twin != ""))
        call = f"check(program, [{', '.join(i.name for i in self.inputs)}], {self.how!r})"
        return f"from {module} import F, check, tensor, torch\n\n{made}\n{self.source()}\n{call}\n"

    def without(self, dropped: set[str], names: Mapping[str, str]) -> Program:
        """Values renamed; statements that read a dropped value, and outputs that are one, are left out."""
        statements: list[Statement] = []
        gone = set(dropped)
        for s in (s.renamed(names) for s in self.statements):
            if s.reads() & gone:
                gone |= set(s.targets)
            else:
                statements.append(s)
        outputs = tuple(dict.fromkeys(names.get(o, o) for o in self.outputs if names.get(o, o) not in gone))
        return evolve(self, statements=tuple(statements), outputs=outputs)


# ---- building


@define(eq=False)
class Builder:
    """A program in the making. `values`: what each name holds when it is run on the inputs, for its type."""

    draw: Random
    rows: int
    inputs: list[Input] = field(factory=list)
    statements: list[Statement] = field(factory=list)
    values: dict[str, Tensor] = field(factory=dict)
    results: list[str] = field(factory=list)  # what may be returned: the results of chains

    def chance(self, p: float) -> bool:
        """True with this probability."""
        return self.draw.random() < p

    def input(self, dtype: torch.dtype, shape: tuple[int, ...], layout: str = "plain") -> str:
        """A new input."""
        made = Input(f"x{len(self.inputs)}", self.draw.randrange(2**20), str(dtype).split(".")[1], shape, layout)
        self.inputs.append(made)
        self.values[made.name] = made.make()
        return made.name

    def let(self, text: str, count: int = 1) -> Any:
        """A new value (`count` of them: a list). Raises Impossible where the text cannot be run."""
        names = [f"v{sum(len(s.targets) for s in self.statements) + i}" for i in range(count)]
        self._state(Statement(tuple(names), text))
        return names[0] if count == 1 else names

    def do(self, text: str) -> None:
        """A statement that writes."""
        self._state(Statement((), text))

    def _state(self, statement: Statement) -> None:
        scope = {"torch": torch, "F": F, **self.values}
        try:
            exec(statement.line(), scope)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise Impossible(statement.line()) from error
        for t in statement.targets:
            if not isinstance(scope[t], Tensor) or scope[t].numel() == 0:
                raise Impossible(f"{t} is not a tensor of something")
            self.values[t] = scope[t]
        self.statements.append(statement)

    def again(self, statements: list[Statement]) -> None:
        """The same statements, with results of their own."""
        names: dict[str, str] = {}
        for s in statements:
            if not s.targets:
                self.do(s.renamed(names).text)
                continue
            made = self.let(s.renamed(names).text, len(s.targets))
            names.update(zip(s.targets, [made] if isinstance(made, str) else made))
        self.results += [names[r] for r in self.results if r in names]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(self.values[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        """The dtype of a value."""
        return self.values[name].dtype

    def pick(self, fits: Callable[[Tensor], bool]) -> str:
        """One of the values that fit, later ones rather than earlier. Raises Impossible where none does."""
        names = [n for n, v in self.values.items() if fits(v)]
        if not names:
            raise Impossible("no value fits")
        return self.draw.choice(names[-6:] if self.chance(0.7) else names)


# ---- cutting down


def smaller(program: Program) -> Iterator[Program]:
    """Programs with a statement, an output or an input less, or with a value in the place of one made from it."""
    for s in reversed(program.statements):
        rest = evolve(program, statements=tuple(t for t in program.statements if t is not s))
        yield rest.without(set(s.targets), {})
        if len(s.targets) == 1:
            for read in sorted(s.reads()):
                yield rest.without(set(), {s.targets[0]: read})
    for o in program.outputs:
        yield evolve(program, outputs=tuple(p for p in program.outputs if p != o))
    used = set(program.outputs).union(*(s.reads() for s in program.statements))
    used |= {i.twin for i in program.inputs if i.name in used}
    if len(used & {i.name for i in program.inputs}) < len(program.inputs):
        yield evolve(program, inputs=tuple(i for i in program.inputs if i.name in used))
    for i in program.inputs:
        if i.twin:
            yield evolve(program, inputs=tuple(evolve(j, twin="") if j is i else j for j in program.inputs))
    for i in program.inputs:
        if i.layout != "plain":
            yield evolve(program, inputs=tuple(evolve(j, layout="plain") if j is i else j for j in program.inputs))


def shrunk(program: Program, fails: Callable[[Program], bool], attempts: int = 400) -> Program:
    """The smallest program found that still fails."""
    for _ in range(attempts):
        found = next((p for p in smaller(program) if p.outputs and p.inputs and fails(p)), None)
        if found is None:
            break
        program = found
    return program
