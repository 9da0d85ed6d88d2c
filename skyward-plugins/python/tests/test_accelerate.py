"""The hook of the plugins accelerate and transformers, with the real libraries on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .ranks import World, accelerate, require, run_alone
from .test_trainer import TRAIN

require("transformers", "accelerate", "torch")

NAMES = ["MASTER_ADDR", "WORLD_SIZE", "RANK", "LOCAL_RANK", "ACCELERATE_USE_CPU"]


def test_trainer_joins_the_ranks_by_itself_and_a_task_alone_finds_no_world(tmp_path: Path) -> None:
    body = f"""
import os
FOLDER = {str(tmp_path)!r}
{TRAIN.rpartition("result =")[0]}
import torch.distributed as dist

def found():
    trained = run()
    return trained["ranks"], trained["steps"], trained["weights"], [os.environ.get(name) for name in {NAMES}]

def alone(rank):
    # The other rank runs nothing meanwhile: it waits in the next gang.
    return task(found, gang=False) if int(os.environ.get("RANK", -1)) == rank else None

joined = dist.is_initialized()
first = [alone(0), alone(1)]
gang = task(found, gang=True)
again = task(found, gang=False)
result = [joined, *first, gang, again, task(found, gang=True)]
"""
    after = f"""
    import os, torch.distributed as dist
    assert not dist.is_initialized()
    assert not any(name in os.environ for name in {NAMES})
    """
    with World(2) as world:
        ranks = world.run(accelerate(), body=body, after=after)
    assert [rank.code for rank in ranks] == [0, 0], [rank.error for rank in ranks]
    (joined, *firsts, gang, again, last), other = (rank.result for rank in ranks)
    # The hook leaves creating the process group to Trainer.
    assert joined is other[0] is False
    # Sixteen samples in batches of two are four steps of two ranks, or eight of one.
    assert gang[:2] == [2, 4]
    assert gang[2] == other[3][2]
    for rank, found in enumerate([gang, other[3]]):
        assert found[3] == [world.addresses[0], "2", str(rank), "0", "true"]
    assert [last, other[5]] == [gang, other[3]]
    for alone in (firsts[0], other[2], again, other[4]):
        assert [alone[:2], alone[3]] == [[1, 8], [None] * len(NAMES)]
    assert again[2] == other[4][2] != gang[2]


ACCELERATOR = """
import os

def run(backend=None):
    import torch
    from accelerate import Accelerator
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    accelerator.backward(model(torch.ones(4, 2)).sum())
    total = accelerator.reduce(torch.ones(1))
    accelerator.wait_for_everyone()
    place = [accelerator.num_processes, accelerator.process_index, accelerator.is_main_process, int(total)]
    return [*place, type(model).__name__, accelerator.mixed_precision]

result = [task(run, gang=gang) for gang in (False, True, False, True)]
"""


def test_accelerator_alone_between_gangs_is_one_process() -> None:
    with World(1, 2) as world:
        ranks = world.run(accelerate(), body=ACCELERATOR, env={"ACCELERATE_MIXED_PRECISION": "bf16"})
    assert [rank.code for rank in ranks] == [0, 0], [rank.error for rank in ranks]
    alone = [1, 0, True, 1, "Linear", "bf16"]
    for index, rank in enumerate(ranks):
        gang = [2, index, index == 0, 2, "DistributedDataParallel", "bf16"]
        assert rank.result == [alone, gang, alone, gang]


def test_fsdp_is_on_where_all_run_together_and_as_the_variables_say() -> None:
    body = """
    import os
    from accelerate.utils import FullyShardedDataParallelPlugin

    def read():
        on = os.environ.get("ACCELERATE_USE_FSDP")
        plugin = FullyShardedDataParallelPlugin()
        wrap = getattr(plugin.auto_wrap_policy, "__name__", None)
        options = [plugin.reshard_after_forward, type(plugin.cpu_offload).__name__, plugin.state_dict_type.name]
        return [on, plugin.fsdp_version, wrap, plugin.transformer_cls_names_to_wrap, plugin.min_num_params, *options]

    alone = task(read, gang=False)
    result = [alone[0], task(read, gang=True)]
    """
    # The Rust side writes these variables; its tests have the same names.
    layers = {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_OFFLOAD_PARAMS": "false",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer,Head",
    }
    sizes = {
        **{name: value for name, value in layers.items() if name != "FSDP_TRANSFORMER_CLS_TO_WRAP"},
        "FSDP_RESHARD_AFTER_FORWARD": "false",
        "FSDP_OFFLOAD_PARAMS": "true",
        "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
        "FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP",
        "FSDP_MIN_NUM_PARAMS": "1000000",
    }
    by_layers = ["transformer_auto_wrap_policy", ["LlamaDecoderLayer", "Head"], None, True, "OffloadPolicy"]
    by_size = ["size_based_auto_wrap_policy", None, 1_000_000, False, "CPUOffloadPolicy"]
    cases: list[tuple[dict[str, str], list[Any]]] = [
        (layers, ["true", 2, *by_layers, "FULL_STATE_DICT"]),
        (sizes, ["true", 2, *by_size, "SHARDED_STATE_DICT"]),
    ]
    for variables, expected in cases:
        with World(2) as world:
            for rank in world.run(accelerate(fsdp=variables), body=body):
                assert rank.code == 0, rank.error
                assert rank.result == [None, expected]


# The answers of torch and Accelerate about CUDA on a node with eight devices; nothing computes on
# them.
EIGHT_DEVICES = """
import accelerate.state, torch
from skyward._libraries import world as _world

torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 8
used = []
torch.cuda.set_device = lambda device: used.append(str(device))
accelerate.state.check_cuda_p2p_ib_support = lambda: True
group_of_one = _world.group_of_one
asked = []
_world.group_of_one = lambda backend: [asked.append(backend), group_of_one("gloo")]

def look():
    from transformers import TrainingArguments
    found = TrainingArguments(FOLDER, report_to=[])
    processes = [found.world_size, found.process_index, found.should_save]
    return [str(found.device), found.n_gpu, found.parallel_mode.value, *processes]
"""


def test_a_task_alone_has_the_accelerator_of_its_worker_and_no_other(tmp_path: Path) -> None:
    body = f"""
FOLDER = {str(tmp_path)!r}
{EIGHT_DEVICES}
import os
found = task(look, gang=False)
backends = list(asked)
again = task(look, gang=False)
lone = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
_world.show(True)
world = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
result = [found, again, backends, used, lone, world]
"""
    worker = 3
    with World(2, 8, accelerators=8) as world:
        # The ranks do not meet: only one of them is there.
        alone = """
        import skyward.integrations._meet as m
        m.meet = lambda *args, **more: None
        """
        (rank,) = world.run(accelerate(), body=body, ranks=[8 + worker], prepare=alone)
    assert rank.code == 0, rank.error
    found, again, backends, used, lone, gang = rank.result
    assert found == again == ["cuda:3", 1, "distributed", 1, 0, True]
    assert backends == ["cpu:gloo,cuda:nccl"]
    assert set(used) <= {"3", "cuda:3"}
    assert lone == ["0", "1", "3", "1"]
    assert gang == ["11", "16", "3", "8"]


def test_a_rank_that_does_not_come_is_named_before_anything_trains() -> None:
    with World(3) as world:
        head, other = world.run(accelerate(timeout=4.0), body="result = 1", ranks=[0, 2])
    for rank in (head, other):
        assert "missing: rank 1 (node 1, worker 0" in rank.exception
        assert rank.code == 1


def test_accelerators_that_torch_does_not_see_are_an_error() -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    with World(2, accelerators=1) as world:
        (rank,) = world.run(accelerate(cuda=True), body="result = 1", ranks=[0], env=hidden)
    assert "sees no accelerator on node 0" in rank.exception


def test_one_worker_needs_nothing() -> None:
    rank = run_alone(accelerate(), body="import sys; result = 'torch' in sys.modules")
    assert (rank.code, rank.result) == (0, False)


def test_the_backend_of_the_decorator_is_that_of_the_process_group(tmp_path: Path) -> None:
    body = f"""
FOLDER = {str(tmp_path)!r}
{TRAIN.rpartition("result =")[0]}
import skyward as sky
import torch.distributed as dist

@sky.integrations.transformers(backend=BACKEND)
def train():
    return [run()["ranks"], dist.get_backend()]

result = task(train, gang=True)
"""
    with World(2, joined=True) as world:
        for backend, made in (("gloo", "gloo"), ("cpu:gloo", "cpu:gloo")):
            for rank in world.run(body=f"BACKEND = {backend!r}" + body):
                assert rank.code == 0, rank.error
                assert rank.result == [2, made]
