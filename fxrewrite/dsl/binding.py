"""Operands and attributes given to an op: checked against its signature, dims and dtypes read off them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, cast

from attrs import define

from fxrewrite.dsl import dims
from fxrewrite.dsl.check.problem import closest
from fxrewrite.dsl.core import NO_DEFAULT, Attribute, Dtype, DtypeVar, OpDef, OperandInfo, Ref, TensorType
from fxrewrite.dsl.dims import Dim, Star
from fxrewrite.dsl.scalars import UNKNOWN, Env, size

LAYOUTS = ("row", "col", "tma", "swizzled")


class EvaluationError(ValueError):
    """An op cannot be evaluated on what it was given; the text says why."""


@define
class _Equation:
    """`dim` is the size of `axis` (from the end) of operand `operand`."""

    dim: Dim
    size: Any
    operand: str
    axis: int


# ---- attributes


def fill_attributes(op: OpDef, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every attribute of `op` with its value: what is given, else the default.

    A dtype may be given as a `Dtype` or by its name, a list as any sequence, a float as an int. Raises EvaluationError
    for an unknown attribute, a missing one, and a value that its type or domain excludes.
    """
    for name in given:
        if op.attribute(name) is None:
            known = [a.name for a in op.attributes]
            hint = closest(name, known) or (f"its attributes: {', '.join(known)}" if known else "it has none")
            raise EvaluationError(f"{op.name} has no attribute `{name}`; {hint}")
    return {a.name: _attribute(op, a, given.get(a.name, a.default)) for a in op.attributes}


def _attribute(op: OpDef, a: Attribute, value: Any) -> Any:
    if value is NO_DEFAULT:
        raise EvaluationError(f"{op.name} needs the attribute `{a.name}`: it has no default")
    if value is None and a.optional:
        return None
    fitted = _fit(a.type, value)
    if fitted is UNKNOWN:
        raise EvaluationError(f"`{a.name}` of {op.name} is of type {a.type}, not {value!r}")
    if a.domain is not None and fitted not in a.domain:
        raise EvaluationError(f"`{a.name}` of {op.name} is one of {', '.join(map(str, a.domain))}; not {fitted}")
    return fitted


def _fit(type_: str, value: Any) -> Any:
    """`value` as the attribute type has it, or UNKNOWN. What is no Python value (a 0-d tensor, a symbol) passes."""
    if type_ == "dtype":
        return Dtype(value) if isinstance(value, str) else value if isinstance(value, Dtype) else UNKNOWN
    if type_ == "list":
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        return tuple(cast("Sequence[Any]", value)) if listed else UNKNOWN
    if type_ == "layout":
        return value if value in LAYOUTS else UNKNOWN
    if type_ == "float" and type(value) is int:
        return float(value)
    if type_ == "bool" and type(value) is int:
        return UNKNOWN
    return UNKNOWN if value is None or isinstance(value, _WRONG.get(type_, ())) else value


_WRONG: dict[str, Any] = {
    "float": str | bool,
    "int": str | bool | float,
    "bool": str | float,
    "str": bool | int | float,
    "group": bool | int | float,
}


# ---- operands


def bind_operands(op: OpDef, given: Sequence[Any], env: Env) -> None:
    """Put operands into `env` and read dtypes, dims and leading axes off them.

    Missing operands at the end are `none` where they may be left out. Raises EvaluationError for a wrong count, dtype,
    rank or width. An element type (`f32[1]`) accepts any rank.
    """
    tensors: list[tuple[OperandInfo, Any]] = []
    elements: list[list[tuple[OperandInfo, Any]]] = []  # of all lists, by their number
    for info, value in zip(op.operands, _complete(op, given)):
        env.operands[info.name] = value
        if info.star:
            elements += [[] for _ in range(len(value) - len(elements))]
            for j, v in enumerate(value):
                elements[j].append((info, v))
        elif info.kind == "tensor" and value is not None:
            tensors.append((info, value))
    for info, value in (*tensors, *(e for one in elements for e in one)):
        _bind_dtype(op, info, env.dtype_of(value), env)
    _bind_sizes(op, tensors, env)
    own = env.elements = _own_sizes(op) if elements else frozenset()
    found = [_of_element(op, one, own, env) for one in elements]
    for name in own:  # the sizes of each element: a list
        env.stars[name] = tuple(f.get(name, UNKNOWN) for f in found)


def _own_sizes(op: OpDef) -> frozenset[str]:
    """The sizes that only the elements of lists have."""
    return frozenset(_sizes_of(op, True) - _sizes_of(op, False) - {a.name for a in op.attributes})


def _bind_sizes(op: OpDef, tensors: Iterable[tuple[OperandInfo, Any]], env: Env) -> None:
    equations = [e for info, value in tensors for e in _equations(op, info, value, env)]
    _solve(equations, env)
    for equation in equations:
        _confirm(op, equation, env)


def _sizes_of(op: OpDef, star: bool) -> set[str]:
    """The names of sizes in the types of operands: of lists, or of the others."""
    shapes = [d for o in op.operands if o.star == star for d in o.type.shape or ()]
    return {n for d in shapes for n in ([d.name] if isinstance(d, Star) else dims.names(d))}


def _of_element(op: OpDef, element: list[tuple[OperandInfo, Any]], own: frozenset[str], env: Env) -> dict[str, Any]:
    """The sizes that one element of each list has for itself; what it says of others goes into `env`."""
    inner = copy(env)
    inner.dims, inner.stars = dict(env.dims), dict(env.stars)
    _bind_sizes(op, element, inner)
    env.dims.update({n: d for n, d in inner.dims.items() if n not in own})
    env.stars.update({n: d for n, d in inner.stars.items() if n not in own})
    return {n: inner.dims.get(n, inner.stars.get(n, UNKNOWN)) for n in own}


def _complete(op: OpDef, given: Sequence[Any]) -> list[Any]:
    names = ", ".join(o.name for o in op.operands)
    if len(given) > len(op.operands):
        raise EvaluationError(f"{op.name} takes {len(op.operands)} operands ({names}), not {len(given)}")
    values = list(given)
    for info in op.operands[len(given) :]:
        if not info.has_default:
            raise EvaluationError(f"{op.name} takes {len(op.operands)} operands ({names}); `{info.name}` is missing")
        values.append(None)
    for info, value in zip(op.operands, values):
        if value is None and not info.optional:
            raise EvaluationError(f"`{info.name}` of {op.name} may not be none")
        if info.star and not isinstance(value, list | tuple):
            raise EvaluationError(f"`{info.name}` of {op.name} is a list of tensors")
    return values


def _bind_dtype(op: OpDef, info: OperandInfo, found: Any, env: Env) -> None:
    want = info.type.dtype
    if want is None or found is UNKNOWN:
        return
    what = f"`{info.name}` of {op.name}"
    if isinstance(want, DtypeVar):
        if found.name not in want.members:
            raise EvaluationError(f"{what} is {want} ({', '.join(want.members)}), not {found}")
        have = env.dtypes.setdefault(want.key, found)
        if have != found:
            raise EvaluationError(
                f"{what} is {found}, and another operand of class {want} is {have}: a class is one dtype"
            )
        return
    wanted = env.attributes.get(want.name, UNKNOWN) if isinstance(want, Ref) else want
    if wanted is not UNKNOWN and wanted != found:
        raise EvaluationError(f"{what} is {wanted}, not {found}")


def _equations(op: OpDef, info: OperandInfo, value: Any, env: Env) -> list[_Equation]:
    """The axes of one operand as equations; its leading axes are bound here."""
    shape, found = info.type.shape, env.shape_of(value)
    if shape is None or found is UNKNOWN:
        return []
    if is_element(info.type):
        if not all(env.decide("==", n, 1) is not False for n in found):
            raise EvaluationError(f"`{info.name}` of {op.name} has one element, not the shape {_shown(found)}")
        return []
    starred = [i for i, d in enumerate(shape) if isinstance(d, Star)]
    before = starred[0] if starred else len(shape)
    after = len(shape) - before - 1 if starred else 0
    if len(found) < before + after or (not starred and len(found) != len(shape)):
        raise EvaluationError(f"`{info.name}` of {op.name} is {info.type}, not of the shape {_shown(found)}")
    if starred:
        _bind_star(op, info, shape[before], found[before : len(found) - after], env)
    sides = [*zip(shape[:before], found[:before]), *zip(shape[len(shape) - after :], found[len(found) - after :])]
    axes = [*range(before), *range(-after, 0)]
    return [_Equation(d, n, info.name, a) for (d, n), a in zip(sides, axes) if isinstance(d, Dim)]


def is_element(type_: TensorType) -> bool:
    """Is it a type of one element?"""
    return type_.shape is not None and all(isinstance(d, Dim) and d.number == 1 for d in type_.shape)


def _bind_star(op: OpDef, info: OperandInfo, star: Any, found: tuple[Any, ...], env: Env) -> None:
    have = env.stars.setdefault(star.name, found)
    if len(have) != len(found) or any(env.decide("==", a, b) is False for a, b in zip(have, found)):
        raise EvaluationError(
            f"the leading axes of `{info.name}` of {op.name} are {_shown(found)}; those before it have {_shown(have)}"
        )


def _solve(equations: list[_Equation], env: Env) -> None:
    """Bind every dim that the equations determine."""

    def known(name: str) -> Any:
        found = env.dim(name)
        return None if found is UNKNOWN else found

    progress = True
    while progress:
        progress = False
        for equation in equations:
            solved = dims.solve(equation.dim, known, equation.size)
            if solved is not None:
                name, numerator, divisor = solved
                env.dims[name] = numerator // divisor if divisor != 1 else numerator
                progress = True


def _confirm(op: OpDef, equation: _Equation, env: Env) -> None:
    found = size(equation.dim, env)
    if found is UNKNOWN or env.decide("==", found, equation.size) is not False:
        return
    values = ", ".join(f"{n} = {env.dim(n)}" for n in sorted(dims.names(equation.dim)))
    where = f"axis {equation.axis} of `{equation.operand}` of {op.name} has {equation.size} elements"
    if (
        values
        and isinstance(equation.dim.terms[0][0], str)
        and len(equation.dim.terms) == 1 != equation.dim.terms[0][1]
    ):
        raise EvaluationError(f"{where}, which is not {equation.dim} for any {equation.dim.terms[0][0]}")
    raise EvaluationError(f"{where}, not {equation.dim}" + (f" (with {values})" if values else ""))


def _shown(shape: Iterable[Any]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
