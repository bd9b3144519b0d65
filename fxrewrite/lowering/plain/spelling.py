"""One spelling of a rule's left side: its ops by one equation or form each, in primitives of post-grad graphs.

What a spelling leaves open is chosen (`choices.Ways`): the dtype of each class, the value of each attribute with a
domain, which equation or form of each op, whether an optional operand is there, one leading axis or two. The result is
a small graph that nobody runs; the sizes of its values are names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from torch.fx import Node

from fxrewrite.dsl import core, dims
from fxrewrite.dsl.binding import bind_operands
from fxrewrite.dsl.core import (
    NO_DEFAULT,
    Apply,
    Attribute,
    Case,
    Dtype,
    DtypeVar,
    Extern,
    Lit,
    OpDef,
    OperandInfo,
    Program,
    Ref,
    RuleDef,
)
from fxrewrite.dsl.dims import Star
from fxrewrite.dsl.evaluate import UNKNOWN, Bindings, EvaluationError, fill_attributes
from fxrewrite.dsl.scalars import holds, sizes, value
from fxrewrite.dsl.wording import said
from fxrewrite.lowering.plain.choices import Choose, Dead
from fxrewrite.lowering.plain.nodes import Nodes
from fxrewrite.lowering.plain.shapes import Val
from fxrewrite.lowering.plain.sizes import named
from fxrewrite.lowering.plain.spelled import Captured, Spelled, Store
from fxrewrite.patterns.dtypes import to_graph


def spell(
    program: Program, rule: RuleDef, store: Store, literal: set[str], choose: Choose, provider: Case | None = None
) -> Spelled:
    """One spelling of the left side of `rule`. `literal`: float attributes that are their default, not captured.
    `provider`: of the op that the rule emits.

    Raises Dead where the choices do not go together or the rule says what a plain pattern cannot.
    """
    spelled = Spelled(rule, choose, store)
    for a in rule.attributes:
        spelled.attributes[a.name] = _attribute(a, a.name in literal, choose)
    heading = OpDef(rule.name, rule.operands, rule.attributes, (), ())
    env = Spelling(program=program, op=heading, algebra=Nodes(spelled), spelled=spelled)
    env.attributes = spelled.attributes
    dtypes: dict[str, Dtype] = {}
    for o in rule.operands:
        spelled.operands[o.name] = env.operands[o.name] = _operand(o, env, dtypes, choose)
    env.dtypes.update(dtypes)
    try:
        spelled.outputs = [env.term(t) for t in rule.left]
        held = holds(rule.guards, env)
    except EvaluationError as error:
        raise Dead(str(error)) from error
    if held is not True:
        wrong = next((g for g in rule.guards if value(g, env) is not True), rule.guards)
        raise Dead(f"its condition `{said(wrong)}` is " + ("false" if held is False else "one on what a pattern lacks"))
    spelled.served = provider is not None and env.is_served(rule, provider)
    if any(not isinstance(o, Node) or o.op != "call_function" for o in spelled.outputs):
        raise Dead("an output is no op")
    return spelled


def _attribute(a: Attribute, literal: bool, choose: Choose) -> Any:
    if a.type == "bool":
        return choose([a.default, not a.default] if isinstance(a.default, bool) else [False, True])
    if a.type == "layout":
        return a.default if a.default is not NO_DEFAULT else (a.domain or ("row",))[0]
    if a.domain is not None:
        return choose(sorted(a.domain, key=lambda d: (d != a.default, str(d))))
    open_ = {"float": lambda: Captured(a.name), "int": lambda: named(a.name)}.get(a.type)
    if open_ is None:
        raise Dead(f"`{a.name}` is a {a.type}")
    if literal:
        if a.default is NO_DEFAULT or a.default is None:
            raise Dead(f"the rule computes with `{a.name}`, which a pattern captures")
        return a.default
    return choose([None, open_()] if a.optional else [open_()])


def _operand(o: OperandInfo, env: Spelling, dtypes: dict[str, Dtype], choose: Choose) -> Node | None:
    if o.star or o.kind != "tensor":
        raise Dead(f"`{o.name}` is " + ("a list of any length" if o.star else "a name, no tensor"))
    if o.type.dtype is None or o.type.shape is None:
        raise Dead(f"the type of `{o.name}` is open")
    if o.optional and choose([True, False] if not o.has_default else [False, True]) is False:
        return None
    for d in o.type.shape:
        if isinstance(d, Star):
            if d.name not in env.stars:
                axes = tuple(named(f"{d.name}_{i}") for i in range(choose([1, 2])))
                env.stars[d.name] = env.spelled.leading[d.name] = axes
        else:
            env.dims.update({n: named(n) for n in dims.names(d) if n not in env.attributes})
    dtype = to_graph(_dtype(o.type.dtype, env, dtypes, choose))
    return env.spelled.store.placeholder(o.name, Val(dtype, sizes(o.type.shape, env)))


def _dtype(declared: Any, env: Spelling, dtypes: dict[str, Dtype], choose: Choose) -> Dtype:
    if isinstance(declared, DtypeVar):
        if declared.key not in dtypes:
            dtypes[declared.key] = Dtype(choose(declared.members))
        return dtypes[declared.key]
    return env.attributes[declared.name] if isinstance(declared, Ref) else declared


# ---- terms


@define(eq=False)
class Spelling(Bindings):
    """The terms of the rule, or of an op that it calls, as nodes."""

    spelled: Spelled = field(kw_only=True)

    def term(self, term: Any) -> Any:
        """The node of a term."""
        if isinstance(term, core.Result):
            return self._call(term.call)[term.index]
        if isinstance(term, core.Choose):
            return self._choose(term)
        if isinstance(term, core.Either):
            key = ("either", id(term))
            if key not in self.done:
                self.done[key] = self.spelled.choose(term.choices)  # type: ignore[index]
            return self.term(self.done[key])  # type: ignore[index]
        if isinstance(term, core.Each):
            raise Dead("`each` matches a list of any length")
        if isinstance(term, Extern):
            raise Dead(f"{term.call.op} is an op, no primitive")
        return super().term(term)

    def _choose(self, term: core.Choose) -> Any:
        for conditions, case in term.cases:
            found = holds(conditions, self)
            if found is None:
                raise Dead(f"whether {said(conditions[0])} is not in a pattern")
            if found:
                return self.term(case)
        raise Dead("no case holds")

    def _call(self, call: core.Call) -> Sequence[Any]:
        if id(call) not in self.done:
            self.done[id(call)] = self._spelled(call)
        return self.done[id(call)]

    def _spelled(self, call: core.Call) -> Sequence[Any]:
        op = self.program.ops[call.op]
        if op.effects:
            raise Dead(f"{op.name} has an effect")
        inner = Spelling(program=self.program, op=op, algebra=self.algebra, spelled=self.spelled)
        args = [self._argument(a) for a in call.args]
        given = {n: value(a, self) for n, a in call.attrs if not isinstance(a, core.Wild)}
        if any(g is UNKNOWN for g in given.values()):
            raise Dead(f"an attribute of {op.name} is not known here")
        inner.attributes = fill_attributes(op, given)
        bind_operands(op, args, inner)
        if any(value(c, inner) is not True for c in op.requires):
            raise Dead(f"{op.name} requires what is not known here")
        cases = [c for c in (*op.equations, *op.forms) if not _has_call(c) and not c.binds]
        if not cases:
            raise Dead(f"{op.name} has no equation in primitives")
        open_ = [c for c in cases if inner.tries(c)]
        if not open_:
            raise Dead(f"no equation of {op.name} holds")
        case = self.spelled.choose(open_)
        inner.takes(case)
        return [inner.term(o) for o in case.outputs]

    def is_served(self, rule: RuleDef, provider: Case) -> bool:
        """Do the pins and guards of a provider hold? What they ask of sizes becomes a part of the check."""
        call = next(t.call for t in rule.right if isinstance(t, core.Result))
        op = self.program.ops[call.op]
        inner = Spelling(program=self.program, op=op, algebra=self.algebra, spelled=self.spelled)
        try:
            inner.attributes = fill_attributes(op, {n: value(a, self) for n, a in call.attrs})
            bind_operands(op, [self._argument(a) for a in call.args], inner)
        except EvaluationError:
            return False
        return inner.tries(provider) and inner.takes(provider)

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, tuple):
            raise Dead("it has a list of operands")
        return value(argument, self)

    def tries(self, case: Case) -> bool:
        """May this case be taken? Nothing is left behind."""
        fixed, assumed = dict(self.spelled.fixed), list(self.spelled.assumed)
        found = self.takes(case)
        self.spelled.fixed, self.spelled.assumed = fixed, assumed
        return found

    def takes(self, case: Case) -> bool:
        """Hold its pins and guards? What a match must bind for that is noted."""
        return all(self._pinned(n, p) for n, p in case.pins) and holds(case.guards, self) is True

    def _pinned(self, name: str, pinned: Any) -> bool:
        if name in self.operands and name not in self.attributes:
            return (self.operands[name] is None) == (pinned is None)
        have = self.attributes.get(name, UNKNOWN)
        if isinstance(have, Captured):
            return not isinstance(pinned, Apply) and self.spelled.pin(have.name, pinned)
        return type(have) is type(pinned) and have == pinned


def _has_call(case: Case) -> bool:
    return any(_externs(o) for o in case.outputs)


def _externs(term: Any) -> bool:
    if isinstance(term, Extern):
        return True
    inner = term.call.args if isinstance(term, core.Result) else getattr(term, "args", ())
    return any(_externs(a) for a in inner if not isinstance(a, Lit | tuple))
