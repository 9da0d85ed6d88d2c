# /// script
# requires-python = ">=3.10"
# dependencies = ["numpy"]
# ///
"""Trains a Keras model whose weights are divided among all workers' devices with `ModelParallel`.

The data is random and generated here, so nothing is downloaded.
"""

import math
from typing import Any

import jax
import keras
import numpy as np
import skyward as sky
from jax.experimental import multihost_utils
from keras import layers

SAMPLES, BATCH = 128, 16


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """Random images with random labels, in batches."""

    def __init__(self, shared: bool) -> None:
        super().__init__()
        self.shared = shared
        draw = np.random.default_rng(0)
        self.inputs = draw.normal(size=(SAMPLES, 28, 28, 1)).astype(np.float32)
        self.labels = draw.normal(size=(SAMPLES, 10)).astype(np.float32)

    def __len__(self) -> int:
        return math.ceil(SAMPLES / BATCH)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        inputs, labels = self.inputs[rows], self.labels[rows]
        if self.shared:
            # Workers in one row of the mesh compute on the same samples; `shard` gives them the
            # same part.
            inputs, labels = sky.shard(inputs, labels)
        return inputs, labels


def distribution(shape: list[int]) -> keras.distribution.ModelParallel:
    """Create a mesh of all devices with the axes `data` and `model`.

    The layer `d1` is divided along `model`, each batch along `data`.
    """
    mesh = keras.distribution.DeviceMesh(
        shape=tuple(shape), axis_names=["data", "model"], devices=keras.distribution.list_devices()
    )
    layout_map = keras.distribution.LayoutMap(mesh)
    # A key matches the whole path of a variable. Variables that no key matches are on every device.
    layout_map["d1/kernel"] = (None, "model")
    layout_map["d1/bias"] = ("model",)
    # The output of a layer can have a layout too.
    layout_map["d2/output"] = ("data", None)
    # Each worker feeds its own part of the data already, so Keras must not divide it again.
    return keras.distribution.ModelParallel(
        layout_map=layout_map, batch_dim_name="data", auto_shard_dataset=False
    )


def train(epochs: int, mesh: list[int] | None = None) -> dict[str, Any]:
    """Train on a mesh of devices.

    Args:
        epochs: passes over the data.
        mesh: number of devices along the axes `data` and `model`; None to train on one device.

    Returns:
        A dict of `devices`, the number of devices of the model; `shards`, per weight the shapes of
        this worker's shards; the `loss` of each epoch; `evaluated`, the loss after training; and
        `kernel`, the complete weights of the layer `d1`.
    """
    if mesh is not None:
        keras.distribution.set_distribution(distribution(mesh))

    inputs = layers.Input(shape=(28, 28, 1))
    y = layers.Flatten()(inputs)
    y = layers.Dense(units=200, activation="relu", name="d1")(y)
    y = layers.Dropout(0.4)(y)
    y = layers.Dense(units=10, activation="softmax", name="d2")(y)
    model = keras.Model(inputs=inputs, outputs=y)

    model.compile(loss="mse")
    batches = Batches(shared=mesh is not None)
    history = model.fit(batches, epochs=epochs, shuffle=False, verbose=0)
    evaluated = model.evaluate(batches, verbose=0)

    kernel: jax.Array = model.get_layer("d1").kernel.value
    # Each worker has only a part, so all workers gather the complete weights.
    whole = np.asarray(kernel) if mesh is None else multihost_utils.process_allgather(kernel, tiled=True)
    return {
        "devices": len(kernel.sharding.device_set),
        "shards": {
            weight.path: [shard.data.shape for shard in weight.value.addressable_shards]
            for weight in model.trainable_variables
        },
        "loss": history.history["loss"],
        "evaluated": evaluated,
        "kernel": whole,
    }
