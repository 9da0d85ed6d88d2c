"""The random order: the same everywhere, and without bias."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward._sky import order as _order


@given(st.integers(0, 3000), st.integers(), st.data())
@settings(deadline=None)
def test_both_ways_give_one_order(total: int, seed: int, data: Any) -> None:
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    first = _order._first(seed)
    plain = _order._plain(total, first)
    assert sorted(plain) == list(range(total))
    found = _order._vectorised(np, total, first, start, stop)
    assert found.dtype == np.int64
    assert found.tolist() == plain[start:stop]


@pytest.mark.parametrize("total", [10_000, 70_000])
def test_numpy_changes_nothing(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_numpy = _order.shuffled(total, 7, 10, total - 10)
    assert isinstance(by_numpy, np.ndarray)
    monkeypatch.setitem(sys.modules, "numpy", None)
    without = _order.shuffled(total, 7, 10, total - 10)
    assert isinstance(without, list)
    assert without == by_numpy.tolist()


def test_the_order_never_changes() -> None:
    # Workers may run different versions of Python and NumPy, so the order is part of the contract.
    assert _order.shuffled(10, 42, 0, 10) == [3, 5, 8, 9, 0, 2, 7, 1, 4, 6]
    assert _order.shuffled(10, -(1 << 200), 0, 10) == [8, 1, 6, 5, 4, 0, 7, 2, 9, 3]
    assert _order.shuffled(1_000_000, 1, 0, 4).tolist() == [236907, 518371, 250793, 148732]
    # SplitMix64's published outputs for the state 1234567.
    outputs = [_order._mix(1234567 + step * _order._STEP) for step in (1, 2, 3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_seeds_give_orders_of_their_own() -> None:
    seeds = [0, 1, -1, 2, 1 << 63, 1 << 64, -(1 << 64), (1 << 64) + 1, 1 << 200]
    assert len({tuple(_order.shuffled(30, seed, 0, 30)) for seed in seeds}) == len(seeds)


def test_every_position_is_as_likely_as_any_other() -> None:
    total, rounds = 10, 4000
    counts = Counter[tuple[int, int]]()
    for seed in range(rounds):
        counts.update(enumerate(_order.shuffled(total, seed, 0, total)))
    expected = rounds / total
    square = sum((counts[place, item] - expected) ** 2 / expected for place in range(total) for item in range(total))
    # With 81 degrees of freedom, one value in a thousand is above 126, and one in a thousand below
    # 45.
    assert 45 < square < 126


def test_every_order_of_a_few_is_as_likely_as_any_other() -> None:
    rounds = 24_000
    counts = Counter(tuple(_order.shuffled(4, seed, 0, 4)) for seed in range(rounds))
    assert len(counts) == 24
    expected = rounds / 24
    # With 23 degrees of freedom.
    assert 7 < sum((count - expected) ** 2 / expected for count in counts.values()) < 50


def test_neighbours_are_parted() -> None:
    order = _order.shuffled(100_000, 3, 0, 100_000)
    correlation = np.corrcoef(np.arange(100_000), order)[0, 1]
    assert abs(correlation) < 0.02
    assert (np.abs(np.diff(order)) == 1).sum() < 20
