"""Hooks that let Accelerate and Transformers' `Trainer` find the workers as ranks of a world."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from skyward import instance_info
from skyward._core import state
from skyward.integrations import _torch_world as world
from skyward.integrations import _trainer_runs as runs
from skyward.integrations._meet import meet
from skyward.integrations._wrap import environment
from skyward.integrations.transformers import alone


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Set the variables of the world in which every worker of the pool is one rank.

    `Trainer` and `Accelerator` create the process group themselves, in the first task that runs on
    all workers, because only then their own timeout and choice of backend apply. This hook finds
    problems earlier: ranks that cannot reach rank 0, for which they would wait half an hour, and
    accelerators that torch does not see, without which each rank would silently train alone.

    Args:
        config: `timeout`: seconds within which all workers must meet. `cuda`: whether the
            accelerators are CUDA or ROCm devices. `fsdp`: variables for tasks that all workers run
            together. `checkpoints`: the name under which `Trainer` keeps its checkpoints, or None.

    Raises:
        TimeoutError: some ranks did not come to the rendezvous; the message names them.
        RuntimeError: there is no accelerator for this worker.
    """
    info = instance_info()
    if config["checkpoints"] is not None:
        runs.watch_trainer()
    if info.total_workers == 1:
        yield
        return
    with environment({**world.variables(info, on_cpu=not info.accelerators), **config["fsdp"]}):
        if config["cuda"]:
            world.take_device(info, "nccl")
        timeout = float(config["timeout"])
        meet(info, timeout, time.monotonic() + timeout, service=False)
        # No `finally`: leaving may wait for the other ranks, which would then wait for a failed
        # one.
        yield
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def around_task(config: Mapping[str, Any]) -> Iterator[None]:
    """Limit a task on a single worker to that worker's accelerator; let a gang make a new group.

    Where `Trainer` keeps checkpoints, it continues from the latest one.

    Raises:
        RuntimeError: there is no accelerator for this worker, or some ranks did not begin the gang;
            the message names them.
    """
    info = instance_info()
    name = config["checkpoints"]
    with runs.continuing(name) if name is not None else nullcontext():
        if state.gang and info.total_workers > 1:
            # The ranks have met around the app, where rank 0 left no store.
            with world.around_gang(info, float(config["timeout"]), met=True):
                yield
            return
        if not state.gang:
            alone(info)
        yield
