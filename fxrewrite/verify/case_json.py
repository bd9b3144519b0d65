"""A case of a claim as JSON: its operands, tensors included, and its attributes. Reading it runs nothing of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fxrewrite.dsl.core import Dtype
from fxrewrite.patterns.dtypes import DTYPES, NAMES
from fxrewrite.patterns.groups import Group
from fxrewrite.verify.shaped import Given


def to_json(given: Given) -> dict[str, Any]:
    """A case with its tensors."""
    return {"tensors": [_tensor(t) for t in _tensors(given.operands)], **without_tensors(given)}


def from_json(kept: Mapping[str, Any]) -> Given:
    """The case. Raises ValueError where it is damaged."""
    try:
        return with_tensors(kept, [_made(t) for t in kept["tensors"]])
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def without_tensors(given: Given) -> dict[str, Any]:
    """A case whose tensors are numbers of inputs; the same tensor is the same input."""
    return {
        "attributes": {k: _attribute_json(v) for k, v in given.attributes.items()},
        "operands": _numbered(given.operands, {}),
        "label": given.label,
    }


def with_tensors(kept: Mapping[str, Any], tensors: Sequence[Tensor]) -> Given:
    """The case with these tensors as inputs."""
    attributes = {k: _attribute(v) for k, v in kept["attributes"].items()}
    return Given(_operands(kept["operands"], tensors), attributes, kept["label"])


# ---- parts


def _attribute_json(value: Any) -> Any:
    """An attribute: dtypes, floats, groups and lists are marked."""
    if isinstance(value, Dtype):
        return {"dtype": value.name}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, Group):
        return {"group": [value.name, value.size]}
    return {"list": list(value)} if isinstance(value, tuple) else value


def _attribute(kept: Any) -> Any:
    if not isinstance(kept, dict):
        return kept
    kind, value = next(iter(kept.items()))
    return {"dtype": Dtype, "float": float.fromhex, "list": tuple, "group": lambda g: Group(*g)}[kind](value)


def _numbered(operands: Any, known: dict[int, int]) -> Any:
    if isinstance(operands, Tensor):
        return {"input": known.setdefault(id(operands), len(known))}
    return [_numbered(o, known) for o in operands] if isinstance(operands, list | tuple) else operands


def _operands(kept: Any, inputs: Sequence[Tensor]) -> Any:
    if isinstance(kept, dict):
        return inputs[kept["input"]]
    return [_operands(k, inputs) for k in kept] if isinstance(kept, list) else kept


def _tensors(operands: Any) -> list[Tensor]:
    """The tensors, each once, in the order of their numbers."""
    if isinstance(operands, Tensor):
        return [operands]
    inner = [t for o in operands for t in _tensors(o)] if isinstance(operands, list | tuple) else []
    return list({id(t): t for t in inner}.values())


def _tensor(x: Tensor) -> dict[str, Any]:
    flat = torch.empty(x.numel(), dtype=x.dtype).copy_(x.detach().reshape(-1))  # of one element, any stride is dense
    raw = flat.view(torch.uint8)
    code = base64.b64encode(bytes(raw.tolist())).decode()
    return {"dtype": NAMES[x.dtype], "shape": list(x.shape), "strides": list(x.stride()), "bytes": code}


def _made(kept: Mapping[str, Any]) -> Tensor:
    raw, dtype = base64.b64decode(kept["bytes"]), DTYPES[kept["dtype"]]
    made = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    made = made.reshape(kept["shape"])
    shape, strides = tuple(kept["shape"]), tuple(kept["strides"])
    if made.stride() == strides or not raw:
        return made
    if 0 not in strides:
        return torch.empty_strided(shape, strides, dtype=dtype).copy_(made)
    for axis in (i for i, s in enumerate(strides) if s == 0):
        made = made.narrow(axis, 0, 1)
    return made.expand(shape)
