"""The plan guard: whether all ranks are about to do the same steps, before the first of them waits for ever."""

from __future__ import annotations

import json
from collections.abc import Sized
from typing import Any, Final

from . import _state
from ._cluster import InstanceInfo, instance_info
from ._gather import Store, agree, world_store

TIMEOUT: Final = 600.0
"""Seconds within which all ranks must come to the comparison."""


class PlanError(RuntimeError):
    """The ranks of a world would not do the same steps, and would wait for each other for ever."""


def same_plan(*loops: Any, timeout: float = TIMEOUT, **facts: Any) -> None:
    """Compare across the ranks what each is about to do, before a loop whose steps all ranks do together.

    Ranks with unequal numbers of batches, or batches of unequal shapes, wait for each other for ever in a collective
    that only some of them begin. This finds it before the first step. Every rank of a broadcast must call it. Outside
    of a pool, and in a task that one worker runs alone, it compares nothing. Call it on the main thread.

    Args:
        *loops: what the loop goes over: a `DataLoader`, a list of batches, or arrays of shape `(n, …)`. Compared are
            the number of steps, the size of the batches and of the last one, and the shape of a sample.
        timeout: what the ranks together get to come here, in seconds.
        **facts: whatever else must be the same on all ranks: `epochs=3, batch=(64, 32)`.

    Raises:
        PlanError: the ranks differ, or some do not come; names them with what each is about to do.
        RuntimeError: the ranks are not joined, by a plugin or a decorator, so they have nothing to compare over.
        TypeError: a loop has no length, or a fact is no plain value.
    """
    plan: dict[str, Any] = {}
    for index, loop in enumerate(loops):
        prefix = "" if len(loops) == 1 else f"{index}: "
        plan.update({f"{prefix}{name}": value for name, value in _describe(loop).items()})
    plan.update(facts)
    _encode("same_plan", plan)
    info = instance_info()
    if info.total_workers == 1 or not _state.gang:
        return
    store = world_store(info)
    if store is None:
        raise RuntimeError(
            f"sky.same_plan compares the plans of {info.total_workers} ranks over the world that they have joined, and "
            "they have joined none: add `plugins::jax()` or `plugins::torch()` to the pool, or decorate the payload "
            "with `@sky.integrations.jax` or `@sky.integrations.torch` (with `plugins::transformers()`, "
            "`plugins::accelerate()` and `@sky.integrations.transformers` `Trainer` or `Accelerator` joins them, and "
            "not before)"
        )
    compare(store, info, "same_plan", plan, timeout)


def compare(store: Store, info: InstanceInfo, place: str, plan: dict[str, Any], timeout: float = TIMEOUT) -> None:
    """The same for a plan that is known, at a place by which messages name it.

    Raises:
        PlanError: as `same_plan`.
    """
    found = agree(store, info, _encode(place, plan), difference, timeout)
    if found is not None:
        raise PlanError(f"the ranks would wait for each other for ever in `{place}`: {found}")


def _encode(place: str, plan: dict[str, Any]) -> str:
    try:
        return json.dumps([place, plan], default=_plain)
    except (TypeError, ValueError) as error:
        raise TypeError(f"a plan has numbers, text, and lists of them: {error}") from None


def _plain(value: Any) -> Any:
    """A number or an array of NumPy, or of a framework, as numbers."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"a {type(value).__name__} is none of these")
    return convert()


def difference(said: dict[int, str]) -> str | None:
    """What the ranks that have spoken disagree about; None where they agree.

    Args:
        said: for each rank the JSON of its place and its plan.
    """
    if len(set(said.values())) == 1:
        return None
    plans = {rank: json.loads(text) for rank, text in said.items()}
    places = {place for place, _ in plans.values()}
    if len(places) > 1:
        lines = [f"{_ranks(plans, lambda plan, it=place: plan[0] == it)} at `{place}`" for place in sorted(places)]
        return f"{', '.join(lines)}. All ranks must make the same calls, so none of them under `if sky.is_head:`"
    names = list(dict.fromkeys(name for _, plan in plans.values() for name in plan))
    differing = [name for name in names if len({_text(plan, name) for _, plan in plans.values()}) > 1]
    if not differing:
        return None  # The same facts in another order.
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
    """What is known of a loop without going over it."""
    shape = getattr(loop, "shape", None)
    if shape is not None and len(shape):
        return {"samples": int(shape[0]), "shape of a sample": [int(size) for size in shape[1:]]}
    try:
        steps = len(loop)
    except TypeError:
        raise TypeError(
            f"a {type(loop).__name__} has no length, so its steps are not known in advance; give what is known: "
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
