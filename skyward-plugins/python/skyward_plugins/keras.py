"""Chooses the Keras backend, and on JAX the distribution over the workers' common devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

from skyward import _state, instance_info


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Set the backend before anything imports Keras, then seed and distribution.

    Args:
        config: `backend`: jax, torch or tensorflow. `seed`: for all random numbers, or None. `distribution`: a map with
            `kind` (auto, none, data_parallel, model_parallel); for the last also `mesh` (pairs of an axis and its
            size), `layouts` (pairs of a pattern and one axis or None per dimension), `batch_dim` (an axis or None).

    Raises:
        RuntimeError: Keras was already imported with another backend, or the mesh does not fit the devices.
    """
    backend = config["backend"]
    before = os.environ.get("KERAS_BACKEND")
    os.environ["KERAS_BACKEND"] = backend
    try:
        if "keras" in sys.modules:
            _refuse_other_backend(backend)
        kind = _kind(config)
        if kind != "none":
            _distribute(config, kind)
            _share_random_state(config)
        elif config["seed"] is not None:
            import keras

            keras.utils.set_random_seed(config["seed"])
        yield
        if kind != "none":
            _set_distribution(None)
    finally:
        if before is None:
            os.environ.pop("KERAS_BACKEND", None)
        else:
            os.environ["KERAS_BACKEND"] = before


@contextmanager
def around_task(config: Mapping[str, Any]) -> Iterator[None]:
    """Give each task the state that the worker started with.

    A task may have drawn random numbers that no other rank drew, or have called `keras.utils.clear_session`, which
    forgets the distribution.
    """
    kind = _kind(config)
    if kind != "none":
        import keras

        if instance_info().total_workers > 1 and not _state.gang:
            # A task that runs on one rank alone would wait for the others in its first collective.
            _set_distribution(None)
        elif keras.distribution.distribution() is None:
            _distribute(config, kind)
    if config["seed"] is not None:
        import keras

        keras.utils.set_random_seed(config["seed"])
    yield


def _kind(config: Mapping[str, Any]) -> str:
    kind: str = config["distribution"]["kind"]
    if kind != "auto":
        return kind
    many = config["backend"] == "jax" and instance_info().total_workers > 1
    return "data_parallel" if many else "none"


def _refuse_other_backend(backend: str) -> None:
    import keras

    actual = keras.backend.backend()
    if actual != backend:
        raise RuntimeError(
            f"Keras was imported with the {actual} backend before the keras plugin could choose {backend}, and Keras "
            "cannot change it afterwards: put the keras plugin before the one that imports Keras"
        )


def _distribute(config: Mapping[str, Any], kind: str) -> None:
    from keras import distribution

    devices = distribution.list_devices()
    # Each worker feeds its own part of the data (`sky.shard`), so Keras must not split it once more.
    if kind == "data_parallel":
        _set_distribution(distribution.DataParallel(devices=devices, auto_shard_dataset=False))
        return
    spec = config["distribution"]
    names, shape = [name for name, _ in spec["mesh"]], [size for _, size in spec["mesh"]]
    if prod(shape) != len(devices):
        mesh = " × ".join(f"{name} {size}" for name, size in spec["mesh"])  # noqa: RUF001
        raise RuntimeError(
            f"the mesh of the keras plugin has {prod(shape)} places ({mesh}), and the world has {len(devices)} devices"
        )
    layouts = distribution.LayoutMap(distribution.DeviceMesh(shape=shape, axis_names=names, devices=devices))
    for pattern, axes in spec["layouts"]:
        layouts[pattern] = tuple(axes)
    _set_distribution(
        distribution.ModelParallel(
            layout_map=layouts, batch_dim_name=spec["batch_dim"] or names[0], auto_shard_dataset=False
        )
    )


def _set_distribution(value: Any) -> None:
    from keras import distribution

    distribution.set_distribution(value)


def _share_random_state(config: Mapping[str, Any]) -> None:
    """Have all ranks draw the same random numbers, or they would start from different weights."""
    import keras

    if config["seed"] is not None:
        keras.utils.set_random_seed(config["seed"])
        return
    try:
        from keras.src.backend.jax.distribution_lib import initialize_rng
    except ImportError:
        initialize_rng = _initialize_rng
    initialize_rng()


def _initialize_rng() -> None:
    """What Keras does to agree on a seed, for a version that keeps it elsewhere."""
    import keras
    import numpy
    from jax.experimental import multihost_utils

    drawn = numpy.frombuffer(os.urandom(4), dtype=numpy.uint32)
    keras.utils.set_random_seed(int(multihost_utils.broadcast_one_to_all(drawn)[0]))
