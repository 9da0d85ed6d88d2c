"""Joins the workers into one `torch.distributed` process group before the first task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from skyward import instance_info
from skyward.integrations import _torch_world as world
from skyward.integrations._wrap import environment


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Enter the default process group with every worker of the pool as one rank.

    Args:
        config: `collectives`: nccl, gloo or auto (nccl with accelerators, else gloo). `timeout`: what all workers
            together get to meet, in seconds. `collective_timeout`: what one collective operation may take, in seconds;
            None for torch's own.

    Raises:
        TimeoutError: not all ranks came to the rendezvous; names those that did not.
        RuntimeError: a process group was already there, or there is no accelerator for this worker.
    """
    info = instance_info()
    if info.total_workers == 1:
        yield
        return
    with environment(world.variables(info, on_cpu=not info.accelerators)):
        import torch.distributed as dist

        if dist.is_initialized():
            raise RuntimeError(
                "torch.distributed already has a process group; the torch plugin makes it: remove the other call to "
                "init_process_group"
            )
        world.join(info, config["collectives"], float(config["timeout"]), config["collective_timeout"])
        # No `finally`: leaving may wait for the others, who would wait for one that failed.
        yield
        if dist.is_initialized():
            dist.destroy_process_group()
