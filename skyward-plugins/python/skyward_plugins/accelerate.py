"""Has Accelerate, and the `Trainer` of Transformers, find the workers as ranks of one world."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from skyward import _state, instance_info
from skyward.integrations import _torch_world as world
from skyward.integrations._meet import meet
from skyward.integrations._wrap import environment
from skyward.integrations.transformers import alone


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Set the variables of the world in which every worker of the pool is one rank.

    `Trainer` and `Accelerator` make the process group themselves, in the first task that runs on all workers: only then
    do their own timeout and their choice of a backend hold. What would stop them there is looked for here: ranks that
    do not reach rank 0, for which they wait half an hour, and accelerators that torch does not see, without which each
    rank trains alone and says nothing.

    Args:
        config: `timeout`: what all workers together get to meet, in seconds. `cuda`: whether the accelerators are
            devices of CUDA or ROCm. `fsdp`: variables that hold where all workers run together.

    Raises:
        TimeoutError: not all ranks came to the rendezvous; names those that did not.
        RuntimeError: there is no accelerator for this worker.
    """
    info = instance_info()
    if info.total_workers == 1:
        yield
        return
    with environment({**world.variables(info, on_cpu=not info.accelerators), **config["fsdp"]}):
        if config["cuda"]:
            world.take_device(info, "nccl")
        timeout = float(config["timeout"])
        meet(info, timeout, time.monotonic() + timeout, service=False)
        # No `finally`: leaving may wait for the others, who would wait for one that failed.
        yield
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def around_task(config: Mapping[str, Any]) -> Iterator[None]:
    """Keep a task that one worker runs alone to that worker's accelerator.

    Raises:
        RuntimeError: there is no accelerator for this worker.
    """
    if not _state.gang:
        alone(instance_info())
    yield
