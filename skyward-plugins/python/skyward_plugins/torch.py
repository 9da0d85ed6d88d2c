"""The hook that joins the workers into one `torch.distributed` process group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from skyward import instance_info
from skyward._core import state
from skyward.integrations import _torch_world as world
from skyward.integrations._wrap import environment


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Create the default process group with every worker of the pool as one rank.

    Args:
        config: `collectives`: nccl, gloo or auto (nccl with accelerators, otherwise gloo).
            `timeout`: seconds within which all workers must meet. `collective_timeout`: seconds
            that one collective operation may take; None for torch's default.

    Raises:
        TimeoutError: some ranks did not come to the rendezvous; the message names them.
        RuntimeError: a process group exists already, or there is no accelerator for this worker.
    """
    info = instance_info()
    if info.total_workers == 1:
        yield
        return
    with environment(world.variables(info, on_cpu=not info.accelerators)):
        import torch.distributed as dist

        if dist.is_initialized():
            raise RuntimeError(
                "torch.distributed already has a process group, which the torch plugin creates itself: remove the "
                "other call to init_process_group"
            )
        world.join(info, config["collectives"], float(config["timeout"]), config["collective_timeout"])
        # No `finally`: the ranks may wait for each other when they leave. A rank that has failed
        # must not: the others may wait for it in a collective, and would never leave.
        yield
        if dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def around_task(config: Mapping[str, Any]) -> Iterator[None]:
    """Make the process group again if an earlier task has destroyed it or left it unfinished.

    Raises:
        RuntimeError: some ranks did not begin the gang; the message names them.
    """
    info = instance_info()
    if info.total_workers == 1:
        yield
    elif state.gang:
        with world.around_gang(info, float(config["timeout"])):
            yield
    else:
        world.alone()
        yield
