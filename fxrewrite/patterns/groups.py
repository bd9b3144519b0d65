"""Process groups as graphs name them, and how many ranks each has: as the host declares it, or as torch knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from attrs import field, frozen


@frozen
class Group:
    """A group of ranks. `size` None: not known here."""

    name: str
    size: int | None

    def __str__(self) -> str:
        return self.name


@frozen
class Groups:
    """What is known of groups. `declared`: name -> number of ranks, for groups that torch does not know."""

    declared: Mapping[str, int] = field(factory=dict)

    def named(self, name: str) -> Group:
        """The group of a name."""
        return Group(name, self.declared.get(name) or _size_in_torch(name))


def _size_in_torch(name: Any) -> int | None:
    """The size of a group that this process has made."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    try:
        return dist.distributed_c10d._resolve_process_group(name).size()
    except (RuntimeError, ValueError, LookupError, TypeError):
        return None


def groups_of_torch() -> list[tuple[str, int]]:
    """Name and number of ranks of every group that this process is in and torch knows."""
    if not (dist.is_available() and dist.is_initialized()):
        return []
    return sorted((group.group_name, group.size()) for group in dist.distributed_c10d._world.pg_map)
