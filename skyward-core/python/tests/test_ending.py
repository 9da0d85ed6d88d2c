"""An agent ends its machine's processes: however fast they start others, whoever they have become,
and no others.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from skyward._agent import tree
from skyward._agent.ending import end
from skyward._core import wire

from .conftest import Node
from .other_user import USER, needs_root, start

CHAIN = """
    import os, signal, time
    def main(path, sessions):
        end = time.time() + 120
        # Orphans get it when they are stopped.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for _ in range(3):
            if os.fork():
                continue
            os.write(os.open(path, os.O_WRONLY), b'.')
            while time.time() < end:
                if os.fork():
                    os._exit(0)
                if sessions:
                    os.setsid()
"""
"""Processes that do nothing but start the next one, and end; none is left long after the test."""


class Held:
    """A pipe with a name. It ends when all processes have ended that have opened it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def is_held(self, processes: int) -> bool:
        """Wait until this many processes have written a byte into the pipe, and read the bytes.

        A pipe that nobody has ever opened does not end.
        """
        return all(self._wait() & select.POLLIN and os.read(self._read, 1) for _ in range(processes))

    def ends(self) -> bool:
        """Wait until nobody has the pipe open; False if somebody keeps it."""
        return bool(self._wait() & select.POLLHUP)

    def _wait(self) -> int:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        return sum(event for _, event in poll.poll(60_000))

    def close(self) -> None:
        os.close(self._read)


@pytest.mark.parametrize("how", ["exit", "shutdown", "lease"])
@pytest.mark.parametrize("sessions", [False, True])
def test_processes_that_only_start_others_end_with_their_worker(
    node: Node, tmp_path: Path, how: str, sessions: bool
) -> None:
    held = Held(tmp_path / "held")
    worker = node.ready(CHAIN)
    head, _ = worker.outcome(worker.start(1, path=held.path, sessions=sessions))
    assert head[0] == wire.RESULT
    assert held.is_held(3)
    if how == "exit":
        os.kill(node.pid, signal.SIGKILL)
    elif how == "shutdown":
        node.agent.shutdown()
    else:
        os.kill(node.line["pid"], signal.SIGTERM)
    assert held.ends()
    held.close()


@needs_root
def test_a_mark_that_another_user_copies_neither_delays_the_end_nor_ends_that_user(node: Node) -> None:
    node.ready()
    mark = {"SKYWARD_MACHINE": f"test-{node.folder}"}
    others = [start(["sleep", "600"], **mark), start(["sh", "-c", "while :; do sleep 600; done"], **mark)]
    try:
        node.agent.shutdown()
        assert [other.poll() for other in others] == [None, None]
        assert "did not end" not in (node.folder / "agent.log").read_text()
    finally:
        for other in others:
            os.killpg(other.pid, signal.SIGKILL)
            other.wait()


@needs_root
def test_processes_that_have_become_another_user_end_with_the_machine(node: Node, tmp_path: Path) -> None:
    held = Held(tmp_path / "held")
    worker = node.ready("""
        import os, subprocess
        def main(path, user):
            for env, session in (None, True), ({}, False):
                held = open(path, "w")
                subprocess.Popen(["/bin/sleep", "600"], stdout=held, user=user, group=user, extra_groups=[],
                                 env=env, start_new_session=session)
                held.close()
    """)
    worker.outcome(worker.start(1, path=held.path, user=USER))
    node.agent.shutdown()
    assert held.ends()
    held.close()


def test_processes_that_live_when_the_time_is_up_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = subprocess.Popen(["sleep", "600"])

    def reap() -> bool:
        was_alive = sleeper.returncode is None
        return sleeper.poll() is not None and was_alive

    try:
        with monkeypatch.context() as patch:
            # As where they belong to another user.
            patch.setattr(tree, "send", lambda *_: None)
            assert end(lambda table: {sleeper.pid} & set(table), 0.05, reap) == {sleeper.pid}
        assert end(lambda table: {sleeper.pid} & set(table), 5.0, reap) == set()
        assert sleeper.returncode == -signal.SIGKILL
    finally:
        sleeper.kill()
        sleeper.wait()
