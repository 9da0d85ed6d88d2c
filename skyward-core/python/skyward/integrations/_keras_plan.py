"""The plan guard of Keras: check that all ranks will feed the same batches."""

from __future__ import annotations

import sys
from functools import wraps
from types import FrameType
from typing import Any

from .._sky.cluster import instance_info, is_in_broadcast
from .._sky.gather import world_store
from .._sky.parts import keras_mesh, spans_workers
from .._sky.plan import compare

_GUARDED = ("fit", "evaluate", "predict")
_TIMEOUT = 3600.0
"""Seconds within which all ranks must come. It is long, because a rank may prepare data, and a
stall is detected earlier.
"""


def guard() -> None:
    """Make Keras compare its plan across the ranks before the first step; done once per process.

    On JAX with a distribution over several processes, all ranks compute each step together. If one
    has fewer batches, or a batch of another shape, the others wait in a collective forever.
    """
    from keras.src.trainers.epoch_iterator import EpochIterator

    original = EpochIterator.__init__
    if hasattr(original, "_skyward"):
        return

    @wraps(original)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _check(self, kwargs.get("x", args[0] if args else None), sys._getframe(1))

    construct._skyward = True  # type: ignore[attr-defined]
    EpochIterator.__init__ = construct


def _check(iterator: Any, data: Any, frame: FrameType | None) -> None:
    info = instance_info()
    if info.total_workers == 1 or not is_in_broadcast():
        return
    mesh = keras_mesh()
    # Ranks that compute on devices of their own do not wait for each other.
    if mesh is None or not spans_workers(mesh[0]):
        return
    store = world_store(info)
    while frame is not None and frame.f_code.co_name not in _GUARDED:
        frame = frame.f_back
    if store is not None and frame is not None:
        plan = {**plan_of(iterator, data, frame.f_locals), **_precision()}
        compare(store, info, frame.f_code.co_name, plan, _TIMEOUT)


def _precision() -> dict[str, Any]:
    """Return how Keras and JAX compute, which an earlier task may have changed on one rank alone."""
    import jax
    import keras

    return {"dtype policy": keras.config.dtype_policy().name, "jax_enable_x64": bool(jax.config.jax_enable_x64)}


def plan_of(iterator: Any, data: Any, call: Any) -> dict[str, Any]:
    """Return Keras's plan, as far as it is known before the data are read.

    Args:
        iterator: Keras's `EpochIterator`.
        data: what it iterates over: arrays of shape `(n, …)`, nested or alone, or a dataset.
        call: the local variables of `fit`, `evaluate` or `predict`.
    """
    import keras

    adapter = iterator.data_adapter
    asked, known = _number(iterator.steps_per_epoch), _known(adapter, "num_batches")
    steps = min(asked, known) if asked and known else asked or known
    plan: dict[str, Any] = {"steps": steps, "batch size": _known(adapter, "batch_size")}
    if _known(adapter, "has_partial_batch") and asked in (None, known):
        plan["last batch"] = _known(adapter, "partial_batch_size")
    shapes = [getattr(leaf, "shape", None) for leaf in keras.tree.flatten(data)]
    samples = [[_number(size) for size in shape[1:]] for shape in shapes if isinstance(shape, tuple) and shape]
    if samples:
        plan["shape of a sample"] = samples
    for name in ("epochs", "initial_epoch"):
        if name in call:
            plan[name] = _number(call[name])
    return plan


def _known(adapter: Any, name: str) -> int | None:
    """Return an attribute of the data adapter; adapters of generators and datasets lack some."""
    try:
        return _number(getattr(adapter, name))
    except (AttributeError, NotImplementedError):
        return None


def _number(value: Any) -> int | None:
    """Convert a value to int; None if that is not possible, such as for an unknown size."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
