"""The plan guard: check that all ranks will do the same steps, before any of them waits forever."""

from __future__ import annotations

import json
from collections.abc import Sized
from typing import Any, Final

from .cluster import InstanceInfo, instance_info, is_in_broadcast
from .gather import Store, agree, world_store

TIMEOUT: Final = 600.0
"""Seconds within which all ranks must call the comparison."""


class PlanError(RuntimeError):
    """The ranks of a world would do different steps, and then wait for each other forever."""


def same_plan(*loops: Any, timeout: float = TIMEOUT, **facts: Any) -> None:
    """Check, before a training loop, that all ranks are about to do the same steps.

    If ranks have different numbers of batches, or batches of different shapes, some of them begin a
    collective that the others never join, and all wait forever. This function reports such a
    difference before the first step. Every rank of a broadcast must call it, on the main thread.
    Outside a pool, and in a task that runs on a single worker, it does nothing.

    Args:
        *loops: what the loop iterates over: a `DataLoader`, a list of batches, or arrays of shape
            `(n, …)`. The ranks compare the number of steps, the sizes of the batches and of the
            last batch, and the shape of a sample.
        timeout: seconds within which all ranks must call the function.
        **facts: other values that must be equal on all ranks: `epochs=3, batch=(64, 32)`.

    Raises:
        PlanError: the plans differ, or some ranks did not call in time. The message names the ranks
            and their plans.
        RuntimeError: no plugin or decorator has joined the ranks, so they cannot exchange plans.
        TypeError: a loop has no length, or a fact is not a plain value.

    Example:
        sky.same_plan(loader, epochs=3)
        for epoch in range(3): ...
    """
    plan: dict[str, Any] = {}
    for index, loop in enumerate(loops):
        prefix = "" if len(loops) == 1 else f"{index}: "
        plan.update({f"{prefix}{name}": value for name, value in _describe(loop).items()})
    plan.update(facts)
    _encode("same_plan", plan)
    info = instance_info()
    if info.total_workers == 1 or not is_in_broadcast():
        return
    store = world_store(info)
    if store is None:
        raise RuntimeError(
            f"sky.same_plan compares the plans of {info.total_workers} ranks through the world that joins them, but "
            "they are not joined: add `plugins::jax()` or `plugins::torch()` to the pool, or decorate the payload "
            "with `@sky.integrations.jax` or `@sky.integrations.torch`"
        )
    compare(store, info, "same_plan", plan, timeout)


def compare(store: Store, info: InstanceInfo, place: str, plan: dict[str, Any], timeout: float = TIMEOUT) -> None:
    """Compare a plan across the ranks, at a place that error messages name.

    Raises:
        PlanError: the plans differ, or some ranks did not call in time.
    """
    found = agree(store, info, _encode(place, plan), difference, timeout)
    if found is not None:
        raise PlanError(f"the ranks would wait for each other for ever in `{place}`: {found}")


def _encode(place: str, plan: dict[str, Any]) -> str:
    try:
        return json.dumps([place, plan], default=_plain)
    except (TypeError, ValueError) as error:
        raise TypeError(f"a plan may hold numbers, text, and lists of them: {error}") from None


def _plain(value: Any) -> Any:
    """Convert a number or an array of NumPy, or of a framework, to Python numbers."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"found a value of type {type(value).__name__}")
    return convert()


def difference(sent: dict[int, str]) -> str | None:
    """Return how the plans of the ranks differ; None if they are equal.

    Args:
        sent: for each rank, the JSON of its place and its plan.
    """
    if len(set(sent.values())) == 1:
        return None
    plans = {rank: json.loads(text) for rank, text in sent.items()}
    places = {place for place, _ in plans.values()}
    if len(places) > 1:
        lines = [f"{_ranks(plans, lambda plan, it=place: plan[0] == it)} at `{place}`" for place in sorted(places)]
        return f"{', '.join(lines)}. All ranks must make the same calls, so make none of them under `if sky.is_head:`"
    names = list(dict.fromkeys(name for _, plan in plans.values() for name in plan))
    differing = [name for name in names if len({_text(plan, name) for _, plan in plans.values()}) > 1]
    if not differing:
        return None  # the same facts in another order
    groups: dict[str, list[int]] = {}
    for rank, (_, plan) in plans.items():
        words = ", ".join(f"{name} {_text(plan, name)}" for name in differing)
        groups.setdefault(words, []).append(rank)
    lines = [f"{_list(ranks)}: {words}" for words, ranks in groups.items()]
    return f"{'; '.join(lines)}. {_advice(differing)}"


def _advice(differing: list[str]) -> str:
    data = ("steps", "batch", "last batch", "samples")
    if any(word in name for name in differing for word in data):
        return (
            "Give every rank the same number of samples: `sky.shard(…, drop_last=True)`, and batches of one size: "
            "`drop_last=True`"
        )
    return "Give every rank the same"


def _describe(loop: Any) -> dict[str, Any]:
    """Return what is known of a loop without iterating over it."""
    shape = getattr(loop, "shape", None)
    if shape is not None and len(shape):
        return {"samples": int(shape[0]), "shape of a sample": [int(size) for size in shape[1:]]}
    try:
        steps = len(loop)
    except TypeError:
        raise TypeError(
            f"a {type(loop).__name__} has no length, so its number of steps is unknown; pass what is known: "
            "`sky.same_plan(steps=…)`"
        ) from None
    plan: dict[str, Any] = {"steps": steps}
    size = getattr(loop, "batch_size", None)
    if isinstance(size, int) and hasattr(loop, "drop_last"):
        plan["batch size"] = size
        sampler = getattr(loop, "sampler", None)
        if not loop.drop_last and isinstance(sampler, Sized):
            plan["last batch"] = len(sampler) % size or size
    return plan


def _ranks(plans: dict[int, Any], chosen: Any) -> str:
    return _list([rank for rank, plan in plans.items() if chosen(plan)])


def _list(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _text(plan: dict[str, Any], name: str) -> str:
    return json.dumps(plan[name], sort_keys=True) if name in plan else "not given"
