"""The process groups of torch at the begin of a gang.

A gang must not find what an earlier one has left on some of its ranks: a destroyed group, or a
collective that one rank began and the others did not, which the next collective of the group would
take part in. So the ranks compare their groups before each gang, and make them again if they
differ. They also compare settings that a task may have left on one rank alone.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any, Final

from .._libraries.world import forget_accelerate
from .._sky.cluster import InstanceInfo
from .._sky.gather import agree, world_store
from . import _torch_store
from ._torch_store import World

TIMEOUT: Final = 600.0
"""Seconds within which all ranks must begin a gang. A rank may import a library before that."""

_DIFFER: Final = "they differ"


def settle(info: InstanceInfo, world: World) -> None:
    """Compare the groups of all ranks; make them again if they differ or were destroyed.

    Args:
        info: this worker's place.
        world: the world, whose `make` makes the default group.

    Raises:
        RuntimeError: some ranks did not begin the gang, or have other settings of torch; the
            message names them.
    """
    store = world_store(info)
    assert store is not None
    mine = json.dumps({"ending": world.ending, "groups": groups(info.total_workers), "settings": _settings()})
    found = agree(store, info, mine, difference, TIMEOUT)
    if found not in (None, _DIFFER):
        raise RuntimeError(f"the ranks compare their process groups before a broadcast: {found}")
    dist: Any = sys.modules["torch.distributed"]
    if found is not None and dist.is_initialized():
        _destroy(dist)
    if dist.is_initialized():
        return
    forget_accelerate()
    if world.make is not None:
        world.make(_torch_store.of_next_group(info.total_workers))


def difference(sent: dict[int, str]) -> str | None:
    """Return `_DIFFER` if the groups of the ranks are not in the same state, and None if they are.

    Other settings of some ranks are an error, which is returned.

    Args:
        sent: for each rank, the JSON of its groups and settings, and how it has ended the last gang.
    """
    states = {rank: json.loads(text) for rank, text in sent.items()}
    for name, value in states[0]["settings"].items():
        for rank, state in states.items():
            other = state["settings"].get(name)
            if other != value:
                return (
                    f"`{name}` is {value} on rank 0 and {other} on rank {rank}, as an earlier task has left it. Set it "
                    "to the same at the begin of each task, or restore it at the end of the task that changes it"
                )
    found: dict[str, Any] = {}
    for state in states.values():
        found.update(state["groups"])
    endings = {state["ending"] for state in states.values()}
    # What ranks send to each other counts as an operation, whether the other one has received it or
    # not. So equal numbers say nothing if the ranks have not come to the end.
    same = (
        len(endings) == 1
        and "half way" not in endings
        and all(
            state["groups"].get(name) == group
            for rank, state in states.items()
            for name, group in found.items()
            if group[0] is None or rank in group[0]
        )
    )
    return None if same else _DIFFER


def _settings() -> dict[str, str]:
    import torch

    return {
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.is_grad_enabled()": str(torch.is_grad_enabled()),
    }


def groups(total: int) -> dict[str, Any]:
    """Return, for each group of this rank, its ranks and how many operations it has begun.

    The ranks are None if all belong to the group.
    """
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    if not c10d.is_initialized():
        return {}
    found: dict[str, Any] = {}
    for group, name in c10d._world.pg_names.items():
        ranks = sorted(c10d.get_process_group_ranks(group))
        found[str(name)] = [None if len(ranks) == total else ranks, _operations(group)]
    return found


def _operations(group: Any) -> int | None:
    try:
        return int(group._get_sequence_number_for_group())
    except (AttributeError, RuntimeError):
        return None  # the backend does not count


def _destroy(dist: Any) -> None:
    """Destroy all groups, also with operations that never end.

    A payload may have kept one of them, whose next collective would take part in what is left in
    it, or wait for a rank that has none. So each collective of it fails from now on.
    """
    c10d: Any = dist.distributed_c10d
    groups = list(c10d._world.pg_map)
    # The second one is for versions of torch without the first, and for backends that fail there.
    for name in ("_abort_process_group", "destroy_process_group"):
        with suppress(Exception):
            getattr(c10d, name)()

    import torch._C._distributed_c10d as native

    class Ended(native.Backend):  # type: ignore[misc, unused-ignore]
        def getBackendName(self) -> str:
            return "of a group that an earlier task has left in different states on its ranks"

    for group in groups:
        with suppress(Exception):
            for device in group._device_types:
                group._register_backend(device, c10d.ProcessGroup.BackendType.CUSTOM, Ended(group.rank(), group.size()))
