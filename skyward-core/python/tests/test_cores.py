"""The number of cores of a worker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skyward._core import cores

from .conftest import Node

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
    monkeypatch.setattr(cores, "_QUOTAS", places)
    assert cores.cores() == expected
    assert cores.share(10 * SEEN) == 1


def test_variables_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)
    found = cores.variables(2, 4)
    assert "OMP_NUM_THREADS" not in found
    assert (found["MKL_NUM_THREADS"], found["LOKY_MAX_CPU_COUNT"]) == ("2", "4")


def test_what_the_agent_has_set_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    monkeypatch.setenv(cores.DEFAULTS, "MKL_NUM_THREADS")
    found = cores.variables(2, 4)
    assert "OMP_NUM_THREADS" not in found
    assert found["MKL_NUM_THREADS"] == "2"


def cluster(addr: str, peers: list[str], workers: int = 1) -> dict[str, Any]:
    return {"addr": addr, "workers_per_node": workers, "peers": [{"node": n, "addr": a} for n, a in enumerate(peers)]}


@pytest.mark.parametrize(
    ("shared", "workers"),
    [
        (cluster("10.0.0.1", ["10.0.0.1", "10.0.0.2"]), 1),
        (cluster("10.0.0.1", ["10.0.0.1", "10.0.0.2"], workers=4), 4),
        (cluster("10.0.0.1", ["10.0.0.1", "10.0.0.1"], workers=2), 4),
        (cluster("127.0.0.1", ["127.0.0.1", "127.3.2.1", "127.9.9.9"]), 3),
        ({**cluster("172.17.0.2", ["172.17.0.2", "172.17.0.3"]), "shared_host": True, "total_nodes": 2}, 2),
        ({**cluster("172.17.0.2", ["172.17.0.2"], workers=3), "shared_host": True, "total_nodes": 2}, 6),
    ],
)
def test_workers_that_share_a_host_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, shared: dict[str, Any], workers: int
) -> None:
    monkeypatch.setattr(cores, "cores", lambda: 12)
    monkeypatch.setattr(cores, "_quota", lambda: None)
    found = cores.defaults(shared, {"MKL_NUM_THREADS": "12"})
    if workers == 1:
        assert found == {}
        return
    assert found["OMP_NUM_THREADS"] == found["OPENBLAS_NUM_THREADS"] == str(12 // workers)
    assert "MKL_NUM_THREADS" not in found
    assert "OMP_NUM_THREADS" in found[cores.DEFAULTS]


def test_two_workers_of_a_node_have_half_of_its_cores_each(node: Node) -> None:
    look = """
        import os
        def main():
            return [os.environ.get("OMP_NUM_THREADS"), os.environ.get("NUMEXPR_NUM_THREADS")]
    """
    worker = node.ready(look, workers=2, env={"NUMEXPR_NUM_THREADS": "5"})
    assert worker.call(1) == [str(max(1, SEEN // 2)), "5"]


def test_a_container_with_cores_of_its_own_shares_them_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_quota", lambda: 4)
    shared = {**cluster("172.17.0.2", ["172.17.0.2", "172.17.0.3"]), "shared_host": True, "total_nodes": 2}
    assert cores.defaults(shared, {}) == {}
