"""The mover: it reads files of the node for the client, whatever happens to workers and connections."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skyward import mover as program
from skyward._core import artifacts, wire
from skyward._core.descriptors import PAUSE
from skyward._mover import connection, files, peer

from .caller import until
from .client import DEADLINE, AgentClient, Frames, gone, start_agent
from .conftest import Node
from .mover import MoverClient, ask_for_mover, mover_of
from .other_user import USER, needs_root

ID = "0123456789abcdef" * 2


def identity(path: Path) -> list[int]:
    about = path.stat()
    return [about.st_ino, about.st_size, about.st_mtime_ns]


def read(path: Any, identity: Any = None, offset: int = 0, length: int = 10) -> list[Any]:
    return [wire.MOVER_READ, 7, "", os.fsencode(path), identity, offset, length]


# The process


def test_the_agent_starts_one_mover_and_says_where_it_listens(node: Node) -> None:
    pid, path = ask_for_mover(node.agent)
    assert path == f"{node.folder}/mover.sock"
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert MoverClient(path).hello == [wire.MOVER_HELLO, wire.PROTOCOL, pid]
    assert ask_for_mover(node.agent, 78) == (pid, path)
    assert ask_for_mover(AgentClient(node.folder)) == (pid, path)
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert b"SKYWARD_SLOT=mover1" in environment
    assert os.readlink(f"/proc/{pid}/cwd") == str(node.folder)
    # Standard ones, the listener and the connection; it also looks for leftovers when it begins.
    until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= 5)
    assert [os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1, 2)] == [os.devnull, *[f"{node.folder}/agent.log"] * 2]


def test_the_mover_has_no_secrets_of_workers(node: Node) -> None:
    node.ready(secrets={"TOKEN": "hunter2hunter2"}, env={"MODE": "of workers"})
    pid, _ = ask_for_mover(node.agent)
    environment = Path(f"/proc/{pid}/environ").read_text()
    assert "hunter2" not in environment
    assert "MODE" not in environment


def test_a_mover_that_cannot_be_started_is_refused_with_the_request(node: Node) -> None:
    (node.folder / "mover.sock").mkdir()
    node.agent.send([wire.MOVER, 9])
    head, _ = node.agent.expect(wire.ERROR)
    assert (head[1], head[3]) == (wire.MOVER, 9)
    assert "cannot start the mover" in head[2]
    (node.folder / "mover.sock").rmdir()
    assert mover_of(node.agent).stat("work")[0][1] == "folder"


def test_another_mover_is_started_when_one_has_ended(node: Node) -> None:
    first, path = ask_for_mover(node.agent)
    client = MoverClient(path)
    os.kill(first, signal.SIGKILL)
    assert client.at_end()
    second, path = ask_for_mover(node.agent)
    assert second != first
    assert MoverClient(path).hello[2] == second
    os.kill(second, signal.SIGTERM)
    assert gone(second)
    third, path = ask_for_mover(node.agent)
    assert MoverClient(path).hello[2] == third not in (first, second)
    node.agent.send([wire.PING, 1, 60.0])
    node.agent.expect(wire.PONG)
    text = (node.folder / "agent.log").read_text()
    assert f"the mover, process {first}, was ended by signal 9" in text
    assert f"the mover, process {second}, was ended by signal 15" in text
    assert b"SKYWARD_SLOT=mover3" in Path(f"/proc/{third}/environ").read_bytes().split(b"\0")
    assert not [head for head, _ in node.agent.seen if head[0] == wire.EXITED]


def test_another_mover_is_started_when_its_socket_is_gone(node: Node) -> None:
    first, path = ask_for_mover(node.agent)
    os.unlink(path)
    second, path = ask_for_mover(node.agent)
    assert gone(first)
    assert MoverClient(path).hello[2] == second != first


def test_no_interrupt_ends_the_mover(node: Node) -> None:
    pid, path = ask_for_mover(node.agent)
    client = MoverClient(path)
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGUSR1)
    assert client.stat("work")
    assert MoverClient(path).hello[2] == pid


def test_the_mover_outlives_workers_and_generations(node: Node) -> None:
    client = mover_of(node.agent)
    worker = node.ready("""
        import os
        def main():
            os._exit(7)
    """)
    worker.start(1)
    assert node.agent.expect(wire.EXITED)[0][2:5] == [0, node.pid, 7]
    assert client.stat("g1/w0.out")[0][1] == "file"
    node.ready()
    node.agent.send([wire.SIGNAL, 1, 0, "kill"])
    node.agent.expect(wire.EXITED)
    node.ready()
    node.agent.send([wire.STOP, 1, 1, [0], 10.0])
    node.agent.expect(wire.STOPPED)
    assert node.ready("def main():\n    return 2\n", generation=2).call(1) == 2
    assert client.stat("g2")[0][1] == "folder"
    assert ask_for_mover(node.agent)[0] == client.hello[2]


@pytest.mark.parametrize("how", ["shutdown", "terminated", "killed"])
def test_the_mover_ends_with_its_agent(node: Node, how: str) -> None:
    pid, path = ask_for_mover(node.agent)
    client = MoverClient(path)
    if how == "shutdown":
        node.agent.shutdown()
    else:
        os.kill(node.line["pid"], signal.SIGTERM if how == "terminated" else signal.SIGKILL)
    assert gone(node.line["pid"])
    assert gone(pid)
    assert client.at_end()


# Lists


def test_a_file_is_listed_with_its_identity(node: Node, tmp_path: Path) -> None:
    client = mover_of(node.agent)
    file = tmp_path / "model.pt"
    file.write_bytes(b"weights")
    assert client.stat(str(file)) == [[b"", "file", *identity(file), False, b""]]
    file.chmod(0o755)
    os.utime(file, ns=(0, -1))
    (tmp_path / "link").symlink_to("model.pt")
    assert client.stat(str(tmp_path / "link")) == [[b"", "file", *identity(file), True, b""]], "it is followed"
    (node.folder / "here").write_text("")
    assert client.stat("here")[0][2:5] == identity(node.folder / "here"), "relative to the agent's folder"


def test_a_folder_is_listed_with_all_that_is_below_it(node: Node, tmp_path: Path) -> None:
    for path in ("a/c", "a-b", "a/d/deep", "empty"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "a/c/file").write_text("x")
    (tmp_path / "a/link").symlink_to("c")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "run").write_text("#!/bin/sh\n")
    (tmp_path / "run").chmod(0o700)
    found = mover_of(node.agent).stat(str(tmp_path))
    links = {path: target for path, kind, _, _, _, _, target in found if kind == "link"}
    assert links == {b"a/link": b"c", b"out": b"/etc", b"broken": b"nowhere"}
    paths = [entry[0] for entry in found]
    assert paths == sorted(paths)
    assert {path for path, kind, *_ in found if kind == "folder"} == {
        *(b"", b"a", b"a/c", b"a-b", b"a/d", b"a/d/deep", b"empty")
    }
    assert [entry[:1] + entry[5:] for entry in found if entry[1] == "file"] == [
        [b"a/c/file", False, b""],
        [b"run", True, b""],
    ]
    assert not any(entry[5] for entry in found if entry[1] != "file"), "only files are executable"
    (tmp_path / "root").symlink_to(tmp_path / "a")
    assert mover_of(node.agent).stat(str(tmp_path / "root"))[1][0] == b"c", "a link at the path is followed"
    assert [entry[0] for entry in mover_of(node.agent).stat(str(tmp_path / "empty"))] == [b""]


def test_names_need_not_be_text(node: Node, tmp_path: Path) -> None:
    client = mover_of(node.agent)
    name, folder = b"caf\xe9\xff\n 'x", os.fsencode(tmp_path) + b"/\xfe"
    os.mkdir(folder)
    with open(folder + b"/" + name, "wb") as file:
        file.write(b"content")
    os.symlink(name, folder + b"/link")
    assert [(entry[0], entry[6]) for entry in client.stat(folder)] == [(b"", b""), (name, b""), (b"link", name)]
    assert client.content(folder + b"/" + name) == b"content"
    kind, words, number = client.read_failure(folder + b"/\xff")
    assert (kind, number) == ("missing", errno.ENOENT)
    assert words.endswith("/\ufffd/\ufffd: No such file or directory")


def test_a_long_list_comes_in_parts(node: Node, tmp_path: Path) -> None:
    for index in range(10_000):
        (tmp_path / f"{index:05}").touch()
    client = mover_of(node.agent)
    assert [entry[0] for entry in client.stat(str(tmp_path))] == [b"", *(b"%05d" % index for index in range(10_000))]
    assert client.lists == [4096, 4096, 1809]
    folder = tmp_path / "long"
    folder.mkdir()
    for index in range(4000):
        (folder / f"{index:0250}").symlink_to("t" * 250)
    assert len(client.stat(str(folder))) == 4001
    assert len(client.lists) == 3, "each has less than 1 MiB"


def test_what_is_no_file_folder_or_link_is_named(node: Node, tmp_path: Path) -> None:
    client = mover_of(node.agent)
    (tmp_path / "deep").mkdir()
    os.mkfifo(tmp_path / "deep" / "pipe")
    for path in (tmp_path, tmp_path / "deep" / "pipe"):
        assert client.stat_failure(str(path)) == ("kind", f"{tmp_path}/deep/pipe is a named pipe", 0)
    assert client.stat_failure("/dev/null") == ("kind", "/dev/null is a device", 0)
    assert client.stat_failure("mover.sock") == ("kind", "mover.sock is a socket", 0)
    for path in (tmp_path / "deep" / "pipe", Path("/dev/zero"), tmp_path, node.folder / "mover.sock"):
        assert client.read_failure(str(path))[0] == "kind"
    assert client.read_failure(str(tmp_path))[1] == f"{tmp_path} is a folder"


def test_a_file_of_the_system_is_named_and_an_empty_one_is_listed(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mover_of(node.agent)
    words = "has no size: it is a file of the system, not of a disk; read it in the payload"
    for path in ("/proc/cpuinfo", "/proc/self/status"):
        assert client.stat_failure(path) == ("kind", f"{path} {words}", 0)
    assert client.stat_failure("/proc/sys/kernel/random")[0] == "kind"
    (tmp_path / "empty").touch()
    assert [entry[0] for entry in client.stat(str(tmp_path))] == [b"", b"empty"]

    def write_and_read(*args: Any) -> bytes:
        (tmp_path / "empty").write_text("content")
        return pread(*args)

    pread = os.pread
    monkeypatch.setattr(os, "pread", write_and_read)
    assert len(list(files.lists(bytes(tmp_path / "empty")))) == 1, "it gets its first byte meanwhile"


def test_what_is_missing_is_named(node: Node, tmp_path: Path) -> None:
    client = mover_of(node.agent)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for path, number in (("none", errno.ENOENT), ("file/x", errno.ENOTDIR), ("loop", errno.ELOOP)):
        for failure in (client.stat_failure(f"{tmp_path}/{path}"), client.read_failure(f"{tmp_path}/{path}")):
            assert failure == ("missing", f"{tmp_path}/{path}: {os.strerror(number)}", number)
    assert client.stat_failure("")[0] == "missing"
    assert client.stat_failure("x" * 300)[::2] == ("io", errno.ENAMETOOLONG)
    for long, kind in ((b"\xff" * 1_000_000, "io"), (b"\0" * 1_000_000, "invalid")):
        found, words, _ = client.stat_failure(long)
        assert (found, len(words) < wire.MAX_HEAD // 16) == (kind, True)


@needs_root
def test_what_may_not_be_read_is_named() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory(prefix="sky") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "secret").mkdir(0o700)
        (folder / "key").touch(0o600)
        os.seteuid(USER)
        try:
            with pytest.raises(files.Refused, match="secret: Permission denied") as caught:
                list(files.lists(bytes(folder)))
            assert (caught.value.kind, caught.value.number) == ("io", errno.EACCES)
            with pytest.raises(files.Refused, match="key: Permission denied"):
                files.read(bytes(folder / "key"), None, 0, memoryview(bytearray(9)))
            assert len(list(files.lists(bytes(folder / "key")))) == 1, "an empty file may be one of a disk"
        finally:
            os.seteuid(user)


def test_what_is_removed_during_the_walk_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    lstat, listdir = os.lstat, os.listdir

    def vanish(path: Any) -> Any:
        if path.endswith(b"/a"):
            raise FileNotFoundError(errno.ENOENT, "gone")
        return lstat(path)

    def replace(path: Any) -> Any:
        if path.endswith(b"/b"):
            raise NotADirectoryError(errno.ENOTDIR, "a file now")
        return listdir(path)

    monkeypatch.setattr(os, "lstat", vanish)
    monkeypatch.setattr(os, "listdir", replace)
    [found] = [msgspec.msgpack.decode(part) for part in files.lists(bytes(tmp_path))]
    assert [entry[0] for entry in found] == [b"", b"c"]


def test_times_beyond_64_bits_are_identities_too() -> None:
    values = [0o100600, 1, 1, 1, 0, 0, 5, 0, 1 << 40, 0]
    for seconds in (1 << 40, -(1 << 40)):
        values[8] = seconds
        found = files.identity(os.stat_result(values, {"st_mtime_ns": seconds * 10**9}))
        assert -(1 << 63) <= found[2] < 1 << 63


# Content


def test_a_file_is_read_in_pieces(node: Node, tmp_path: Path) -> None:
    client = mover_of(node.agent)
    data = os.urandom(5_000_001)
    file = tmp_path / "data"
    file.write_bytes(data)
    assert client.content(str(file)) == data
    assert client.content(str(file), length=1_234_567) == data
    size = len(data)
    for offset, length, expected in (
        *((0, 0, b""), (0, 1, data[:1]), (size - 1, 100, data[-1:]), (size, 100, b""), (size + 1, 100, b"")),
        ((1 << 63) - 1, 100, b""),
    ):
        assert client.read(str(file), offset, length) == (identity(file), expected)
    (tmp_path / "empty").touch()
    assert client.read(str(tmp_path / "empty"))[1] == b""
    assert client.read(str(file), 3, 4, identity(file))[1] == data[3:7]


def test_a_sparse_file_is_read_far_behind_its_beginning(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "sparse"
    with file.open("wb") as opened:
        opened.seek(1 << 40)
        opened.write(b"end")
    assert mover_of(node.agent).read(str(file), (1 << 40) - 1)[1] == b"\0end"


def test_a_file_with_another_identity_has_changed(node: Node, tmp_path: Path) -> None:
    client = mover_of(node.agent)
    file = tmp_path / "data"
    file.write_bytes(b"one")
    known = identity(file)
    for index in range(3):
        other = [*known]
        other[index] += 1
        assert client.read_failure(str(file), other) == ("changed", f"{file} has changed since it was listed", 0)
    file.write_bytes(b"longer")
    assert client.read_failure(str(file), known)[0] == "changed"
    file.unlink()
    assert client.read_failure(str(file), known)[0] == "missing"


def served() -> tuple[socket.socket, Callable[[], None]]:
    """Return the client's socket, which has sent its Hello, and what serves the connection in this process."""
    ours, theirs = socket.socketpair()
    ours.settimeout(DEADLINE)
    ours.sendall(wire.frame([wire.MOVER_ATTACH, wire.PROTOCOL, "pool"]))
    return ours, serving(theirs)


def serving(theirs: socket.socket) -> Callable[[], None]:
    """Return what serves a connection in this process."""
    listener: Any = None
    return partial(program.Mover(listener, "pool", os.getcwd()).serve, peer.Peer(theirs))


def answer(request: list[Any]) -> bytes:
    """Return all bytes that a connection in this process sends for a request, until it ends."""
    ours, serve = served()

    thread = threading.Thread(target=serve)
    thread.start()
    parts = []
    with ours:
        ours.sendall(wire.frame(request))
        ours.shutdown(socket.SHUT_WR)
        while part := ours.recv(1 << 20):
            parts.append(part)
    thread.join(DEADLINE)
    return b"".join(parts)


def while_reading(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act once, before the first byte of a piece is read."""
    preadv, done = os.preadv, list[bool]()

    def read_and_act(*args: Any) -> int:
        if not done:
            done.append(True)
            act()
        return preadv(*args)

    monkeypatch.setattr(os, "preadv", read_and_act)


def test_a_piece_of_a_file_that_becomes_shorter_has_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"x" * 100_000)
    known = identity(file)
    while_reading(monkeypatch, lambda: os.truncate(file, 99))
    piece = wire.frame([wire.MOVER_PIECE, 7, *known], b"x" * 99)
    assert answer(read(file, length=100_000)).endswith(piece)


def test_a_file_that_is_written_while_it_is_read_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"x" * 100)
    known = identity(file)
    while_reading(monkeypatch, lambda: file.write_bytes(b"y" * 100))
    words = f"{file} has changed since it was listed"
    assert answer(read(file, known)).endswith(wire.frame([wire.FAILED, 7, "changed", words, 0]))


def test_a_piece_is_read_until_its_end_also_if_the_system_gives_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, into, offset: preadv(file, [into[0][:7]], offset))
    file = tmp_path / "data"
    file.write_bytes(os.urandom(50))
    assert answer(read(file, offset=3, length=40)).endswith(file.read_bytes()[3:43])
    assert answer(read(file, offset=3, length=99)).endswith(
        wire.frame([wire.MOVER_PIECE, 7, *identity(file)], file.read_bytes()[3:])
    )


def test_files_that_are_shorter_than_their_size_keep_the_connection(node: Node) -> None:
    client = mover_of(node.agent)
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    if not os.path.exists(path):
        pytest.skip("the system has no such file")
    [[_, _, *known, _, _]] = client.stat(path)
    assert client.read(path, identity=known)[1] == Path(path).read_bytes()
    assert known[1] > len(Path(path).read_bytes())
    assert client.stat("work")


def test_an_error_of_the_disk_is_reported_before_the_piece_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def fail(file: int, into: list[memoryview], offset: int) -> int:
        if offset:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return preadv(file, [into[0][:1]], offset)

    monkeypatch.setattr(os, "preadv", fail)
    file = tmp_path / "data"
    file.write_bytes(b"xyz")
    failed = wire.frame([wire.FAILED, 7, "io", f"{file}: Input/output error", errno.EIO])
    assert answer(read(file)) == wire.frame([wire.MOVER_HELLO, wire.PROTOCOL, os.getpid()]) + failed


def test_a_client_that_does_not_read_is_given_up_and_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "_PATIENCE", 0.2)
    file = tmp_path / "data"
    file.write_bytes(bytes(2 << 20))
    ours, serve = served()
    ours.sendall(wire.frame(read(file, length=2 << 20)) * 2)
    began = time.monotonic()
    serve()
    assert 0.1 < time.monotonic() - began < DEADLINE / 2


def test_one_stuck_connection_delays_no_other(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(2 << 20))
    stuck = mover_of(node.agent)
    for _ in range(4):
        stuck.send(read(file, length=2 << 20))
    assert mover_of(node.agent).content(str(file)) == bytes(2 << 20)
    for _ in range(4):
        assert len(stuck.expect(wire.MOVER_PIECE)[1]) == 2 << 20


def test_a_client_that_has_greeted_may_wait_and_another_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "_PATIENCE", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        serving(theirs)()
    ours, serve = served()
    thread = threading.Thread(target=serve)
    thread.start()
    time.sleep(0.3)
    assert thread.is_alive()
    ours.close()
    thread.join(DEADLINE)
    assert not thread.is_alive()


def test_requests_of_a_connection_are_answered_in_their_order(node: Node, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    path = os.fsencode(tmp_path / "file")
    client = mover_of(node.agent)
    frames = [[wire.STAT, 1, "", path], [wire.MOVER_READ, 2, "", path, None, 0, 9], [wire.STAT, 3, "", b"none"]]
    client.socket.sendall(b"".join(wire.frame([*head[:1], index, *head[2:]]) for index, head in enumerate(frames * 9)))
    heads = [client.receive()[0] for _ in range(27)]
    assert [head[1] for head in heads] == list(range(27))
    assert [head[0] for head in heads] == [wire.ENTRIES, wire.MOVER_PIECE, wire.FAILED] * 9


# Artifacts


def test_paths_of_an_artifact_begin_at_its_folder(node: Node) -> None:
    client = mover_of(node.agent)
    folder = node.folder / "artifacts" / ID
    (folder / "content").mkdir(parents=True)
    (folder / "content" / "a").write_bytes(b"abc")
    (folder / "manifest").write_bytes(b"list")
    assert [entry[0] for entry in client.stat("content", ID)] == [b"", b"a"]
    assert client.content("content/a", ID) == b"abc"
    assert client.content("manifest", ID) == b"list"
    assert client.stat_failure("content", ID[::-1])[0] == "missing"
    assert client.ask(wire.MOVER_DROP, ID)[0] == [wire.DONE]
    assert os.listdir(node.folder / "artifacts") == []
    assert client.ask(wire.MOVER_DROP, ID)[0] == [wire.DONE], "also if it is gone"
    assert client.stat_failure("content", ID)[0] == "missing"
    (node.folder / "artifacts").rmdir()
    assert client.ask(wire.MOVER_DROP, ID)[0] == [wire.DONE]


def test_an_artifact_that_cannot_be_removed_is_reported(node: Node) -> None:
    client = mover_of(node.agent)
    (node.folder / "artifacts").write_text("no folder")
    assert client.failure(wire.MOVER_DROP, ID)[0] == "missing"


def leave(path: Path, content: str = "half") -> Path:
    """Make what a worker that was killed leaves of an artifact."""
    path.mkdir(parents=True)
    (path / "content").write_text(content)
    return path


def test_what_killed_workers_leave_is_removed_and_not_what_others_build(node: Node) -> None:
    kept = node.folder / "artifacts"
    leave(kept / f".{ID}")
    copy = leave(kept / f".{ID[::-1]}.moved")
    (leave(kept / f".{'0' * 32}.moved") / "content").unlink()
    (kept / ".file").write_text("no folder")
    (kept / ".link").symlink_to(node.folder)
    built = kept / f".{'1' * 32}"
    lock = artifacts.make_locked(str(built))
    remaining = {copy.name, built.name, ".file", ".link"}
    client = mover_of(node.agent)
    deadline = time.monotonic() + DEADLINE
    while set(os.listdir(kept)) != remaining:
        assert time.monotonic() < deadline, "the mover removes it when it starts"
    os.close(lock)
    leave(kept / f".{'2' * 32}")
    assert client.ask(wire.MOVER_DROP, ID)[0] == [wire.DONE]
    assert set(os.listdir(kept)) == remaining - {built.name}
    assert (copy / "content").read_text() == "half"


def test_an_artifact_is_gone_before_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    leave(tmp_path / "artifacts" / ID)
    monkeypatch.setattr(artifacts, "remove", refuse)
    for _ in range(2):
        with pytest.raises(files.Refused, match=f"artifacts/{ID} cannot be removed: Invalid argument") as caught:
            files.drop(ID)
        assert (caught.value.kind, caught.value.number) == ("io", errno.EINVAL)
        assert os.listdir("artifacts") == [f".{ID}"]
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    files.drop(ID)
    assert os.listdir("artifacts") == []


def refuse(*_: object) -> Any:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def test_a_deep_folder_is_listed_and_removed(node: Node) -> None:
    client = mover_of(node.agent)
    deep = f"artifacts/{ID}/content" + "/d" * 1500
    path = str(node.folder)
    for name in deep.split("/"):
        path += f"/{name}"
        os.mkdir(path)
    assert len(client.stat("content", ID)) == 1501
    assert client.ask(wire.MOVER_DROP, ID)[0] == [wire.DONE]
    assert os.listdir(node.folder / "artifacts") == []


# Requests that cannot be answered


@pytest.mark.parametrize(
    ("number", "fields", "text"),
    [
        (wire.STAT, [ID, b"../x"], "not one below"),
        (wire.STAT, [ID, b"content/../../x"], "not one below"),
        (wire.STAT, [ID, b"/etc/passwd"], "not one below"),
        (wire.STAT, [ID, b"content//x"], "not one below"),
        (wire.STAT, [ID, b"content/./x"], "not one below"),
        (wire.STAT, [ID, b"."], "not one below"),
        (wire.STAT, [ID, b""], "not one below"),
        (wire.STAT, ["", b"a\0b"], "NUL"),
        (wire.STAT, [ID, b"a\0b"], "NUL"),
        (wire.STAT, [ID.upper(), b"content"], "hexadecimal"),
        (wire.STAT, [ID + "\n", b"content"], "hexadecimal"),
        (wire.STAT, ["..", b"content"], "hexadecimal"),
        (wire.STAT, ["x" * 1_000_000, b"content"], "hexadecimal"),
        (wire.MOVER_READ, [ID, b"..", None, 0, 1], "not one below"),
        (wire.MOVER_READ, ["", b"x\0", None, 0, 1], "NUL"),
        (wire.MOVER_READ, ["", b"x", None, 0, (2 << 20) + 1], "at most 2097152 bytes"),
        (wire.MOVER_DROP, [""], "hexadecimal"),
        (wire.MOVER_DROP, ["../../" + "0" * 26], "hexadecimal"),
    ],
)
def test_an_invalid_request_fails_and_the_connection_stays(
    node: Node, number: int, fields: list[Any], text: str
) -> None:
    client = mover_of(node.agent)
    kind, words, error = client.failure(number, *fields)
    assert (kind, error) == ("invalid", 0)
    assert text in words
    assert len(words) < 300
    assert client.stat("work")[0][1] == "folder"


def test_an_unexpected_error_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def fail(*_: object) -> None:
        raise RecursionError("too deep: \udcff")

    monkeypatch.setattr(files, "drop", fail)
    monkeypatch.setattr(connection, "complain", said.append)
    failed = wire.frame([wire.FAILED, 7, "io", "the mover failed: RecursionError: too deep: ?", 0])
    assert answer([wire.MOVER_DROP, 7, ID]).endswith(failed)
    assert "RecursionError: too deep" in said[0]


@pytest.mark.parametrize("pool", ["other", ""])
def test_only_clients_of_the_agents_pool_are_served(node: Node, pool: str) -> None:
    path = ask_for_mover(node.agent)[1]
    stranger = Frames(path)
    stranger.send([wire.MOVER_ATTACH, wire.PROTOCOL, pool])
    assert stranger.receive()[0] == [
        *(wire.ERROR, wire.MOVER_ATTACH, f"this mover belongs to pool pool, not {pool}", 0)
    ]
    assert stranger.at_end()
    assert MoverClient(path).stat("work"), "also if a stranger was first"


def test_the_name_of_a_pool_may_be_any_text(folder: Path) -> None:
    start_agent(folder)
    pool = "pool \0\n=é"
    agent = AgentClient(folder, pool=pool)
    assert MoverClient(ask_for_mover(agent)[1], pool).stat("work")
    agent.shutdown()


# Clients that break the protocol


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ([wire.MOVER_READ, 1, "", b"x", None, -1, 1], "$[5]"),
        ([wire.MOVER_READ, 1, "", b"x", None, 0, -1], "$[6]"),
        ([wire.MOVER_READ, 1, "", b"x", [1, 2], 0, 1], "$[4]"),
        ([wire.MOVER_READ, 1, "", "text", None, 0, 1], "$[3]"),
        ([wire.MOVER_ATTACH, 2, "pool"], "version 3"),
        ([wire.MOVER_ATTACH, 2, {"of": "another version"}], "version 3"),
        ([wire.MOVER_ATTACH, wire.PROTOCOL, "other"], "belongs to pool pool"),
        ([204, 1], "204"),
        ([wire.CHANNEL_SEND], "one of workers"),
        ([], "message number"),
    ],
)
def test_a_breach_of_the_protocol_is_answered_by_an_error(node: Node, head: list[Any], text: str) -> None:
    path = ask_for_mover(node.agent)[1]
    client = MoverClient(path)
    client.send(head)
    error, _ = client.receive()
    assert [error[0], error[1], error[3]] == [wire.ERROR, head[0] if head else 0, 0]
    assert text in error[2]
    assert client.at_end()
    assert MoverClient(path).stat("work")


@pytest.mark.parametrize(
    "data",
    [
        wire.frame([wire.STAT, 1, "", b"."]),
        wire.frame([wire.MOVER_ATTACH, 2, "pool"]),
        b"GET / HTTP/1.1\r\n\r\n",
        wire.HEADER.pack(8, 1 << 20) + bytes(100),
        wire.frame([wire.STAT, 1, "", b"."], bytes(5000)),
        wire.HEADER.pack(20_000, 0) + b"\x91" * 20_000,
        wire.HEADER.pack(1, 0) + b"\xc1",
    ],
)
def test_garbage_gets_an_error_and_the_mover_lives_on(node: Node, data: bytes) -> None:
    pid, path = ask_for_mover(node.agent)
    stranger = Frames(path)
    stranger.socket.sendall(data)
    head, _ = stranger.receive()
    assert head[0] == wire.ERROR
    assert head[2]
    assert stranger.at_end()
    for part in (b"\1", wire.HEADER.pack(9, 9), data[:-1]):
        half = Frames(path)
        half.socket.sendall(part)
        half.close()
    assert MoverClient(path).hello[2] == pid


def test_a_mover_serves_many_connections_and_refuses_more(node: Node) -> None:
    path = ask_for_mover(node.agent)[1]
    clients = [MoverClient(path) for _ in range(64)]
    refused = Frames(path)
    refused.send([wire.MOVER_ATTACH, wire.PROTOCOL, "pool"])
    head, _ = refused.receive()
    assert (head[0], head[1], head[3]) == (wire.ERROR, 0, 0)
    assert "64 connections to this mover are open" in head[2]
    assert refused.at_end()
    assert all(client.stat("work")[0][1] == "folder" for client in (clients[0], clients[-1]))
    clients.pop().close()
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            assert MoverClient(path).stat("work")
            break
        except (EOFError, OSError):
            assert time.monotonic() < deadline


def test_the_connection_that_is_idle_the_longest_gives_way_if_all_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_MOST", 3)
    listener: Any = None
    mover = program.Mover(listener, "pool", os.getcwd())
    ours: list[socket.socket] = []

    def connect() -> None:
        here, there = socket.socketpair()
        here.settimeout(DEADLINE)
        here.sendall(wire.frame([wire.MOVER_ATTACH, wire.PROTOCOL, "pool"]))
        ours.append(here)
        mover.accept(there)

    def number(client: socket.socket) -> int:
        """Return the number of the next message; 0 at the end."""
        received = client.recv(1 << 16)
        return int(msgspec.msgpack.decode(received[8 : 8 + wire.HEADER.unpack_from(received)[0]])[0]) if received else 0

    # Each has a thread of its own: the next one connects when the one before is admitted.
    for answer in [wire.MOVER_HELLO] * 3 + [wire.ERROR]:
        connect()
        assert number(ours[-1]) == answer, "none has waited for long"
    deadline = time.monotonic() + DEADLINE
    while any(each.idle_since is None for each in mover._clients):
        assert time.monotonic() < deadline
    busy, idle, idlest = mover._clients
    busy.idle_since = None
    idle.idle_since = time.monotonic() - program._IDLE - 1
    idlest.idle_since = time.monotonic() - program._IDLE - 2
    connect()
    assert number(ours[-1]) == wire.MOVER_HELLO
    assert {busy, idle} < mover._clients
    assert idlest not in mover._clients
    assert [client.recv(1) for client in select.select(ours[:3], [], [], DEADLINE)[0]] == [b""]
    for client in ours:
        client.close()
    deadline = time.monotonic() + DEADLINE
    while mover._clients:
        assert time.monotonic() < deadline


def test_a_client_that_greets_byte_by_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "_PATIENCE", 0.3)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serving(theirs))
    thread.start()
    deadline = time.monotonic() + DEADLINE
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            ours.sendall(b"\0")
            time.sleep(0.05)
    thread.join(DEADLINE)
    ours.close()


def test_a_mover_without_descriptors_waits_for_some() -> None:
    """A listener that has none at first, and then ends the test."""

    class Listener:
        calls = 0

        def accept(self) -> tuple[socket.socket, None]:
            self.calls += 1
            if self.calls <= 2:
                raise OSError((errno.EMFILE, errno.ENOMEM)[self.calls - 1], "no room")
            raise KeyboardInterrupt

    listener: Any = Listener()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        program.Mover(listener, "pool", os.getcwd()).run()
    assert time.monotonic() - began >= 2 * PAUSE


def test_a_mover_without_room_for_a_thread_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    waiting = [theirs]

    class Listener:
        def accept(self) -> tuple[socket.socket, None]:
            if not waiting:
                raise KeyboardInterrupt
            return waiting.pop(), None

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    listener: Any = Listener()
    mover = program.Mover(listener, "pool", os.getcwd())
    with pytest.raises(KeyboardInterrupt):
        mover.run()
    assert ours.recv(1) == b""
    assert not mover._open


def test_the_mover_needs_little_memory(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as opened:
        opened.truncate(1 << 30)
    client = mover_of(node.agent)
    for index in range(100):
        client.read(str(file), index * (2 << 20))
    status = Path(f"/proc/{client.hello[2]}/status").read_text()
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    assert peak < 60_000, "KiB"


def test_connections_may_be_many_one_after_another(make_node: Callable[..., Node]) -> None:
    path = ask_for_mover(make_node().agent)[1]
    for _ in range(200):
        client = MoverClient(path)
        client.stat("work")
        client.close()
