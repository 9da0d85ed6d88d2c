"""`sky.integrations.keras`: choose the backend, set the seed, and distribute the data."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar, overload

from .._sky.cluster import InstanceInfo, instance_info
from . import _keras_given
from ._keras_plan import guard
from ._keras_seed import seed_ranks
from ._wrap import decorator, together
from .jax import joined as jax_joined
from .torch import joined as torch_joined

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

    return decorator(function, lambda: prepared(instance_info(), backend, seed))


@contextmanager
def prepared(info: InstanceInfo, backend: str, seed: int | None) -> Iterator[None]:
    """Set up backend, world, seed and distribution, each only if it is missing.

    Raises:
        RuntimeError: Keras was imported before with another backend.
    """
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = backend
    world: AbstractContextManager[None] = nullcontext()
    if backend == "jax":
        world = jax_joined(info)
    elif backend == "torch":
        world = torch_joined(info)
    with world:
        _set_up(info, backend, seed)
        yield


def _set_up(info: InstanceInfo, backend: str, seed: int | None) -> None:
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
            _keras_given.put(None)
        return
    if _keras_given.is_given():
        _keras_given.restore()
    else:
        devices = keras.distribution.list_devices()
        # Each worker feeds its own part already, so Keras must not divide it again.
        _keras_given.give(keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))
    guard()
