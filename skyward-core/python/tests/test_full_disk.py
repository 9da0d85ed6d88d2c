"""A disk without room costs output, and never a task; and output does not fill a disk."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from skyward._agent import spool
from skyward._core import wire

from .client import DEADLINE, AgentClient
from .conftest import Node

DISK = 16 << 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a small disk, in place of the folder of other tests."""
    if os.geteuid():
        pytest.skip("only root can mount a small disk")
    with tempfile.TemporaryDirectory(prefix="sky") as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", name], check=True)
        try:
            yield Path(name) / "n"
        finally:
            subprocess.run(["umount", "-l", name], check=True)


PRINTS = """
    import os, subprocess, sys
    def main(megabytes, child=False, stream='stdout'):
        if child:
            script = f"import sys\\nfor n in range({megabytes}): sys.stdout.write(('x' * 1023 + chr(10)) * 1024)"
            return subprocess.run([sys.executable, '-c', script]).returncode
        for n in range(megabytes):
            getattr(sys, stream).write(('x' * 1023 + '\\n') * 1024)
        print('the end', file=getattr(sys, stream))
        return os.getpid()
"""


def used(node: Node) -> int:
    disk = os.statvfs(node.folder)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


def read_all(client: AgentClient, end: bytes, expected: int) -> int:
    """Read standard output up to this end, all of it and in order; return the offset behind it."""
    last = b""
    while not last.endswith(end):
        (_, _, _, stream, offset), data = client.expect(wire.LOG)
        if stream == 1:
            assert offset == expected
            assert b"missing" not in data
            expected = offset + len(data)
            last = (last + data)[-200:]
    return expected


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_much_more_output_than_the_disk_has_room_for_fails_no_task(node: Node, stream: str) -> None:
    worker = node.ready(PRINTS)
    pids = {worker.call(1, megabytes=40, stream=stream) for _ in range(2)}
    assert pids == {node.pid}


def test_what_a_full_disk_has_cost_is_said_once_and_counted(node: Node) -> None:
    worker = node.ready("""
        def main(text, times):
            for _ in range(times):
                print(text)
    """)
    worker.call(1, text="before", times=1)
    with open(node.folder / "filler", "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    # The page of the file of output that is there already has room.
    heads = [worker.outcome(worker.start(1, text="a" * 99, times=times))[0] for times in (100, 1, 1000)]
    first, none, more = ([text for text, _ in (head[6] if len(head) > 6 else None) or ()] for head in heads)
    assert len(first) == 1
    assert "output was lost" in first[0]
    assert not none, "a little more is not worth another warning"
    assert len(more) == 1
    os.unlink(node.folder / "filler")
    worker.call(1, text="after", times=1)
    out = (node.folder / "g1" / "w0.out").read_bytes()
    assert out.startswith(b"before\naaa")
    [note] = [line for line in out.splitlines() if b"skyward: " in line]
    lost = int(note.split()[1])
    kept = out.count(b"a", 7, out.index(b"\nskyward")) + out[7 : out.index(b"\nskyward")].count(b"\n")
    assert lost + kept == 1101 * 100
    assert out.endswith(b"no room for them\nafter\n")


def test_a_client_that_reads_gets_all_output_and_the_disk_stays_small(node: Node) -> None:
    worker = node.ready(PRINTS)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    read = 0
    for _ in range(20):
        run = worker.start(1, megabytes=2)
        read = read_all(node.agent, b"the end\n", read)
        worker.outcome(run)
    assert os.stat(node.folder / "g1" / "w0.out").st_size == read > 2 * DISK
    assert used(node) < DISK


def test_a_client_that_comes_back_late_is_told_what_is_missing(node: Node) -> None:
    worker = node.ready(PRINTS)
    worker.call(1, megabytes=2)
    with open(node.folder / "g1" / "w0.out", "rb") as file:
        deadline = monotonic() + DEADLINE
        while os.lseek(file.fileno(), 0, os.SEEK_DATA) == 0:
            assert monotonic() < deadline, "nothing is given back"
            worker.call(1, megabytes=2)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    (_, _, _, stream, offset), note = node.agent.expect(wire.LOG)
    assert stream == 1
    words = note.split()
    assert words[0] == b"skyward:"
    assert offset + len(note) == int(words[1])
    _, data = node.agent.expect(wire.LOG)
    assert data.startswith(b"x"), "no zeros of the hole"


def test_a_worker_that_starts_again_continues_behind_the_hole(node: Node) -> None:
    path = node.folder / "g1" / "w0.out"
    node.ready(PRINTS)
    with open(path, "ab") as file:
        file.write(b"x" * (6 << 20))
    first = spool.Spool(str(path))
    first.sent = 6 << 20
    first.give_back()
    assert first.start > 0
    again = spool.Spool(str(path))
    os.close(again.open())
    assert again.start == first.start


def test_output_of_a_child_process_fills_no_disk(node: Node) -> None:
    worker = node.ready(PRINTS)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    run = worker.start(1, megabytes=4, child=True)
    assert worker.outcome(run)[1] == 0
    assert used(node) < DISK


def test_stacks_that_were_sent_take_no_room(node: Node) -> None:
    node.ready()
    for _ in range(3):
        node.agent.send([wire.SIGNAL, 1, 0, "stacks"])
        assert b"hread 0x" in node.agent.expect(wire.STACKS)[1]
    assert os.stat(node.folder / "g1" / "w0.stacks").st_size == 0
