"""What an object is beside the form in which it is sent: all of it is sent, or nothing."""

from __future__ import annotations

import array
import collections
import dataclasses
from typing import Any

import numpy as np
import pytest

from .test_values import refused, there

LOST = "its own content would be lost"


@dataclasses.dataclass
class Rows(list[int]):
    name: str


@dataclasses.dataclass
class Output(collections.OrderedDict[str, Any]):
    loss: float
    logits: Any = None


@dataclasses.dataclass
class Metres(float):
    place: str


@dataclasses.dataclass
class Group(set[int]):
    name: str


def test_the_items_of_a_dataclass_are_not_lost() -> None:
    rows = Rows("a")
    assert there(rows) == {"name": "a"}
    rows.append(1)
    assert refused({"x": [rows]}, LOST) == (".x[0]", "tests.test_lost.Rows")
    group = Group("a")
    group.add(1)
    refused(group, LOST)
    refused(Metres.__new__(Metres, 1.5), LOST)


def test_a_dict_whose_entries_are_its_fields_is_whole() -> None:
    output = Output(0.5)
    output["loss"] = output.loss
    assert there(output) == {"loss": 0.5, "logits": None}
    output["extra"] = 1
    refused(output, LOST)
    del output["extra"]
    output["loss"] = 0.25
    refused(output, LOST)


class Length(float):
    unit: str


class Slotted(list[int]):
    __slots__ = ("unit",)


class Entries(collections.UserDict[str, int]):
    pass


class Signal(np.ndarray):
    rate: int


def test_attributes_of_numbers_texts_and_arrays_are_not_lost() -> None:
    values: list[tuple[Any, Any]] = [(Length(1.5), 1.5), (Slotted([1]), [1]), (Entries(a=1), {"a": 1})]
    values += [(type("Kind", (type(value),), {})(value), value) for value in (3, "a", b"a")]
    values += [(type("Kind", (kind,), {})([1]), [1]) for kind in (tuple, frozenset, collections.deque)]
    for value, expected in values:
        assert there(value) == expected
        value.unit = "m"
        refused([value], ".unit would be lost")
    signal: Any = np.arange(3).view(Signal)
    assert there(signal)
    signal.rate = 8000
    refused(signal, ".rate would be lost")
    numbers = type("Numbers", (array.array,), {})("i", [1])
    assert there(numbers) == [1]


def test_advice_for_the_library_s_own_classes_stays() -> None:
    refused(collections.UserList([1]), "send its `.data`")
    refused(collections.UserString("a"), "send its `.data`")


def test_a_mapped_file_is_an_array(tmp_path: Any) -> None:
    mapped: Any = np.memmap(tmp_path / "x", "u1", "w+", shape=(3,))
    assert there(mapped) == there(np.zeros(3, "u1"))


def test_what_a_dict_says_otherwise_than_its_attributes_is_not_lost() -> None:
    class Bag(dict[str, int]):
        pass

    bag = Bag(a=1)
    bag.__dict__["a"] = 2
    refused(bag, ".a would be lost")


@pytest.mark.parametrize("value", [collections.ChainMap({"a": 1}), collections.Counter("a"), collections.UserDict(a=1)])
def test_containers_of_the_library_are_whole(value: Any) -> None:
    assert there(value) == {"a": 1}
