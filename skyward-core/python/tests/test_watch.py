"""The watch command: its lines become notices, and it runs as long as its agent."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward._agent import notices
from skyward._agent.loop import Agent
from skyward._agent.notices import MOST_BYTES, Lines, Pauses, notice
from skyward._agent.watch import Watch
from skyward._core import wire

from .client import DEADLINE, AgentClient, gone
from .conftest import Node


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"preempted 120 the market wants it back", ("preempted", 120.0, "the market wants it back")),
        (b"expired 0.5", ("expired", 0.5, "")),
        (b"  expired\t7.  \r", ("expired", 7.0, "")),
        (b"preempted .25 caf\xc3\xa9 \xff\x1b[31m", ("preempted", 0.25, "café \ufffd [31m")),
        (b"preempted 1000000000 far", ("preempted", 1e9, "far")),
    ],
)
def test_a_line_is_a_notice(line: bytes, expected: tuple[str, float, str]) -> None:
    given = notice(line, 1000.0)
    assert given is not None
    assert (given.kind, given.deadline - 1000.0, given.words) == expected
    assert given.head(46, 1000.0) == [46, *expected]
    assert given.head(46, 3e9) == [46, expected[0], 0.0, expected[2]], "never below 0"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"preempted",
        b"preempted soon",
        b"budget 10 for clients to say",
        b"preempted -1",
        b"preempted nan",
        b"preempted inf",
        b"preempted 1e3",
        b"preempted 1_000",
        b"preempted 2000000000",
        b"preempted 99999999999999999999",
        b"preempted120",
        b"PREEMPTED 1",
        "preempted \u0661".encode(),
        b"\xff\xfe\x00",
    ],
)
def test_other_lines_are_no_notices(line: bytes) -> None:
    assert notice(line, 0.0) is None


@given(st.binary(max_size=100))
def test_no_line_breaks_the_parser(line: bytes) -> None:
    found = notice(line, 0.0)
    assert found is None or (found.kind in notices.KINDS and 0.0 <= found.deadline <= 1e9)


@given(st.lists(st.binary(max_size=20) | st.just(b"\n") | st.sampled_from([b"x" * 3000, b"y" * 3000 + b"\nz"])))
def test_lines_are_cut_the_same_however_they_arrive(pieces: list[bytes]) -> None:
    lines, whole = Lines(), b"".join(pieces)
    cut = [line for piece in pieces for line in lines.feed(piece)] + lines.rest()
    expected = [line[:MOST_BYTES] for line in whole.split(b"\n")]
    assert cut == [line for line in expected if line.strip()]


def test_pauses_grow_to_a_minute_and_begin_anew_after_one() -> None:
    pauses = Pauses()
    assert [pauses.after(0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [pauses.after(ran) for ran in (60.0, 59.0, 0.0)] == [1, 2, 4]


def watch(client: AgentClient, *command: str) -> None:
    client.send([wire.WATCH, list(command)])


def script(client: AgentClient, text: str) -> None:
    watch(client, "sh", "-c", text)


def told(client: AgentClient) -> tuple[str, float, str]:
    head, body = client.expect(wire.AGENT_NOTICE)
    assert body == b""
    return head[1], head[2], head[3]


def log_of(node: Node) -> str:
    return (node.folder / "agent.log").read_text()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_valid_lines_are_notices_and_others_are_logged_once(node: Node) -> None:
    script(
        node.agent,
        "echo nonsense; echo preempted soon; echo oops >&2; echo more >&2;"
        "echo 'preempted 120 the market wants it back'; echo; echo expired 0.5; exec sleep 600",
    )
    kind, seconds, words = told(node.agent)
    assert (kind, words) == ("preempted", "the market wants it back")
    assert 110.0 < seconds <= 120.0
    kind, seconds, words = told(node.agent)
    assert (kind, words) == ("expired", "")
    assert 0.0 <= seconds <= 0.5
    until(lambda: "oops" in log_of(node))
    assert log_of(node).count("ignored") == 1
    assert "prints 'nonsense'" in log_of(node)
    assert "more" not in log_of(node)


def test_arguments_reach_the_command_as_they_are(node: Node) -> None:
    watch(node.agent, sys.executable, "-c", "import sys; print(*sys.argv[1:])", "expired", "5", "$HOME `id` *")
    assert told(node.agent)[2] == "$HOME `id` *", "no shell reads them"


def test_the_last_notice_is_sent_again_to_a_client_that_comes_anew(node: Node) -> None:
    text = "echo preempted 200 first; echo preempted 100 second; exec sleep 600"
    script(node.agent, text)
    assert [told(node.agent)[2] for _ in range(2)] == ["first", "second"]
    script(node.agent, text)
    assert node.agent.quiet(), "the same command again changes nothing"
    again = AgentClient(node.folder)
    assert again.quiet(), "it has not asked"
    script(again, text)
    kind, seconds, words = told(again)
    assert (kind, words) == ("preempted", "second")
    assert 50.0 < seconds < 100.0, "less is left by now"
    assert again.quiet()


def test_a_notice_without_a_client_is_kept(node: Node) -> None:
    path = node.folder / "watch.pid"
    text = (
        f"echo $$ > {path}; while [ ! -e {node.folder}/go ]; do sleep 0.02; done; echo expired 60 alone; exec sleep 600"
    )
    script(node.agent, text)
    first = pid_in(path)
    node.agent.close()
    again = AgentClient(node.folder)
    (node.folder / "go").touch()
    until(lambda: Path(f"/proc/{first}/cmdline").read_bytes().startswith(b"sleep\x00600"))
    assert again.quiet(), "it has not asked"
    script(again, text)
    assert told(again)[0::2] == ("expired", "alone")
    assert pid_in(path) == first, "it is the same process"


def test_another_command_ends_the_first_with_its_children(node: Node) -> None:
    paths = [node.folder / name for name in ("first", "child", "second")]
    script(node.agent, f"sleep 600 & echo $! > {paths[1]}; echo $$ > {paths[0]}; wait")
    first, child = pid_in(paths[0]), pid_in(paths[1])
    script(node.agent, f"echo $$ > {paths[2]}; echo expired 9 other; exec sleep 600")
    assert told(node.agent)[2] == "other"
    assert gone(first)
    assert gone(child)
    os.kill(pid_in(paths[2]), 0)


def test_a_command_that_ends_is_started_again_after_a_pause(node: Node) -> None:
    path = node.folder / "count"
    script(node.agent, f"echo x >> {path}; printf 'expired 9 %s' $(wc -l < {path}); exit 3")
    assert told(node.agent)[2] == "1", "the last line needs no end"
    began = time.monotonic()
    assert told(node.agent)[2] == "2"
    assert time.monotonic() - began > 0.5
    assert "ended with code 3" in log_of(node)


def test_processes_of_an_ended_command_are_killed(node: Node) -> None:
    node.ready()
    path = node.folder / "left"
    script(node.agent, f"setsid sh -c 'echo $$ > {path}; exec sleep 600' & while [ ! -s {path} ]; do :; done")
    assert gone(pid_in(path))


def test_a_missing_command_is_logged_and_retried(node: Node) -> None:
    path = node.folder / "late"
    watch(node.agent, str(path))
    node.agent.send([wire.PING, 1, 60.0])
    node.agent.expect(wire.PONG)
    assert "cannot be started: No such file or directory" in log_of(node)
    path.write_text("#!/bin/sh\necho preempted 30 found\nexec sleep 600\n")
    path.chmod(0o700)
    assert told(node.agent)[2] == "found"


def test_an_invalid_command_is_logged(node: Node) -> None:
    watch(node.agent, "echo", "a\0b")
    node.agent.send([wire.PING, 1, 60.0])
    node.agent.expect(wire.PONG)
    assert "cannot be started: an argument holds a NUL character" in log_of(node)


def test_a_flood_blocks_neither_the_agent_nor_its_workers(node: Node) -> None:
    worker = node.ready("""
        def main(x):
            return x
    """)
    script(node.agent, "yes preempted 50 & yes >&2 & head -c 100000000 /dev/zero; wait")
    told(node.agent)
    began, notices_then = time.monotonic(), len(node.agent.seen)
    for sequence in range(50):
        assert worker.call(1, x=sequence) == sequence
        node.agent.send([wire.PING, sequence, 60.0])
        assert node.agent.expect(wire.PONG)[0][1] == sequence
    until(lambda: time.monotonic() > began + 1.0)
    node.agent.send([wire.PING, 100, 60.0])
    while node.agent.expect(wire.PONG)[0][1] != 100:
        pass
    took = time.monotonic() - began
    assert len(node.agent.seen) - notices_then < 100 * took, "notices come at a bounded rate"
    status = Path(f"/proc/{node.line['pid']}/status").read_text()
    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    assert resident < 100_000, "KiB"
    assert len(log_of(node)) < 10_000


def test_notices_wait_for_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent.__new__(Agent)
    sent: list[object] = []

    class Client:
        may_log = False

        def send(self, head: object, body: bytes) -> None:
            sent.append(head)

    client: Any = Client()
    agent._client = agent._watching = client
    agent._watch = Watch(lambda *_: None, lambda _: None, lambda _: None, {})
    agent._watch._last = notices.Notice("expired", 100.0, "last")
    agent._watch.repeat()
    monkeypatch.setattr(agent, "_guard", lambda _, action: action())
    agent._send_notices(40.0)
    assert sent == []
    client.may_log = True
    agent._send_notices(50.0)
    agent._send_notices(60.0)
    assert sent == [[wire.AGENT_NOTICE, "expired", 50.0, "last"]]


@pytest.mark.parametrize("how", ["shutdown", "lease", "terminated", "killed"])
def test_the_command_ends_with_its_agent(make_node: Callable[..., Node], how: str) -> None:
    node = make_node(lease=3.0 if how == "lease" else 60.0)
    path = node.folder.parent / "watch.pid"
    script(node.agent, f"trap '' TERM HUP INT; echo $$ > {path}; while :; do sleep 0.1; done")
    pid = pid_in(path)
    if how == "shutdown":
        node.agent.shutdown()
    elif how != "lease":
        os.kill(node.line["pid"], signal.SIGTERM if how == "terminated" else signal.SIGKILL)
    assert gone(node.line["pid"])
    assert gone(pid)


def test_the_command_is_no_worker_and_outlives_them(node: Node) -> None:
    path = node.folder / "watch.pid"
    script(node.agent, f"sleep 600 & echo $$ > {path}; wait")
    pid = pid_in(path)
    worker = node.ready("""
        import os
        def main():
            os._exit(7)
    """)
    worker.start(1)
    assert node.agent.expect(wire.EXITED)[0][2:5] == [0, node.pid, 7]
    fresh = node.ready("""
        def main():
            return 1
    """)
    assert fresh.call(1) == 1
    node.agent.send([wire.STOP, 1, 1, [0], 10.0])
    node.agent.expect(wire.STOPPED)
    os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)
    until(lambda: "was ended by signal 9" in log_of(node))
    node.agent.send([wire.PING, 1, 60.0])
    node.agent.expect(wire.PONG)
    assert not [head for head, _ in node.agent.seen if head[0] == wire.EXITED and head[3] == pid]


def test_the_end_of_the_command_leaves_workers_alone(node: Node) -> None:
    worker = node.ready("""
        import subprocess
        def main():
            return subprocess.Popen(['sleep', '600'], start_new_session=True).pid
    """)
    child = worker.call(1)
    script(node.agent, "exit 1")
    until(lambda: "ended with code 1" in log_of(node))
    os.kill(child, 0)
    assert worker.call(1) > 0


def test_the_command_inherits_nothing_of_workers(node: Node) -> None:
    shown = node.folder / "shown"
    text = f"env > {shown}.env; ls -l /proc/self/fd > {shown}.fds; echo expired 9 done; exec sleep 600"
    node.ready(secrets={"TOKEN": "hunter2hunter2"}, env={"MODE": "of workers"})
    script(node.agent, text)
    assert told(node.agent)[2] == "done"
    environment = Path(f"{shown}.env").read_text()
    assert "hunter2" not in environment
    assert "MODE" not in environment
    assert f"SKYWARD_MACHINE=test-{node.folder}" in environment, "by which what is left of a machine is found"
    descriptors = [line.split()[8] for line in Path(f"{shown}.fds").read_text().splitlines()[1:]]
    # The fourth descriptor is the folder that `ls` reads.
    assert descriptors == ["0", "1", "2", "3"]
