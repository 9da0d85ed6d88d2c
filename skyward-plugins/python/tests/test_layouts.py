"""Keras's own distribution API, as its guide shows it, on eight CPU devices of one worker."""

from __future__ import annotations

from functools import cache
from typing import Any

from .ranks import keras, require, run_alone

require("keras", "jax")

GUIDE = """
import jax, keras, numpy as np
from keras import layers

devices = jax.devices()
result = {}

def shapes(array):
    return sorted({shard.data.shape for shard in array.addressable_shards}), len(array.sharding.device_set)

def build():
    inputs = layers.Input(shape=(28, 28, 1))
    y = layers.Flatten()(inputs)
    y = layers.Dense(units=200, use_bias=False, activation="relu", name="d1")(y)
    y = layers.Dropout(0.4)(y)
    y = layers.Dense(units=10, activation="softmax", name="d2")(y)
    return keras.Model(inputs=inputs, outputs=y)

def weights(model):
    return {weight.path: shapes(weight.value) for weight in model.weights}

def fit(distribution):
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(1)
    inputs = np.random.normal(size=(128, 28, 28, 1))
    labels = np.random.normal(size=(128, 10))
    model = build()
    model.compile(loss="mse")
    losses = model.fit(inputs, labels, batch_size=16, epochs=3, verbose=0).history["loss"]
    losses.append(model.evaluate(inputs, labels, batch_size=16, verbose=0))
    kept = {weight.path: shapes(weight.value) for weight in model.optimizer.variables}
    return {"losses": losses, "weights": weights(model), "optimizer": kept}

# Device meshes and layouts of tensors.
mesh = keras.distribution.DeviceMesh(shape=(2, 4), axis_names=["data", "model"], devices=devices)
layout_2d = keras.distribution.TensorLayout(axes=("model", "data"), device_mesh=mesh)
replicated_layout_4d = keras.distribution.TensorLayout(axes=("data", None, None, None), device_mesh=mesh)
result["layout_2d"] = shapes(keras.distribution.distribute_tensor(np.zeros((8, 6)), layout_2d))
result["layout_4d"] = shapes(keras.distribution.distribute_tensor(np.zeros((16, 28, 28, 1)), replicated_layout_4d))

# Data parallelism, in the three ways to name the devices.
data_parallel = keras.distribution.DataParallel(devices=devices)
mesh_1d = keras.distribution.DeviceMesh(shape=(8,), axis_names=["data"], devices=devices)
result["data_parallel"] = fit(data_parallel)
for distribution in (keras.distribution.DataParallel(device_mesh=mesh_1d), keras.distribution.DataParallel()):
    keras.distribution.set_distribution(distribution)
    result.setdefault("data_parallel_weights", []).append(weights(build()))

# Model parallelism.
mesh_2d = keras.distribution.DeviceMesh(shape=(2, 4), axis_names=["data", "model"], devices=devices)
layout_map = keras.distribution.LayoutMap(mesh_2d)
layout_map["d1/kernel"] = (None, "model")
layout_map["d1/bias"] = ("model",)
layout_map["d2/output"] = ("data", None)
model_parallel = keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="data")
result["model_parallel"] = fit(model_parallel)
result["outputs"] = shapes(build()(np.zeros((16, 28, 28, 1))))

# What a layout map finds.
layout_map = keras.distribution.LayoutMap(mesh_2d)
layout_map[".*d1/kernel"] = (None, "model")
layout_map[".*/bias"] = ("model",)
layout_map[".*d3.*"] = (None,)
result["found"] = [getattr(layout_map[path], "axes", None) for path in ("net/d1/kernel", "d2/bias", "d2/kernel")]
result["filled"] = layout_map["d2/bias"].device_mesh is mesh_2d
try:
    result["competing"] = layout_map["d3/bias"].axes
except ValueError:
    result["competing"] = "ValueError"
"""

WHOLE = {"d1/kernel": [[[784, 200]], 8], "d2/kernel": [[[200, 10]], 8], "d2/bias": [[[10]], 8]}
"""The weights of the guide's model, each of them complete on each of eight devices."""


@cache
def guide() -> Any:
    """Run the guide's code, and return its results."""
    return run_alone(keras(), body=GUIDE, env={"JAX_NUM_CPU_DEVICES": "8"}).result


def test_a_layout_divides_a_tensor_along_the_axes_of_its_mesh() -> None:
    assert guide()["layout_2d"] == [[[2, 3]], 8]
    assert guide()["layout_4d"] == [[[8, 28, 28, 1]], 8]


def test_data_parallel_has_all_weights_on_all_devices() -> None:
    trained = guide()["data_parallel"]
    assert trained["weights"] == WHOLE
    assert trained["losses"] == sorted(trained["losses"], reverse=True)
    assert guide()["data_parallel_weights"] == [WHOLE, WHOLE]


def test_model_parallel_divides_what_the_layout_map_names() -> None:
    trained = guide()["model_parallel"]
    divided = [[[784, 50]], 8]
    assert trained["weights"] == {**WHOLE, "d1/kernel": divided}
    assert trained["losses"] == sorted(trained["losses"], reverse=True)
    # The optimizer's values for a weight are divided like the weight.
    kept = [shape for path, shape in trained["optimizer"].items() if "d1" in path]
    assert kept == [divided] * len(kept) != []
    assert guide()["outputs"] == [[[8, 10]], 8]


def test_a_layout_map_takes_patterns_and_refuses_those_that_compete() -> None:
    assert guide()["found"] == [[None, "model"], ["model"], None]
    assert guide()["filled"]
    assert guide()["competing"] == "ValueError"
