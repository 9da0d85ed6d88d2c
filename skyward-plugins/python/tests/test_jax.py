"""The jax hook, with real JAX on the CPU."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from skyward import InstanceInfo
from skyward.integrations import _jax_world as jax_world

from .ranks import JAX, World, require, run_alone

require("jax")

JOIN = """
import jax, os, signal
from jax.experimental import multihost_utils
import numpy as np

devices = jax.devices()
gathered = multihost_utils.process_allgather(np.asarray([jax.process_index() + 1.0]))
taken = []
signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
with open("/proc/self/net/tcp") as file:
    local = [line.split()[1:3] for line in file.readlines()[1:] if line.split()[3] == "01"]
def place(text):
    addr, port = text.split(":")
    return ".".join(str(b) for b in reversed(bytes.fromhex(addr))), int(port, 16)
result = {
    "processes": jax.process_count(),
    "process": jax.process_index(),
    "devices": len(devices),
    "local": jax.local_device_count(),
    "sum": float(gathered.sum()),
    "env": {k: v for k, v in os.environ.items() if k.startswith("JAX_") or k.lower() == "no_proxy"},
    "connected": [place(end) for pair in local for end in pair],
}
"""


@pytest.mark.parametrize(("nodes", "workers"), [(2, 1), (1, 2)])
def test_all_workers_are_processes_of_one_world(nodes: int, workers: int) -> None:
    with World(nodes, workers) as world:
        ranks = world.run(
            JAX,
            body=JOIN,
            after="import os; assert not [k for k in os.environ if k.startswith('JAX_')], os.environ",
            env={"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "no_proxy": "example.org"},
        )
        for index, rank in enumerate(ranks):
            assert rank.code == 0, rank.error
            result = rank.result
            assert (result["processes"], result["process"]) == (2, index)
            assert (result["devices"], result["local"], result["sum"]) == (2, 1, 3.0)
            address = f"{world.addresses[0]}:{world.port}"
            peers = ",".join(["example.org", *world.addresses])
            assert result["env"] == {
                "JAX_COORDINATOR_ADDRESS": address,
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": str(index),
                "JAX_LOCAL_DEVICE_COUNT": "1",
                "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
                "no_proxy": peers,
                "NO_PROXY": ",".join(world.addresses),
            }
            # Beside the coordination service, a port of gloo is open, at addresses of this pool
            # only.
            ports = {port for addr, port in result["connected"] if addr in world.addresses}
            assert ports - {world.port}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "use",
    [
        "jax.local_device_count()",
        "float(jax.jit(jax.numpy.sum)(jax.numpy.ones(3))) - 2",
        "int(jax.device_put(1, jax.local_devices()[0]))",
    ],
)
def test_a_task_on_one_worker_can_be_the_first_use_of_jax(use: str, rank: int) -> None:
    body = f"""
    import jax, os
    result = task(lambda: {use}, gang=False) if os.environ["JAX_PROCESS_ID"] == "{rank}" else None
    """
    with World(2) as world:
        results = [one.result for one in world.run(JAX, body=body)]
    assert results[rank] == 1
    assert results[1 - rank] is None


def test_the_workers_signal_handlers_stay_its_own() -> None:
    body = """
    import os, signal, threading
    os.kill(os.getpid(), signal.SIGTERM)
    result = seen.wait(10)
    """
    prepare = """
    import builtins, signal, threading
    builtins.seen = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: seen.set())
    """
    with World(2) as world:
        assert [rank.result for rank in world.run(JAX, body=body, prepare=prepare)] == [True, True]


def test_a_rank_that_does_not_come_is_named_on_those_that_did() -> None:
    with World(3) as world:
        ranks = world.run(("jax", {"timeout": 3.0}), body="result = 1", ranks=[0, 2])
        text = (
            f"TimeoutError: 2 of 3 ranks came to the rendezvous at {world.addresses[0]}:{world.port} within 3 s; "
            f"missing: rank 1 (node 1, worker 0, {world.addresses[1]}). "
            "Their workers ended or cannot reach that address: their logs say which"
        )
        assert [rank.exception for rank in ranks] == [text, text]
        assert [rank.code for rank in ranks] == [1, 1]


def test_a_missing_head_is_reported_with_its_address() -> None:
    with World(2) as world:
        (rank,) = world.run(("jax", {"timeout": 1.0}), body="result = 1", ranks=[1])
        place = f"{world.addresses[0]}:{world.port}"
        assert rank.exception.startswith(f"TimeoutError: rank 1 of 2 could not reach rank 0 at {place} within 1 s: ")


def test_strangers_at_the_rendezvous_are_ignored() -> None:
    stop = threading.Event()

    def knock(address: str, port: int) -> None:
        while not stop.wait(0.01):
            try:
                with socket.create_connection((address, port), timeout=1) as connection:
                    connection.sendall(b"skyward other-pool 1 1\n")
            except OSError:
                continue

    with World(2) as world:
        stranger = threading.Thread(target=knock, args=(world.addresses[0], world.port))
        stranger.start()
        try:
            ranks = world.run(JAX, body="import jax; result = jax.process_count()")
        finally:
            stop.set()
            stranger.join()
        assert [rank.result for rank in ranks] == [2, 2]


def test_a_failure_inside_does_not_wait_for_the_others(tmp_path: Path) -> None:
    body = f"""
    import fcntl, jax, signal
    from jax.experimental import multihost_utils

    def late(*_):
        raise TimeoutError
    signal.signal(signal.SIGALRM, late)
    file = open({str(tmp_path / "alive")!r}, "w")
    if jax.process_index() == 1:
        fcntl.flock(file, fcntl.LOCK_EX)
    multihost_utils.sync_global_devices("locked")
    assert jax.process_index() == 0, "this rank fails"
    signal.alarm(15)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # Free as soon as the other process has ended.
        result = "ended"
    except TimeoutError:
        result = "waits"
    signal.alarm(0)
    print(f'\\nRESULT "{{result}}"', flush=True)
    raise SystemExit  # Nor does this one wait for the other, which is gone.
    """
    with World(2) as world:
        head, failed = world.run(JAX, body=body)
        assert failed.exception == "AssertionError: this rank fails"
        assert head.result == "ended"


def test_one_worker_needs_nothing() -> None:
    rank = run_alone(JAX, body="import sys; result = 'jax' in sys.modules")
    assert (rank.code, rank.result) == (0, False)


def test_a_second_initialization_is_refused_with_what_to_do() -> None:
    prepare = """
    import jax, os, json
    jax.distributed.is_initialized = lambda: True
    """
    with World(2) as world:
        (rank,) = world.run(JAX, body="result = 1", ranks=[0], prepare=prepare)
        assert "remove the other call to jax.distributed.initialize" in rank.exception


EIGHT = InstanceInfo(accelerators=8, total_nodes=2, total_accelerators=16)


@pytest.mark.parametrize(
    ("workers", "worker", "visible", "devices"),
    [
        (1, 0, None, [0, 1, 2, 3, 4, 5, 6, 7]),
        (8, 0, None, [0]),
        (8, 5, None, [5]),
        (4, 1, None, [2, 3]),
        (8, 5, "0,1,2,3,4,5,6,7", [5]),
        (8, 5, "5", [0]),
        (4, 3, "6,7", [0, 1]),
        (1, 0, "0,1", [0, 1]),
        (1, 0, "GPU-a, GPU-b", [0, 1]),
    ],
)
def test_each_worker_has_its_share_of_the_accelerators(
    monkeypatch: pytest.MonkeyPatch, workers: int, worker: int, visible: str | None, devices: list[int]
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert jax_world.local_devices(replace(EIGHT, workers_per_node=workers, worker=worker)) == devices


@pytest.mark.parametrize(
    ("workers", "visible", "message"),
    [
        (3, None, "3 workers cannot share the 8 accelerators of a node evenly"),
        (16, None, "16 workers cannot share the 8 accelerators"),
        (4, "0,1,2", "CUDA_VISIBLE_DEVICES=0,1,2 shows 3 devices to worker 0, which should see its own 2 or all 8"),
        (1, "", "shows 0 devices"),
    ],
)
def test_uneven_shares_are_refused(
    monkeypatch: pytest.MonkeyPatch, workers: int, visible: str | None, message: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(RuntimeError, match=message):
        jax_world.local_devices(replace(EIGHT, workers_per_node=workers))


@pytest.mark.parametrize("nodes", [1, 2])
def test_jax_on_the_cpu_is_refused_where_accelerators_were_asked_for(nodes: int) -> None:
    accelerator = {"kind": "H100", "count": 1}
    hidden = {"CUDA_VISIBLE_DEVICES": "0"}
    with World(nodes, accelerators=1, accelerator=accelerator) as world:
        for node, rank in enumerate(world.run(JAX, body="result = 1", env=hidden)):
            assert (
                f"computes on the CPU of node {node}, and the pool has asked for H100 (1 on each node)"
                in rank.exception
            )
            assert "JAX finds none (CUDA_VISIBLE_DEVICES is '0')" in rank.exception
        meant = world.run(JAX, body="import jax; result = jax.default_backend()", env={"JAX_PLATFORMS": "cpu"})
        assert [rank.result for rank in meant] == ["cpu"] * nodes


def test_jax_on_the_cpu_is_fine_where_no_accelerator_was_asked_for() -> None:
    rank = run_alone(JAX, body="import sys; result = 'jax' in sys.modules")
    assert (rank.code, rank.result) == (0, False)
