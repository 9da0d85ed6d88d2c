"""Columns and labelled arrays: labels, coordinates, attributes and units are sent, or nothing."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from skyward._values import labels

from .test_values import refused, there


class Labelled:
    """An array that has labels, as those of `xarray`."""

    dims = ("dim_0",)
    dtype = np.dtype("f8")
    shape = (2,)

    def __init__(self, **more: Any) -> None:
        self.__dict__.update(more)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros(2)


class Stored:
    """An array in a file, as those of `h5py`."""

    dtype = np.dtype("f8")
    shape = (2,)

    def __init__(self) -> None:
        self.attrs: dict[str, str] = {}

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros(2)


def test_labels_are_not_lost() -> None:
    assert there(Labelled()) == there(np.zeros(2))
    assert refused([Labelled(coords={"x": [1, 2]})], "its coordinates (x) would be lost")[0] == "[0]"
    refused(Labelled(attrs={"units": "K"}), "its attributes (units) would be lost")
    refused(Labelled(dims=("time",)), "its names of dimensions (time)")
    refused(Labelled(units="K"), "unit would be lost")


def test_attributes_of_stored_arrays_are_not_lost() -> None:
    stored = Stored()
    assert there(stored) == there(np.zeros(2))
    stored.attrs = {"unit": "K"}
    refused(stored, "its attributes would be lost (unit)")


def test_plain_arrays_have_no_labels() -> None:
    value: Any
    for value in (np.zeros(2), np.zeros((1, 1)), np.rec.array([1, 2])):
        assert labels.lost(value, type(value)) == ""


@pytest.mark.frameworks
def test_an_index_of_pandas_is_not_lost() -> None:
    pandas = importlib.import_module("pandas")
    column = pandas.Series([1.5, 2.5, 3.5], name="x")
    assert there(column) == there(column.to_numpy())
    assert there(column[:2]) == there(column.to_numpy()[:2])
    for indexed in (
        column[1:],
        column[::-1],
        column[::2],
        column.set_axis(list("abc")),
        column.groupby([1, 1, 2]).sum(),
    ):
        refused(indexed, "its index would be lost")
        assert there(indexed.to_dict())
        assert there(indexed.reset_index(drop=True)) == there(indexed.to_numpy())
    noted = pandas.Series([1.5])
    noted.attrs["unit"] = "m"
    refused(noted, "its attributes would be lost (unit)")
    assert there(pandas.Index([1, 2])) == there(np.array([1, 2]))
    assert there(pandas.RangeIndex(2, 4)) == there(np.array([2, 3]))
    assert there(pandas.DatetimeIndex(["2020-01-02"])) == ["2020-01-02T00:00:00"]
    empty = pandas.Series([], dtype="float64")
    assert there(empty) == there(empty.to_numpy())


@pytest.mark.frameworks
def test_xarray_loses_nothing() -> None:
    import xarray  # type: ignore[import-not-found,import-untyped,unused-ignore]

    plain = xarray.DataArray([1.0, 2.0])
    assert there(plain) == there(np.array([1.0, 2.0]))
    refused(plain.assign_coords(dim_0=[3, 4]), "its coordinates (dim_0)")
    refused(plain.assign_attrs(units="K"), "would be lost")
    refused(xarray.Variable(("time",), [1.0]), "its names of dimensions (time)")
