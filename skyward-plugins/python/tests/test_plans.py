"""Ranks with different plans get an error before they wait for each other forever."""

from __future__ import annotations

import pytest

from .ranks import JAX, Plugin, World, keras, require, torch

require("keras", "jax", "torch")

HINT = (
    "Give every rank the same number of samples: `sky.shard(…, drop_last=True)`, and batches of one size: "
    "`drop_last=True`"
)

BUILD = """
import keras, numpy as np, skyward as sky
def build():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
x = np.zeros((%d, 4), "float32")
"""


@pytest.mark.parametrize(
    ("samples", "call", "message"),
    [
        # 641 samples, as in Keras's guide, are divided into 321 and 320.
        (
            641,
            "model.fit(part, part[:, :1], batch_size=32, verbose=0)",
            "the ranks would wait for each other for ever in `fit`: rank 0: steps 11, last batch 1; "
            f"rank 1: steps 10, last batch not given. {HINT}",
        ),
        (
            35,
            "model.predict(part, batch_size=32, verbose=0)",
            "the ranks would wait for each other for ever in `predict`: rank 0: last batch 18; "
            f"rank 1: last batch 17. {HINT}",
        ),
        (
            64,
            "model.fit(part, part[:, :1], epochs=1 + sky.instance_info().rank, verbose=0)",
            "the ranks would wait for each other for ever in `fit`: rank 0: epochs 1; rank 1: epochs 2. "
            "Give every rank the same",
        ),
        (
            64,
            "model.evaluate(part, part[:, :1], verbose=0) if sky.is_head else model.predict(part, verbose=0)",
            "the ranks would wait for each other for ever in `predict`: rank 0 at `evaluate`, rank 1 at `predict`. "
            "All ranks must make the same calls, so make none of them under `if sky.is_head:`",
        ),
    ],
)
def test_unequal_batches_in_keras_are_named_before_the_first_step(samples: int, call: str, message: str) -> None:
    body = f"""
    def run():
        model, part = build(), sky.shard(x)
        try:
            {call}
        except sky.PlanError as error:
            return str(error)
    result = task(run)
    """
    with World(2) as world:
        import textwrap

        ranks = world.run(JAX, keras(seed=1), body=BUILD % samples + textwrap.dedent(body))
    for place, rank in enumerate(ranks):
        expected = (
            message.replace("in `predict`", "in `evaluate`") if "at `evaluate`" in message and not place else message
        )
        assert rank.result == expected


def test_equal_batches_train_and_ranks_that_train_alone_are_left_alone() -> None:
    body = (
        BUILD % 640
        + """
def together():
    part = sky.shard(x)
    model = build()
    return [len(model.fit(part, part[:, :1], verbose=0).epoch), model.evaluate(part, part[:, :1], verbose=0) >= 0]
class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3
    def __getitem__(self, index):
        return x[:8], x[:8, :1]
def batches():
    while True:
        yield x[:8], x[:8, :1]
def datasets():
    steps = [len(build().fit(Batches(), verbose=0).epoch)]
    return steps + [len(build().fit(batches(), steps_per_epoch=np.int64(2), verbose=0).epoch)]
def own_devices():
    import jax
    own = [f"{device.platform}:{device.id}" for device in jax.local_devices()]
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=own, auto_shard_dataset=False))
    rank = sky.instance_info().rank
    return len(build().fit(x[: 33 + rank], x[: 33 + rank, :1], verbose=0).epoch)
def alone():
    keras.distribution.set_distribution(None)
    return len(build().fit(x[: 33 + sky.instance_info().rank], x[: 33 + sky.instance_info().rank, :1], verbose=0).epoch)
result = [task(together), task(datasets), task(own_devices), task(alone)]
"""
    )
    with World(2) as world:
        assert [rank.result for rank in world.run(JAX, keras(seed=1), body=body)] == [[[1, True], [1, 1], 1, 1]] * 2


@pytest.mark.parametrize("plugin", [JAX, torch()], ids=["jax", "torch"])
def test_same_plan_compares_loaders_and_facts(plugin: Plugin) -> None:
    body = """
    import skyward as sky
    from torch.utils.data import DataLoader
    rank = sky.instance_info().rank
    def compare(*loops, **facts):
        try:
            sky.same_plan(*loops, **facts)
            return None
        except sky.PlanError as error:
            return str(error)
    def run():
        return [
            compare(DataLoader(list(range(64)), batch_size=16), epochs=3),
            compare(DataLoader(list(range(64 + rank)), batch_size=16)),
            compare([1, 2], batch=(8, 4 + rank)),
            compare([1, 2], [3]),
        ]
    result = [task(run), task(run)]
    """
    with World(2) as world:
        ranks = world.run(plugin, body=body)
    start = "the ranks would wait for each other for ever in `same_plan`: "
    expected = [
        None,
        f"{start}rank 0: steps 4, last batch 16; rank 1: steps 5, last batch 1. {HINT}",
        f"{start}rank 0: batch [8, 4]; rank 1: batch [8, 5]. {HINT}",
        None,
    ]
    assert [rank.result for rank in ranks] == [[expected, expected]] * 2


def test_a_rank_that_does_not_come_is_named() -> None:
    body = """
    import skyward as sky
    def run():
        if sky.instance_info().rank != 1:
            try:
                sky.same_plan(steps=3, timeout=2)
            except sky.PlanError as error:
                return str(error)
    result = task(run)
    import torch.distributed as dist
    dist.barrier()
    """
    with World(3) as world:
        ranks = world.run(torch(), body=body)
    text = "the ranks would wait for each other for ever in `same_plan`: rank 1 did not come within 2 s"
    assert [rank.result for rank in ranks] == [text, None, text]


def test_accelerate_trains_on_all_ranks_of_a_group_on_cpus() -> None:
    require("accelerate")
    body = """
    from accelerate import Accelerator
    import torch
    def run():
        found = Accelerator()
        total = found.reduce(torch.ones(1), reduction="sum")
        return [found.num_processes, found.process_index, int(total)]
    result = task(run)
    """
    with World(2) as world:
        assert [rank.result for rank in world.run(torch(), body=body)] == [[2, 0, 2], [2, 1, 2]]
