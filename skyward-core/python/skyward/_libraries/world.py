"""The world that this worker has joined with others, hidden from tasks on a single worker.

Frameworks keep the world in the process: in environment variables, in torch's default process
group, in the state of Accelerate. A task that runs on a single worker would find the world there,
and wait for ranks that never come. So a process has two sets of this state, one for gangs and one
for single tasks, and swaps them when a task of the other kind begins. What a task leaves in its set
is there for the next task of the same kind.

JAX cannot be hidden: its processes and devices stay those of the world.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .._core import process_state
from . import leftovers

VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ACCELERATE_USE_CPU",
    "ACCELERATE_USE_FSDP",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
)
"""The environment variables by which frameworks find a world."""

# Accelerate sets this one by itself, for one training.
process_state.exclude(*(name for name in VARIABLES if name != "ACCELERATE_USE_FSDP"))

_started = {name: os.environ[name] for name in VARIABLES if name in os.environ}
"""The variables among them that the image or the agent has set; they apply to all tasks."""

_alone = {name: _started.get(name) for name in VARIABLES}
"""The values of all of them for tasks on a single worker in a world."""

_shown = True
"""Whether the process shows the state of gangs. It is true until there is a world and a single
task.
"""

_may_be_joined = True
"""Whether a world may have been joined since the last check: by hooks before the first task, or by
a gang.
"""

_other: _State | None = None
"""The state of the tasks of the other kind; None until there is a world and a single task."""


def show(gang: bool) -> None:
    """Show the world to the next task if it is a gang's, and hide it otherwise.

    What frameworks have kept of earlier tasks is taken away. If the world has a process group of
    torch, a single task finds a group with this process alone.

    Raises:
        RuntimeError: the process group of this version of torch cannot be swapped.
    """
    global _may_be_joined
    if not leftovers.has_begun:
        leftovers.begin()
    # Reading the environment takes longer than the rest of a short call.
    if gang is not _shown and (_other is not None or (_may_be_joined and _joined())):
        _exchange()
    _may_be_joined = gang
    leftovers.clear(None if _shown else _alone)
    if not gang and _other is not None and _other.torch is not None:
        world = _other.torch
        backend, _ = world["_pg_map"][world["_world"]["_default_pg"]]
        group_of_one(backend)


def join() -> None:
    """Before a gang joins the world, put aside the state that single tasks have left."""
    global _other
    if _other is None and not _joined():
        _other = _State.take()
        _State.before().put()


def part() -> None:
    """Before a single task sets up state, make sure that the next gang does not see it.

    If there is a world already, `show` has done that. Otherwise all state so far belongs to single
    tasks.
    """
    global _shown, _other
    if _shown:
        _shown, _other = False, _State.before()


def leave() -> None:
    """Show the world to the hooks that leave it, and end the process group of single tasks.

    Raises:
        RuntimeError: the process group of this version of torch cannot be swapped.
    """
    if _other is None:
        return
    if _shown:
        _exchange()
    try:
        if _size() == 1:
            sys.modules["torch.distributed"].destroy_process_group()
    finally:
        _exchange()


def _exchange() -> None:
    global _shown, _other
    here, there = _State.take(), _other or _State.before()
    there.put()
    _shown, _other = not _shown, here


def group_of_one(backend: str) -> None:
    """Create torch's process group with this process alone, without a network, if there is none."""
    import torch.distributed as dist

    if not dist.is_initialized():
        # No rank and no address: the environment may describe another world.
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def _joined() -> bool:
    """Return whether this process is part of a world of several processes."""
    if _size() > 1:
        return True
    if all(os.environ.get(name) == _started.get(name) for name in VARIABLES):
        return False
    from .._sky.cluster import instance_info

    return instance_info().total_workers > 1


def _size() -> int:
    """Return the size of torch's default process group; 0 if there is none."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    return c10d.get_world_size() if c10d is not None and c10d.is_initialized() else 0


class _State:
    """The state in which frameworks keep the world."""

    def __init__(
        self, variables: dict[str, str], torch: dict[str, Any] | None, accelerate: list[dict[str, Any]]
    ) -> None:
        self.variables = variables
        self.torch = torch
        self.accelerate = accelerate

    @classmethod
    def before(cls) -> _State:
        """Return the state before the process joined any world."""
        return cls(_started, None, [])

    @classmethod
    def take(cls) -> _State:
        """Return the current state."""
        variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        return cls(variables, _torch_state(), [dict(state) for state in _accelerate_states()])

    def put(self) -> None:
        """Replace the current state by this one."""
        _put_torch_state(self.torch)
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(self.variables)
        states = _accelerate_states()
        for index, state in enumerate(states):
            state.clear()
            state.update(self.accelerate[index] if self.accelerate else {})


def forget_accelerate() -> None:
    """Let Accelerate look for the world again, whose process group is gone."""
    states = _accelerate_states()
    if states and states[0].get("num_processes", 1) > 1:
        for state in states:
            state.clear()


def _accelerate_states() -> list[dict[str, Any]]:
    """Return the dicts that all instances of a class of Accelerate share."""
    module = sys.modules.get("accelerate.state")
    classes = [getattr(module, name, None) for name in ("PartialState", "AcceleratorState", "GradientState")]
    return [known._shared_state for known in classes if known is not None]


_GROUPS = ("_pg_map", "_pg_names", "_pg_group_ranks", "_pg_backend_config", "_tags_to_pg", "_pg_to_tag")
_PLAIN: dict[str, Any] = {"_group_count": 0, "_default_pg_init_method": None}


def _torch_state() -> dict[str, Any] | None:
    """Return all process groups of torch; None if there are none."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return None
    try:
        names = (*_GROUPS, *_PLAIN)
        state = {"_world": {**vars(c10d._world)}, **{name: getattr(c10d, name) for name in names}}
        state["_world"]["_default_pg"], c10d._update_default_pg, c10d._register_process_group
    except (AttributeError, KeyError) as error:
        import torch

        raise RuntimeError(
            f"Skyward does not find the process groups of torch {torch.__version__} ({error}), so a task on this "
            "worker alone would wait for the other ranks: use another version of torch, or broadcast the task"
        ) from error
    return state


def _put_torch_state(state: dict[str, Any] | None) -> None:
    """Set the process groups of torch, in its Python module and, by name, in its native library."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or (state is None and not c10d.is_initialized()):
        return
    new = state or {"_world": vars(type(c10d._world)()), **{name: {} for name in _GROUPS}, **_PLAIN}
    world = vars(c10d._world)
    world.clear()
    world.update(new["_world"])
    for name in (*_GROUPS, *_PLAIN):
        setattr(c10d, name, new[name])
    c10d._unregister_all_process_groups()
    for group, name in new["_pg_names"].items():
        c10d._register_process_group(name, group)
    c10d._update_default_pg(c10d._world.default_pg)
