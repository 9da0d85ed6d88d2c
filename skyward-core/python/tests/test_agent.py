"""The agent: starts, exits, output, leases, owners, trees, and clients that misbehave."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest

from skyward._agent import memory, process, uptime
from skyward._core import wire

from .client import ROOT, AgentClient, Frames, WorkerClient, gone, start_agent, start_spec
from .conftest import Node

ONE = """
    def main():
        return 1
"""

CHILDREN = """
import os, subprocess, sys, time

def main(count):
    pids = []
    for index in range(count):
        # Every other one leaves the worker's session, and some their parent too.
        read, write = os.pipe()
        if os.fork() == 0:
            if index % 2:
                os.setsid()
            if index % 3 == 0 and os.fork():
                os._exit(0)
            os.write(write, b"%d\\n" % os.getpid())
            os.execvp("sleep", ["sleep", "600"])
        pids.append(int(os.read(read, 100)))
    return pids
"""


def test_the_first_line_and_the_hello(node: Node) -> None:
    assert node.line == {"pid": node.line["pid"], "protocol": 3, "python": sys.version.split()[0]}
    assert node.agent.facts[1:4] == [3, node.line["pid"], sys.version.split()[0]]
    facts = node.agent.facts[4]
    assert facts["cpus"] >= 1
    assert facts["memory_bytes"] > 1 << 20
    assert facts["hostname"] == socket.gethostname()


def test_files_are_readable_by_the_owner_only(node: Node) -> None:
    node.ready()
    assert node.folder.stat().st_mode & 0o777 == 0o700
    for path in ("agent.sock", "g1w0.sock", "agent.log", "g1/w0.out"):
        assert (node.folder / path).stat().st_mode & 0o777 == 0o600, path


def run_agent(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "skyward.agent", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_an_agent_that_cannot_start_says_why(node: Node, tmp_path: Path) -> None:
    second = run_agent("--dir", str(node.folder), "--addr", "127.0.0.1", "--lease", "5")
    assert (second.returncode, second.stdout) == (1, "")
    assert "another agent runs in" in second.stderr
    (tmp_path / "file").write_text("")
    assert "Not a directory" in run_agent(f"--dir={tmp_path}/file/x", "--addr=::1", "--lease=5").stderr
    assert "too long" in run_agent("--dir", f"{tmp_path}/{'x' * 100}", "--addr", "::1", "--lease", "5").stderr
    for arguments in ([], ["--dir", "x"], ["--nonsense", "1"], ["--dir=x", "--addr=x", "--lease=long"]):
        done = run_agent(*arguments)
        assert done.returncode == 1
        assert "usage" in done.stderr


def test_starting_answers_with_sockets_that_accept(node: Node) -> None:
    started = node.agent.start(start_spec(workers=3), [0, 1, 2])
    assert [entry[0] for entry in started] == [0, 1, 2]
    for index, pid, path in started:
        head, _ = WorkerClient(path).hello()
        assert head[2:5] == [pid, 1, index]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"python": "/no/such/python"}, "/no/such/python"),
        ({"cwd": "/no/such/folder"}, "/no/such/folder"),
    ],
)
def test_a_start_that_fails_says_what_is_missing(node: Node, spec: dict[str, Any], text: str) -> None:
    node.agent.send([wire.START, 1, 1, [0]], msgspec.msgpack.encode(start_spec(**spec)))
    head, _ = node.agent.expect(wire.ERROR)
    assert head[1] == wire.START
    assert text in head[2]
    assert node.ready(ONE).call(1) == 1


def test_a_start_that_does_not_fit_is_refused(node: Node) -> None:
    def refused(generation: int) -> str:
        node.agent.send([wire.START, 3, generation, [0]], msgspec.msgpack.encode(start_spec(generation)))
        return str(node.agent.expect(wire.ERROR)[0][2])

    node.ready(generation=2)
    assert "still runs" in refused(3)
    assert "already run" in refused(2)
    assert "is over" in refused(1)


def test_a_restarted_worker_appends_to_its_output(node: Node) -> None:
    source = """
        import os
        def main(text):
            print(text)
            if text == 'die': os._exit(1)
    """
    worker = node.ready(source)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    worker.start(1, text="die")
    assert node.agent.expect(wire.LOG) == ([wire.LOG, 1, 0, 1, 0], b"die\n")
    assert node.agent.expect(wire.LOG_END)[0] == [wire.LOG_END, 1, 0, 4, 0]
    worker = node.ready(source)
    worker.call(1, text="again")
    assert node.agent.expect(wire.LOG) == ([wire.LOG, 1, 0, 1, 4], b"again\n")


def test_early_signals_do_no_harm(node: Node) -> None:
    worker = node.worker()
    for name in ("stacks", "interrupt", "stacks"):
        node.agent.send([wire.SIGNAL, 1, 0, name])
    assert worker.hello()[0][5] is True


def test_generations_follow_each_other(node: Node) -> None:
    node.ready()
    node.agent.send([wire.STOP, 1, 1, [0], 10.0])
    node.agent.expect(wire.STOPPED)
    worker = node.ready(
        """
        def main():
            return 2
        """,
        generation=2,
    )
    assert worker.call(1) == 2


def test_stop_kills_workers_that_do_not_end(node: Node) -> None:
    worker = node.ready("""
        import signal, time
        def main():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print('deaf')
            while True:
                try: time.sleep(600)
                except BaseException: pass
    """)
    worker.start(1)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    node.agent.expect(wire.LOG)
    node.agent.send([wire.STOP, 7, 1, [0], 0.1])
    assert node.agent.expect(wire.EXITED)[0][4:7] == [None, signal.SIGKILL, False]
    assert node.agent.expect(wire.STOPPED)[0][1:] == [7, 1, [0]]


def test_stop_of_workers_that_do_not_run_is_answered(node: Node) -> None:
    node.agent.send([wire.STOP, 4, 9, [0, 1], 1.0])
    assert node.agent.expect(wire.STOPPED)[0] == [wire.STOPPED, 4, 9, [0, 1]]


def test_a_killed_worker_is_reported_with_its_signal(node: Node) -> None:
    node.ready()
    node.agent.send([wire.SIGNAL, 1, 0, "kill"])
    assert node.agent.expect(wire.EXITED)[0][1:] == [1, 0, node.pid, None, 9, False, 0]
    node.agent.send([wire.SIGNAL, 1, 7, "kill"])
    assert "no worker 7" in node.agent.expect(wire.ERROR)[0][2]
    node.agent.send([wire.SIGNAL, 1, 0, "tickle"])
    assert "interrupt, kill, stacks" in node.agent.expect(wire.ERROR)[0][2]


@pytest.mark.parametrize("how", ["exit", "stop", "shutdown", "lease"])
def test_children_left_behind_are_ended(make_node: Callable[..., Node], how: str) -> None:
    node = make_node(lease=60.0)
    worker = node.ready(CHILDREN)
    pids = worker.call(1, count=12)
    if how == "exit":
        worker.send([wire.BYE])
        node.agent.expect(wire.EXITED)
    elif how == "stop":
        node.agent.send([wire.STOP, 1, 1, [0], 10.0])
        node.agent.expect(wire.STOPPED)
    elif how == "shutdown":
        node.agent.shutdown()
    else:
        node.agent.send([wire.PING, 1, 0.2])
    assert all(gone(pid) for pid in pids)


def test_children_of_a_worker_that_lives_are_left_alone(node: Node) -> None:
    first, second = node.ready(CHILDREN, index=0, workers=2), node.ready(CHILDREN, index=1, workers=2)
    mine, other = first.call(1, count=6), second.call(1, count=6)
    first.send([wire.BYE])
    node.agent.expect(wire.EXITED)
    assert all(gone(pid) for pid in mine)
    for pid in other:
        os.kill(pid, 0)
    node.agent.shutdown()
    assert all(gone(pid) for pid in other)


def test_each_renewal_of_the_lease_touches_the_lease_file(make_node: Callable[..., Node]) -> None:
    node = make_node(lease=60.0)
    lease = node.folder / "lease"
    node.agent.send([wire.PING, 1, 60.0])
    node.agent.expect(wire.PONG)
    assert not lease.exists()  # removing the file ends the machine, so the agent must never create it again

    node = make_node(lease=60.0)
    lease = node.folder / "lease"
    lease.write_bytes(b"")
    for sequence in (1, 2):
        os.utime(lease, (0, 0))
        before = uptime.nanoseconds()
        node.agent.send([wire.PING, sequence, 60.0])
        node.agent.expect(wire.PONG)
        after = uptime.nanoseconds()
        # The clock that nobody can set: the lease does not look older or younger when the wall clock jumps.
        assert before is not None
        assert after is not None
        assert before <= lease.stat().st_mtime_ns <= after
        assert lease.stat().st_atime > 1e9  # a program that removes what nobody has used for long leaves it


def test_an_expired_lease_ends_everything(make_node: Callable[..., Node]) -> None:
    node = make_node(lease=60.0)
    node.ready()
    node.agent.send([wire.PING, 5, 0.2])
    assert node.agent.expect(wire.PONG)[0] == [wire.PONG, 5]
    assert gone(node.pid)
    assert gone(node.line["pid"])
    assert not (node.folder / "agent.sock").exists()
    assert "lease expired" in (node.folder / "agent.log").read_text()


def test_any_frame_renews_the_lease(make_node: Callable[..., Node]) -> None:
    node = make_node(lease=0.6)
    for _ in range(4):
        node.agent.send([wire.STOP, 1, 1, [0], 0.0])
        node.agent.expect(wire.STOPPED)
        # Three of these waits are longer than the lease. If the agent ended, the socket would
        # become readable.
        assert select.select([node.agent.socket], [], [], 0.25) == ([], [], [])
    node.agent.shutdown()


def test_the_owners_end_ends_everything(make_node: Callable[..., Node], folder: Path) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    start_agent(folder, "--owner-pid", str(owner.pid))
    agent = AgentClient(folder)
    [[_, pid, _]] = agent.start(start_spec())
    owner.kill()
    owner.wait()
    assert gone(pid)
    assert agent.at_end()


def test_an_agents_end_ends_its_workers(node: Node) -> None:
    node.ready()
    os.kill(node.line["pid"], signal.SIGKILL)
    assert gone(node.pid)


def test_a_terminated_agent_ends_all_processes(node: Node) -> None:
    node.ready()
    os.kill(node.line["pid"], signal.SIGTERM)
    assert gone(node.pid)
    assert gone(node.line["pid"])


def test_a_new_client_replaces_the_old_and_misses_no_exit(node: Node) -> None:
    worker = node.ready("""
        import os
        def main():
            os._exit(5)
    """)
    old = node.agent
    new = AgentClient(node.folder)
    assert old.at_end()
    worker.start(1)
    assert new.expect(wire.EXITED)[0][4] == 5
    new.close()
    again = AgentClient(node.folder)
    assert again.expect(wire.EXITED)[0][1:] == [1, 0, node.pid, 5, None, False, 1]


def test_another_pools_client_is_refused(node: Node) -> None:
    other = Frames(str(node.folder / "agent.sock"))
    other.send([wire.HELLO, wire.PROTOCOL, "other", 1 << 30])
    assert "belongs to pool pool" in other.expect(wire.ERROR)[0][2]
    assert other.at_end()
    node.agent.send([wire.PING, 1, 60.0])
    node.agent.expect(wire.PONG)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 64,
        wire.frame([wire.HELLO, 9, "pool", 1]),
        wire.frame([wire.HELLO]),
        wire.frame([wire.PING, 1, 5.0]),
        wire.frame([200]),
        wire.HEADER.pack(10, 1 << 31),
        wire.HEADER.pack(3, 0) + b"abc",
    ],
)
def test_garbage_gets_an_error_and_never_ends_the_agent(node: Node, data: bytes) -> None:
    stranger = Frames(str(node.folder / "agent.sock"))
    stranger.socket.sendall(data)
    assert stranger.expect(wire.ERROR)[0][2]
    assert stranger.at_end()
    node.agent.send([wire.PING, 1, 60.0])
    node.agent.expect(wire.PONG)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ([wire.START, 1, 1, [0]], b"\xc1"),
        ([wire.START, 1, 1, [0]], b"\x80"),
        ([wire.START, 1, "x", 3], b"\x80"),
        ([wire.LOGS, 1], b""),
        ([wire.STOP, 1, 1, [0], "soon"], b""),
        ([200], b""),
    ],
)
def test_invalid_messages_end_only_their_connection(node: Node, head: list[object], body: bytes) -> None:
    node.agent.send(head, body)
    assert node.agent.expect(wire.ERROR)[0][1] == head[0]
    assert node.agent.at_end()
    AgentClient(node.folder).shutdown()


def test_frames_may_arrive_in_pieces(node: Node) -> None:
    data = wire.frame([wire.PING, 1, 60.0]) + wire.frame([wire.PING, 2, 60.0])
    for index in range(len(data)):
        node.agent.socket.sendall(data[index : index + 1])
    assert [node.agent.expect(wire.PONG)[0][1] for _ in range(2)] == [1, 2]


def test_a_reserved_port_is_bound_by_a_server_that_shares_it_and_by_nobody_else(node: Node) -> None:
    node.agent.send([wire.RESERVE_PORT, 3])
    head, _ = node.agent.expect(wire.PORT)
    assert head[1:3] == [3, "127.0.0.1"]
    with socket.socket() as taken, pytest.raises(OSError, match="in use"):
        taken.bind(("127.0.0.1", head[3]))
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", head[3]))
        server.listen()
        with socket.create_connection(("127.0.0.1", head[3]), timeout=5):
            pass
    node.agent.send([wire.RESERVE_PORT, 4])
    assert node.agent.expect(wire.PORT)[0][3] != head[3]


def test_64_mib_of_output_arrive_whole_though_the_client_reads_late(node: Node) -> None:
    worker = node.ready("""
        import os, time
        def main(n):
            block = bytes(range(256)) * 4096
            for _ in range(n): os.write(1, block)
            if not n: time.sleep(60)
    """)
    head, _ = worker.outcome(worker.start(1, n=64))
    assert head[3] == 64 << 20
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    # The agent has handled another request after this one, so it has passed the first; nothing was
    # read yet.
    sleeping = worker.start(1, n=0)
    worker.send([wire.CANCEL, sleeping])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    worker.outcome(sleeping)
    size, block = 0, bytes(range(256)) * 1025
    while size < 64 << 20:
        log, data = node.agent.expect(wire.LOG)
        assert log[3:] == [1, size]
        assert len(data) <= 256 << 10
        assert data == block[size % 256 :][: len(data)]
        size += len(data)
    # The agent must never have held the output in its memory.
    with open(f"/proc/{node.line['pid']}/status") as status:
        [most] = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
    assert most < 48 << 10


def test_all_output_comes_before_the_farewell(node: Node) -> None:
    worker = node.ready("""
        import os
        def main(n):
            for _ in range(n): os.write(1, bytes(1 << 20))
    """)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    worker.outcome(worker.start(1, n=8))
    node.agent.shutdown()
    sent = [(head, body) for head, body in node.agent.seen if head[0] == wire.LOG]
    assert sum(len(body) for _, body in sent) == 8 << 20
    assert [head for head, _ in node.agent.seen][-1] == [wire.LOG_END, 1, 0, 8 << 20, 0]


def test_output_from_an_offset_on(node: Node) -> None:
    worker = node.ready("""
        def main():
            print('0123456789')
    """)
    worker.call(1)
    node.agent.send([wire.LOGS, 1, 0, 4, 0])
    assert node.agent.expect(wire.LOG) == ([wire.LOG, 1, 0, 1, 4], b"456789\n")
    node.agent.send([wire.LOGS, 1, 0, 9, 0])
    assert node.agent.expect(wire.LOG) == ([wire.LOG, 1, 0, 1, 9], b"9\n")
    node.agent.send([wire.LOGS, 1, 5, 0, 0])
    assert "no worker 5" in node.agent.expect(wire.ERROR)[0][2]


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory, if this host allows creating one."""
    memory = next(
        (line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line),
        None,
    )
    root = Path("/sys/fs/cgroup")
    group = (root if memory is None else root / "memory") / f"skyward-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        limit = group / ("memory.max" if memory is None else "memory.limit_in_bytes")
        if not limit.exists():
            pytest.skip("control groups do not limit memory here")
        limit.write_text(str(96 << 20))
        yield group
    finally:
        group.rmdir()


def test_out_of_memory_is_reported(small_group: Path, node: Node) -> None:
    (small_group / "cgroup.procs").write_text(str(node.line["pid"]))
    worker = node.ready("""
        def main():
            return len(bytearray(1 << 29))
    """)
    worker.start(1)
    assert node.agent.expect(wire.EXITED)[0][4:7] == [None, signal.SIGKILL, True]
    node.agent.shutdown()
    assert gone(node.line["pid"])


def test_an_ordinary_kill_is_not_reported_as_out_of_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    monkeypatch.setattr(memory, "_OOM_FILES", [str(events)])
    events.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    kills = memory.OutOfMemory()
    asked = process.Worker(str(tmp_path), 1, 0, kills)
    asked.is_killed = True

    def end(status: int, worker: process.Worker | None = None) -> object:
        worker = worker or process.Worker(str(tmp_path), 1, 1, kills)
        worker.on_exit(status)
        return worker.ended

    assert end(signal.SIGKILL) == (None, 9, False)
    events.write_text("low 0\noom 3\noom_kill 3\noom_group_kill 0\n")
    assert end(signal.SIGKILL, asked) == (None, 9, False)
    assert end(signal.SIGSEGV) == (None, 11, False)
    assert end(3 << 8) == (3, None, False)
    assert end(signal.SIGKILL) == (None, 9, True)
    # The count has one kill, and the first end has claimed it.
    assert end(signal.SIGKILL) == (None, 9, False)


def test_an_out_of_memory_kill_of_a_child_does_not_explain_a_later_kill() -> None:
    counted = 0
    kills = memory.OutOfMemory(lambda: counted)
    now = monotonic()
    counted = 1
    kills.look(now + 11)
    # The worker may not be reaped yet: a large process takes some time to end.
    kills.look(now + 12)
    assert kills.claim()
    counted = 2
    kills.look(now + 22)
    kills.look(now + 33)
    assert not kills.claim()
    counted = 4
    assert [kills.claim() for _ in range(3)] == [True, True, False]


def test_an_agent_without_free_descriptors_does_not_spin(node: Node) -> None:
    pid = node.line["pid"]
    opened = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = next(number for number in range(len(opened) + 1) if number not in opened)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, most))
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(node.folder / "agent.sock"))
        used = cpu_seconds(pid)
        time.sleep(1)
        assert cpu_seconds(pid) - used < 0.15
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    AgentClient(node.folder)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_owner_is_polled_without_process_descriptors(folder: Path) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    hide = "import os, sys, runpy; del os.pidfd_open; sys.argv[0] = 'agent'; runpy.run_module('skyward.agent', run_name='__main__')"
    arguments = ["--dir", str(folder), "--addr", "127.0.0.1", "--lease", "60", "--owner-pid", str(owner.pid)]
    subprocess.run(
        [sys.executable, "-c", hide, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=20,
        stdout=subprocess.DEVNULL,
    )
    agent = AgentClient(folder)
    owner.kill()
    owner.wait()
    assert agent.at_end()


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="the limit is that of Linux")
def test_a_worker_of_ten_thousand_nodes_starts_and_its_children_know_all_of_them(node: Node) -> None:
    source = """
    import subprocess, sys
    import skyward as sky

    CHILD = "import skyward as sky; info = sky.instance_info(); print(len(info.peers), info.peers[-1].addr)"

    def main():
        peers = sky.instance_info().peers
        child = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
        return [[peer.node, peer.addr] for peer in (peers[0], peers[-1])], len(peers), child.stdout.split()
    """
    peers = [{"node": index, "addr": f"10.0.{index // 256}.{index % 256}"} for index in range(10_000)]
    worker = node.ready(textwrap.dedent(source), cluster={"total_nodes": len(peers), "peers": peers})
    ends = [[0, "10.0.0.0"], [9_999, "10.0.39.15"]]
    assert worker.call(1) == [ends, 10_000, ["10000", "10.0.39.15"]]


def test_a_restarted_worker_knows_the_current_nodes(node: Node) -> None:
    source = """
        import skyward as sky
        def main():
            return [peer.addr for peer in sky.instance_info().peers]
    """
    assert node.ready(source).call(1) == ["127.0.0.1"]
    node.agent.send([wire.STOP, 1, 1, [0], 0.0])
    node.agent.expect(wire.STOPPED)
    assert node.ready(source, cluster={"peers": [{"node": 0, "addr": "127.0.0.2"}]}).call(1) == ["127.0.0.2"]


@pytest.mark.parametrize("lease", [30 * 365 * 86400.0, 25 * 86400.0])
def test_a_lease_may_be_longer_than_any_wait_of_the_system(make_node: Callable[..., Node], lease: float) -> None:
    node = make_node(lease=lease)
    node.agent.send([wire.PING, 1, lease])
    assert node.agent.expect(wire.PONG)[0][1] == 1
    worker = node.ready(ONE)
    assert worker.call(1) == 1
    node.agent.send([wire.STOP, 1, 1, [0], lease])
    node.agent.expect(wire.STOPPED)


def test_output_is_sent_when_its_task_ends(folder: Path) -> None:
    # This agent does not poll the files by itself.
    patient = (
        "import runpy, sys; from skyward._agent import logs; logs.SOON = logs.LATE = 3600.0; sys.argv[0] = 'agent';"
        "runpy.run_module('skyward.agent', run_name='__main__')"
    )
    subprocess.run(
        [sys.executable, "-c", patient, "--dir", str(folder), "--addr", "127.0.0.1", "--lease", "60"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=20,
        stdout=subprocess.DEVNULL,
    )
    agent = AgentClient(folder)
    [[_, pid, path]] = agent.start(start_spec())
    worker = WorkerClient(path)
    worker.load(
        1,
        """
        import os
        def main(text):
            os.write(1, text.encode())
            if text == 'last': os._exit(1)
        """,
    )
    agent.send([wire.LOGS, 1, 0, 0, 0])
    worker.call(1, text="no line")
    assert agent.expect(wire.LOG) == ([wire.LOG, 1, 0, 1, 0], b"no line")
    worker.start(1, text="last")
    agent.expect(wire.LOG_END)
    kinds = [head[0] for head, _ in agent.seen]
    assert kinds == [wire.LOG, wire.EXITED], "the last words come before the end"
    agent.shutdown()
    assert gone(pid)
