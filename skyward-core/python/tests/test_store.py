"""The store of a node: its files, the processes that hold them, and what is removed to make room."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep, time

import pytest

from skyward._calls import store as module
from skyward._calls.hashing import hash_of
from skyward._calls.store import Store, StoreFullError

KIB = 1 << 10
LIMIT = 1 << 20


def files(folder: Path) -> set[str]:
    """Return the names of complete files."""
    return {name for name in os.listdir(folder) if not name.startswith(".")}


def data(fill: int, kib: int = 300) -> memoryview:
    return memoryview(bytes([fill]) * (kib * KIB))


def load(store: Store, digest: str, size: int = 300 * KIB) -> bytes:
    loaded = store.load(digest, size)
    assert loaded is not None
    return bytes(memoryview(loaded[0]))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"), LIMIT)


def test_data_is_read_by_its_name_and_written_once(tmp_path: Path, store: Store) -> None:
    hold = store.put(data(1))
    assert hold.digest == hash_of(data(1))
    again, other = store.put(data(1)), Store(str(tmp_path / "store"), LIMIT)
    assert again.file is hold.file
    assert other.put(data(1)).digest == hold.digest
    assert (store.written, other.written) == (1, 0)
    found = other.load(hold.digest, hold.size)
    assert found is not None
    loaded = found[0]
    assert memoryview(loaded) == data(1)
    assert store.read(hold.digest, 10, 5) == b"\1" * 5
    assert other.load("0" * 64, 10) is None
    assert store.read("0" * 64, 0, 1) is None
    assert files(tmp_path / "store") == {hold.digest}
    # A change is made to a private copy.
    loaded[0] = 2
    assert load(other, hold.digest) == data(1)
    assert store.read(hold.digest, 0, 1) == b"\1"


def test_unused_files_are_removed_to_make_room_oldest_first(tmp_path: Path, store: Store) -> None:
    names = []
    for fill in range(3):
        names.append(store.put(data(fill)).digest)
        path = tmp_path / "store" / names[-1]
        os.utime(path, (time() - 100 + fill, time() - 100 + fill))
    assert files(tmp_path / "store") == {*names}
    # This file counts as recently used now.
    assert store.load(names[0], 300 * KIB) is not None
    fourth = store.put(data(3)).digest
    assert files(tmp_path / "store") == {names[0], names[2], fourth}


def test_held_and_mapped_files_stay_and_fill_the_store(tmp_path: Path, store: Store) -> None:
    held, found = store.put(data(1)), store.load(store.put(data(2)).digest, 300 * KIB)
    assert found is not None
    loaded, found = found[0], None
    assert loaded is not None
    third = store.put(data(3))
    with pytest.raises(
        StoreFullError, match="holds 921600 bytes that are in use, and `Limits::store_bytes` is 1048576"
    ):
        Store(str(tmp_path / "store"), LIMIT).put(data(4))
    name = third.digest
    del third
    Store(str(tmp_path / "store"), LIMIT).put(data(4))
    assert name not in files(tmp_path / "store")
    assert held.digest in files(tmp_path / "store")
    assert memoryview(loaded) == data(2)


def test_too_large_data_leaves_no_file_and_removes_unused_files(tmp_path: Path, store: Store) -> None:
    with pytest.raises(StoreFullError):
        store.put(data(1, 2 * KIB))
    assert {name for name in os.listdir(tmp_path / "store") if name != ".lock"} == set()


def test_a_killed_process_holds_no_files(tmp_path: Path, store: Store) -> None:
    code = f"""
import sys, time
from skyward._calls.store import Store
store = Store({str(tmp_path / "store")!r}, {LIMIT})
hold = store.put(memoryview(bytes(600 * 1024)))
loaded = store.load(hold.digest, hold.size)
print("held", flush=True)
time.sleep(600)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(StoreFullError):
            store.put(data(1, 600))
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    hold = store.put(data(1, 600))
    assert files(tmp_path / "store") == {hold.digest}


def test_incomplete_files_of_a_killed_process_are_removed(tmp_path: Path, store: Store) -> None:
    hold = store.put(data(1, 400))
    left = tmp_path / "store" / ".4242-0"
    left.write_bytes(bytes(600 * KIB))
    # The lock file still counts the bytes of the incomplete file.
    (tmp_path / "store" / ".lock").write_text(str(1000 * KIB))
    with pytest.raises(StoreFullError):
        store.put(data(2, 400))
    os.utime(left, (0, 0))
    store.put(data(2, 400))
    assert not left.exists()
    assert int((tmp_path / "store" / ".lock").read_text()) == 800 * KIB
    assert hold.digest in files(tmp_path / "store")


def test_only_one_of_several_processes_fetches_a_file(tmp_path: Path) -> None:
    code = f"""
import sys, time
from skyward._calls.store import Store
store = Store({str(tmp_path / "store")!r}, {LIMIT})
def pieces():
    sys.stdin.readline()
    yield bytes(100_000)
    yield bytes(200_000)
print("begins", flush=True)
store.receive({hash_of(memoryview(bytes(300_000)))!r}, 300_000, pieces)
loaded = store.load({hash_of(memoryview(bytes(300_000)))!r}, 300_000)[0]
print(store.received, len(loaded), flush=True)
"""
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        said = [child.communicate(timeout=60)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert sorted(said) == ["0 300000\n", "0 300000\n", "1 300000\n"]
    assert {name for name in os.listdir(tmp_path / "store") if name != ".lock"} == {hash_of(memoryview(bytes(300_000)))}


def test_wrong_bytes_are_refused_and_leave_no_file(tmp_path: Path, store: Store) -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(1000)

    with pytest.raises(ValueError, match="the bytes that arrived for an array of 1000 bytes do not match its hash"):
        store.receive("0" * 64, 1000, pieces)
    assert {name for name in os.listdir(tmp_path / "store") if name != ".lock"} == set()


def test_two_that_write_the_same_at_the_same_time_hold_the_same_file(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Store(str(tmp_path / "store"), LIMIT)
    publish = Store._publish
    held: list[object] = []

    def late(self: Store, *arguments: object) -> object:
        if not held:
            held.append(None)
            held[0] = other.put(data(7))
        return publish(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "_publish", late)
    hold = store.put(data(7))
    del held[:]
    inode = (tmp_path / "store" / hold.digest).stat().st_ino
    assert os.fstat(hold.file.fileno()).st_ino == inode


def test_a_process_holds_only_so_many_descriptors(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"), 1 << 30)
    holds = []
    with pytest.raises(StoreFullError, match="hold 256 arrays already"):
        for number in range(1000):
            holds.append(store.put(memoryview(number.to_bytes(8, "little"))))
    assert len(holds) == 256
    del holds[:]
    end = monotonic() + 10
    while True:
        try:
            store.put(memoryview(b"one more"))
            break
        except StoreFullError:
            assert monotonic() < end
            sleep(0.01)


def test_new_arrays_with_the_same_bytes_share_one_descriptor(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"), 1 << 30)
    holds = [store.put(data(1), is_known=False) for _ in range(300)]
    assert len({hold.file.fileno() for hold in holds}) == 1
    assert memoryview(load(store, holds[0].digest)) == data(1)
    held = holds.pop()
    del holds[:]
    assert store.put(data(1), is_known=False).file is held.file


def test_a_file_is_named_by_its_bytes_also_when_they_change_while_they_are_put(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing = bytearray(data(0))
    find = Store._open

    def late(self: Store, digest: str, size: int) -> object:
        changing[:] = data(9)
        return find(self, digest, size)

    monkeypatch.setattr(Store, "_open", late)
    hold = store.put(memoryview(changing))
    monkeypatch.undo()
    assert hash_of(memoryview((tmp_path / "store" / hold.digest).read_bytes())) == hold.digest
    assert load(store, store.put(data(0)).digest) == data(0)


def test_a_child_that_is_forked_while_a_lock_is_held_does_not_keep_it(tmp_path: Path, store: Store) -> None:
    store.put(data(1))
    path = str(tmp_path / "store" / ".lock")
    with module._locked(path):
        child = os.fork()
        if child == 0:
            sleep(60)
            os._exit(0)
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError), module._locked(path), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_files_beyond_the_mapping_limit_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_HELD", 3)
    hold = store.put(data(1))
    found = [store.load(hold.digest, hold.size) for _ in range(4)]
    loaded = [one[0] for one in found if one]
    found.clear()
    assert [type(one).__name__ for one in loaded] == ["mmap", "mmap", "mmap", "bytearray"]
    assert isinstance(loaded[3], bytearray)
    assert loaded[3] == data(1)
    del loaded[0]
    again = store.load(hold.digest, hold.size)
    assert again is not None
    assert type(again[0]).__name__ == "mmap"


def test_a_file_with_a_wrong_size_is_ignored(tmp_path: Path, store: Store) -> None:
    hold = store.put(data(1))
    del hold
    digest = hash_of(data(1))
    (tmp_path / "store" / digest).write_bytes(b"short")
    other = Store(str(tmp_path / "store"), LIMIT)
    assert other.load(digest, 300 * KIB) is None
    assert load(other, other.put(data(1)).digest) == data(1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOLCK, errno.EROFS, errno.EMFILE])
def test_a_file_system_that_refuses_counts_as_full(store: Store, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreFullError, match=f"the node could not store an array: {os.strerror(number)}"):
        store.put(data(1))


def test_files_are_not_listed_while_there_is_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    def look(*_: object) -> int:
        looks.append(None)
        return 0

    monkeypatch.setattr(Store, "_evict", look)
    for fill in range(3):
        store.put(data(fill))
    assert looks == []
    store.put(data(3))
    assert looks == [None]
