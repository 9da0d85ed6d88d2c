"""`sky.integrations.keras`: choose the backend, set the seed, and distribute the data."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from .._cluster import InstanceInfo, instance_info
from ._keras_plan import guard
from ._keras_seed import seed_ranks
from ._wrap import decorator, together
from .jax import join as join_jax
from .torch import join as join_torch

BACKENDS = ("jax", "torch", "tensorflow")

P = ParamSpec("P")
R = TypeVar("R")


@overload
def keras(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def keras(*, backend: str = "jax", seed: int | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def keras(function: Callable[..., Any] | None = None, /, *, backend: str = "jax", seed: int | None = None) -> Any:
    """Decorator: choose Keras's backend, and join its world before the function runs.

    On JAX with several workers, all devices form one `DataParallel` distribution, in which each
    worker feeds its own shard of the data. In a task on a single worker, there is no distribution.
    What a plugin has set up already is kept.

    Args:
        function: the function to decorate.
        backend: `"jax"`, `"torch"` or `"tensorflow"`.
        seed: passed to `keras.utils.set_random_seed` at each call. Without a seed, the ranks of a
            JAX world get a common one, which differs for each broadcast.

    Raises:
        ValueError: `backend` is not one of the three.

    Example:
        @sky.integrations.keras(backend="jax", seed=0)
        def train(): ...
    """
    if backend not in BACKENDS:
        raise ValueError(f"Keras has no backend {backend!r}; it has {', '.join(BACKENDS)}")

    def prepare() -> None:
        set_up(instance_info(), backend, seed)

    return decorator(function, prepare)


def set_up(info: InstanceInfo, backend: str, seed: int | None) -> None:
    """Set up backend, world, seed and distribution, each only if it is missing.

    Raises:
        RuntimeError: Keras was imported before with another backend.
    """
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = backend
    if backend == "jax":
        join_jax(info)
    elif backend == "torch":
        join_torch(info)
    import keras

    active = keras.backend.backend()
    if active != backend:
        raise RuntimeError(
            f"Keras was imported with the backend {active} before this function asked for {backend}, and a process "
            "cannot change the backend: import Keras inside the function, or use `plugins::keras()`"
        )
    spans = backend == "jax" and together(info)
    seed_ranks(info, seed, spans)
    if not spans:
        if backend == "jax" and info.total_workers > 1:
            keras.distribution.set_distribution(None)
        return
    if keras.distribution.distribution() is None:
        devices = keras.distribution.list_devices()
        # Each worker feeds its own part already, so Keras must not divide it again.
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))
    guard()
