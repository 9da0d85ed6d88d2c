"""Restored folders: the mover prepares them, the client fills them, and only what is whole gets its name."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skyward._core import artifacts, wire
from skyward._mover import incoming, manifest

from .attending import Attendant, Here
from .client import DEADLINE

COMMIT = "0123456789abcdef" * 2
LARGE = os.urandom(5 << 20)
ROOT = (b"", "folder", 0, "", False, b"")
CONTENTS = {b"a.pt": b"weights", b"deep/caf\xe9\n": LARGE, b"deep/empty": b"", b"run.sh": b"#!/bin/sh\n"}


def file(path: bytes, data: bytes, executable: bool = False) -> tuple[Any, ...]:
    return path, "file", len(data), sha256(data).hexdigest(), executable, b""


def link(path: bytes, target: bytes) -> tuple[Any, ...]:
    return path, "link", 0, "", False, target


def folder(path: bytes) -> tuple[Any, ...]:
    return path, "folder", 0, "", False, b""


MANIFEST = [
    ROOT,
    file(b"a.pt", CONTENTS[b"a.pt"]),
    folder(b"deep"),
    file(b"deep/caf\xe9\n", LARGE),
    file(b"deep/empty", b""),
    folder(b"deep/none"),
    link(b"latest", b"deep/caf\xe9\n"),
    file(b"run.sh", CONTENTS[b"run.sh"], True),
]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def client(here: Here) -> Attendant:
    return here.client(attends=False)


def path_of(here: Here, commit: str = COMMIT) -> bytes:
    return os.fsencode(here.folder / "restored" / commit)


def fill(client: Attendant, contents: dict[bytes, bytes] = CONTENTS) -> None:
    for path, data in contents.items():
        for offset in range(0, len(data), wire.LARGEST_PIECE):
            client.write(COMMIT, path, offset, data[offset : offset + wire.LARGEST_PIECE])


def brought(client: Attendant) -> bytes:
    """Restore all, and return the path of the folder."""
    path, is_complete = client.restore(COMMIT, MANIFEST)
    assert not is_complete
    fill(client)
    assert client.complete(COMMIT) == path
    return path


def tree(root: bytes) -> dict[bytes, Any]:
    """Return what is below a folder: contents and modes of files, targets of links, None for folders."""
    found: dict[bytes, Any] = {}
    for base, names, files in os.walk(root):
        for name in [*names, *files]:
            path = base + b"/" + name
            about = os.lstat(path)
            if os.path.islink(path):
                found[path[len(root) + 1 :]] = os.readlink(path)
            elif os.path.isdir(path):
                assert about.st_mode & 0o777 == 0o700
                found[path[len(root) + 1 :]] = None
            else:
                found[path[len(root) + 1 :]] = (Path(os.fsdecode(path)).read_bytes(), about.st_mode & 0o777)
    return found


def test_a_folder_is_restored_and_then_it_is_there(here: Here, client: Attendant) -> None:
    os.umask(os.umask(0o077))
    path = brought(client)
    assert path == path_of(here)
    modes = {b"run.sh": 0o700}
    assert tree(path) == {
        **{name: (data, modes.get(name, 0o600)) for name, data in CONTENTS.items()},
        b"deep": None,
        b"deep/none": None,
        b"latest": b"deep/caf\xe9\n",
    }
    assert os.listdir(here.folder / "restored") == [COMMIT]
    inode = os.stat(path).st_ino
    assert client.restore(COMMIT, MANIFEST) == (path, True)
    assert here.client(attends=False).restore(COMMIT, MANIFEST) == (path, True)
    assert client.complete(COMMIT) == path, "the answer may have been lost"
    assert os.stat(path).st_ino == inode
    assert artifacts.sweep(str(here.folder / "restored")) == {}


def test_pieces_come_over_many_connections_in_any_order_and_twice(here: Here, client: Attendant) -> None:
    client.restore(COMMIT, MANIFEST)
    other = here.client(attends=False)
    size = 1 << 20
    for number in (4, 0, 2, 1, 3, 3):
        (client, other)[number % 2].write(COMMIT, b"deep/caf\xe9\n", number * size, LARGE[number * size :][:size])
    other.write(COMMIT, b"a.pt", 0, b"weights")
    client.write(COMMIT, b"a.pt", 0, b"weights")
    client.write(COMMIT, b"a.pt", 7, b"")
    client.write(COMMIT, b"run.sh", 0, CONTENTS[b"run.sh"])
    assert tree(client.complete(COMMIT))[b"deep/caf\xe9\n"][0] == LARGE


def test_a_folder_that_is_not_complete_has_no_name_and_is_begun_anew(here: Here, client: Attendant) -> None:
    client.restore(COMMIT, MANIFEST)
    client.write(COMMIT, b"a.pt", 0, b"changed")
    assert not os.path.exists(path_of(here))
    client.close()
    client = here.client(attends=False)
    brought(client)
    assert tree(path_of(here))[b"a.pt"][0] == b"weights"


def test_what_another_mover_has_left_is_begun_anew(here: Here, client: Attendant) -> None:
    client.restore(COMMIT, MANIFEST)
    client.write(COMMIT, b"a.pt", 0, b"changed")
    second = Here(here.home)
    client = second.client(attends=False)
    assert client.failure(wire.COMPLETE, COMMIT)[0] == "missing"
    assert client.failure(wire.MOVER_WRITE, COMMIT, b"a.pt", 0)[0] == "missing"
    brought(client)


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ({**CONTENTS, b"a.pt": b"weighTs"}, "a.pt has the SHA-256"),
        ({**CONTENTS, b"a.pt": b"weight"}, "a.pt has 6 of 7 bytes"),
        ({**CONTENTS, b"a.pt": b""}, "a.pt has 0 of 7 bytes"),
        ({**CONTENTS, b"deep/caf\xe9\n": LARGE[:-1] + bytes([LARGE[-1] ^ 1])}, "has the SHA-256"),
    ],
)
def test_a_folder_with_a_wrong_file_is_removed(
    here: Here, client: Attendant, contents: dict[bytes, bytes], words: str
) -> None:
    client.restore(COMMIT, MANIFEST)
    fill(client, contents)
    kind, said, _ = client.failure(wire.COMPLETE, COMMIT)
    assert (kind, words in said) == ("changed", True), said
    assert os.listdir(here.folder / "restored") == []
    assert client.failure(wire.COMPLETE, COMMIT)[0] == "missing"
    brought(client)


def test_a_file_of_two_pieces_may_be_written_from_its_end(client: Attendant) -> None:
    client.restore(COMMIT, [ROOT, file(b"f", b"xyz")])
    client.write(COMMIT, b"f", 2, b"z")
    client.write(COMMIT, b"f", 0, b"xy")
    client.complete(COMMIT)


def test_a_file_that_was_written_again_is_checked_again(client: Attendant) -> None:
    client.restore(COMMIT, [ROOT, file(b"f", b"xyz")])
    client.write(COMMIT, b"f", 0, b"xyz")
    client.write(COMMIT, b"f", 1, b"Y")
    assert client.failure(wire.COMPLETE, COMMIT)[0] == "changed"


def test_a_hole_in_a_file_is_found(client: Attendant) -> None:
    client.restore(COMMIT, [ROOT, file(b"f", b"xyz")])
    client.write(COMMIT, b"f", 2, b"z")
    assert client.failure(wire.COMPLETE, COMMIT)[0] == "changed"


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "a.pt").write_bytes(b"weighTs"),
        lambda path: (path / "a.pt").write_bytes(b"weights and more"),
        lambda path: (path / "a.pt").unlink(),
        lambda path: (path / "new").touch(),
        lambda path: (path / "deep" / "none").rmdir(),
        lambda path: (path / "run.sh").chmod(0o600),
        lambda path: (path / "a.pt").chmod(0o700),
        lambda path: ((path / "latest").unlink(), (path / "latest").symlink_to("a.pt")),
        lambda path: ((path / "a.pt").rename(path / "b.pt"), (path / "a.pt").symlink_to("b.pt")),
        lambda path: os.mkfifo(path / "pipe"),
        lambda path: ((path / "a.pt").unlink(), (path / "a.pt").mkdir()),
        lambda path: (path.rename(path.with_name("moved")), path.write_text("no folder")),
        lambda path: (path.rename(path.with_name("moved")), path.symlink_to("moved")),
    ],
)
def test_a_folder_that_was_changed_is_restored_again(here: Here, client: Attendant, damage: Any) -> None:
    path = brought(client)
    expected = tree(path)
    damage(Path(os.fsdecode(path)))
    assert client.restore(COMMIT, MANIFEST) == (path, False)
    assert not os.path.lexists(path)
    fill(client)
    client.complete(COMMIT)
    assert tree(path) == expected


def test_a_commit_with_another_manifest_replaces_the_folder(here: Here, client: Attendant) -> None:
    brought(client)
    assert client.restore(COMMIT, [ROOT, file(b"x", b"y")]) == (path_of(here), False)
    client.write(COMMIT, b"x", 0, b"y")
    client.complete(COMMIT)
    assert list(tree(path_of(here))) == [b"x"]


def test_commits_are_apart(here: Here, client: Attendant) -> None:
    for name in ("a", "b", "_1.2-3", "x" * 100):
        client.restore(name, [ROOT, file(b"f", name.encode())])
    for name in ("a", "b", "_1.2-3", "x" * 100):
        client.write(name, b"f", 0, name.encode())
        assert client.complete(name) == path_of(here, name)


# What is refused


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([], "does not begin"),
        ([file(b"", b"x")], "does not begin"),
        ([folder(b"a")], "does not begin"),
        ([ROOT, ROOT], "no path below"),
        ([ROOT, file(b"..", b"")], "no path below"),
        ([ROOT, file(b".", b"")], "no path below"),
        ([ROOT, file(b"/etc/passwd", b"")], "no path below"),
        ([ROOT, folder(b"a"), file(b"a/../../x", b"")], "no path below"),
        ([ROOT, folder(b"a"), file(b"a//x", b"")], "no path below"),
        ([ROOT, folder(b"a/")], "no path below"),
        ([ROOT, file(b"a\0b", b"")], "no path below"),
        ([ROOT, file(b"a/b", b"")], "no folder that comes before"),
        ([ROOT, file(b"a/b", b""), folder(b"a")], "no folder that comes before"),
        ([ROOT, file(b"a", b""), file(b"a/b", b"")], "no folder that comes before"),
        ([ROOT, link(b"a", b"."), file(b"a/b", b"")], "no folder that comes before"),
        ([ROOT, file(b"a", b""), file(b"a", b"")], "twice"),
        ([ROOT, file(b"a", b""), folder(b"a")], "twice"),
        ([ROOT, link(b"a", b"/etc/passwd")], "not in the folder"),
        ([ROOT, link(b"a", b"..")], "not in the folder"),
        ([ROOT, link(b"a", b"b/../..")], "not in the folder"),
        ([ROOT, folder(b"d"), link(b"d/a", b"../../x")], "not in the folder"),
        ([ROOT, link(b"a", b"")], "not in the folder"),
        ([ROOT, link(b"a", b"b\0c")], "not in the folder"),
        ([ROOT, (b"a", "file", -1, "0" * 64, False, b"")], "cannot have -1 bytes"),
        ([ROOT, (b"a", "file", 1 << 63, "0" * 64, False, b"")], "bytes"),
        ([ROOT, (b"a", "file", 1, "0" * 63, False, b"")], "SHA-256"),
        ([ROOT, (b"a", "device", 1, "0" * 64, False, b"")], "cannot be read"),
        ([ROOT, ("a", "file", 1, "0" * 64, False, b"")], "cannot be read"),
        ([ROOT, (b"a",)], "cannot be read"),
        ({"a": 1}, "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_manifest_that_leads_out_of_the_folder_is_refused(
    here: Here, client: Attendant, entries: Any, words: str
) -> None:
    kind, said, _ = client.restore_failure(COMMIT, entries)
    assert (kind, words in said) == ("invalid", True), said
    assert not here.folder.exists()
    brought(client)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91" * 200_000, b"\xdd\xff\xff\xff\xff", bytes(range(100))])
def test_garbage_is_no_manifest(client: Attendant, body: bytes) -> None:
    assert client.restore_failure(COMMIT, body)[0] == "invalid"
    assert client.failure(wire.COMPLETE, COMMIT)[0] == "missing"


def test_links_within_the_folder_are_restored(here: Here, client: Attendant) -> None:
    entries = [ROOT, folder(b"d"), link(b"d/a", b"../b"), link(b"\xff", b"./d/\xfe"), link(b"e", b"nothing")]
    client.restore(COMMIT, entries)
    path = client.complete(COMMIT)
    assert tree(path) == {b"d": None, b"d/a": b"../b", b"\xff": b"./d/\xfe", b"e": b"nothing"}
    assert client.restore(COMMIT, entries) == (path, True)


@pytest.mark.parametrize("commit", ["", ".", "..", ".x", "a/b", "../x", "a\0", "a\n", "é", "x" * 101, "x" * 1_000_000])
def test_only_plain_names_are_commits(here: Here, client: Attendant, commit: str) -> None:
    for failed in (
        client.restore_failure(commit, MANIFEST),
        client.failure(wire.MOVER_WRITE, commit, b"a", 0, body=b"x"),
        client.failure(wire.COMPLETE, commit),
    ):
        assert failed[0] == "invalid"
        assert "the name of a commit" in failed[1]
        assert len(failed[1]) < 400
    assert not here.folder.exists()


@pytest.mark.parametrize(
    ("path", "offset", "piece", "words"),
    [
        (b"a.pt", 0, b"weights!", "has 7 bytes, and the piece ends at 8"),
        (b"a.pt", 7, b"!", "the piece ends at 8"),
        (b"a.pt", (1 << 63) - 1, b"xx", "the piece ends at"),
        (b"a.pt", 8, b"", "the piece ends at 8"),
        (b"deep/caf\xe9\n", 0, bytes(wire.LARGEST_PIECE + 1), "at most 2097152 bytes"),
        (b"deep", 0, b"", "no file"),
        (b"latest", 0, b"x", "no file"),
        (b"", 0, b"", "no file"),
        (b"none", 0, b"x", "no file"),
        (b"../x", 0, b"x", "no file"),
        (b"/etc/passwd", 0, b"x", "no file"),
        (b"./a.pt", 0, b"x", "no file"),
        (b"deep/../a.pt", 0, b"x", "no file"),
        (b"a.pt\0", 0, b"x", "no file"),
    ],
)
def test_only_listed_files_are_written_within_their_size(
    client: Attendant, path: bytes, offset: int, piece: bytes, words: str
) -> None:
    client.restore(COMMIT, MANIFEST)
    kind, said, _ = client.failure(wire.MOVER_WRITE, COMMIT, path, offset, body=piece)
    assert (kind, words in said) == ("invalid", True), said
    fill(client)
    client.complete(COMMIT)


def test_a_link_in_place_of_a_prepared_file_is_not_followed(here: Here, client: Attendant, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"is kept")
    client.restore(COMMIT, MANIFEST)
    prepared = here.folder / "restored" / f".{COMMIT}"
    (prepared / "a.pt").unlink()
    (prepared / "a.pt").symlink_to(tmp_path / "other")
    assert client.failure(wire.MOVER_WRITE, COMMIT, b"a.pt", 0, body=b"weights")[0] == "missing"
    assert (tmp_path / "other").read_bytes() == b"is kept"
    assert client.failure(wire.COMPLETE, COMMIT)[0] == "changed"


def test_requests_without_a_body_have_none(client: Attendant) -> None:
    assert client.failure(wire.COMPLETE, COMMIT, body=b"x")[0] == "invalid"
    assert client.failure(wire.DELIVER, 1, 0, body=bytes((1 << 20) + 1))[0] == "invalid"
    client.send([wire.RESTORE, 1, COMMIT], bytes(4096))
    assert client.receive()[0][0] == wire.FAILED
    client.socket.sendall(wire.HEADER.pack(10, manifest.LONGEST + 1))
    assert client.receive()[0][0] == wire.ERROR


def test_a_disk_without_room_is_found_before_anything_is_written(here: Here, client: Attendant) -> None:
    entries = [ROOT, (b"a", "file", 1 << 62, "0" * 64, False, b"")]
    kind, words, number = client.restore_failure(COMMIT, entries)
    assert (kind, number) == ("io", errno.ENOSPC)
    assert "are free on the disk" in words
    assert os.listdir(here.folder / "restored") == []


def test_an_error_while_a_folder_is_prepared_leaves_nothing(here: Here, client: Attendant) -> None:
    kind, _, number = client.restore_failure(COMMIT, [ROOT, folder(b"d"), file(b"d/" + b"x" * 256, b"")])
    assert (kind, number) == ("io", errno.ENAMETOOLONG)
    assert os.listdir(here.folder / "restored") == []
    brought(client)


def test_an_error_of_the_disk_is_answered(here: Here, client: Attendant, monkeypatch: pytest.MonkeyPatch) -> None:
    client.restore(COMMIT, MANIFEST)

    def fail(*_: object) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        assert client.failure(wire.MOVER_WRITE, COMMIT, b"a.pt", 0, body=b"weights")[::2] == ("io", errno.EDQUOT)
    fill(client)
    client.complete(COMMIT)


def test_a_write_of_the_system_may_be_short(client: Attendant, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: pwrite(file, data[:100_000], offset))
    brought(client)


def test_what_was_written_in_order_is_not_read_again(client: Attendant, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    hashed = incoming.sha256_of

    def note(path: bytes, on_work: Callable[[], None]) -> str:
        read.append(path)
        return hashed(path, on_work)

    monkeypatch.setattr(incoming, "sha256_of", note)
    brought(client)
    assert read == []
    assert client.restore(COMMIT, MANIFEST)[1]
    assert len(read) == len(CONTENTS)


def test_a_long_check_of_one_commit_delays_no_other(
    here: Here, client: Attendant, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought(client)
    hashed = incoming.sha256_of
    is_slow = [True]

    def slow(path: bytes, on_work: Callable[[], None]) -> str:
        deadline = time.monotonic() + DEADLINE
        while is_slow and time.monotonic() < deadline:
            time.sleep(0.01)
            on_work()
        return hashed(path, on_work)

    monkeypatch.setattr(incoming, "sha256_of", slow)
    client.send([wire.RESTORE, 900, COMMIT], msgspec.msgpack.encode(MANIFEST))
    other = here.client(attends=False)
    other.restore("other", [ROOT, file(b"f", b"x")])
    other.write("other", b"f", 0, b"x")
    other.complete("other")
    assert client.quiet()
    is_slow.clear()
    assert client.receive()[0] == [wire.RESTORED, 900, path_of(here), True]
