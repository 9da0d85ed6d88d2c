"""Plans of ranks, and the verdict of rank 0, with a store in memory."""

from __future__ import annotations

import json
import threading
from time import monotonic
from typing import Any

import pytest

import skyward as sky
from skyward._core import state
from skyward._sky import gather, parts
from skyward._sky import plan as _plan
from skyward._sky.cluster import InstanceInfo

from .test_shard import _alone, on_rank  # noqa: F401


class Memory:
    """A store in memory that waits like the real ones."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.changed = threading.Condition()

    def put(self, key: str, value: str) -> None:
        with self.changed:
            assert key not in self.entries, f"{key} is used twice"
            self.entries[key] = value
            self.changed.notify_all()

    def get(self, key: str, seconds: float) -> str | None:
        with self.changed:
            self.changed.wait_for(lambda: key in self.entries, seconds)
            return self.entries.get(key)

    def drop(self, keys: list[str]) -> None:
        for key in keys:
            del self.entries[key]


def info(rank: int, total: int) -> InstanceInfo:
    return InstanceInfo(node=rank, total_nodes=total, job_id="j", generation=1, joined=True)


def said(*plans: dict[str, Any]) -> dict[int, str]:
    return {rank: json.dumps(["fit", plan]) for rank, plan in enumerate(plans)}


def test_equal_plans_pass() -> None:
    assert _plan.difference(said({"steps": 3}, {"steps": 3})) is None


def test_only_what_differs_is_shown_and_ranks_with_one_plan_share_a_line() -> None:
    found = _plan.difference(said({"steps": 3, "epochs": 1}, {"steps": 4, "epochs": 1}, {"steps": 3, "epochs": 1}))
    assert found is not None
    assert found.startswith("ranks 0, 2: steps 3; rank 1: steps 4. Give every rank")
    many = _plan.difference(said(*[{"steps": rank > 0} for rank in range(12)]))
    assert many is not None
    assert "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more: steps true" in many


def test_a_question_ignores_entries_of_other_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Memory()
    keys = set()
    for attempt in [(7, 1), (7, 2), (8, 1)]:
        monkeypatch.setattr(state, "attempt", attempt)
        for _ in range(2):
            prefix = gather._next_prefix(info(0, 2))
            assert prefix not in keys
            keys.add(prefix)
    # A rank that has asked nothing before gets the same key for an attempt's first question.
    monkeypatch.setattr(gather, "_counted", None)
    assert gather._next_prefix(info(1, 2)) == "skyward/j/1/8.1/1/"
    assert not store.entries


def test_the_verdict_comes_at_once_though_a_rank_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "attempt", (1, 1))
    monkeypatch.setattr(gather, "_next_prefix", lambda info: "k/")
    store = Memory()
    store.put("k/1", json.dumps(["fit", {"steps": 4}]))
    began = monotonic()
    with pytest.raises(sky.PlanError, match=r"in `fit`: rank 0: steps 3; rank 1: steps 4\."):
        _plan.compare(store, info(0, 3), "fit", {"steps": 3}, timeout=60)
    assert monotonic() - began < 30
    with pytest.raises(sky.PlanError, match=r"rank 0: steps 3; rank 1: steps 4\."):
        _plan.compare(store, info(2, 3), "fit", {"steps": 3}, timeout=60)


def test_a_head_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "_wait", lambda store, key, deadline: None)
    with pytest.raises(sky.PlanError, match="rank 0 did not come within 1 s"):
        _plan.compare(Memory(), info(1, 2), "fit", {"steps": 3}, timeout=1)


def test_the_order_of_facts_and_the_kind_of_numbers_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    monkeypatch.setattr(gather, "_next_prefix", lambda info: "k/")
    store = Memory()
    store.put("k/1", json.dumps(["fit", {"batch": [8, 4], "steps": 3}]))
    _plan.compare(store, info(0, 2), "fit", {"steps": numpy.int64(3), "batch": numpy.array([8, 4])}, timeout=10)
    sky.same_plan(steps=numpy.int64(3))


def test_old_entries_are_deleted_when_all_ranks_have_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "_settled", [])
    monkeypatch.setattr(state, "attempt", (9, 1))
    store = Memory()
    for question in range(1, 4):
        store.put(f"skyward/j/1/9.1/{question}/1", json.dumps(["fit", {"steps": 3}]))
        _plan.compare(store, info(0, 2), "fit", {"steps": 3}, timeout=10)
    assert sorted(store.entries) == [f"skyward/j/1/9.1/3/{name}" for name in ("0", "1", "verdict")]


def test_the_advice_matches_the_difference() -> None:
    found = _plan.difference(said({"epochs": 1}, {"epochs": 2}))
    assert found == "rank 0: epochs 1; rank 1: epochs 2. Give every rank the same"


def test_values_that_cannot_be_compared_are_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"a generator has no length.*`sky.same_plan\(steps=…\)`"):
        sky.same_plan(item for item in [1])
    # This is checked outside a world too, so that it does not fail first in a pool.
    with pytest.raises(
        TypeError, match="a plan may hold numbers, text, and lists of them: found a value of type object"
    ):
        sky.same_plan(steps=object())


def test_ranks_that_are_not_joined_get_an_error() -> None:
    on_rank(0, 2)
    with pytest.raises(RuntimeError, match=r"they are not joined: add `plugins::jax\(\)`"):
        sky.same_plan(steps=3)
    state.cluster = None
    sky.same_plan([1, 2], steps=3)


def test_workers_that_compute_on_the_same_rows_share_a_part() -> None:
    rows = [frozenset({0}), frozenset({0}), frozenset({1}), frozenset({1})]
    assert [parts.parts_of(rows, worker) for worker in range(4)] == [(2, 0), (2, 0), (2, 1), (2, 1)]
    with pytest.raises(ValueError, match=r"worker 0 the rows \[0, 1\] of each batch and worker 1 the rows \[1, 2\]"):
        parts.parts_of([frozenset({0, 1}), frozenset({1, 2})], 0)
    with pytest.raises(ValueError, match="worker 0: 1, worker 1: 2"):
        parts.parts_of([frozenset({0}), frozenset({1, 2})], 0)
