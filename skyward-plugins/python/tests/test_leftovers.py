"""What a task leaves in a framework does not change the next task; with real frameworks on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from .ranks import JAX, Plugin, Rank, World, accelerate, keras, require, run_alone, torch
from .test_trainer import TRAIN

require("keras", "jax", "torch", "accelerate", "transformers")


def results(ranks: list[Rank]) -> list[Any]:
    """Return the results of all ranks, which have ended well."""
    assert [rank.code for rank in ranks] == [0] * len(ranks), [rank.error for rank in ranks]
    return [rank.result for rank in ranks]


BUILD = """
import keras, numpy as np

def build():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(np.ones((16, 4), "float32"), np.ones((16, 2), "float32"), batch_size=8, verbose=0)
    shards = [list(layer.kernel.value.addressable_shards[0].data.shape) for layer in model.layers]
    return [weight.path for weight in model.weights], shards
"""


def divided(*patterns: str) -> dict[str, Any]:
    """A distribution that divides the last dimension of what the patterns match by two."""
    layouts = [[pattern, [None, "model"]] for pattern in patterns]
    return {"kind": "model_parallel", "mesh": [["data", 1], ["model", 2]], "layouts": layouts, "batch_dim": None}


def test_a_layout_divides_the_layers_without_names_of_each_task() -> None:
    body = BUILD + "result = [task(build), task(build, gang=False), task(build, gang=True)]"
    with World(2) as world:
        first, second = results(world.run(JAX, keras(seed=1, distribution=divided(".*dense/kernel")), body=body))
    assert first == second
    gang, alone, again = first
    assert gang == again
    assert gang[1] == [[4, 4], [8, 2]]
    # A task alone has no distribution, and the same names.
    assert alone == [gang[0], [[4, 8], [8, 2]]]


def test_names_begin_anew_for_layouts_of_the_payload_and_without_the_plugin() -> None:
    body = """
    import keras
    def build():
        mesh = keras.distribution.DeviceMesh((1, 2), ["data", "model"])
        layouts = keras.distribution.LayoutMap(mesh)
        layouts[".*dense/kernel"] = (None, "model")
        keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts))
        inputs = keras.Input((4,))
        model = keras.Model(inputs, keras.layers.Dense(8, name="named")(keras.layers.Dense(6)(inputs)))
        return [list(layer.kernel.value.addressable_shards[0].data.shape) for layer in model.layers[1:]]
    result = [task(build), task(build)]
    """
    devices = {"JAX_NUM_CPU_DEVICES": "2", "KERAS_BACKEND": "jax"}
    plugins: list[list[Plugin]] = [[keras()], []]
    for chosen in plugins:
        rank = run_alone(*chosen, body=body, env=devices)
        assert results([rank]) == [[[[4, 3], [6, 8]]] * 2]
        assert "skyward: warning" not in rank.error


def test_a_pattern_that_matches_nothing_is_named_with_the_nearest_paths() -> None:
    body = BUILD + "result = [task(build), task(lambda: 1)]"
    layouts = divided(".*dense/kernel", "dens/kernel", "dense_1/kernel")
    with World(2) as world:
        ranks = world.run(JAX, keras(seed=1, distribution=layouts), body=body)
    results(ranks)
    lines = [line for line in ranks[0].error.splitlines() if line.startswith("skyward: warning")]
    assert len(lines) == 2
    assert "the layout of 'dens/kernel' has no effect" in lines[0]
    assert "sequential/dense/kernel" in lines[0]
    # It would have matched before Keras 3.14.
    assert "'dense_1/kernel' has no effect" in lines[1]
    assert "write '.*dense_1/kernel'" in lines[1]
    # One rank says it.
    assert "skyward: warning" not in ranks[1].error


def test_a_task_that_goes_on_with_a_model_is_not_warned() -> None:
    body = """
    import keras, numpy as np
    kept = []
    def build():
        kept.append(keras.Sequential([keras.Input((4,)), keras.layers.Dense(8)]))
    def fit():
        kept[0].compile("adam", "mse")
        kept[0].fit(np.ones((16, 4), "float32"), np.ones((16, 8), "float32"), batch_size=8, verbose=0)
    result = [task(build), task(fit)]
    """
    with World(2) as world:
        ranks = world.run(JAX, keras(seed=1, distribution=divided(".*dense/kernel")), body=body)
    results(ranks)
    assert "skyward: warning" not in ranks[0].error


DESTROY = """
import torch, torch.distributed as dist

def run(destroyed_by=(), twice=False):
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.all_reduce(total, group=dist.new_group())
    dist.barrier()
    if dist.get_rank() in destroyed_by:
        dist.destroy_process_group()
        if twice:
            dist.init_process_group("gloo")
            dist.all_reduce(total)
            dist.destroy_process_group()
    return int(total)
"""


def test_a_process_group_that_was_destroyed_is_there_again() -> None:
    body = (
        DESTROY
        + """
result = [
    task(lambda: run((0, 1))),
    task(run, gang=False),
    task(lambda: run((1,)), gang=True),
    task(lambda: run((0,)), gang=True),
    task(lambda: run((0, 1), twice=True), gang=True),
    task(lambda: run((0, 1), twice=True), gang=True),
    task(run, gang=False),
    task(run, gang=True),
]
"""
    )
    with World(2) as world:
        ranks = world.run(torch(collective_timeout=60.0), body=body)
    # Each task sums over its ranks twice, or once more where it made the group again.
    assert results(ranks) == [[4, 1, 4, 4, 8, 8, 1, 4]] * 2


def test_a_collective_that_one_rank_has_begun_is_no_part_of_the_next_task() -> None:
    body = """
    import torch, torch.distributed as dist
    def begin():
        if dist.get_rank() == 0:
            dist.all_reduce(torch.full((1,), 100.0), async_op=True)
    def fail():
        dist.barrier()
        if dist.get_rank() == 0:
            raise ValueError("one rank")
        dist.irecv(torch.ones(1), 0)
    def attempt():
        try:
            task(fail)
        except ValueError:
            pass
    def run():
        total = torch.ones(1)
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            dist.send(total + 1, 1)
        else:
            dist.recv(total, 0)
        return int(total)
    result = [task(begin), task(run), attempt(), task(run)]
    """
    with World(2) as world:
        ranks = world.run(torch(collective_timeout=60.0), body=body)
    assert results(ranks) == [[None, 2, None, 2], [None, 3, None, 3]]


def test_what_ranks_have_sent_before_all_of_them_failed_reaches_no_later_task() -> None:
    body = """
    import torch, torch.distributed as dist
    other = 1 - dist.get_rank()
    sent = []
    def fail(error):
        dist.barrier()
        sent.append(dist.isend(torch.full((1,), 100.0), other))
        raise error("all ranks, before they receive")
    def attempt(error):
        try:
            task(lambda: fail(error))
        except (ValueError, KeyboardInterrupt):
            return "failed"
    def run():
        received = torch.zeros(1)
        work = dist.isend(torch.ones(1), other)
        dist.recv(received, other)
        work.wait()
        return int(received)
    result = [attempt(ValueError), task(run), attempt(KeyboardInterrupt), task(run), task(run)]
    """
    with World(2) as world:
        ranks = world.run(torch(collective_timeout=20.0), body=body)
    assert results(ranks) == [["failed", 1, "failed", 1, 1]] * 2


def test_a_kept_group_with_a_collective_of_one_rank_is_an_error_on_all_ranks() -> None:
    body = """
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    kept = {}
    def build():
        kept.update(group=dist.new_group(), world=dist.group.WORLD)
        kept["model"] = DistributedDataParallel(torch.nn.Linear(2, 1))
        if dist.get_rank() == 0:
            kept["work"] = [
                dist.all_reduce(torch.full((1,), 100.0), group=kept[name], async_op=True) for name in ("group", "world")
            ]
    USES = {
        "reduce": lambda: dist.all_reduce(torch.ones(1), group=kept["group"]),
        "reduce in the world's": lambda: dist.all_reduce(torch.ones(1), group=kept["world"]),
        "barrier": lambda: dist.barrier(kept["group"]),
        "model": lambda: kept["model"](torch.ones(4, 2)).sum().backward(),
    }
    def attempt(use):
        try:
            USES[use]()
        except (RuntimeError, ValueError) as error:
            return str(error)
    def run():
        total = torch.ones(1)
        dist.all_reduce(total)
        return [int(total), *map(attempt, USES)]
    result = [task(build), task(run)]
    """
    with World(2) as world:
        ranks = results(world.run(torch(collective_timeout=60.0), body=body))
    for _, (total, *said) in ranks:
        assert total == 2
        assert all(said), said
        assert said[3] == (
            "Backend of a group that an earlier task has left in different states on its ranks does not support "
            "allreduce"
        )


def test_a_group_that_is_kept_serves_the_next_broadcast() -> None:
    body = """
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    kept = {}
    def build():
        kept["model"] = DistributedDataParallel(torch.nn.Linear(2, 1))
        kept["group"] = dist.new_group()
    def refuse():
        raise ValueError("all ranks")
    def attempt():
        try:
            task(refuse)
        except ValueError:
            return "refused"
    def run():
        total = torch.ones(1)
        dist.all_reduce(total, group=kept["group"])
        kept["model"](torch.ones(4, 2)).sum().backward()
        return int(total)
    result = [task(build), task(run), attempt(), task(run)]
    """
    with World(2) as world:
        ranks = world.run(torch(collective_timeout=60.0), body=body)
    assert results(ranks) == [[None, 2, "refused", 2]] * 2


ACCELERATOR = """
def run():
    import torch
    from accelerate import Accelerator
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    kept.append(model)
    accelerator.backward(model(torch.ones(4, 2)).sum())
    total = accelerator.reduce(torch.ones(1))
    accelerator.end_training()
    return [accelerator.num_processes, int(total)]

kept = []
result = [task(run), task(run), task(run, gang=False), task(run, gang=True)]
"""


@pytest.mark.parametrize("plugin", [accelerate(), torch()], ids=["accelerate", "torch"])
def test_accelerate_trains_again_after_end_training(plugin: Plugin) -> None:
    with World(2) as world:
        assert results(world.run(plugin, body=ACCELERATOR)) == [[[2, 2], [2, 2], [1, 1], [2, 2]]] * 2


def test_trainer_trains_again_after_its_group_was_destroyed_on_one_rank_first(tmp_path: Any) -> None:
    steps = "steps = trainer.train().global_step"
    # Rank 1 makes its next group before rank 0 has destroyed the one before.
    ended = """
    kept.append(trainer.model_wrapped)
    if dist.get_rank() == 1:
        trainer.accelerator.end_training()
    else:
        late.append(trainer.accelerator)
"""
    body = f"""
import threading
FOLDER = {str(tmp_path)!r}
kept, late = [], []
{TRAIN.rpartition("result =")[0].replace(steps, steps + ended)}
import torch.distributed as dist
def twice():
    first = run()
    if late:
        threading.Event().wait(2)
        late.pop().end_training()
    return first, run()
result = task(twice)
"""
    with World(2) as world:
        first, second = results(world.run(accelerate(), body=body))
    assert first == second
    assert [one["ranks"] for one in first] == [2, 2]


def test_settings_of_one_training_are_not_those_of_the_next() -> None:
    body = """
import os
from accelerate import FullyShardedDataParallelPlugin

NAMES = ["FSDP_CPU_RAM_EFFICIENT_LOADING", "ACCELERATE_USE_FSDP", "FSDP_VERSION", "ACCELERATE_MIXED_PRECISION"]

def found():
    return [os.environ.get(name) for name in NAMES]

def shard():
    FullyShardedDataParallelPlugin(cpu_ram_efficient_loading=True, sync_module_states=True)
    # As `Accelerator` does with this plugin where it finds an accelerator.
    os.environ["ACCELERATE_USE_FSDP"] = "true"
    del os.environ["ACCELERATE_MIXED_PRECISION"]
    os.environ["MINE"] = "set by a task"
    return found()

def plain():
    return found(), os.environ.get("MINE")

result = [task(shard), task(plain), task(plain, gang=False), task(shard), task(plain, gang=True)]
"""
    fsdp = {"ACCELERATE_USE_FSDP": "false", "FSDP_VERSION": "2"}
    precision = {"ACCELERATE_MIXED_PRECISION": "no"}
    with World(2) as world:
        ranks = world.run(accelerate(fsdp=fsdp), body=body, env=precision)
    one, plain, alone, other, again = results(ranks)[0]
    assert one == other == ["True", "true", "2", None]
    assert plain == again == [[None, "false", "2", "no"], None]
    assert alone == [[None, None, "2", "no"], None]


def test_a_training_of_accelerate_does_not_go_on_in_the_next_task() -> None:
    body = """
import torch
from accelerate import Accelerator

kept = []

def run(ends=True, keep=False, **more):
    accelerator = Accelerator(**more)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    before = next(model.parameters()).detach().clone()
    for x in data:
        if more:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).sum())
        else:
            accelerator.backward(model(x).sum())
        optimizer.step()
        optimizer.zero_grad()
        if not ends:
            raise ValueError("half way")
    if keep:
        kept.append(accelerator)
    return [accelerator.mixed_precision, not torch.equal(before, next(model.parameters()))]

def attempt(**more):
    try:
        return run(**more)
    except ValueError as error:
        return str(error)

bf16 = {"mixed_precision": "bf16", "gradient_accumulation_steps": 4}
result = [
    task(lambda: attempt(ends=False, **bf16)),
    task(attempt),
    task(lambda: attempt(**bf16)),
    task(lambda: attempt(keep=True)),
    task(lambda: kept[0].mixed_precision),
    task(lambda: [attempt(**bf16).split(",")[0], kept.clear()]),
    task(lambda: attempt(**bf16)),
]
"""
    [found] = results([run_alone(body=body)])
    plain, half = ["no", True], ["bf16", True]
    # What a payload keeps stays as it is.
    refused = ["AcceleratorState has already been initialized and cannot be changed", None]
    assert found == ["half way", plain, half, plain, "no", refused, half]


def test_a_distribution_or_precision_that_a_task_alone_sets_does_not_reach_the_next_broadcast() -> None:
    body = """
import jax, keras, numpy as np, skyward as sky

@sky.integrations.keras(backend="jax", seed=1)
def fit():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.arange(64, dtype="float32").reshape(16, 4) / 64
    losses = model.fit(x, x.sum(axis=1), batch_size=8, verbose=0).history["loss"]
    return [type(keras.distribution.distribution()).__name__, len(losses)]

@sky.integrations.keras(backend="jax")
def divide():
    mesh = keras.distribution.DeviceMesh((1, 1), ["data", "model"], devices=keras.distribution.list_devices()[:1])
    keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=keras.distribution.LayoutMap(mesh)))

def mix():
    keras.config.set_dtype_policy("mixed_bfloat16")

def plan():
    try:
        return fit()
    except sky.PlanError as error:
        return str(error)

result = [task(fit)]
for change in (divide, mix):
    task(change if jax.process_index() == 1 else int, gang=False)
    result.append(task(plan, gang=True))
"""
    with World(2, joined=True) as world:
        first, second = results(world.run(body=body, env={"KERAS_BACKEND": "jax"}))
    assert first == second
    before, divided, mixed = first
    assert before == divided == ["DataParallel", 1]
    assert 'rank 0: dtype policy "float32"; rank 1: dtype policy "mixed_bfloat16"' in mixed


def test_settings_of_torch_that_a_task_alone_has_left_on_one_rank_are_named() -> None:
    body = """
import torch, torch.distributed as dist

def change(dtype):
    torch.set_default_dtype(dtype)

def run():
    total = torch.ones(1)
    dist.all_reduce(total)
    return int(total)

def attempt():
    try:
        return task(run, gang=True)
    except RuntimeError as error:
        return str(error)

rank = dist.get_rank()
result = [attempt()]
for dtype in (torch.float64, torch.float32):
    task((lambda: change(dtype)) if rank == 1 else int, gang=False)
    result.append(attempt())
"""
    with World(2) as world:
        first, second = results(world.run(torch(collective_timeout=60.0), body=body))
    assert first == second
    assert [first[0], first[2]] == [2, 2]
    assert "`torch.get_default_dtype()` is torch.float32 on rank 0 and torch.float64 on rank 1" in first[1]
