"""The key-value store of torch's ranks: one for the life of their world.

Process groups exchange addresses through the store. A group that is made again must not read those
of the group before, so each group has a part of the store, which all ranks number alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .._core import state
from .._sky.cluster import InstanceInfo


class World:
    """What this process keeps of the world that its ranks have joined."""

    def __init__(self, info: InstanceInfo, store: Any) -> None:
        self.info = info
        self.store = store
        self.make: Callable[[Any], None] | None = None
        """Makes the default process group in a store; None if the payload makes it, as `Trainer`
        does.
        """
        self.backend: str | None = None
        """The backend of that group."""
        self.attempt: tuple[int, int] | None = None
        """The attempt of a gang that began with settled groups most recently."""
        self.ending = "well"
        """How this rank ended its part of the last gang: `well`; `failed`, by an exception before it
        began an operation of a group; or `half way`, by one after that.
        """
        self._made: dict[int, int] = {}
        self._made_in: tuple[int, int] | None = None

    def number(self, size: int) -> str:
        """Return the name of the next group of this size, which is the same on all of its ranks.

        The number of a group counts from the begin of the gang's attempt, so what ranks did
        differently in earlier gangs does not matter.
        """
        if self._made_in != state.attempt:
            self._made, self._made_in = {}, state.attempt
        self._made[size] = self._made.get(size, 0) + 1
        return f"{self._made_in}/{size}/{self._made[size]}"


def world() -> World | None:
    """Return what this process keeps of the world; None if it has opened no store."""
    # torch's module keeps it, because both have the same life.
    return getattr(sys.modules.get("torch.distributed"), _NAME, None)


def keep(info: InstanceInfo, store: Any) -> World:
    """Keep the world's store, and let groups that a payload makes by itself use it.

    `torch.distributed` opens a store of its own for a group that finds the world through
    environment variables, as the groups of `Trainer` and Accelerate do. Rank 0 would close it with
    the group, or leave its entries there for the next group.
    """
    kept = World(info, store)
    setattr(sys.modules["torch.distributed"], _NAME, kept)
    rendezvous: Any = sys.modules.get("torch.distributed.rendezvous")
    original: Any = getattr(rendezvous, "_create_c10d_store", None)

    def create(hostname: str, port: int, rank: int, world_size: int, *args: Any, **kwargs: Any) -> Any:
        if state.gang and (hostname, port) == (info.head_addr, info.head_port):
            return of_next_group(world_size)
        return original(hostname, port, rank, world_size, *args, **kwargs)

    if original is not None:
        rendezvous._create_c10d_store = create
    return kept


def of_next_group(size: int) -> Any:
    """Return the store of a group that its ranks make now.

    It has a connection of its own, because a rank that waits for an entry blocks a connection. Only
    a group that is made before the first task, by a hook, shares the connection of the world.
    """
    import torch.distributed as dist

    here = world()
    assert here is not None
    if state.attempt is None:
        return here.store
    info = here.info
    client = dist.TCPStore(info.head_addr, info.head_port, is_master=False, wait_for_workers=False)
    return dist.PrefixStore(f"skyward/group/{here.number(size)}", client)


_NAME = "_skyward_world"
