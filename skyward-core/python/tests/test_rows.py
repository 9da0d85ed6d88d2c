"""Parts of data of any type: the result has the same type, or an error says what to do."""

from __future__ import annotations

import array
import collections
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import skyward as sky
from skyward._core import state

from .test_shard import on_rank

ROWS = 11


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    state.cluster = None


def all_parts(data: Any, **options: Any) -> list[Any]:
    found = []
    for rank in range(3):
        on_rank(rank, 3)
        found.append(sky.shard(data, **options))
    state.cluster = None
    return found


def numbers(data: Any) -> list[int]:
    """Return the rows of any data as the numbers that they were given."""
    name = type(data).__module__.partition(".")[0]
    if hasattr(data, "tocsr"):
        return [int(number) for number in data.toarray()[:, 0]]
    if name == "pandas":
        return [int(number) for number in (data["a"] if hasattr(data, "columns") else data).tolist()]
    if name == "polars":
        return list((data["a"] if hasattr(data, "columns") else data).to_list())
    if name == "pyarrow":
        return list((data["a"] if hasattr(data, "column_names") else data).to_pylist())
    if name == "datasets":
        return list(data["a"])
    if hasattr(data, "ndim"):
        return [int(number) for number in np.asarray(data).reshape(len(data), -1)[:, 0]]
    return [int(row) for row in data]


class Listed(list):  # type: ignore[type-arg]
    pass


def cases() -> Iterator[Any]:
    whole = list(range(ROWS))
    for value in [
        whole,
        tuple(whole),
        Listed(whole),
        collections.deque(whole, 20),
        collections.UserList(whole),
        array.array("i", whole),
        bytes(whole),
        bytearray(whole),
        np.arange(ROWS),
        np.arange(2 * ROWS).reshape(ROWS, 2) // 2,
    ]:
        yield pytest.param(lambda value=value: value, id=type(value).__name__)
    yield foreign(lambda: module("torch").arange(ROWS), id="torch")
    yield foreign(lambda: module("jax").numpy.arange(ROWS), id="jax")
    for kind in ("csr_matrix", "csc_array", "coo_array", "lil_matrix", "bsr_array", "dok_array", "dia_array"):
        yield foreign(lambda kind=kind: sparse(kind), id=kind)
    yield foreign(lambda: module("pandas").DataFrame({"a": whole}, index=whole[::-1]), id="pandas.DataFrame")
    yield foreign(lambda: module("pandas").Series(whole), id="pandas.Series")
    yield foreign(lambda: module("pandas").Index(whole), id="pandas.Index")
    yield foreign(lambda: module("pandas").RangeIndex(ROWS), id="pandas.RangeIndex")
    yield foreign(lambda: module("polars").DataFrame({"a": whole, "b": whole}), id="polars.DataFrame")
    yield foreign(lambda: module("polars").Series(whole), id="polars.Series")
    yield foreign(lambda: module("pyarrow").table({"a": whole, "b": whole}), id="pyarrow.Table")
    yield foreign(lambda: module("pyarrow").table({"a": whole}).to_batches()[0], id="pyarrow.RecordBatch")
    yield foreign(lambda: module("pyarrow").table({"a": whole})["a"], id="pyarrow.ChunkedArray")
    yield foreign(lambda: module("pyarrow").array(whole), id="pyarrow.Array")
    yield foreign(lambda: module("datasets").Dataset.from_dict({"a": whole}), id="datasets.Dataset")


def foreign(*values: Any, id: str | None = None) -> Any:
    """A set of parameters that needs the packages of frameworks."""
    return pytest.param(*values, id=id, marks=pytest.mark.frameworks)


def module(name: str) -> Any:
    return importlib.import_module(name)


def sparse(kind: str) -> Any:
    dense: Any = np.zeros((ROWS, 3), "i8")
    dense[:, 0] = range(ROWS)
    return getattr(module("scipy.sparse"), kind)(dense)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("make", list(cases()))
def test_the_type_that_was_given_comes_back(make: Any, shuffle: bool) -> None:
    data = make()
    found = all_parts(data, shuffle=shuffle, seed=5)
    for part in found:
        assert type(part) is type(data) or type(data).__name__ == "RangeIndex"
        if hasattr(data, "tocsr"):
            assert part.format == data.format
    joined = [number for part in found for number in numbers(part)]
    expected = [number for part in all_parts(list(range(ROWS)), shuffle=shuffle, seed=5) for number in part]
    assert joined == expected
    assert sorted(joined) == list(range(ROWS))


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_range_shuffled_is_a_list(shuffle: bool) -> None:
    on_rank(0, 2)
    part = sky.shard(range(0, 20, 2), shuffle=shuffle)
    assert type(part) is (list if shuffle else range)
    assert len(part) == 5


@pytest.mark.frameworks
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_dataset_of_torch_gives_a_subset(shuffle: bool) -> None:
    torch = module("torch")

    class Squares:
        def __len__(self) -> int:
            return ROWS

        def __getitem__(self, index: int) -> int:
            return index * index

    dataset = type("Dataset", (Squares, torch.utils.data.Dataset), {})
    found = all_parts(dataset(), shuffle=shuffle)
    assert {type(part) for part in found} == {torch.utils.data.Subset}
    items = [part[index] for part in found for index in range(len(part))]
    assert sorted(items) == [index * index for index in range(ROWS)]
    assert [len(part) for part in all_parts(found[0], shuffle=shuffle)] == [2, 1, 1]


def test_lists_and_large_arrays_stay_aligned() -> None:
    x, y = np.arange(60_000), list(range(60_000))
    on_rank(1, 4)
    left, right = sky.shard(x, y, shuffle=True, seed=9)
    assert left.tolist() == right


class Lazy:
    """Rows that are computed on demand, and accessed by number only."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return {0: 0, 1: 1, 2: 2, 3: 3}[index]


class Stored:
    """Like a file of HDF5: parts of it are NumPy arrays."""

    dtype, shape = np.dtype("i8"), (4,)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> Any:
        return np.arange(4)[index]


def a_stream() -> Any:
    return module("datasets").Dataset.from_dict({"a": [1]}).to_iterable_dataset()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: {"a": [1, 2], "b": [3, 4]}, "for name, column in data.items()"),
        (lambda: {1, 2}, r"sorted\(data\)"),
        (lambda: (i for i in range(3)), r"type generator: it has no length; shard `list\(data\)`"),
        (lambda: 7, "type int: it is not a sequence"),
        (lambda: np.array(3), "it has no dimension"),
        foreign(lambda: module("torch").tensor(3), "it has no dimension"),
        (Lazy, r"tests.test_rows.Lazy: .*sky.shard\(range\(len\(data\)\)\)"),
        (Stored, r"tests.test_rows.Stored: .*sky.shard\(range\(len\(data\)\)\)"),
        foreign(lambda: module("polars").LazyFrame({"a": [1]}), r"data.collect\(\)"),
        foreign(a_stream, "split_dataset_by_node"),
        foreign(lambda: module("datasets").DatasetDict(), "columns, or one entry per key"),
        foreign(lambda: module("torch").utils.data.DataLoader([1, 2]), "shard the dataset"),
    ],
)
@pytest.mark.parametrize("shuffle", [True, False])
def test_what_has_no_rows_is_refused_with_advice(make: Any, words: str, shuffle: bool) -> None:
    on_rank(0, 2)
    with pytest.raises(TypeError, match=words):
        sky.shard(make(), shuffle=shuffle)
