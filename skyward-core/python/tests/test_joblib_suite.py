"""joblib's own tests of `Parallel`, inside a task of a pool whose backend is joblib's default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Node
from .pool import Pool

pytestmark = pytest.mark.frameworks

VERSION = "1.6.0"
"""The version of joblib to which the tables belong; after another one is installed, read them again."""

_PROCESSES = "`prefer` and an unset backend must give joblib's own processes; those of the pool are taken instead"
_LOKY = "processes that joblib's own backends start do not know the pool"

ELSEWHERE = ["test_initializer_not_reused", "test_initializer_reused", "test_threadpool_limitation_in_child_context"]
"""Tests that run loky alone, without its name among their parameters or in their own name. Those with such a
name do not run either.
"""

FAILING = {
    "test_backend_hinting_and_constraints": _PROCESSES,
    "test_parallel_config_no_backend": _PROCESSES,
    "test_parallel_config_params_explicit_set": _PROCESSES,
    "test_nested_loop[loky-skyward]": _LOKY,
    "test_nested_loop[back_compat_backend-skyward]": _LOKY,
}
"""Tests that fail, as `function` or `function[parameters]`, with the reason. Each of them must fail, and no
other.
"""

EITHER = {
    "test_threadpool_limitation_in_child_override": "variables of the caller's process are set in no other worker; "
    "the test passes where the caller's worker runs both of its calls",
}
"""Tests whose outcome depends on where their calls run, with the reason."""

PAYLOAD = """
import os
from pathlib import Path

import joblib
import pytest
from joblib import parallel

import skyward as sky

OTHERS = {"loky", "multiprocessing", "spawn", "back_compat_backend"}
OTHERS |= {"LokyBackend", "MultiprocessingBackend", "MyBackend", "SpawnContext"}


class Results:
    # What became of each test, and the end of the report of those that failed.

    def __init__(self, elsewhere):
        self.elsewhere = elsewhere
        self.found = {}

    def pytest_configure(self, config):
        for mark in ("thread_unsafe", "parallel_threads"):
            config.addinivalue_line("markers", mark)

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if not self.is_elsewhere(item)]

    def is_elsewhere(self, item):
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        given = {value if isinstance(value, str) else type(value).__name__ for value in parameters}
        if item.originalname in self.elsewhere or "loky" in item.originalname:
            return True
        return bool(given & OTHERS) and "skyward" not in given

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("::")[-1]
        if report.failed:
            self.found[name] = report.longreprtext[-1500:]
        else:
            self.found.setdefault(name, None)


def main(files, elsewhere):
    sky.integrations.joblib.register()
    # As joblib's own tests choose the backend that they test.
    parallel.DEFAULT_BACKEND = "skyward"
    folder = Path(joblib.__file__).parent / "test"
    results = Results(elsewhere)
    options = ["-q", "-c", os.devnull, f"--rootdir={folder}", "-p", "no:cacheprovider", "-p", "no:xdist"]
    pytest.main([*options, "--timeout=60", *(str(folder / file) for file in files)], plugins=[results])
    return joblib.__version__, results.found
"""


def names(listed: dict[str, str], found: dict[str, str | None]) -> set[str]:
    """The tests that a table lists."""
    return {name for name in found if name in listed or name.partition("[")[0] in listed}


@pytest.mark.parametrize("file", ["test_parallel.py", "test_config.py"])
def test_joblibs_own_tests(make_node: Callable[..., Node], file: str) -> None:
    # Nothing renews the lease meanwhile.
    pool = Pool(make_node(lease=600.0), 2, PAYLOAD)
    found: dict[str, str | None]
    version: Any
    task = pool.start(0, files=[file], elsewhere=ELSEWHERE)
    ok, (version, found) = pool.outcome(task, deadline=280)
    assert ok
    assert version == VERSION
    failed = {name for name, report in found.items() if report is not None} - names(EITHER, found)
    listed = names(FAILING, found)
    reports = "\n".join(f"{name}: {found[name]}" for name in sorted(failed - listed))
    assert not failed - listed, f"{sorted(failed - listed)} of {len(found)}\n{reports}"
    assert not listed - failed, f"the table lists {sorted(listed - failed)}, which pass"
    pool.settle()
