"""Values are sent faithfully, or refused with their path and with advice."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import hashlib
import importlib
import math
import os
import pathlib
import sys
import time
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from skyward._values import codec, forms

from .test_values import packed, refused, there


class Score(NamedTuple):
    loss: Any
    accuracy: Any


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


def test_a_namedtuple_carries_its_names() -> None:
    names = msgspec.msgpack.Ext(2, msgspec.msgpack.encode(["loss", "accuracy"]))
    assert packed([Score(0.5, 0.9)]) == msgspec.msgpack.encode([[names, 0.5, 0.9]])
    assert there(Score(Score(1, (2,)), [3])) == {"loss": {"loss": 1, "accuracy": [2]}, "accuracy": [3]}
    assert there(collections.namedtuple("Nothing", "")()) == {}
    assert there(type("Odd", (tuple,), {"_fields": ("a",)})((1, 2))) == [1, 2]


def test_the_names_of_a_type_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    find = forms.record_names

    def counted(kind: type, items: int) -> list[str] | None:
        asked.append(kind)
        return find(kind, items)

    monkeypatch.setattr(forms, "record_names", counted)
    Other = collections.namedtuple("Other", "x y")
    rows = [row for _ in range(100) for row in (Score(1, b"a"), Other(2, [3]))]
    assert there(rows) == [{"loss": 1, "accuracy": b"a"}, {"x": 2, "y": [3]}] * 100
    assert asked == [Score, Other]


def test_a_tuple_of_another_length_than_its_names_has_none() -> None:
    odd = type("Odd", (tuple,), {"_fields": ("a", "b")})
    assert there([odd((1, 2)), odd((1, 2, 3)), odd((4, 5))]) == [{"a": 1, "b": 2}, [1, 2, 3], {"a": 4, "b": 5}]


def test_large_parts_of_a_namedtuple_are_not_copied() -> None:
    large = bytes(1 << 20)
    parts = codec.encode(Score(large, np.zeros(1 << 20)))
    assert any(part is large for part in parts)
    found = there(Score(large, 1))
    assert found == {"loss": large, "accuracy": 1}


def test_what_is_wrong_in_a_namedtuple_has_its_name_in_the_path() -> None:
    assert refused([Score(1, object())]) == ("[0].accuracy", "object")
    assert refused([Score(1, [2, 1 << 64])]) == ("[0].accuracy[1]", "int")
    assert refused({"a": Score("\ud800", 1)}) == (".a.loss", "str")


def test_tuples_of_the_system_carry_their_names_where_all_have_one() -> None:
    assert there(time.gmtime(0))["tm_year"] == 1970
    assert there(os.terminal_size((80, 24))) == {"columns": 80, "lines": 24}
    assert len(there(os.stat("/"))) == 10


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({Colour.RED: 1, "red": 2}, "the keys <Colour.RED: 'red'> and 'red' both become 'red'"),
        ({Colour.ONE: 1, 1: 2}, "both become 1"),
        ({"a": 0, Colour.ONE: 1, np.int64(1): 2}, "both become 1"),
    ],
    ids=repr,
)
def test_keys_that_become_equal_are_refused_by_name(value: Any, words: str) -> None:
    assert refused([value], words)[0].startswith("[0]{")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (True, "convert the key to text with `str(…)`"),
        (np.True_, "convert the key to text with `str(…)`"),
        (None, "a list of pairs"),
        ((1, 2), "a list of pairs"),
        (0.5, "a list of pairs"),
        (decimal.Decimal(1), "with `str(…)`"),
        (datetime.date(2020, 1, 2), "with `.isoformat()`"),
        (datetime.datetime(2020, 1, 2), "with `.isoformat()`"),
        (datetime.time(1), "with `.isoformat()`"),
        (np.datetime64("2020-01-02"), "with `str(…)`"),
    ],
    ids=repr,
)
def test_keys_of_other_types_are_refused_with_advice(key: Any, words: str) -> None:
    assert refused([{key: 1}], words)[0].startswith("[0]{")


@pytest.mark.frameworks
def test_pandas_timestamps_are_refused_as_keys() -> None:
    pandas = importlib.import_module("pandas")
    refused({pandas.Timestamp("2020-01-02"): 1}, "with `.isoformat()`")
    refused({pandas.Timestamp("2020-01-02"): 1, "a": 2}, "a list of pairs")


def test_bools_are_refused_as_keys() -> None:
    assert refused({"a": {True: 1}})[0] == ".a{True}"
    assert refused({np.True_: 1})[0].startswith("{")


class Batch(list[int]):
    size: int


class Settings(dict[str, int]):
    pass


def test_attributes_of_containers_are_not_lost() -> None:
    batch = Batch([1, 2])
    assert there(batch) == [1, 2]
    batch.size = 2
    assert refused([batch], ".size would be lost") == ("[0]", "tests.test_faithful.Batch")
    settings = Settings(a=1)
    settings.__dict__.update(a=1, _metadata={})
    assert there(settings) == {"a": 1}
    settings.__dict__["b"] = 2
    refused(settings, ".b would be lost")
    assert there(collections.UserDict(a=1)) == {"a": 1}


class Extended(Score):
    pass


def test_a_tuple_with_names_is_sent_by_them_whatever_else_is_on_it() -> None:
    score = Extended(0.5, 0.9)
    score.note = "kept in Python"  # type: ignore[attr-defined]
    assert there([score]) == [{"loss": 0.5, "accuracy": 0.9}]
    odd = type("Odd", (tuple,), {"_fields": ("a",)})((1, 2))
    odd.a = 1
    refused(odd, ".a would be lost")


@pytest.mark.frameworks
def test_results_of_scipy_have_the_names_of_their_items() -> None:
    stats = importlib.import_module("scipy.stats")
    left, right = [1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0]
    for result in (stats.ttest_ind(left, right), stats.pearsonr(left, right), stats.spearmanr(left, right)):
        assert there(result) == {"statistic": result.statistic, "pvalue": result.pvalue}
    assert there([stats.linregress(left, right)])[0]["slope"] == pytest.approx(0.6)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "5ms"])
@pytest.mark.parametrize("scalar", [True, False])
def test_points_of_time_are_text_whatever_their_unit(unit: str, scalar: bool) -> None:
    array = np.array(["2020-01-02T03:04:05", "NaT"], f"datetime64[{unit}]")
    found = [there(array[0]), there(array[1])] if scalar else there(array)
    assert found == ["2020-01-02T03:04:05", None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.datetime64("2020-01-02T03:04:05.000000007", "ns"), "2020-01-02T03:04:05.000000007"),
        (np.datetime64("2020-01-02T03:04:05.5", "ms"), "2020-01-02T03:04:05.500"),
        (np.datetime64("1969-12-31T23:59:59.5", "ms"), "1969-12-31T23:59:59.500"),
        (np.datetime64("2020-01-02T03", "h"), "2020-01-02T03:00:00"),
        (np.datetime64("2020-01-02T03:04", "m"), "2020-01-02T03:04:00"),
        (np.datetime64("2020-01-02", "D"), "2020-01-02"),
        (np.datetime64("2020-01", "M"), "2020-01-01"),
        (np.datetime64("1970-01-02T00:00:00", "ps"), "1970-01-02T00:00:00"),
        (np.datetime64(1, "as"), "1970-01-01T00:00:00.000000000000000001"),
        (np.datetime64("NaT"), None),
        (np.array("2020-01-02", "datetime64[D]"), "2020-01-02"),
        (np.array([["2020-01-02"], ["NaT"]], "datetime64[D]"), [["2020-01-02"], [None]]),
        (np.zeros((2, 0), "datetime64[ns]"), [[], []]),
        (np.array(["2020-01-02T03:04:05"], ">M8[ns]"), ["2020-01-02T03:04:05"]),
        (np.timedelta64(1500, "ms"), 1.5),
        (np.timedelta64(1, "ns"), 1e-9),
        (np.timedelta64(2, "W"), 1_209_600.0),
        (np.timedelta64(3, "h"), 10_800.0),
        (np.timedelta64("NaT", "ns"), None),
        (np.array([1, "NaT"], "timedelta64[s]"), [1.0, None]),
        (np.array([25], "timedelta64[10ms]"), [0.25]),
        (np.array([1], "timedelta64[ns]"), [1e-9]),
    ],
    ids=str,
)
def test_times_of_numpy(value: Any, expected: Any) -> None:
    assert there(value) == expected
    assert type(there([value])[0]) is type(expected)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.timedelta64(1, "M"), "months have no fixed length"),
        (np.array([1], "timedelta64[Y]"), "years have no fixed length"),
        (np.timedelta64(5), "numbers without a unit"),
        (np.array(["2020-01-01", "12020-01-01"], "datetime64[s]"), "index 1 is in the year 12020"),
        (np.datetime64("-0001-01-01", "D"), "in the year -1"),
        (np.datetime64((1 << 62), "h"), "in the year"),
    ],
    ids=str,
)
def test_times_that_cannot_be_sent_are_refused(value: Any, words: str) -> None:
    assert refused({"t": [value]}, words)[0] == ".t[0]"


@pytest.mark.frameworks
def test_times_of_pandas() -> None:
    pandas = importlib.import_module("pandas")
    assert there([pandas.NaT, pandas.NA]) == [None, None]
    assert there(pandas.Timestamp("2020-01-02T03:04:05.000000007")) == "2020-01-02T03:04:05.000000007"
    assert there(pandas.Timestamp("2020-01-02", tz="UTC")) == "2020-01-02T00:00:00Z"
    assert there(pandas.Timedelta("1.5s")) == 1.5
    assert there(pandas.Series(pandas.to_datetime(["2020-01-02", None]))) == ["2020-01-02T00:00:00", None]
    assert there(pandas.Series([1, None], dtype="Int64")) == [1, None]
    assert there(pandas.array([True, None])) == [True, None]
    tz = pandas.Series(pandas.to_datetime(["2020-01-02"], utc=True))
    assert there(tz) == ["2020-01-02T00:00:00Z"]
    frame = pandas.DataFrame({"t": pandas.to_datetime(["2020-01-02", None]), "n": [1, 2]})
    assert there(frame.to_dict("list")) == {"t": ["2020-01-02T00:00:00", None], "n": [1, 2]}


@pytest.mark.frameworks
@pytest.mark.parametrize("kind", ["Series", "Index", "array"])
@pytest.mark.parametrize(
    ("items", "dtype", "expected"),
    [
        (["a", None], "str", ["a", None]),
        (["a", None], "string", ["a", None]),
        ([None, None], "str", [None, None]),
        (["a", "b"], "str", ["a", "b"]),
        (["a", None], "category", ["a", None]),
        (["a", "a"], "category", ["a", "a"]),
        ([3, None], "category", [3, None]),
        (["a", math.nan], "object", ["a", None]),
        ([True, math.nan], "object", [True, None]),
        ([decimal.Decimal("0.1"), math.nan], "object", ["0.1", None]),
        (["a", None], "object", ["a", None]),
    ],
    ids=str,
)
def test_missing_values_of_pandas_are_none(kind: str, items: Any, dtype: str, expected: Any) -> None:
    pandas = importlib.import_module("pandas")
    assert there({"column": getattr(pandas, kind)(items, dtype=dtype)}) == {"column": expected}


@pytest.mark.frameworks
def test_missing_floats_of_pandas_stay_floats() -> None:
    pandas = importlib.import_module("pandas")
    for dtype in ("float64", "category"):
        assert isinstance(there(pandas.Series([0.5, None], dtype=dtype)), msgspec.msgpack.Ext), dtype
    found = there(pandas.Series([0.5, math.nan], dtype="object"))
    assert found[0] == 0.5
    assert math.isnan(found[1])
    assert there(pandas.MultiIndex.from_tuples([("a", 1), ("b", 2)])) == [["a", 1], ["b", 2]]


@pytest.mark.frameworks
def test_the_advice_for_a_frame_of_pandas_keeps_what_is_missing() -> None:
    pandas = importlib.import_module("pandas")
    frame = pandas.DataFrame({"text": ["a", None], "group": pandas.Categorical(["x", None])})
    refused([frame], "`{name: data[name] for name in data}`")
    assert there({name: frame[name] for name in frame}) == {"text": ["a", None], "group": ["x", None]}


@pytest.mark.frameworks
def test_nulls_of_polars_are_none() -> None:
    polars = importlib.import_module("polars")
    assert there(polars.Series([1, None, 3])) == [1, None, 3]
    assert there(polars.Series([datetime.datetime(2020, 1, 2), None])) == ["2020-01-02T00:00:00", None]
    assert there(polars.Series(["a", None])) == ["a", None]
    assert there(polars.Series([decimal.Decimal("0.1")])) == ["0.1"]
    assert there(polars.Series([[1, None], [3]])) == [[1, None], [3]]
    assert there(polars.Series([True, False])) != [True, False], "an array"
    zoned = polars.Series([datetime.datetime(2020, 1, 2)]).dt.replace_time_zone("UTC")
    assert there(zoned) == ["2020-01-02T00:00:00Z"]
    refused([zoned.dt.cast_time_unit("ns")], "no nanoseconds")


def test_a_mask_is_not_lost() -> None:
    array: Any = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    assert refused({"a": array}, "`.filled(…)`")[0] == ".a"
    assert refused([array.mean(), np.ma.masked], ".filled")[0] == "[1]"
    assert there(array.tolist()) == [1.0, None]


def test_a_unit_is_not_lost() -> None:
    quantity = type("Quantity", (np.ndarray,), {"unit": "km"})
    refused(np.ones(2).view(quantity), "unit would be lost")


def test_records_are_refused_with_advice_be_they_arrays_or_scalars() -> None:
    records = np.array([(1, 2.0)], [("x", "i4"), ("y", "f8")])
    assert refused({"a": records}, "{'x': array['x'], 'y': array['y']}")[0] == ".a"
    assert refused([records[0]], "{'x': record['x'], 'y': record['y']}")[0] == "[0]"
    assert refused([records.view(np.recarray)[0]])[0] == "[0]"


@pytest.mark.frameworks
def test_scalars_keep_all_of_their_digits() -> None:
    assert there(np.longdouble(0.5)) == 0.5
    assert math.isnan(there(np.longdouble("nan")))
    if np.finfo(np.longdouble).nmant > 52:
        refused(np.longdouble(1) / 3, "more digits than a float")
    ml_dtypes = importlib.import_module("ml_dtypes")
    assert type(there(ml_dtypes.int4(3))) is int


def test_bytes_of_numpy_are_what_python_sees() -> None:
    assert there(np.bytes_(b"a\0")) == bytes(np.bytes_(b"a\0"))
    assert there(np.void(b"a\0")) == b"a\0"
    digest = hashlib.sha256(b"").digest()
    assert there([digest]) == [digest]


def test_a_memoryview_of_numbers_is_not_bytes() -> None:
    ones: Any = np.ones(2)
    assert refused([memoryview(ones)], "`.tolist()`")[0] == "[0]"
    assert there(memoryview(b"ab")) == b"ab"


def test_paths_are_their_text(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x").touch()
    assert there(list(os.scandir(tmp_path))) == [str(tmp_path / "x")]


def test_only_numbers_of_decimal_are_text() -> None:
    assert there(decimal.Decimal("0.1")) == "0.1"
    refused(decimal.Context(), "`.prec`")


def test_a_class_that_is_merely_called_array_is_not_listed() -> None:
    class array:
        def __iter__(self) -> Any:
            return iter([1])

    refused(array())


def test_structs_of_msgspec_have_their_own_names_and_tag() -> None:
    class Layer(msgspec.Struct, rename="camel", tag="dense", tag_field="kind"):
        out_size: int

    assert there([Layer(3)]) == [{"kind": "dense", "outSize": 3}]
    assert there(Layer(3)) == msgspec.msgpack.decode(msgspec.msgpack.encode(Layer(3)))


@pytest.mark.frameworks
def test_private_fields_are_sent_by_their_name() -> None:
    attrs = importlib.import_module("attrs")

    @attrs.define
    class Counter:
        _count: int = 3

    @dataclasses.dataclass(kw_only=True)
    class Options:
        rate: float
        _seed: int = 0

    assert there(Counter()) == {"_count": 3}
    assert there(Options(rate=0.5)) == {"rate": 0.5, "_seed": 0}


def test_times_keep_their_zone() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert there(datetime.datetime(2020, 1, 2, tzinfo=zone)) == "2020-01-02T00:00:00+02:00"
    assert there(sys.version_info)["major"] == 3
