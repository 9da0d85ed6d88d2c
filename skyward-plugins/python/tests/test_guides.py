"""Training functions that were written for the Python library, inside the hooks of the plugins."""

from __future__ import annotations

import pytest

from .ranks import JAX, Plugin, World, keras, require, torch
from .test_payloads import EXAMPLES, PAGES, call, reports

MESH = """
import skyward as sky

@sky.compute
def train():
    import jax
    import jax.numpy as jnp

    devices = jax.devices()
    print(f"Total devices: {len(devices)}")

    mesh = jax.sharding.Mesh(jax.devices(), axis_names=("devices",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices"))
    rows = jax.make_array_from_callback((8, 3), spread, lambda index: jnp.arange(24.0).reshape(8, 3)[index])
    return len(devices), rows.addressable_shards[0].data.shape, float(jax.jit(jnp.sum)(rows))

result = task(train)
"""


def test_jax_computes_over_the_devices_of_all_nodes() -> None:
    require("jax")
    with World(2) as world:
        for rank in world.run(JAX, body=MESH, env={"JAX_NUM_CPU_DEVICES": "2"}):
            assert rank.result == [4, [2, 3], 276.0]
            assert "Total devices: 4\n" in rank.output


# Images of MNIST's size without a download: each pixel of scikit-learn's images becomes nine
# pixels, inside a margin.
MNIST = """
import keras
import numpy as np
import skyward as sky
from sklearn.datasets import load_digits

def load_data():
    digits = load_digits()
    images = np.pad(np.kron(digits.images * (255 / 16), np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2)))
    return (images[:OFFERED], digits.target[:OFFERED]), (images[1408:], digits.target[1408:])

OFFERED = 1408
keras.datasets.mnist.load_data = load_data

@sky.compute
def train():
    import keras
    from keras import layers

    model = keras.Sequential([
        layers.Flatten(input_shape=(28, 28)),
        layers.Dense(128, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ])

    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])

    (x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
    x_train, y_train = sky.shard(x_train / 255.0, y_train, shuffle=True, seed=42)

    model.fit(x_train, y_train, epochs=5, batch_size=64)
    _, accuracy = model.evaluate(x_test / 255.0, y_test)
    trained.append(len(x_train))
    return accuracy

trained = []
result = [task(train), trained[0], len(keras.distribution.list_devices())]
"""


@pytest.mark.parametrize(("nodes", "plugins"), [(1, [keras(seed=1)]), (2, [JAX, keras(seed=1)])])
def test_keras_trains_on_mnist(nodes: int, plugins: list[Plugin]) -> None:
    require("jax", "keras", "sklearn")
    for accuracy, samples, devices in reports(nodes, *plugins, body=MNIST):
        assert (samples, devices) == (1408 // nodes, nodes)
        assert accuracy >= 0.8


def test_keras_mnist_trains_one_model_by_its_decorator() -> None:
    require("jax", "keras", "sklearn")
    nodes = 2
    found = reports(nodes, body=call(EXAMPLES / "keras_mnist.py", "train", "3, 32"), joined=True)
    assert [(report["node"], report["samples"]) for report in found] == [(node, 1408 // nodes) for node in range(nodes)]
    assert found[0]["loss"] == found[1]["loss"] == sorted(found[0]["loss"], reverse=True)
    assert found[0]["accuracy"] == found[1]["accuracy"] >= 0.85


def test_keras_mnist_takes_the_images_of_mnist_where_it_is_asked_to() -> None:
    require("jax", "keras", "sklearn")
    stand_in = MNIST[: MNIST.index("@sky.compute")]
    stand_in += "OFFERED = 1400"
    (found,) = reports(1, keras(), body=stand_in + call(EXAMPLES / "keras_mnist.py", "train", "1, 32, mnist=True"))
    # The number of images of the stand-in; scikit-learn's images have no margin, and would fit the
    # model too.
    assert found["samples"] == 1400


def test_keras_on_torch_trains_one_model_that_ddp_wraps() -> None:
    require("torch", "keras", "sklearn")
    nodes = 2
    plugins = (torch(), keras(backend="torch", seed=1))
    found = reports(nodes, *plugins, body=call(PAGES / "keras_torch.py", "train", "5, 32"))
    assert [(report["rank"], report["samples"]) for report in found] == [(rank, 1408 // nodes) for rank in range(nodes)]
    assert found[0]["weights"] == found[1]["weights"]
    assert found[0]["loss"] != found[1]["loss"], "each rank trains on its own part"
    assert found[0]["accuracy"] == found[1]["accuracy"] >= 0.8
