"""Process ids and group ids: no signal is sent to an id that the kernel may have reused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skyward._agent import tree

from .client import DEADLINE, ROOT, gone, start_spec

RECORD = """
import os, signal, socket, sys
import msgspec
from skyward._agent import tree
from skyward._agent.loop import Agent
from skyward._core.messages import StartSpec

calls = []

def record(module, name):
    real = getattr(module, name)

    def call(*arguments):
        answer = real(*arguments)
        calls.append([name, *(int(argument) for argument in arguments)])
        return answer

    setattr(module, name, call)

for name in ("kill", "killpg", "waitpid"):
    record(os, name)
folder = sys.argv[1]
tree.become_subreaper()
agent = Agent(folder, "127.0.0.1", 60.0, socket.socket(), "", [])
whole = msgspec.msgpack.decode(sys.stdin.buffer.read())
[worker] = agent.workers.start(1, [0], msgspec.convert(whole, StartSpec), whole)
os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
calls.clear()
agent._reap()
ended = list(calls)
calls.clear()
agent._stop(1, 1, [0], 1.0)
agent._tick()
agent._reap()
stray = int(open(folder + "/stray").read())
print(msgspec.json.encode({"worker": worker.pid, "ended": ended, "later": calls, "stray": stray}).decode())
"""


def test_a_group_is_killed_before_its_leader_is_waited_for_and_never_after(tmp_path: Path) -> None:
    # The program in place of the worker leaves a process in its group, and ends.
    stands_in = ["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/stray; exit 3"]
    spec = start_spec(launcher=stands_in)
    done = subprocess.run(
        [sys.executable, "-c", RECORD, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=msgspec.msgpack.encode(spec),
        stdout=subprocess.PIPE,
        timeout=DEADLINE,
        check=True,
    )
    said: dict[str, Any] = msgspec.json.decode(done.stdout)
    worker, ended = said["worker"], said["ended"]
    kill, wait = ["killpg", worker, signal.SIGKILL], ["waitpid", worker, 0]
    assert gone(said["stray"])
    assert ended.count(kill) == ended.count(wait) == 1, ended
    assert ended.index(kill) < ended.index(wait), ended
    assert said["later"] == []


@pytest.mark.parametrize("descriptors", [True, False])
def test_a_number_that_is_another_processes_now_is_not_killed(
    monkeypatch: pytest.MonkeyPatch, descriptors: bool
) -> None:
    if not descriptors:
        monkeypatch.delattr(os, "pidfd_open")
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        table = tree.processes()
        known = table[sleeper.pid]
        assert (known.parent, known.group) == (os.getpid(), os.getpgrp())
        tree.send({sleeper.pid: known._replace(start=known.start - 1)}, signal.SIGKILL)
        assert sleeper.poll() is None
        tree.send({sleeper.pid: known}, signal.SIGKILL)
        assert sleeper.wait(DEADLINE) == -signal.SIGKILL
        # The process id is free now.
        tree.send({sleeper.pid: known}, signal.SIGKILL)
    finally:
        sleeper.kill()
        sleeper.wait()
