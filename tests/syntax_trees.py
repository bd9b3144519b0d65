"""Random syntax trees: a Hypothesis strategy for every class of `fxrewrite.dsl.syntax`.

What they give could have been read from a text; what no text says (`Call.args` with a keyword in it, a bare pipe with
arguments, a number below zero) is not among it. Their spans mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fxrewrite.dsl import syntax

HERE = syntax.Span("tree.rw", 1, 1, 1, 1)
LEVELS = ("O0", "O1", "O2", "O3")
_MAX_INT = 10**19 - 1  # the longest whole number that the language reads
_FEW = 2  # parts of a list
Trees = SearchStrategy[Any]


def built(make: Callable[..., Any], *values: Trees, **fields: Trees) -> Trees:
    """Nodes of a class from strategies for its fields."""

    @st.composite  # and not `builds`, whose representation would hold those of all parts, many times over
    def node(draw: st.DrawFn) -> Any:
        return make(HERE, *map(draw, values), **{name: draw(value) for name, value in fields.items()})

    return node()


def few(values: Trees, least: int = 0, most: int = _FEW, **more: Any) -> Trees:
    """Tuples of a few values."""
    return st.lists(values, min_size=least, max_size=max(most, least), **more).map(tuple)


def absent_or(values: Trees) -> Trees:
    """`None` half of the time."""
    return st.none() | values


# ---- words

names = st.sampled_from(
    ["a", "b", "c", "x", "x2", "_c", "D", "N", "O3x", "notes", "e5", "inn", "__", "a_rather_long_name_of_an_operand"]
)
argument_names = names | st.sampled_from(["dtype", "out", "from", "in", "requires"])  # of torch ops
after_dot = names | st.sampled_from(["in", "out", "_", "none", "O1"])
paths = names | st.builds(lambda first, more: ".".join([first, *more]), names, st.lists(after_dot, max_size=2))
texts = st.sampled_from(["", "tanh", "# no comment", "it's", "pkg.mod:f"]) | st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\'), max_size=6
)
docs = st.just("") | st.lists(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8).map(str.rstrip), max_size=3
).map("\n".join)
whole_numbers = st.integers(0, 300) | st.integers(0, _MAX_INT)
real_numbers = st.sampled_from([0.0, 1e-6, 0.5, 1e22]) | st.floats(0, allow_infinity=False, allow_nan=False).map(abs)

# ---- expressions

splats = built(syntax.Splat, names)
kwargs = st.deferred(lambda: built(syntax.Kwarg, argument_names, expressions))
pins = st.deferred(lambda: built(syntax.Kwarg, names, expressions))
leaves = st.one_of(
    built(syntax.Var, names),
    built(syntax.Number, whole_numbers | real_numbers),
    built(syntax.String, texts),
    built(syntax.Bool, st.booleans()),
    built(syntax.NoneLit),
    built(syntax.Any),
)


def different(nodes: Trees) -> Trees:
    """A few nodes with different names."""
    return few(nodes, unique_by=lambda node: node.name)


def calls(inner: Trees) -> Trees:
    """Calls of a function with such arguments."""
    keywords = different(built(syntax.Kwarg, names, inner))
    return built(syntax.Call, paths, few(inner | splats), keywords, st.booleans())


def pipes(inner: Trees) -> Trees:
    """Pipes into calls with such arguments."""
    bare = built(syntax.Call, paths, st.just(()))
    return built(syntax.Pipe, inner, bare, st.just(True)) | built(syntax.Pipe, inner, calls(inner))


def indices(inner: Trees) -> Trees:
    """What stands in square brackets behind a value."""
    slices = built(syntax.Slice, absent_or(inner), absent_or(inner), absent_or(inner))
    return inner | slices | built(syntax.Rest)


def compound(inner: Trees) -> Trees:
    """Expressions of such parts, one level deep."""
    compared = st.tuples(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner)
    return st.one_of(
        calls(inner),
        pipes(inner),
        built(syntax.Binary, st.sampled_from(["or", "and", "+", "-", "*", "/", "//", "%", "@"]), inner, inner),
        built(syntax.Unary, st.sampled_from(["-", "not"]), inner),
        built(syntax.Compare, inner, few(compared, 1)),
        built(syntax.Member, inner, few(inner, 1) | names),
        built(syntax.Attr, inner, after_dot),
        built(syntax.Proj, inner, whole_numbers),
        built(syntax.Index, inner, few(indices(inner), 1)),
        built(syntax.Alternatives, few(inner, 2)),
        built(syntax.Tuple, few(inner, 1)),
        built(syntax.List, few(inner | splats)),
    )


expressions: Trees = st.recursive(leaves, compound, max_leaves=6)
outputs = few(expressions | splats, 1)
conditions = few(expressions)
sets = few(expressions, 1)

# ---- types and signatures

dims = st.one_of(expressions, splats)
types = st.one_of(
    built(syntax.Type, names, st.none(), st.none(), st.booleans()),
    built(
        syntax.Type, names, few(dims), absent_or(built(syntax.Var, names) | built(syntax.String, texts)), st.booleans()
    ),
    built(syntax.Type, st.just("dtype"), st.none(), st.none(), st.booleans()),
)
params = st.one_of(
    built(syntax.Param, names, st.none(), st.none(), absent_or(expressions), st.booleans()),
    built(syntax.Param, names, types, absent_or(sets | names), absent_or(expressions), st.booleans()),
)
signatures = built(syntax.Params, few(params), few(params))
results = few(built(syntax.Result, names, types), 1)

# ---- clauses

binds = st.one_of(
    built(syntax.Bind, st.sampled_from(["bind", "keep", "each"]), names.map(lambda name: (name,)), expressions),
    built(syntax.Bind, st.sampled_from(["bind", "keep", "each"]), few(names, 2), expressions, st.just(True)),
)
equations = built(syntax.Equation, outputs, conditions)
outs = st.one_of(
    built(syntax.Out),
    built(syntax.Out, names, absent_or(types)),
)
muts = built(syntax.Mut, names, absent_or(names))
slot_kws = built(syntax.SlotKw, argument_names, outs | muts)
bound_calls = built(
    syntax.BoundCall,
    paths,
    few(st.one_of(expressions, splats, outs, muts)),
    different(kwargs),
    few(slot_kws),
    st.booleans(),
    absent_or(whole_numbers),
)
spellings = bound_calls | outputs
contracts = st.one_of(
    built(syntax.Contract, st.sampled_from(["bitwise", "faithful"])),
    built(syntax.Contract, st.just("relaxed"), codes=whole_numbers),
    built(syntax.Contract, st.just("relaxed"), rtol=real_numbers, atol=real_numbers),
)
properties = built(syntax.Property, names, few(names))
samples = built(syntax.Sample, names, expressions | sets)


def forms(**more: Trees) -> Trees:
    """Forms; `owner` makes them items."""
    return built(syntax.Form, names, spellings, few(pins), few(binds), conditions, **more)


def impls(**more: Trees) -> Trees:
    """Providers; `owner` makes them items."""
    return built(syntax.Impl, names, spellings, few(pins), absent_or(contracts), few(binds), conditions, **more)


# ---- items

heads = dict(
    level=absent_or(st.sampled_from([*LEVELS, "none"])), flag=absent_or(names), over=few(names),
)  # fmt: skip
packs = built(
    syntax.Pack,
    names,
    level=absent_or(st.sampled_from([*LEVELS, "none"])),
    flag=absent_or(names),
    stage=absent_or(names),
    after=few(names),
    when=conditions,
    prefer=conditions,
    contract=absent_or(contracts),
    doc=docs,
)
uses = built(syntax.Use, paths, few(names), docs)
dtype_classes = built(syntax.DtypeClass, names, sets, docs)
natives = built(syntax.Native, names, signatures, types, texts, docs)
defs = built(syntax.Def, names, signatures, few(equations, 1), few(binds), docs)
ops = built(
    syntax.Op,
    names,
    signatures,
    results,
    few(equations),
    few(binds),
    conditions,
    few(forms()),
    few(impls()),
    absent_or(texts),
    few(properties),
    few(samples),
    absent_or(contracts),
    docs,
)
fusions = built(
    syntax.Fusion,
    names,
    signatures,
    outputs,
    few(binds),
    requires=conditions,
    prefer=conditions,
    impls=few(impls()),
    properties=few(properties),
    samples=few(samples),
    contract=absent_or(contracts),
    doc=docs,
    **heads,
)
rule_clauses = dict(
    where=few(binds),
    requires=conditions,
    prefer=conditions,
    decreasing=absent_or(expressions),
    samples=few(samples),
    contract=absent_or(contracts),
    doc=docs,
)
rules = built(syntax.Rule, names, outputs, outputs, absent_or(signatures), **rule_clauses, **heads)
# A line that begins with `*` would continue an item.
bare_lefts = st.builds(lambda first, more: (first, *more), expressions, few(expressions | splats))
bare_rules = built(syntax.Rule, st.none(), bare_lefts, outputs, **rule_clauses)
ITEMS = (
    packs, uses, dtype_classes, natives, defs, ops, fusions, rules, bare_rules, forms(owner=names, doc=docs),
    impls(owner=names, doc=docs),
)  # fmt: skip
items = st.one_of(ITEMS)
# A pack is the first item of its file.
contents = st.builds(lambda first, more: (*first, *more), few(packs, most=1), few(st.one_of(ITEMS[1:])))
files = st.builds(syntax.File, st.just("tree.rw"), contents)
