"""A model that Keras divides over two processes trains as it does in one process."""

from __future__ import annotations

import signal
from functools import cache
from typing import Any

import pytest

from .ranks import JAX, World, keras, require, run_alone

require("keras", "jax")

SAMPLES, BATCH = 32, 16

TRAIN = f"""
import keras, numpy as np, skyward as sky

def train(parts=1):
    draw = np.random.default_rng(0)
    x = draw.normal(size=({SAMPLES}, 8)).astype("float32")
    y = (x @ draw.normal(size=(8, 1))).astype("float32")
    # One process alone sees the batches that so many parts make together.
    order = np.arange({SAMPLES}).reshape(parts, -1, {BATCH} // parts).swapaxes(0, 1).ravel()
    x, y = sky.shard(x[order], y[order], drop_last=True)
    model = keras.Sequential([
        keras.Input((8,)), keras.layers.Dense(16, name="wide", activation="tanh"), keras.layers.Dense(1)
    ])
    model.compile("sgd", "mse")
    batch = {BATCH} * len(x) // {SAMPLES}
    losses = model.fit(x, y, batch_size=batch, epochs=2, verbose=0, shuffle=False).history["loss"]
    return {{"samples": len(x), "losses": losses}}
"""


def mesh(data: int, model: int) -> dict[str, Any]:
    """Return the configuration of a mesh that divides the wide layer along the model axis."""
    return {
        "kind": "model_parallel",
        "mesh": [["data", data], ["model", model]],
        "layouts": [[".*wide.*kernel", [None, "model"]], [".*wide.*bias", ["model"]]],
        "batch_dim": None,
    }


@cache
def alone(parts: int) -> list[float]:
    """The losses of one process with one device, on the batches that so many parts make."""
    losses: list[float] = run_alone(keras(seed=5), body=TRAIN + f"result = task(lambda: train({parts}))").result[
        "losses"
    ]
    return losses


@pytest.mark.parametrize(("data", "model", "parts"), [(1, 8, 1), (2, 4, 2), (4, 2, 2), (8, 1, 2)])
def test_losses_are_those_of_one_process(data: int, model: int, parts: int) -> None:
    with World(2) as world:
        hooks = (JAX, keras(seed=5, distribution=mesh(data, model)))
        body = TRAIN + "result = task(train)"
        first, second = (rank.result for rank in world.run(*hooks, body=body, env={"JAX_NUM_CPU_DEVICES": "4"}))
    assert first == second
    assert first["samples"] == SAMPLES // parts
    assert first["losses"] == pytest.approx(alone(parts), rel=1e-4)


def test_a_thread_gets_the_part_of_the_main_thread() -> None:
    body = """
    import skyward as sky
    from concurrent.futures import ThreadPoolExecutor
    def run():
        with ThreadPoolExecutor(1) as pool:
            return [pool.submit(sky.shard, list(range(8))).result(), sky.shard(list(range(8)))]
    result = task(run)
    """
    with World(2) as world:
        hooks = (JAX, keras(seed=5, distribution=mesh(1, 4)))
        ranks = world.run(*hooks, body=body, env={"JAX_NUM_CPU_DEVICES": "2"})
    assert [rank.result for rank in ranks] == [[list(range(8))] * 2] * 2


def test_a_mesh_whose_rows_overlap_between_workers_is_refused() -> None:
    with World(2) as world:
        hooks = (JAX, keras(distribution=mesh(3, 2)))
        ranks = world.run(*hooks, body="result = 1", env={"JAX_NUM_CPU_DEVICES": "3"})
    text = "the mesh gives worker 0 the rows [0, 1] of each batch and worker 1 the rows [1, 2]"
    # JAX aborts a rank that has not come so far when the rank with its coordinator ends.
    assert all(text in rank.exception or rank.code == -signal.SIGABRT for rank in ranks)
    assert any(text in rank.exception for rank in ranks)
