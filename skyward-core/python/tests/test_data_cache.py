"""The cache of data sets: where it is, who uses which of them, what gives way, and what is on the disk."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skyward._core import artifacts, data_folders, wire
from skyward._mover import data_cache, data_record

from .attending import Here, Writer
from .data_client import MODIFIED, DataClient, Listed, end, mover, of_size, tree_of
from .other_user import USER, needs_root, running


@pytest.fixture
def client(tmp_path: Path, cache: Path) -> DataClient:
    return mover(tmp_path)[1]


def left(home: Path, cache: Path, used: int, size: int = 1000) -> Listed:
    """Bring a data set by a mover that has ended; it was last used at this time."""
    data = of_size(size)
    here, client = mover(home)
    client.bring(data)
    end(here)
    os.utime(data_folders.use_lock(str(cache), data.id), (used, used))
    return data


def kept(cache: Path) -> set[str]:
    return {name for name in os.listdir(cache) if name != ".locks"}


def ids(*sets: Listed) -> set[str]:
    return {data.id for data in sets}


# Room


def test_the_earliest_used_give_way_until_the_limit_is_kept(tmp_path: Path, cache: Path, client: DataClient) -> None:
    second, first, third = (left(tmp_path, cache, used) for used in (2, 1, 3))
    new = of_size(1000)
    client.bring(new, most=4000)
    assert kept(cache) == ids(first, second, third, new)
    newer = of_size(1500)
    path = client.bring(newer, most=4400)
    assert kept(cache) == ids(third, new, newer)
    assert tree_of(path) == newer.tree


def test_what_is_in_use_stays_and_the_limit_alone_refuses_nothing(
    tmp_path: Path, cache: Path, client: DataClient
) -> None:
    sets = [left(tmp_path, cache, used) for used in (1, 2, 3, 4)]
    user = DataClient(mover(tmp_path)[0].client(attends=False))
    user.bring(sets[0])
    os.utime(data_folders.use_lock(str(cache), sets[0].id), (1, 1))
    filling = data_folders.take(data_folders.fill_lock(str(cache), sets[1].id), False)
    reading = data_folders.take(data_folders.use_lock(str(cache), sets[2].id), True)
    new = of_size(5000)
    client.bring(new, most=1)
    assert kept(cache) == ids(*sets[:3], new)
    for lock in (filling, reading):
        assert lock is not None
        os.close(lock)


def test_what_is_there_needs_no_room(tmp_path: Path, cache: Path, client: DataClient) -> None:
    first, second = (left(tmp_path, cache, used) for used in (1, 2))
    client.bring(first, most=1)
    assert kept(cache) == ids(first, second)


def test_an_interrupted_fill_counts_with_all_of_its_bytes(tmp_path: Path, cache: Path, client: DataClient) -> None:
    here, other = mover(tmp_path)
    half = of_size(1000)
    other.attach(half)
    end(here)
    assert data_record.total(f"{cache}/{half.id}") == 1000
    new = of_size(100)
    client.bring(new, most=1099)
    assert kept(cache) == ids(new)


class Disk:
    """A disk on which data sets have their sizes, and which is not as large as that of this host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path, size: int) -> None:
        self.size = size
        self._cache = cache
        monkeypatch.setattr(os, "statvfs", self.statvfs)

    def statvfs(self, path: str) -> Any:
        assert path == str(self._cache)
        used = sum(file.stat().st_size for file in self._cache.glob("*/files/**/*") if file.is_file())

        class Result:
            f_bavail = self.size - used
            f_frsize = 1

        return Result


def test_the_earliest_used_give_way_until_the_disk_has_room(
    tmp_path: Path, cache: Path, client: DataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [left(tmp_path, cache, used) for used in (1, 2, 3)]
    Disk(monkeypatch, cache, 3500)
    new = of_size(2000)
    client.bring(new)
    assert kept(cache) == ids(sets[2], new)


def test_a_disk_without_room_is_named_and_what_is_there_stays(
    tmp_path: Path, cache: Path, client: DataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = left(tmp_path, cache, 1)
    used = of_size(1000)
    client.bring(used)
    disk = Disk(monkeypatch, cache, 2500)
    new = of_size(2000).file(b"small", b"small")
    kind, words, number = client.attach_failure(new)
    assert (kind, number) == ("io", errno.ENOSPC)
    for part in ("needs 2005 more bytes, 1500 are free", str(cache), "make room", "SKYWARD_CACHE_DIR"):
        assert part in words
    assert kept(cache) == ids(used, new)
    assert unused.id not in kept(cache)
    disk.size = 4000
    assert tree_of(client.bring(new)) == new.tree


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_gets_full_is_named(
    cache: Path, client: DataClient, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    data = of_size(1000)
    client.attach(data)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        kind, words, found = client.fill_failure(data, (1, 0, 1000), body=data.contents[1])
    assert (kind, found) == ("io", number)
    assert f"make room on the disk of {cache}" in words
    client.fill_all(data, [1])
    assert tree_of(client.publish(data)) == data.tree


def test_what_is_left_of_a_removal_is_removed(tmp_path: Path, cache: Path, client: DataClient) -> None:
    for number, name in ((1, "1" * 64), (2, "2" * 64)):
        (cache / f".{name}" / "files" / str(number)).mkdir(parents=True)
    (cache / ".locks").mkdir()
    (cache / ".other").mkdir()
    held = data_folders.take(data_folders.fill_lock(str(cache), "2" * 64), False)
    data = of_size(10)
    client.bring(data)
    assert kept(cache) == {data.id, ".other", "." + "2" * 64}
    assert held is not None
    os.close(held)
    again = left(tmp_path, cache, 1)
    assert kept(cache) == {data.id, ".other", again.id}


def test_a_removal_that_fails_costs_nothing_else(
    tmp_path: Path, cache: Path, client: DataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (left(tmp_path, cache, used) for used in (1, 2))
    rename = os.rename

    def fail(source: Any, target: Any) -> None:
        if str(source).endswith(first.id):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    new = of_size(1000)
    client.bring(new, most=2000)
    assert kept(cache) == ids(first, new)
    assert second.id not in kept(cache)


# Locks


def test_a_lock_is_one_of_the_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    flock, removals = fcntl.flock, [path.unlink] * 2

    def late(descriptor: int, operation: int) -> None:
        if removals:
            removals.pop()()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    first = data_folders.take(str(path), False)
    assert first is not None
    assert (data_folders.take(str(path), False), data_folders.take(str(path), True)) == (None, None)
    os.close(first)
    shared = [data_folders.take(str(path), True) for _ in range(2)]
    assert data_folders.take(str(path), False) is None
    for descriptor in shared:
        assert descriptor is not None
        os.close(descriptor)


def test_a_cache_that_was_removed_is_made_again(tmp_path: Path, cache: Path, client: DataClient) -> None:
    data = of_size(10)
    client.bring(data)
    artifacts.remove(str(cache.parent))
    client.bring(data)
    assert data_folders.take(data_folders.use_lock(str(cache), data.id), False) is None


# Where it is


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SKYWARD_CACHE_DIR": "{}/own/"}, "own/data"),
        ({"SKYWARD_CACHE_DIR": "", "XDG_CACHE_HOME": "{}/xdg"}, "xdg/skyward/data"),
        ({"XDG_CACHE_HOME": "", "HOME": "{}/user"}, "user/.cache/skyward/data"),
        ({"SKYWARD_CACHE_DIR": "{}/file/x"}, "home/data"),
        ({"SKYWARD_CACHE_DIR": "relative"}, "home/data"),
        ({"SKYWARD_CACHE_DIR": "/proc/none"}, "home/data"),
    ],
)
def test_the_folder_is_that_of_the_cache_or_that_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("SKYWARD_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    (tmp_path / "file").touch()
    os.umask(os.umask(0o077))
    folder = Path(data_cache.Cache(str(tmp_path / "home")).folder)
    assert folder == tmp_path / expected
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".locks").stat().st_mode & 0o777 == 0o700


def test_a_file_system_without_locks_has_no_cache(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def refuse(descriptor: int, operation: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(cache)):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert data_cache.Cache(str(tmp_path)).folder == str(tmp_path / "data")


@pytest.mark.parametrize("which", [".", ".locks"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_to_which_others_may_write_has_no_cache(tmp_path: Path, cache: Path, which: str, mode: int) -> None:
    (cache / ".locks").mkdir(parents=True, mode=0o700)
    cache.chmod(0o700)
    assert data_cache.Cache(str(tmp_path)).folder == str(cache)
    (cache / which).chmod(mode)
    assert data_cache.Cache(str(tmp_path)).folder == str(tmp_path / "data")


@needs_root
def test_a_folder_of_another_user_has_no_cache(tmp_path: Path, cache: Path) -> None:
    (cache / ".locks").mkdir(parents=True, mode=0o700)
    cache.chmod(0o700)
    os.chown(cache, USER, USER)
    assert data_cache.Cache(str(tmp_path)).folder == str(tmp_path / "data")


def test_no_folder_at_all_is_named(cache: Path, client: DataClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    kind, words, _ = client.attach_failure(of_size(1))
    assert kind == "io"
    for part in ("no folder can keep data sets", f"{cache}: No locks available", "set SKYWARD_CACHE_DIR"):
        assert part in words


@needs_root
def test_a_cache_of_another_user_is_not_used_and_closed_folders_are_removed(tmp_path: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    home = tmp_path / "home"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    data = Listed().folder(b"d").file(b"d/f", b"x").folder(b"closed")

    def act(end: int, begin: int) -> list[Any]:
        os.write(begin, b"+")
        _, client = mover(home)
        path = client.bring(data)
        (Path(path) / "added" / "deep").mkdir(parents=True)
        for mode, name in ((0, "added/deep"), (0o500, "added"), (0, "d/f"), (0, "d"), (0, "closed"), (0, "")):
            os.chmod(f"{path}/{name}", mode)
        found = client.attach(data)
        return [*found, tree_of(path) == data.tree]

    with running(act) as finish:
        assert finish() == [f"{home}/data/{data.id}/files", [], True]


# The record


def test_this_version_reads_and_writes_the_record_of_version_1(cache: Path, client: DataClient, tmp_path: Path) -> None:
    data = Listed().file(b"caf\xe9", b"x" * 300, True)
    path = client.bring(data)
    about = os.stat(os.fsencode(path) + b"/caf\xe9")
    entry = [b"caf\xe9", [about.st_ino, 300, MODIFIED], data.entries[1][3], True]
    record = cache / data.id / "record"
    assert record.read_bytes() == msgspec.msgpack.encode([1, 300, [entry]])
    assert data_record.read(str(record.parent)) == [(b"caf\xe9", (about.st_ino, 300, MODIFIED), entry[2], True)]
    assert data_record.total(str(record.parent)) == 300


@pytest.mark.parametrize(
    "content",
    [b"", b"\xc1", b"\x91" * 1000, msgspec.msgpack.encode([2, 300, []]), msgspec.msgpack.encode({"version": 1})],
)
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "record").write_bytes(content)
    assert data_record.read(str(tmp_path)) == []
    assert data_record.total(str(tmp_path)) in (0, 300)


# Channels of workers without checkpoints


def test_a_worker_without_steps_talks_to_the_client_and_is_asked_for_no_step(tmp_path: Path, cache: Path) -> None:
    here = Here(tmp_path)
    client = here.client()
    worker = Writer(here.connect(), "")
    assert worker.hello()[1:] == [wire.PROTOCOL, os.getpid()]
    worker.say(b"which folder?")
    channel, number, body = client.sent()
    assert (number, body) == (1, b"which folder?")
    kind, words, _ = client.failure(wire.ASK, channel, 1)
    assert (kind, "has no checkpoints" in words) == ("invalid", True)
    client.deliver(channel, 1, b"this one")
    assert worker.heard() == b"this one"
    worker.close()
    assert client.told()[0] == [wire.CLOSED, channel]
