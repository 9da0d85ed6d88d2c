"""`sky.artifact`: snapshots on a node, whole or not at all, and the plain data that names them."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import errno
import fcntl
import hashlib
import multiprocessing
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

import skyward as sky
from skyward._core import artifacts, state, wire
from skyward._sky import cluster, copying, listing, snapshot
from skyward._values import codec

from .client import DEADLINE, ROOT
from .conftest import Node
from .mover import mover_of

FIELDS = ["node", "id", "name", "size", "sha256", "files"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a node, for this process."""
    home = tmp_path / "node"
    home.mkdir()
    monkeypatch.setenv("SKYWARD_PAYLOADS", str(home / "payloads"))
    monkeypatch.setattr(state, "worker", None)
    monkeypatch.setattr(state, "cluster", {"node": 3})
    monkeypatch.setattr(cluster, "_cached", None)
    return home


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with files, a link, and an empty folder."""
    folder = tmp_path / "run"
    (folder / "a" / "empty").mkdir(parents=True)
    (folder / "a-b").write_bytes(b"1")
    (folder / "a" / "weights").write_bytes(b"0123456789")
    (folder / "a" / "link").symlink_to("../a-b")
    (folder / "tool").write_bytes(b"#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    return folder


def kept(home: Path, artifact: sky.Artifact) -> Path:
    return home / "artifacts" / artifact.id


def manifest(home: Path, artifact: sky.Artifact) -> list[Any]:
    listed: list[Any] = msgspec.msgpack.decode((kept(home, artifact) / "manifest").read_bytes())
    return listed


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def nothing_is_left(home: Path) -> bool:
    return not (home / "artifacts").exists() or os.listdir(home / "artifacts") == []


# What is kept


def test_a_file_is_kept_as_it_was(home: Path, tmp_path: Path) -> None:
    data = os.urandom(3_000_001)
    file = tmp_path / "model.pt"
    file.write_bytes(data)
    made = sky.artifact(file)
    assert made == sky.Artifact(3, made.id, "model.pt", len(data), digest(data), None)
    assert re.fullmatch("[0-9a-f]{32}", made.id)
    file.write_bytes(b"the next epoch")
    assert (kept(home, made) / "content").read_bytes() == data
    assert manifest(home, made) == [[b"", "file", len(data), digest(data), False, b""]]
    again = sky.artifact(str(file), name="epoch 2")
    assert (again.name, again.size, again.id == made.id) == ("epoch 2", 14, False)


@pytest.mark.parametrize("data", [b"", b"abc", bytearray(b"xyz") * 1_000_000, memoryview(b"abcdef")[::2]])
def test_bytes_are_kept_as_a_file(home: Path, data: Any) -> None:
    made = sky.artifact(data)
    whole = bytes(data)
    assert (made.name, made.size, made.sha256, made.files) == ("artifact", len(whole), digest(whole), None)
    assert (kept(home, made) / "content").read_bytes() == whole
    assert manifest(home, made) == [[b"", "file", len(whole), digest(whole), False, b""]]


def test_memory_of_other_shapes_is_kept_as_its_bytes(home: Path) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(12, dtype="int32").reshape(3, 4)
    for view in (array, array.T, array[:, 1:3], array[:0]):
        made = sky.artifact(memoryview(view), name="array")
        assert (kept(home, made) / "content").read_bytes() == view.tobytes()


def test_a_folder_is_kept_with_all_that_is_in_it(home: Path, source: Path) -> None:
    made = sky.artifact(source)
    assert (made.name, made.size, made.files) == ("run", 21, 3)
    listed = manifest(home, made)
    assert listed == [
        [b"", "folder", 0, "", False, b""],
        [b"a", "folder", 0, "", False, b""],
        [b"a-b", "file", 1, digest(b"1"), False, b""],
        [b"a/empty", "folder", 0, "", False, b""],
        [b"a/link", "link", 0, "", False, b"../a-b"],
        [b"a/weights", "file", 10, digest(b"0123456789"), False, b""],
        [b"tool", "file", 10, digest(b"#!/bin/sh\n"), True, b""],
    ]
    assert made.sha256 == digest((kept(home, made) / "manifest").read_bytes())
    content = kept(home, made) / "content"
    assert (content / "a" / "link").read_bytes() == b"1"
    assert os.readlink(content / "a" / "link") == "../a-b"
    assert (content / "a" / "empty").is_dir()
    assert sky.artifact(source).sha256 == made.sha256


def test_an_empty_folder_is_kept(home: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    made = sky.artifact(f"{tmp_path}/none/")
    assert (made.name, made.size, made.files) == ("none", 0, 0)
    assert (kept(home, made) / "content").is_dir()


def test_names_that_are_no_text(home: Path, tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(folder)
    Path(folder, "caf\udce9").write_bytes(b"x")
    made = sky.artifact(folder)
    assert made.name == "\ufffd"
    assert [entry[0] for entry in manifest(home, made)] == [b"", b"caf\xe9"]
    assert os.listdir(os.fsencode(kept(home, made) / "content")) == [b"caf\xe9"]
    assert sky.artifact(f"{folder}/caf\udce9").name == "caf\ufffd"
    codec.encode(made)


@pytest.mark.parametrize("mask", [0o000, 0o777])
@pytest.mark.parametrize("move", [False, True])
def test_only_the_owner_may_use_it_whatever_the_mask(home: Path, source: Path, mask: int, move: bool) -> None:
    (source / "a").chmod(0o755)
    before = os.umask(mask)
    try:
        made = sky.artifact(source, move=move)
    finally:
        os.umask(before)
    folder = kept(home, made)
    modes = {path: (folder / path).stat().st_mode & 0o777 for path in ("", "manifest", "content", "content/a")}
    assert modes == {"": 0o700, "manifest": 0o600, "content": 0o700, "content/a": 0o700}
    assert (home / "artifacts").stat().st_mode & 0o777 == 0o700
    assert (folder / "content" / "a-b").stat().st_mode & 0o777 == 0o600
    assert (folder / "content" / "tool").stat().st_mode & 0o777 == 0o700


def test_hard_links_become_files_of_their_own(home: Path, source: Path) -> None:
    os.link(source / "a-b", source / "same")
    for move in (False, True):
        made = sky.artifact(source, move=move)
        assert (kept(home, made) / "content" / "same").stat().st_nlink == 1
        assert made.files == 4


def test_a_link_at_the_path_is_followed(home: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(source)
    (tmp_path / "best").symlink_to(source / "tool")
    made = sky.artifact(tmp_path / "latest")
    assert (made.name, made.files) == ("latest", 3)
    assert sky.artifact(f"{tmp_path}/latest/").files == 3
    assert (kept(home, sky.artifact(tmp_path / "best")) / "content").stat().st_mode & 0o777 == 0o700


def test_names_of_sources_and_given_names(
    home: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source / "a")
    (source / "a" / "link").unlink()
    assert [sky.artifact(path).name for path in (".", "..", "weights", "../a/", "./empty")] == [
        *("a", "run", "weights", "a", "empty")
    ]
    for name in ("", ".", "..", "a/b", "/", "a\0", "\ud800"):
        with pytest.raises(ValueError, match="cannot be the name"):
            sky.artifact(b"x", name=name)
    with pytest.raises(TypeError, match="not an object of type int"):
        sky.artifact(b"x", name=3)  # type: ignore[arg-type]
    assert len(os.listdir(home / "artifacts")) == 5


# What is refused


@pytest.mark.parametrize("path", ["{tmp}/nothing", "", "{tmp}/run/tool/x"])
def test_a_missing_source_is_missing(home: Path, source: Path, tmp_path: Path, path: str) -> None:
    with pytest.raises((FileNotFoundError, NotADirectoryError)) as caught:
        sky.artifact(path.format(tmp=tmp_path))
    assert caught.value.filename == path.format(tmp=tmp_path)
    assert nothing_is_left(home)


@pytest.mark.parametrize("value", [3, None, ["model.pt"], {"a": 1}, 1.5])
def test_other_types_are_refused(home: Path, value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"path of a file or folder .* or bytes, not an object of type {kind}"):
        sky.artifact(value)


@pytest.mark.parametrize(
    ("place", "target"),
    [
        *(("link", "/etc/passwd"), ("link", ".."), ("link", "../run/tool"), ("a/link", "../../x")),
        *(("link", "a/../../x"), ("link", "a/empty/../weights"), ("a/link", "./.././../x")),
    ],
)
def test_a_link_that_leads_out_is_named(home: Path, source: Path, place: str, target: str) -> None:
    (source / place).unlink(missing_ok=True)
    (source / place).symlink_to(target)
    text = f"the link {source}/{place}: it leads to {target}, .*copy the file .*leave the link out"
    with pytest.raises(ValueError, match=text):
        sky.artifact(source)
    with pytest.raises(ValueError, match="link"):
        sky.artifact(source, move=True)
    assert nothing_is_left(home)
    assert (source / "tool").exists()


@pytest.mark.parametrize(
    ("place", "target"),
    [("link", "a"), ("link", "."), ("link", "./a/nothing"), ("a/link", ".."), ("a/empty/link", "../../tool")],
)
def test_a_link_that_leads_within_the_folder_stays(home: Path, source: Path, place: str, target: str) -> None:
    (source / place).unlink(missing_ok=True)
    (source / place).symlink_to(target)
    made = sky.artifact(source)
    assert os.readlink(kept(home, made) / "content" / place) == target


def test_devices_pipes_and_sockets_are_named(home: Path, source: Path) -> None:
    os.mkfifo(source / "a" / "pipe")
    for path in (source, source / "a" / "pipe"):
        with pytest.raises(ValueError, match=f"keep {source}/a/pipe: it is a named pipe"):
            sky.artifact(path)
    (source / "a" / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "s"))
        with pytest.raises(ValueError, match="it is a socket"):
            sky.artifact(source)
    with pytest.raises(ValueError, match="/dev/null: it is a device"):
        sky.artifact("/dev/null")
    assert nothing_is_left(home)


# Changes meanwhile


def while_copying(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act once, when a file is being hashed."""
    done: list[bool] = []
    original = copying.Copier._pass

    def passing(self: Any, *args: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return original(self, *args)

    monkeypatch.setattr(copying.Copier, "_pass", passing)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize("inside", [True, False])
def test_a_file_that_changes_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path, move: bool, inside: bool
) -> None:
    file = source / "a-b"
    while_copying(monkeypatch, lambda: append(file))
    with pytest.raises(RuntimeError, match=f"the file {file} changed while sky.artifact copied it: close it first"):
        sky.artifact(source if inside else file, move=move)
    assert nothing_is_left(home)
    assert file.read_bytes() == b"1more"
    assert sky.artifact(source, move=move).size == 25


def test_a_file_that_changes_after_it_was_hashed_is_moved_back(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    original = snapshot._write_manifest

    def write(half: Any, listed: Any) -> None:
        original(half, listed)
        append(source / "a-b")

    monkeypatch.setattr(snapshot, "_write_manifest", write)
    with pytest.raises(RuntimeError, match=f"{source}/a-b changed"):
        sky.artifact(source, move=True)
    assert nothing_is_left(home)
    assert (source / "a-b").read_bytes() == b"1more"


def raise_interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("move", [False, True])
def test_an_interrupt_leaves_nothing_half(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path, move: bool
) -> None:
    while_copying(monkeypatch, raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        sky.artifact(source, move=move)
    assert nothing_is_left(home)
    assert (source / "tool").exists()


@pytest.mark.parametrize("when", ["renamed", "publish", "published"])
def test_an_interrupted_move_loses_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path, when: str
) -> None:
    publish, is_same = snapshot._Half.publish, copying.is_same

    def interrupted(half: Any) -> None:
        if when == "published":
            publish(half)
        raise KeyboardInterrupt

    def look(before: os.stat_result, after: os.stat_result) -> bool:
        if when == "renamed" and not source.exists():
            raise KeyboardInterrupt
        return is_same(before, after)

    monkeypatch.setattr(snapshot._Half, "publish", interrupted)
    monkeypatch.setattr(copying, "is_same", look)
    with pytest.raises(KeyboardInterrupt):
        sky.artifact(source, move=True)
    assert nothing_is_left(home)
    assert (source / "a" / "weights").read_bytes() == b"0123456789"


def test_a_source_that_cannot_be_moved_back_is_not_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    def fail(half: Any) -> None:
        source.mkdir()
        (source / "new").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(snapshot._Half, "publish", fail)
    with pytest.raises(OSError, match="not empty"):
        sky.artifact(source, move=True)
    [left] = (home / "artifacts").iterdir()
    assert left.name.startswith(".")
    assert (left / "content" / "a" / "weights").read_bytes() == b"0123456789"


def test_a_timer_of_the_payload_interrupts_a_snapshot(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the payload's own")

    def ioctl(*_: object) -> int:
        signal.raise_signal(signal.SIGALRM)
        return 0

    before = signal.signal(signal.SIGALRM, ring)
    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    (tmp_path / "file").write_bytes(b"x")
    try:
        with pytest.raises(TimeoutError, match="the payload's own"):
            sky.artifact(tmp_path / "file")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert nothing_is_left(home)


def test_a_file_that_is_added_during_a_move_is_put_back_with_all_others(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    rename = os.rename

    def add(old: str, new: str) -> None:
        if old == str(source):
            (source / "a" / "new").write_bytes(b"new")
        rename(old, new)

    monkeypatch.setattr(os, "rename", add)
    with pytest.raises(RuntimeError, match=f"{source}/a/new changed while sky.artifact copied it"):
        sky.artifact(source, move=True)
    assert nothing_is_left(home)
    assert (source / "a" / "new").read_bytes() == b"new"
    monkeypatch.undo()
    (source / "tool").unlink()
    monkeypatch.setenv("SKYWARD_PAYLOADS", str(home / "payloads"))
    monkeypatch.setattr(state, "cluster", {"node": 3})
    assert sky.artifact(source, move=True).files == 3


# Processes that are killed, and other processes


def move_until_killed(source: Path, step: str) -> None:
    """Move a source in a process that is killed at this step."""
    script = f"""
import os, signal, sys
import skyward as sky
from skyward._sky import copying, snapshot
{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sky.artifact(sys.argv[1], move=True)
"""
    command = [sys.executable, "-c", script, str(source)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == -signal.SIGKILL


def test_the_next_snapshot_removes_what_a_killed_process_has_left(home: Path, source: Path) -> None:
    move_until_killed(source, "copying.Copier._pass")
    assert len(os.listdir(home / "artifacts")) == 1
    made = sky.artifact(b"x")
    assert os.listdir(home / "artifacts") == [made.id]
    assert (source / "tool").exists()


def test_a_source_that_a_killed_process_has_moved_is_not_removed(home: Path, source: Path) -> None:
    move_until_killed(source, "snapshot._Half.publish")
    assert not source.exists()
    made = sky.artifact(b"x")
    [left] = set(os.listdir(home / "artifacts")) - {made.id}
    assert re.fullmatch(r"\.[0-9a-f]{32}\.moved", left)
    assert (home / "artifacts" / left / "content" / "a" / "weights").read_bytes() == b"0123456789"


def test_a_snapshot_leaves_alone_what_others_build(home: Path, monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    while_copying(monkeypatch, lambda: sky.artifact(b"meanwhile"))
    made = sky.artifact(source)
    assert len(os.listdir(home / "artifacts")) == 2
    assert (kept(home, made) / "content" / "tool").exists()


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for, seen = artifacts._wait_for, list[int]()

    def late(lock: int) -> None:
        seen.append(lock)
        if len(seen) < 3:
            assert artifacts.sweep(str(home / "artifacts")) == {}
        wait_for(lock)

    monkeypatch.setattr(artifacts, "_wait_for", late)
    made = sky.artifact(b"x")
    assert (len(seen), os.listdir(home / "artifacts")) == (3, [made.id])


def test_a_folder_that_takes_the_place_of_another_before_it_is_locked_stays(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "artifacts"
    (folder / ".half").mkdir(parents=True)
    flock = fcntl.flock

    def replace_and_lock(lock: int, how: int) -> None:
        (folder / ".half").rename(folder / "whole")
        (folder / ".half").mkdir()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", replace_and_lock)
    assert artifacts.sweep(str(folder)) == {}
    assert set(os.listdir(folder)) == {"whole", ".half"}


def test_where_nothing_can_be_locked_nothing_is_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    (home / "artifacts" / ".half").mkdir(parents=True)
    made = sky.artifact(b"x")
    assert set(os.listdir(home / "artifacts")) == {".half", made.id}


def test_what_cannot_be_removed_costs_no_snapshot(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(artifacts, "remove", refuse)
    (home / "artifacts" / ".half").mkdir(parents=True)
    assert (kept(home, sky.artifact(b"x")) / "content").read_bytes() == b"x"
    assert artifacts.sweep(str(home / "artifacts")).keys() == {".half"}


# Deep and large folders


@pytest.fixture
def deep(home: Path) -> Iterator[Path]:
    """A folder that is nested more deeply than Python calls functions."""
    with tempfile.TemporaryDirectory(prefix="sky") as short:
        folder = path = f"{short}/deep"
        for _ in range(1500):
            os.mkdir(path)
            path += "/d"
        Path(path).write_bytes(b"deep")
        yield Path(folder)
        for name in (folder, str(home / "artifacts")):
            artifacts.remove(name)


@pytest.mark.parametrize("move", [False, True])
def test_a_deep_folder_is_kept(home: Path, deep: Path, move: bool) -> None:
    made = sky.artifact(deep, move=move)
    assert (made.files, made.size, len(manifest(home, made))) == (1, 4, 1501)
    assert deep.exists() is not move


def test_a_deep_folder_is_moved_from_another_disk_or_not_at_all(
    home: Path, monkeypatch: pytest.MonkeyPatch, deep: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "_write_manifest", lambda *_: raise_interrupt())
        with pytest.raises(KeyboardInterrupt):
            sky.artifact(deep)
    assert nothing_is_left(home)
    monkeypatch.setattr(snapshot, "_may_rename", lambda *_: False)
    assert sky.artifact(deep, move=True).files == 1
    assert not deep.exists()


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_folder_of_too_many_entries_is_refused_before_it_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path, is_inside: bool
) -> None:
    if not is_inside:
        monkeypatch.delenv("SKYWARD_PAYLOADS")
    monkeypatch.setattr(listing, "_MOST", 7)
    assert sky.artifact(source).files == 3
    monkeypatch.setattr(listing, "_MOST", 6)
    monkeypatch.setattr(copying.Copier, "_pass", lambda *_: pytest.fail("nothing is read"))
    with pytest.raises(ValueError, match=f"keep {source}: it has more than 6 files, .*pack them .* with tarfile"):
        sky.artifact(source)
    assert len(os.listdir(home / "artifacts") if is_inside else []) == is_inside


def test_a_long_manifest_is_refused_before_anything_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    length = (kept(home, sky.artifact(source)) / "manifest").stat().st_size
    monkeypatch.setattr(snapshot, "_LONGEST_MANIFEST", length + 4)
    assert sky.artifact(source).files == 3
    monkeypatch.setattr(snapshot, "_LONGEST_MANIFEST", length - 1)
    monkeypatch.setattr(copying.Copier, "_pass", lambda *_: pytest.fail("nothing is read"))
    with pytest.raises(ValueError, match=r"a list of files of 0 MiB, .*pack them .* with tarfile"):
        sky.artifact(source)
    assert len(os.listdir(home / "artifacts")) == 2


def test_the_limits_are_those_of_the_client() -> None:
    assert (listing._MOST, snapshot._LONGEST_MANIFEST) == (1_000_000, 64 << 20)


# Moves


@pytest.mark.parametrize("inside", ["", "a/weights"])
def test_a_move_renames_on_the_same_disk(home: Path, source: Path, inside: str) -> None:
    path = source / inside
    inode = path.stat().st_ino
    made = sky.artifact(path, move=True)
    content = kept(home, made) / "content"
    assert content.stat().st_ino == inode
    assert not path.exists()
    assert (content / "a" / "weights" if not inside else content).read_bytes() == b"0123456789"
    assert made.size == (10 if inside else 21)


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EBUSY])
def test_a_move_to_another_disk_copies_and_removes(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path, number: int
) -> None:
    rename = os.rename

    def refuse(old: str, new: str) -> None:
        if old == str(source):
            raise OSError(number, os.strerror(number))
        rename(old, new)

    def write(half: Any, listed: Any) -> None:
        original(half, listed)
        names.append(os.path.basename(half.folder))

    original, names = snapshot._write_manifest, list[str]()
    monkeypatch.setattr(snapshot, "_write_manifest", write)
    monkeypatch.setattr(os, "rename", refuse)
    made = sky.artifact(source, move=True)
    assert names == [f".{made.id}"] * 2, "a copy is not set apart"
    assert not source.exists()
    assert (kept(home, made) / "content" / "a" / "link").read_bytes() == b"1"
    assert made.sha256 == digest((kept(home, made) / "manifest").read_bytes())


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs another disk")
def test_a_move_from_another_disk(home: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder) / "model.pt"
        file.write_bytes(b"weights")
        made = sky.artifact(file, move=True)
        assert not file.exists()
    assert (kept(home, made) / "content").read_bytes() == b"weights"


def test_a_move_leaves_what_others_may_use(home: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(source)
    os.link(source / "tool", tmp_path / "tool")
    for path in (tmp_path / "latest", tmp_path / "tool"):
        made = sky.artifact(path, move=True)
        assert not path.is_symlink()
        assert not path.exists()
        append(source / "tool")
        assert made.size == sum(entry[2] for entry in manifest(home, made))
    assert (source / "tool").read_bytes() == b"#!/bin/sh\nmoremore"


def test_what_is_added_to_a_source_that_was_copied_is_not_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = snapshot._write_manifest

    def write(half: Any, listed: Any) -> None:
        original(half, listed)
        (source / "new").write_bytes(b"new")

    monkeypatch.setattr(snapshot, "_may_rename", lambda *_: False)
    monkeypatch.setattr(snapshot, "_write_manifest", write)
    made = sky.artifact(source, move=True)
    assert made.files == 3
    assert os.listdir(source) == ["new"]
    assert f"has copied {source}, and cannot remove it: Directory not empty" in capsys.readouterr().err


def test_a_source_that_cannot_be_removed_does_not_cost_the_artifact(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    os.link(source / "tool", source / "same")
    monkeypatch.setattr(os, "unlink", refuse)
    made = sky.artifact(source / "tool", move=True)
    assert (kept(home, made) / "content").exists()
    assert f"has copied {source}/tool, and cannot remove it: Permission denied" in capsys.readouterr().err


def test_bytes_cannot_be_moved(home: Path) -> None:
    with pytest.raises(TypeError, match="cannot move bytes"):
        sky.artifact(b"x", move=True)


# The disk


def test_files_that_share_their_content_need_no_room(home: Path, monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    def share(copy: int, request: int, original: int) -> int:
        assert request == 0x40049409
        os.pwrite(copy, os.pread(original, 1000, 0), 0)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", share)
    monkeypatch.setattr(copying.Copier, "_check_room", lambda self: pytest.fail("it needs no room"))
    made = sky.artifact(source)
    assert manifest(home, made)[5] == [b"a/weights", "file", 10, digest(b"0123456789"), False, b""]


def test_too_little_room_is_reported_before_anything_is_copied(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = list(os.statvfs(home))
    disk[1], disk[4] = 4096, 300
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(disk))
    monkeypatch.setattr(copying.Copier, "_pass", lambda *_: pytest.fail("nothing is copied"))
    file = tmp_path / "large"
    file.touch()
    os.truncate(file, 5 << 30)
    with pytest.raises(OSError, match=r"needs 5\.0 GiB for .*large, and 1\.2 MiB are free") as caught:
        sky.artifact(file)
    assert caught.value.errno == errno.ENOSPC
    assert all(text in str(caught.value) for text in ("move=True", "smaller folder", "discard earlier"))
    with pytest.raises(OSError, match=r"needs 2\.0 MiB for these bytes"):
        sky.artifact(bytes(2 << 20))
    assert nothing_is_left(home)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A node's folder on a small disk."""
    if os.geteuid():
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "node"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4 << 20}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_fills_up_keeps_no_half_artifact(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SKYWARD_PAYLOADS", str(small_disk / "payloads"))
    monkeypatch.setattr(state, "cluster", {"node": 0})
    (tmp_path / "data").write_bytes(bytes(6 << 20))
    with pytest.raises(OSError, match=r"needs 6\.0 MiB .* and 4\.0 MiB are free"):
        sky.artifact(tmp_path / "data")
    monkeypatch.setattr(copying.Copier, "_check_room", lambda self: None)
    for source in (tmp_path / "data", bytes(6 << 20)):
        with pytest.raises(OSError, match=r"needs 6\.0 MiB .* are free") as caught:
            sky.artifact(source)
        assert caught.value.errno == errno.ENOSPC
    assert nothing_is_left(small_disk)
    assert sky.artifact(bytes(3 << 20)).size == 3 << 20


def test_a_large_file_needs_little_memory(home: Path, tmp_path: Path) -> None:
    import tracemalloc

    os.truncate(os.open(tmp_path / "large", os.O_CREAT | os.O_WRONLY), 64 << 20)
    tracemalloc.start()
    try:
        sky.artifact(tmp_path / "large")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


# Outside a pool, and elsewhere


def test_outside_a_pool_all_is_checked_and_nothing_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    inside = sky.artifact(source)
    monkeypatch.delenv("SKYWARD_PAYLOADS")
    outside = sky.artifact(source, move=True)
    assert dataclasses.replace(outside, node=3, id=inside.id) == inside
    assert outside.node == 0
    assert (source / "a" / "weights").exists(), "nothing is moved"
    assert sky.artifact(b"abc").sha256 == digest(b"abc")
    (source / "link").symlink_to("/etc")
    with pytest.raises(ValueError, match="/etc"):
        sky.artifact(source)
    assert len(os.listdir(home / "artifacts")) == 1
    monkeypatch.setattr(state, "worker", object())
    with pytest.raises(RuntimeError, match="has removed SKYWARD_PAYLOADS"):
        sky.artifact(b"x")


def test_the_id_does_not_depend_on_seeds(home: Path) -> None:
    import random

    ids = set()
    for _ in range(3):
        random.seed(1)
        ids.add(sky.artifact(b"x").id)
    assert len(ids) == 3


def test_it_is_sent_as_a_map_of_its_fields() -> None:
    @dataclasses.dataclass
    class Epoch:
        loss: float
        model: sky.Artifact

    made = sky.Artifact(1, "0" * 32, "model.pt", 7, "f" * 64, None)
    plain = {"node": 1, "id": "0" * 32, "name": "model.pt", "size": 7, "sha256": "f" * 64, "files": None}
    assert list(plain) == FIELDS
    for value, expected in (
        (made, plain),
        ([made, (made,)], [plain, [plain]]),
        (Epoch(0.5, made), {"loss": 0.5, "model": plain}),
        ({"model": made}, {"model": plain}),
    ):
        assert msgspec.msgpack.decode(b"".join(bytes(part) for part in codec.encode(value))) == expected


def test_it_can_be_pickled_and_not_be_changed() -> None:
    made = sky.Artifact(1, "0" * 32, "run", 7, "f" * 64, 3)
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(pickle.loads(pickle.dumps(made, 2)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.size = 8  # type: ignore[misc]


def test_threads_make_artifacts_at_the_same_time(home: Path, source: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: sky.artifact(source), range(20)))
    assert len({one.id for one in made}) == 20
    assert len({one.sha256 for one in made}) == 1
    assert len(os.listdir(home / "artifacts")) == 20


# In a worker


def test_artifacts_travel_in_results_reports_and_items(node: Node) -> None:
    worker = node.ready(
        """
        import os, skyward as sky
        def main():
            with open('model.pt', 'wb') as file:
                file.write(b'weights')
            os.mkdir('run')
            sky.report({'model': sky.artifact('model.pt')})
            yield sky.artifact('run')
            yield [sky.artifact(b'bytes', name='data'), 1]
        """,
        cluster={"node": 0},
    )
    worker.start(1, 9)
    report = msgspec.msgpack.decode(worker.expect(wire.REPORT)[1])["model"]
    items = [msgspec.msgpack.decode(worker.expect(wire.ITEM)[1]) for _ in range(2)]
    folder, (data, _) = items
    client = mover_of(node.agent)
    for made, name, files in ((report, "model.pt", None), (folder, "run", 0), (data, "data", None)):
        assert list(made) == FIELDS
        assert (made["node"], made["name"], made["files"]) == (0, name, files)
        listed = msgspec.msgpack.decode(client.content("manifest", made["id"]))
        assert [entry[0] for entry in client.stat("content", made["id"])] == [entry[0] for entry in listed]
    assert client.content("content", report["id"]) == b"weights"
    assert client.content("content", data["id"]) == b"bytes"


def test_an_artifact_outlives_its_task_and_its_worker(node: Node) -> None:
    worker = node.ready("""
        import os, skyward as sky
        def main():
            sky.report(sky.artifact(b'the last checkpoint'))
            os._exit(7)
    """)
    worker.start(1)
    made = msgspec.msgpack.decode(worker.expect(wire.REPORT)[1])
    node.agent.expect(wire.EXITED)
    client = mover_of(node.agent)
    assert client.content("content", made["id"]) == b"the last checkpoint"
    assert client.ask(wire.MOVER_DROP, made["id"])[0] == [wire.DONE]
    assert os.listdir(node.folder / "artifacts") == []


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_a_payload_starts_make_artifacts(node: Node, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("the system has no such method")
    worker = node.ready(
        """
        import multiprocessing, skyward as sky

        def make(n):
            return sky.artifact(b'x' * n, name=f'part {n}')

        def main(method):
            with multiprocessing.get_context(method).Pool(2) as pool:
                return pool.map(make, [1, 2])
        """,
        cluster={"node": 1, "total_nodes": 2, "peers": [{"node": n, "addr": "127.0.0.1"} for n in range(2)]},
    )
    made = worker.call(1, method=method)
    assert [(one["node"], one["name"], one["size"]) for one in made] == [(1, "part 1", 1), (1, "part 2", 2)]
    assert sorted(os.listdir(node.folder / "artifacts")) == sorted(one["id"] for one in made)


def test_the_mover_removes_what_a_killed_worker_has_left(node: Node) -> None:
    file = node.folder / "large"
    with file.open("wb") as opened:
        opened.truncate(1 << 36)
    worker = node.ready("""
        import skyward as sky
        def main(path):
            return sky.artifact(path, move=True)
    """)
    worker.start(1, path=str(file))
    deadline = time.monotonic() + DEADLINE
    while not (node.folder / "artifacts").exists() or not os.listdir(node.folder / "artifacts"):
        assert time.monotonic() < deadline
    node.agent.send([wire.SIGNAL, 1, 0, "kill"])
    node.agent.expect(wire.EXITED)
    client = mover_of(node.agent)
    assert client.ask(wire.MOVER_DROP, "0" * 32)[0] == [wire.DONE]
    assert os.listdir(node.folder / "artifacts") == []
    assert file.exists()


def test_a_task_that_is_cancelled_while_it_hashes_leaves_nothing(node: Node) -> None:
    file = node.folder / "large"
    with file.open("wb") as opened:
        opened.truncate(1 << 36)
    worker = node.ready("""
        import skyward as sky
        def main(path):
            sky.report('begins')
            return sky.artifact(path, move=True)
    """)
    task = worker.start(1, path=str(file))
    worker.expect(wire.REPORT)
    while not (node.folder / "artifacts").exists():
        time.sleep(0.01)
    worker.send([wire.CANCEL, task])
    while worker.quiet(0.2):
        node.agent.send([wire.SIGNAL, 1, 0, "attend"])
    head, failure = worker.outcome(task)
    assert head[0] == wire.FAILURE
    assert failure["kind"] == "cancelled"
    assert os.listdir(node.folder / "artifacts") == []
    assert file.stat().st_size == 1 << 36


def test_a_snapshot_leaves_other_threads_running(home: Path, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as opened:
        opened.truncate(256 << 20)
    ticks = 0
    ended = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not ended.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    sky.artifact(tmp_path / "large", move=True)
    ended.set()
    thread.join()
    assert ticks > 10


def test_names_are_public() -> None:
    assert {"artifact", "Artifact"} <= set(sky.__all__)
    assert sky.artifact.__module__ == "skyward._sky.artifact"
