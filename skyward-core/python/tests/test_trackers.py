"""Shared memory that a worker leaves behind is removed by its resource tracker, however the worker ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from skyward._agent import tree
from skyward._core import wire

from .caller import until
from .client import WorkerClient, gone, start_spec
from .conftest import Node

SHARED = """
    import os, time
    from multiprocessing import Process, shared_memory
    from multiprocessing.managers import SharedMemoryManager

    kept = []

    def main(what):
        return globals()["do_" + what]()

    def do_own():
        kept.append(shared_memory.SharedMemory(create=True, size=50_000_000))
        kept[0].buf[:] = bytes(50_000_000)
        return kept[0].name

    def do_child():
        # The child has the tracker's pipe too.
        name = do_own()
        kept.append(Process(target=time.sleep, args=(600,), daemon=True))
        kept[1].start()
        return name

    def do_manager():
        kept.append(SharedMemoryManager())
        kept[0].start()
        kept.append(kept[0].SharedMemory(size=1 << 20))
        return kept[1].name

    def do_stopped():
        from multiprocessing import resource_tracker
        name = do_own()
        os.kill(resource_tracker._resource_tracker._pid, 19)
        return name
"""


def tracker(folder: Path) -> int:
    """Return the tracker of the worker in this folder."""
    return next(
        pid
        for pid in tree.marked({f"SKYWARD_MACHINE=test-{folder}".encode()}, tree.processes())
        if tree.is_tracker(pid)
    )


@pytest.mark.parametrize("what", ["own", "child", "manager"])
@pytest.mark.parametrize("end", ["stop", "shutdown", "kill", "kill the worker", "lease", "terminate"])
def test_shared_memory_is_removed(make_node: Callable[..., Node], what: str, end: str) -> None:
    node = make_node(lease=2.0) if end == "lease" else make_node()
    worker = node.ready(SHARED)
    shared = Path("/dev/shm") / worker.call(1, what=what)
    assert shared.exists()
    its_tracker = tracker(node.folder)
    if end == "stop":
        node.agent.send([wire.STOP, 1, 1, [0], 20.0])
        node.agent.expect(wire.STOPPED)
    elif end == "shutdown":
        node.agent.shutdown()
    elif end == "kill":
        node.agent.send([wire.SIGNAL, 1, 0, "kill"])
        node.agent.expect(wire.EXITED)
    elif end == "kill the worker":
        os.kill(node.pid, signal.SIGKILL)
        node.agent.expect(wire.EXITED)
    elif end == "terminate":
        os.kill(node.line["pid"], signal.SIGTERM)
        assert gone(node.line["pid"])
    else:
        assert gone(node.line["pid"])
    assert gone(its_tracker)
    assert not shared.exists()


def test_a_tracker_that_does_not_end_is_killed(node: Node) -> None:
    worker = node.ready(SHARED)
    shared = Path("/dev/shm") / worker.call(1, what="stopped")
    its_tracker = tracker(node.folder)
    try:
        os.kill(node.pid, signal.SIGKILL)
        node.agent.expect(wire.EXITED)
        assert tree.process(its_tracker) is not None
        assert gone(its_tracker)
        # The agent waits for no tracker, so another worker can start meanwhile.
        assert node.ready("def main():\n    return 1\n").call(1) == 1
    finally:
        shared.unlink()


def test_the_agent_ends_although_a_tracker_does_not(node: Node) -> None:
    shared = Path("/dev/shm") / node.ready(SHARED).call(1, what="stopped")
    its_tracker = tracker(node.folder)
    try:
        node.agent.shutdown()
        assert gone(its_tracker)
        assert gone(node.line["pid"])
    finally:
        shared.unlink()


def test_a_worker_that_lives_keeps_its_shared_memory(node: Node) -> None:
    started = node.agent.start(start_spec(workers=2), [0, 1])
    names = []
    for _, _, path in started:
        worker = WorkerClient(path)
        worker.hello()
        worker.load(1, SHARED)
        worker.gang = None
        names.append(Path("/dev/shm") / worker.call(1, what="own"))
    os.kill(started[1][1], signal.SIGKILL)
    node.agent.expect(wire.EXITED)
    until(lambda: not names[1].exists())
    assert names[0].exists()
    node.agent.shutdown()
    assert not names[0].exists()
