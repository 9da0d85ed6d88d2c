"""Sharding: all rows once, aligned, the same on all ranks, with the type that was given."""

from __future__ import annotations

import array
import importlib
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward as sky
from skyward._core import state
from skyward._sky.output import _selected


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    state.cluster, state.gang, state.ranks = None, True, None


def on_rank(rank: int, nodes: int, workers: int = 1) -> None:
    node, worker = divmod(rank, workers)
    state.cluster = {
        "node": node,
        "worker": worker,
        "total_nodes": nodes,
        "workers_per_node": workers,
        "head_addr": "10.0.0.1",
        "head_port": 1,
        "job_id": "j",
        "addr": "10.0.0.1",
        "generation": 1,
        "joined": True,
    }


def parts(total: int, nodes: int, workers: int, **options: Any) -> list[Any]:
    found = []
    for rank in range(nodes * workers):
        on_rank(rank, nodes, workers)
        found.append(sky.shard(list(range(total)), **options))
    state.cluster = None
    return found


worlds = {"total": st.integers(0, 60), "nodes": st.integers(1, 7), "workers": st.integers(1, 3)}


@given(**worlds, shuffle=st.booleans(), seed=st.integers())
def test_parts_cover_everything_once(total: int, nodes: int, workers: int, shuffle: bool, seed: int) -> None:
    found = parts(total, nodes, workers, shuffle=shuffle, seed=seed)
    joined = [item for part in found for item in part]
    assert sorted(joined) == list(range(total))
    assert shuffle or joined == list(range(total))
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1


@given(**worlds, shuffle=st.booleans())
def test_drop_last_gives_equal_parts(total: int, nodes: int, workers: int, shuffle: bool) -> None:
    found = parts(total, nodes, workers, shuffle=shuffle, drop_last=True)
    assert {len(part) for part in found} == {total // (nodes * workers)}
    joined = [item for part in found for item in part]
    assert len(set(joined)) == len(joined)
    assert shuffle or joined == list(range(len(joined)))


@given(**worlds, seed=st.integers(0, 1000))
def test_several_arrays_stay_aligned(total: int, nodes: int, workers: int, seed: int) -> None:
    for rank in range(nodes * workers):
        on_rank(rank, nodes, workers)
        left, right = sky.shard(list(range(total)), tuple(range(100, 100 + total)), shuffle=True, seed=seed)
        assert type(right) is tuple
        assert [item + 100 for item in left] == list(right)
    state.cluster = None


def test_the_shuffled_order_never_changes() -> None:
    # Ranks may run different versions of Python, so the order is part of the contract.
    random.seed(1)
    assert sky.shard(list(range(10)), shuffle=True, seed=42) == [3, 5, 8, 9, 0, 2, 7, 1, 4, 6]
    assert sky.shard(list(range(10)), shuffle=True) == sky.shard(list(range(10)), shuffle=True, seed=0)


def test_unequal_lengths_are_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match="3, 2"):
        sky.shard([1, 2, 3], [1, 2])


def test_no_array_is_an_error() -> None:
    with pytest.raises(TypeError):
        sky.shard()


class Row(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("value", "half"),
    [
        ([1, 2, 3], [1, 2]),
        ((1, 2, 3), (1, 2)),
        ("abc", "ab"),
        (b"abc", b"ab"),
        (range(3), range(2)),
        (array.array("i", [1, 2, 3]), array.array("i", [1, 2])),
    ],
    ids=repr,
)
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_type_is_kept(value: Any, half: Any, shuffle: bool) -> None:
    on_rank(0, 2)
    part = sky.shard(value, shuffle=shuffle)
    if not shuffle:
        assert part == half
        assert type(part) is type(half)
    else:
        assert len(part) == 2
        assert set(part) <= set(value)
        if not isinstance(value, range):
            assert type(part) is type(value)


@pytest.mark.parametrize("shuffle", [True, False])
def test_views_of_memory(shuffle: bool) -> None:
    for values in (b"abcde", bytearray(b"abcde"), array.array("d", [1, 2, 3, 4, 5])):
        view, found = memoryview(values), []
        for rank in range(2):
            on_rank(rank, 2)
            part = sky.shard(view, shuffle=shuffle, seed=3)
            assert type(part) is memoryview
            assert (part.format, part.readonly) == (view.format, view.readonly)
            assert part.tolist() == sky.shard(list(values), shuffle=shuffle, seed=3)
            found += part.tolist()
        assert sorted(found) == list(values)
    assert bytes(sky.shard(memoryview(b"abcdef")[::2], shuffle=True, seed=3)) == sky.shard(b"ace", shuffle=True, seed=3)
    with pytest.raises(TypeError, match=r"memoryview.*numpy\.asarray"):
        sky.shard(memoryview(bytes(6)).cast("B", (3, 2)), shuffle=True)


@pytest.mark.parametrize("shuffle", [True, False])
def test_numpy_arrays(shuffle: bool) -> None:
    import numpy as np

    x, y = np.arange(20).reshape(10, 2), list(range(10))
    seen = []
    for rank in range(3):
        on_rank(rank, 3)
        left, right = sky.shard(x, y, shuffle=shuffle, seed=7)
        assert type(left) is np.ndarray
        assert (left[:, 0] // 2).tolist() == right
        seen += right
    assert sorted(seen) == y


@pytest.mark.frameworks
def test_torch_tensors() -> None:
    torch = importlib.import_module("torch")
    on_rank(1, 2)
    part = sky.shard(torch.arange(5), shuffle=True, seed=3)
    assert isinstance(part, torch.Tensor)
    assert part.tolist() == sky.shard(list(range(5)), shuffle=True, seed=3)


@pytest.mark.frameworks
def test_pandas_objects() -> None:
    pandas = importlib.import_module("pandas")
    on_rank(1, 2)
    frame = pandas.DataFrame({"a": [1, 2, 3]}, index=["x", "y", "z"])
    assert sky.shard(frame).index.tolist() == ["z"]
    assert type(sky.shard(frame, shuffle=True)) is pandas.DataFrame


def test_a_world_of_one_gets_everything() -> None:
    assert sky.shard([1, 2, 3]) == [1, 2, 3]
    assert sky.is_head
    assert sky.is_head()


def test_a_task_that_runs_alone_in_a_joined_world_has_all_of_the_data() -> None:
    for rank in range(3):
        on_rank(rank, 3)
        state.gang, state.ranks = False, 1
        assert sky.shard([1, 2, 3, 4]) == [1, 2, 3, 4]
        assert sky.is_head
        assert (sky.instance_info().rank, sky.instance_info().is_head) == (rank, rank == 0)
        assert _selected("head")
        state.gang, state.ranks = True, 3
        assert sky.shard([1, 2, 3, 4], drop_last=True) == [rank + 1]
        assert sky.is_head == (rank == 0)


def test_a_broadcast_in_a_pool_without_a_world_has_parts_of_the_ranks_that_run_it() -> None:
    on_rank(1, 1, 2)
    assert state.cluster is not None
    state.cluster["joined"] = False
    state.ranks = 4
    assert sky.shard([1, 2, 3, 4]) == [2]
    assert not sky.is_head


def test_the_head_is_rank_zero() -> None:
    on_rank(1, 1, 2)
    assert not sky.is_head
    assert not sky.is_head()
    assert sky.is_head == False  # noqa: E712


def test_instance_info_has_every_field() -> None:
    state.cluster = {
        "node": 1,
        "worker": 1,
        "total_nodes": 2,
        "workers_per_node": 4,
        "head_addr": "10.0.0.1",
        "head_port": 4000,
        "job_id": "pool",
        "addr": "10.0.0.2",
        "peers": [{"node": 0, "addr": "10.0.0.1"}, {"node": 1, "addr": "10.0.0.2"}],
        "accelerators": 8,
        "total_accelerators": 16,
        "accelerator": {"kind": "H100", "count": 8, "memory_gib": 80},
        "generation": 3,
        "joined": True,
    }
    info = sky.instance_info()
    assert (info.global_worker_index, info.rank, info.total_workers, info.is_head) == (5, 5, 8, False)
    assert [peer.addr for peer in info.peers] == ["10.0.0.1", "10.0.0.2"]
    assert info.accelerator == sky.Accelerator("H100", 8, 80)
    assert (info.network.interface, info.joined) == (None, True)
    assert (info.head_addr, info.head_port, info.job_id, info.generation) == ("10.0.0.1", 4000, "pool", 3)
    assert info.hostname
    with pytest.raises(AttributeError):
        info.node = 0  # type: ignore[misc]
    assert sky.instance_info() is info
