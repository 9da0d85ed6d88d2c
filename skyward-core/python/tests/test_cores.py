"""The number of cores of a worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skyward.integrations import _cores

SEEN = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, SEEN),
        ({"cpu.max": "max 100000\n"}, SEEN),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "99900000 100000\n"}, SEEN),
        ({"quota": "-1\n", "period": "100000\n"}, SEEN),
        ({"quota": "100000\n", "period": "100000\n"}, 1),
        ({"quota": "nonsense\n", "period": "100000\n"}, SEEN),
    ],
)
def test_cores_are_those_of_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    places = ((str(tmp_path / "cpu.max"),), (str(tmp_path / "quota"), str(tmp_path / "period")))
    monkeypatch.setattr(_cores, "_QUOTAS", places)
    assert _cores.cores() == expected
    assert _cores.share(10 * SEEN) == 1


def test_variables_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)
    found = _cores.variables(2, 4)
    assert "OMP_NUM_THREADS" not in found
    assert (found["MKL_NUM_THREADS"], found["LOKY_MAX_CPU_COUNT"]) == ("2", "4")
