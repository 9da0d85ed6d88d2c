"""The hooks that choose Keras's backend and, on JAX, the distribution over all devices."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

from skyward import instance_info
from skyward._core import state
from skyward._sky.parts import data_parts
from skyward.integrations import _keras_given as given
from skyward.integrations._keras_plan import guard
from skyward.integrations._keras_seed import seed_ranks
from skyward.integrations._wrap import environment


@contextmanager
def around_app(config: Mapping[str, Any]) -> Iterator[None]:
    """Set the backend before anything imports Keras, then the distribution and the seed.

    Args:
        config: `backend`: jax, torch or tensorflow. `seed`: the seed of all random numbers, or
            None. `distribution`: a map with `kind` (auto, none, data_parallel or model_parallel).
            For model_parallel it also has `mesh` (pairs of an axis and its size), `layouts` (pairs
            of a pattern, and an axis or None for each dimension) and `batch_dim` (an axis or None).

    Raises:
        RuntimeError: Keras was imported before with another backend, or the mesh does not fit the
            devices.
    """
    backend = config["backend"]
    with environment({"KERAS_BACKEND": backend}):
        if "keras" in sys.modules:
            _refuse_other_backend(backend)
        kind = _kind(config)
        if kind != "none":
            _distribute(config, kind)
            guard()
        _seed(config, kind)
        yield
        if kind != "none":
            given.put(None)


@contextmanager
def around_task(config: Mapping[str, Any]) -> Iterator[None]:
    """Give each task the seed and the distribution with which the worker started.

    An earlier task may have drawn random numbers that no other rank drew, have set a distribution
    of its own, or have called `keras.utils.clear_session`, which removes the distribution.
    """
    kind = _kind(config)
    if kind != "none":
        if instance_info().total_workers > 1 and not state.gang:
            # A task on a single rank would wait for the other ranks in its first collective.
            given.put(None)
        else:
            given.restore()
    _seed(config, kind)
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
            "cannot change its backend afterwards: put the keras plugin before the plugin that imports Keras"
        )


def _distribute(config: Mapping[str, Any], kind: str) -> None:
    from keras import distribution

    devices = distribution.list_devices()
    # Each worker feeds its own part of the data (`sky.shard`), so Keras must not divide it again.
    if kind == "data_parallel":
        given.give(distribution.DataParallel(devices=devices, auto_shard_dataset=False))
        return
    spec = config["distribution"]
    names, shape = [name for name, _ in spec["mesh"]], [size for _, size in spec["mesh"]]
    if prod(shape) != len(devices):
        mesh = " × ".join(f"{name} {size}" for name, size in spec["mesh"])  # noqa: RUF001
        raise RuntimeError(
            f"the mesh of the keras plugin has {prod(shape)} places ({mesh}), but the world has {len(devices)} devices"
            ": choose sizes of the axes whose product is the number of devices"
        )
    layouts = distribution.LayoutMap(distribution.DeviceMesh(shape=shape, axis_names=names, devices=devices))
    for pattern, axes in spec["layouts"]:
        layouts[pattern] = tuple(axes)
    given.give(
        distribution.ModelParallel(
            layout_map=layouts, batch_dim_name=spec["batch_dim"] or names[0], auto_shard_dataset=False
        )
    )
    # Check that the mesh gives each worker a definite part of the data, and remember the mesh for
    # other threads.
    data_parts()


def _seed(config: Mapping[str, Any], kind: str) -> None:
    info = instance_info()
    seed_ranks(info, config["seed"], together=kind != "none" and info.total_workers > 1 and state.gang)
