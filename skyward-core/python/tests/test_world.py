"""A single task in a joined world sees a world of one; with real torch and Accelerate."""

from __future__ import annotations

from typing import Any

import pytest

from skyward._core import wire

from .client import WorkerClient
from .conftest import Node

VARIABLES = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"]


class World:
    """Two workers of one node, and payloads that run on both together or on one alone."""

    def __init__(self, node: Node, source: str, **more: Any) -> None:
        self.node = node
        node.agent.send([wire.RESERVE_PORT, 1])
        cluster = {"head_port": node.agent.expect(wire.PORT)[0][3], "total_nodes": 1}
        self.workers = [node.ready(source, index=index, workers=2, cluster=cluster, **more) for index in range(2)]
        for worker in self.workers:
            worker.socket.settimeout(60)
        self.gangs = 0

    def together(self, **arguments: Any) -> list[Any]:
        """Run a gang; return the result of each rank."""
        self.gangs += 1
        tasks = [self._start(worker, [self.gangs, 1, len(self.workers)], arguments) for worker in self.workers]
        return [self._value(worker, task) for worker, task in zip(self.workers, tasks, strict=True)]

    def ends(self, **arguments: Any) -> list[bool]:
        """Run a gang; return whether each rank has returned a value."""
        self.gangs += 1
        tasks = [self._start(worker, [self.gangs, 1, len(self.workers)], arguments) for worker in self.workers]
        outcomes = [worker.outcome(task) for worker, task in zip(self.workers, tasks, strict=True)]
        return [head[0] == wire.RESULT for head, _ in outcomes]

    def alone(self, rank: int, **arguments: Any) -> Any:
        """Run a task on this rank alone; return its result."""
        worker = self.workers[rank]
        return self._value(worker, self._start(worker, None, arguments))

    def end(self) -> list[Any]:
        """End both workers; return their exit codes."""
        for worker in self.workers:
            worker.send([wire.BYE])
        return [self.node.agent.expect(wire.EXITED)[0][4] for _ in self.workers]

    def _start(self, worker: WorkerClient, gang: list[int] | None, arguments: dict[str, Any]) -> int:
        worker.gang = gang
        return worker.start(1, **arguments)

    def _value(self, worker: WorkerClient, task: int) -> Any:
        head, value = worker.outcome(task)
        assert head[0] == wire.RESULT, value
        return value


DDP = """
import os
import skyward as sky

@sky.integrations.torch(backend="gloo")
def main(destroy=False, group=False):
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.ones(4, 2)).sum().backward()
    total = torch.ones(1)
    dist.all_reduce(total, group=dist.new_group() if group else None)
    dist.barrier()
    dist.broadcast(total, src=0)
    found = [dist.get_world_size(), dist.get_rank(), int(total), os.environ.get("RANK"), os.environ.get("MASTER_ADDR")]
    if destroy:
        dist.destroy_process_group()
    return found
"""

ALONE = [1, 0, 1, None, None]


@pytest.mark.frameworks
def test_ddp_alone_is_a_world_of_one_before_between_and_after_gangs(node: Node) -> None:
    world = World(node, DDP)
    gang = [[2, rank, 2, str(rank), "127.0.0.1"] for rank in range(2)]
    assert world.alone(1) == ALONE
    assert world.together() == gang
    assert world.alone(1, group=True) == ALONE
    assert world.alone(1, group=True) == ALONE
    # Groups that a single task has created must not shift the names of the gang's groups.
    assert world.together(group=True) == gang
    assert world.alone(0, destroy=True) == ALONE
    assert world.alone(0, group=True) == ALONE
    assert world.together(group=True) == gang
    assert world.alone(0, destroy=True) == ALONE
    assert world.together() == gang
    assert world.end() == [0, 0]


@pytest.mark.frameworks
def test_state_of_a_single_task_is_kept_for_the_next_single_task(node: Node) -> None:
    source = """
import os
import skyward as sky
mine = []

@sky.integrations.torch(backend="gloo")
def main(name=None):
    import torch.distributed as dist
    if name is not None:
        mine.append(dist.group.WORLD)
        os.environ["RANK"] = name
    return [dist.group.WORLD in mine, os.environ.get("RANK")]
"""
    world = World(node, source)
    assert world.together() == [[False, "0"], [False, "1"]]
    assert world.alone(0, name="solo") == [True, "solo"]
    assert world.together() == [[False, "0"], [False, "1"]]
    assert world.alone(0) == [True, "solo"]
    assert world.end() == [0, 0]


@pytest.mark.frameworks
def test_a_world_that_a_payload_joins_by_hand_is_hidden_too(node: Node) -> None:
    source = """
import torch, torch.distributed as dist
import skyward as sky

def main(join=False):
    info = sky.instance_info()
    if join:
        store = dist.TCPStore(info.head_addr, info.head_port, 2, info.rank == 0)
        dist.init_process_group("gloo", store=store, rank=info.rank, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    return int(total)
"""
    world = World(node, source)
    assert world.together(join=True) == [2, 2]
    assert world.alone(1) == 1
    assert world.together() == [2, 2]


@pytest.mark.frameworks
def test_variables_that_the_image_sets_hold_for_every_task(node: Node) -> None:
    source = f"""
import os
import skyward as sky

@sky.integrations.torch(backend="gloo")
def main():
    return {{name: os.environ[name] for name in {VARIABLES} if name in os.environ}}
"""
    world = World(node, source, env={"GROUP_RANK": "7"})
    for rank, found in enumerate(world.together()):
        assert (sorted(found), found["RANK"], found["GROUP_RANK"]) == (sorted(VARIABLES), str(rank), "7")
    assert world.alone(1) == {"GROUP_RANK": "7"}


ACCELERATE = """
import os
import skyward as sky

@sky.integrations.transformers(backend="gloo")
def main():
    import torch
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    accelerator.backward(model(torch.ones(4, 2)).sum())
    accelerator.wait_for_everyone()
    total = accelerator.reduce(torch.ones(1))
    names = ["RANK", "WORLD_SIZE", "ACCELERATE_USE_CPU"]
    env = [os.environ.get(name) for name in names]
    return [accelerator.num_processes, accelerator.process_index, int(total), type(model).__name__, env]
"""


@pytest.mark.frameworks
def test_accelerate_alone_finds_no_world(node: Node) -> None:
    alone = [1, 0, 1, "Linear", [None, None, None]]
    gang = [[2, rank, 2, "DistributedDataParallel", [str(rank), "2", "true"]] for rank in range(2)]
    world = World(node, ACCELERATE)
    # The state of the single task, of one process, must not be kept for the gang.
    assert world.alone(1) == alone
    assert world.together() == gang
    assert world.alone(0) == alone
    assert world.alone(1) == alone
    assert world.together() == gang
    assert world.end() == [0, 0]


@pytest.mark.frameworks
def test_a_group_that_a_broadcast_has_destroyed_is_made_again(node: Node) -> None:
    source = """
import skyward as sky
import torch, torch.distributed as dist

@sky.integrations.torch(backend="gloo")
def main(destroyed_by=(), begun_by=(), fails=()):
    rank = sky.instance_info().global_worker_index
    total = torch.ones(1)
    dist.all_reduce(total)
    if rank in begun_by:
        dist.all_reduce(torch.full((1,), 100.0), async_op=True)
    if rank in destroyed_by:
        dist.destroy_process_group()
    if rank in fails:
        raise ValueError("asked to fail")
    return int(total)
"""
    world = World(node, source)
    assert world.together(destroyed_by=[0, 1]) == [2, 2]
    assert world.together(destroyed_by=[1]) == [2, 2]
    assert world.alone(1) == 1
    assert world.alone(0, destroyed_by=[0]) == 1
    assert world.together(destroyed_by=[0]) == [2, 2]
    assert world.together(begun_by=[0]) == [2, 2]
    assert world.together() == [2, 2]
    assert world.ends(fails=[0], begun_by=[1]) == [False, True]
    assert world.together() == [2, 2]
    assert world.ends(fails=[0, 1]) == [False, False]
    assert world.together() == [2, 2]
    assert world.alone(1) == 1
    assert world.end() == [0, 0]


@pytest.mark.frameworks
def test_accelerate_trains_again_after_end_training(node: Node) -> None:
    source = """
import skyward as sky

@sky.integrations.transformers
def main():
    import torch
    from accelerate import Accelerator
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    accelerator.backward(model(torch.ones(4, 2)).sum())
    total = accelerator.reduce(torch.ones(1))
    accelerator.end_training()
    return [accelerator.num_processes, int(total)]
"""
    world = World(node, source)
    assert world.together() == [[2, 2]] * 2
    assert world.together() == [[2, 2]] * 2
    assert world.alone(1) == [1, 1]
    assert world.together() == [[2, 2]] * 2
    assert world.end() == [0, 0]


@pytest.mark.frameworks
def test_ranks_that_do_not_begin_a_broadcast_are_named(node: Node) -> None:
    source = """
import skyward as sky
from skyward.integrations import _torch_groups

@sky.integrations.torch(backend="gloo")
def train():
    import torch, torch.distributed as dist
    total = torch.ones(1)
    dist.all_reduce(total)
    return int(total)

def main(ranks):
    _torch_groups.TIMEOUT = 3.0
    if sky.instance_info().global_worker_index not in ranks:
        return None
    try:
        return train()
    except RuntimeError as error:
        return str(error)
"""
    world = World(node, source)
    assert world.together(ranks=[0, 1]) == [2, 2]
    first, other = world.together(ranks=[0])
    assert (other, first) == (
        None,
        "the ranks compare their process groups before a broadcast: rank 1 did not come within 3 s",
    )
    assert world.together(ranks=[0, 1]) == [2, 2]


@pytest.mark.frameworks
def test_keras_numbers_the_layers_of_each_task_from_the_beginning(node: Node) -> None:
    source = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras

def main(layout=None):
    if layout is not None:
        layouts = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((1, 1), ["data", "model"]))
        layouts[layout] = (None, "model")
        keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8)])
    if layout == "fail":
        raise ValueError(layout)
    return [weight.path for weight in model.weights]
"""
    worker = node.ready(source)
    worker.socket.settimeout(120)
    names = ["sequential/dense/kernel", "sequential/dense/bias"]
    for layout, warned in [(None, 0), (".*kernel", 0), ("kernel", 1), ("fail", 1), (None, 1)]:
        head, value = worker.outcome(worker.start(1, layout=layout))
        assert (value == names) == (layout != "fail")
        assert len(head[6:]) == warned, head
        if warned and layout is not None:
            [[message, _]] = head[6]
            assert message.startswith(f"the layout of {layout!r} has no effect: the pattern matched none of the 2 ")
