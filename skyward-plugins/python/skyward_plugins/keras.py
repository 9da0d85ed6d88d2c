"""Chooses the Keras backend, and on JAX the distribution over the workers' common devices."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

from skyward import _state, instance_info
from skyward._parts import data_parts
from skyward.integrations._keras_plan import guard
from skyward.integrations._keras_seed import seed_ranks
from skyward.integrations._wrap import environment


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
            _set_distribution(None)


@contextmanager
def around_task(config: Mapping[str, Any]) -> Iterator[None]:
    """Give each task the state that the worker started with.

    A task may have drawn random numbers that no other rank drew, have set a distribution of its own, or have called
    `keras.utils.clear_session`, which forgets the distribution.
    """
    kind = _kind(config)
    if kind != "none":
        import keras

        if instance_info().total_workers > 1 and not _state.gang:
            # A task that runs on one rank alone would wait for the others in its first collective.
            _set_distribution(None)
        elif keras.distribution.distribution() is not _given:
            _distribute(config, kind)
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
            "cannot change it afterwards: put the keras plugin before the one that imports Keras"
        )


_given: Any = None
"""The distribution that every task starts with."""


def _distribute(config: Mapping[str, Any], kind: str) -> None:
    from keras import distribution

    devices = distribution.list_devices()
    # Each worker feeds its own part of the data (`sky.shard`), so Keras must not split it once more.
    if kind == "data_parallel":
        _give(distribution.DataParallel(devices=devices, auto_shard_dataset=False))
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
    _give(
        distribution.ModelParallel(
            layout_map=layouts, batch_dim_name=spec["batch_dim"] or names[0], auto_shard_dataset=False
        )
    )
    # What the data of each worker are must be known, or each would train on others.
    data_parts()


def _give(distribution: Any) -> None:
    global _given
    _given = distribution
    _set_distribution(distribution)


def _set_distribution(value: Any) -> None:
    from keras import distribution

    distribution.set_distribution(value)


def _seed(config: Mapping[str, Any], kind: str) -> None:
    info = instance_info()
    seed_ranks(info, config["seed"], together=kind != "none" and info.total_workers > 1 and _state.gang)
