"""Spans: a float of seconds has all of their digits, or they are refused."""

from __future__ import annotations

import datetime
import importlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward._values.errors import EncodeError

from .test_values import refused, there

DIGITS = "more digits than a float of seconds can hold"
YEARS = datetime.timedelta(days=365 * 2000)


def sent(value: Any) -> Any:
    """What arrives, or None for a span that is refused because of its digits."""
    try:
        return there(value)
    except EncodeError as error:
        if DIGITS not in error.reason:
            raise
        return None


@given(st.timedeltas())
def test_a_span_is_restored_from_its_seconds_or_refused(span: datetime.timedelta) -> None:
    exact = span // datetime.timedelta(microseconds=1)
    found = sent(span)
    assert abs(exact) > 1 << 52 if found is None else round(Fraction(found) * 10**6) == exact


@given(st.integers(-(1 << 62), 1 << 62), st.sampled_from(["s", "ms", "us", "ns", "ps", "25ns"]))
def test_a_span_of_numpy_is_restored_or_refused(number: int, unit: str) -> None:
    parts = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "25ns": 10**9, "ps": 10**12}[unit]
    exact = number * (25 if unit == "25ns" else 1)
    found = sent(np.array([number], f"m8[{unit}]"))
    assert abs(exact) > 1 << 52 if found is None else round(Fraction(found[0]) * parts) == exact


def test_long_spans_lose_no_digits() -> None:
    assert there(datetime.timedelta(days=104, microseconds=1)) == 104 * 86400 + 1e-6
    assert there(YEARS) == 365 * 2000 * 86400.0
    assert refused({"t": [YEARS + datetime.timedelta(microseconds=1)]}, DIGITS) == (".t[0]", "datetime.timedelta")
    assert there(np.timedelta64(105 * 86400, "s")) == 105 * 86400.0
    assert there(np.timedelta64(105 * 86400 * 10**9, "ns")) == 105 * 86400.0
    refused(np.timedelta64(105 * 86400 * 10**9 + 1, "ns"), DIGITS)
    refused(np.array([0, 105 * 86400 * 10**9 + 1], "m8[ns]"), DIGITS)
    refused({"a": np.timedelta64((1 << 53) + 1, "s")}, DIGITS)


def test_spans_of_other_classes_have_no_months() -> None:
    class Duration(datetime.timedelta):
        months = 1

    refused(Duration(days=30), "months have no fixed length")


@pytest.mark.frameworks
def test_spans_of_pandas_lose_no_digits() -> None:
    pandas = importlib.import_module("pandas")
    long = pandas.Timedelta(105 * 86400 * 10**9 + 1, unit="ns")
    refused([long], DIGITS)
    refused(pandas.Series([long]), DIGITS)
    assert there(pandas.Timedelta(days=105)) == 105 * 86400.0
    assert there(pandas.Timedelta(1, unit="ns")) == 1e-9
    found: Any = there(pandas.Series([pandas.Timedelta(days=105), pandas.NaT]))
    assert found == [105 * 86400.0, None]
