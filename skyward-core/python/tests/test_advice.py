"""Values that cannot be sent get advice by their type."""

from __future__ import annotations

import fractions
import importlib
import ipaddress
import re
import threading
import types
from typing import Any

import pytest

from .test_values import refused


class Model:
    def __iter__(self) -> Any:
        raise AssertionError("a value is not read in order to say that it cannot be sent")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((i for i in range(1)), "as a stream"),
        (map(str, [1]), "list(…)"),
        (filter(None, [1]), "list(…)"),
        (zip([1], [2], strict=True), "list(…)"),
        (enumerate([1]), "list(…)"),
        (iter([1]), "list(…)"),
        (1j, "[z.real, z.imag]"),
        (fractions.Fraction(1, 3), "x.numerator"),
        (ipaddress.ip_address("127.0.0.1"), "str(…)"),
        (ipaddress.ip_network("127.0.0.0/8"), "str(…)"),
        (re.match("a", "a"), ".groupdict()"),
        (re.compile("a"), ".pattern"),
        (threading.Lock(), "this process"),
        (threading.RLock(), "this process"),
        (types.SimpleNamespace(a=1), "vars(…)"),
        (len, "code cannot be sent"),
        (Model, "code cannot be sent"),
        (ValueError("x"), "raise it"),
        (slice(1), "part.start"),
        (Model(), "a dict or a dataclass"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_types_of_python(value: Any, words: str) -> None:
    assert refused({"a": [value]}, words)[0] == ".a[0]"


def test_open_files() -> None:
    with open(__file__, encoding="utf-8") as text, open(__file__, "rb") as binary:
        refused(text, "its path")
        refused(binary, "its path")


@pytest.mark.frameworks
def test_types_of_libraries() -> None:
    pandas, polars = importlib.import_module("pandas"), importlib.import_module("polars")
    pyarrow, sparse = importlib.import_module("pyarrow"), importlib.import_module("scipy.sparse")
    torch, datasets = importlib.import_module("torch"), importlib.import_module("datasets")
    np = importlib.import_module("numpy")
    table = pyarrow.table({"a": [1]})
    for value, words in [
        (pandas.DataFrame({"a": [1]}), '.to_dict("list")'),
        (pandas.Period("2020-01"), "str(…)"),
        (polars.DataFrame({"a": [1]}), ".to_dict(as_series=False)"),
        (polars.LazyFrame({"a": [1]}), ".collect()"),
        (table, ".to_pydict()"),
        (table.to_batches()[0], ".to_pydict()"),
        (table["a"], ".to_pylist()"),
        (table["a"][0], ".as_py()"),
        (pyarrow.array([1]), ".to_pylist()"),
        (sparse.csr_matrix((2, 2)), ".toarray()"),
        (sparse.coo_array((2, 2)), ".toarray()"),
        (datasets.Dataset.from_dict({"a": [1]}), ".to_dict()"),
        (torch.nn.Linear(1, 1), ".state_dict()"),
        (torch.float32, "str(…)"),
        (np.random.default_rng(0), "seed"),
        (np.dtype("f4"), ".name"),
    ]:
        assert refused([value], words)[0] == "[0]", value
