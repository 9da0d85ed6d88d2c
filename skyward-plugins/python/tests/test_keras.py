"""The keras hook, with real Keras on the CPU."""

from __future__ import annotations

import pytest

from .ranks import JAX, World, keras, require, run_alone

require("keras", "jax", "sklearn")

TRAIN = """
import hashlib, keras, numpy as np, skyward as sky
from sklearn.datasets import load_digits

def digest(model):
    return hashlib.sha256(b"".join(np.asarray(w).tobytes() for w in model.get_weights())).hexdigest()

def build():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def train():
    data = load_digits()
    x, y = sky.shard((data.data / 16).astype("float32")[:1024], data.target[:1024], drop_last=True)
    model = build()
    before = digest(model)
    history = model.fit(x, y, batch_size=32, epochs=2, verbose=0, shuffle=False)
    return {"samples": len(x), "before": before, "loss": history.history["loss"], "after": digest(model)}
"""


@pytest.mark.parametrize("seed", [None, 7])
def test_two_ranks_train_one_model_on_halves_of_the_data(seed: int | None) -> None:
    with World(2) as world:
        ranks = world.run(JAX, keras(seed=seed), body=TRAIN + "result = [task(train), task(train)]")
        first, second = (rank.result for rank in ranks)
        assert first == second
        assert first[0]["samples"] == 512
        assert first[0]["after"] != first[0]["before"]
        assert first[0]["loss"][1] < first[0]["loss"][0]
        # With a seed, each task starts from the same numbers; otherwise the random numbers
        # continue.
        assert (first[0] == first[1]) == (seed is not None)


def test_each_task_finds_the_distribution_whatever_the_one_before_did() -> None:
    body = """
    import keras
    def spoil():
        keras.utils.clear_session()
        return keras.distribution.distribution() is None
    def replace():
        mesh = keras.distribution.DeviceMesh((1, 2), ["data", "model"])
        layouts = keras.distribution.LayoutMap(mesh)
        keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts))
        return type(keras.distribution.distribution()).__name__
    def look():
        found = keras.distribution.distribution()
        return [type(found).__name__, len(keras.distribution.list_devices()), found.auto_shard_dataset]
    result = [task(look), task(spoil), task(look), task(replace), task(look)]
    """
    found = ["DataParallel", 2, False]
    with World(2) as world:
        for rank in world.run(JAX, keras(), body=body):
            assert rank.result == [found, True, found, "ModelParallel", found]


def test_a_task_on_one_rank_alone_trains_alone() -> None:
    body = f"""{TRAIN}
import jax
result = task(train, gang=False)["loss"] if jax.process_index() == 1 else None
"""
    with World(2) as world:
        head, alone = world.run(JAX, keras(seed=1), body=body)
        assert head.result is None
        assert alone.result[1] < alone.result[0]


def test_a_gang_after_random_numbers_of_one_rank_alone_starts_from_the_same_weights() -> None:
    body = (
        TRAIN
        + """
import jax
def alone():
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    return float(keras.random.normal(()))
if jax.process_index() == 1:
    task(alone, gang=False)
result = task(train, gang=True)
"""
    )
    with World(2) as world:
        first, second = (rank.result for rank in world.run(JAX, keras(), body=body))
    assert first == second


def test_weights_are_divided_along_the_mesh() -> None:
    layouts = [[".*wide.*kernel", [None, "model"]]]
    distribution = {
        "kind": "model_parallel",
        "mesh": [["data", 1], ["model", 2]],
        "layouts": layouts,
        "batch_dim": None,
    }
    body = """
    import keras, numpy as np
    def train():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, name="wide"), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        x = np.arange(64, dtype="float32").reshape(16, 4) / 64
        losses = model.fit(x, x.sum(axis=1), batch_size=8, epochs=2, verbose=0, shuffle=False).history["loss"]
        kernels = [layer.kernel.value for layer in model.layers]
        return {
            "shards": [list(kernel.addressable_shards[0].data.shape) for kernel in kernels],
            "losses": losses,
        }
    result = task(train)
    """
    with World(2) as world:
        first, second = (rank.result for rank in world.run(JAX, keras(seed=1, distribution=distribution), body=body))
        assert first == second
        assert first["shards"] == [[4, 4], [8, 1]]
        assert first["losses"][1] < first["losses"][0]


def test_a_mesh_that_does_not_fit_is_refused() -> None:
    distribution = {"kind": "model_parallel", "mesh": [["data", 2], ["model", 2]], "layouts": [], "batch_dim": "data"}
    rank = run_alone(keras(distribution=distribution), body="result = 1")
    message = (
        "the mesh of the keras plugin has 4 places (data 2 × model 2), but the world has 1 devices: "  # noqa: RUF001
        "choose sizes of the axes whose product is the number of devices"
    )
    assert rank.exception == f"RuntimeError: {message}"


def test_one_worker_has_the_backend_and_no_distribution() -> None:
    body = """
    import sys
    early = "keras" in sys.modules
    import keras
    result = [early, keras.backend.backend(), keras.distribution.distribution()]
    """
    after = "import os; assert 'KERAS_BACKEND' not in os.environ"
    rank = run_alone(keras(), body=body, after=after)
    assert (rank.code, rank.result) == (0, [False, "jax", None])


def test_a_seed_makes_tasks_repeatable_on_one_worker_too() -> None:
    body = """
    import random, numpy, keras
    def draw():
        return [random.random(), float(numpy.random.rand()), float(keras.random.uniform(()))]
    result = [task(draw), task(draw)]
    """
    first, second = run_alone(keras(seed=3), body=body).result
    assert first == second
    assert run_alone(keras(seed=4), body=body).result[0] != first
    one, another = run_alone(keras(), body=body).result
    assert one != another


def test_data_parallel_may_be_asked_for_on_one_worker() -> None:
    body = """
    import keras
    result = [type(keras.distribution.distribution()).__name__, len(keras.distribution.list_devices())]
    """
    rank = run_alone(keras(distribution={"kind": "data_parallel"}), body=body, env={"JAX_NUM_CPU_DEVICES": "2"})
    assert rank.result == ["DataParallel", 2]


def test_keras_imported_with_another_backend_is_refused() -> None:
    prepare = """
    import os
    os.environ["KERAS_BACKEND"] = "numpy"
    import keras
    """
    rank = run_alone(keras(), body="result = 1", prepare=prepare)
    assert rank.exception == (
        "RuntimeError: Keras was imported with the numpy backend before the keras plugin could choose jax, and Keras "
        "cannot change its backend afterwards: put the keras plugin before the plugin that imports Keras"
    )
    assert run_alone(keras(), body="result = 1", prepare=prepare.replace("numpy", "jax")).result == 1
