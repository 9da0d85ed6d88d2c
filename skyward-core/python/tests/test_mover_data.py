"""Data sets: the client sends what the machine's cache does not have, and the tree is as it is listed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skyward._core import artifacts, data_folders, wire
from skyward._mover import data_tree, incoming
from skyward._mover.files import Refused

from .attending import Attendant, Here
from .conftest import Node
from .data_client import MODIFIED, DataClient, Listed, end, tree_of
from .mover import ask_for_mover

LARGE = os.urandom(5 << 20)


def digits() -> Listed:
    data = Listed().file(b"a.npy", b"a sample").folder(b"deep").file(b"deep/caf\xe9\n", LARGE)
    data.file(b"deep/empty", b"").folder(b"deep/none").link(b"latest", b"deep/caf\xe9\n")
    return data.file(b"run.sh", b"#!/bin/sh\n", True)


@pytest.fixture
def here(tmp_path: Path, cache: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def client(here: Here) -> DataClient:
    return DataClient(here.client(attends=False))


def test_a_data_set_is_brought_and_then_it_is_there(here: Here, client: DataClient, cache: Path) -> None:
    os.umask(os.umask(0o077))
    data = digits()
    path, missing = client.attach(data)
    assert path == f"{cache}/{data.id}/files"
    assert missing == data.indices()
    client.fill_all(data, missing)
    assert client.publish(data) == path
    assert tree_of(path) == data.tree
    assert sorted(os.listdir(cache / data.id)) == ["files", "record"]
    inode = os.stat(f"{path}/a.npy").st_ino
    assert client.attach(data) == (path, [])
    assert client.publish(data) == path, "the answer may have been lost"
    assert DataClient(Here(here.home).client(attends=False)).attach(data) == (path, [])
    assert os.stat(f"{path}/a.npy").st_ino == inode


def test_small_files_come_together_and_large_ones_in_pieces_over_any_connections(
    here: Here, client: DataClient
) -> None:
    data = Listed()
    for number in range(100):
        data.file(b"%03d" % number, b"%d" % number)
    large = len(data.entries)
    data.file(b"large", LARGE)
    other = DataClient(here.client(attends=False))
    path, missing = client.attach(data)
    size = (2 << 20) - 1000
    client.fill(data, *((index, 0, len(data.contents[index])) for index in missing[:60]), (large, 0, 1000))
    other.fill(data, (large, 1000, size), *((index, 0, len(data.contents[index])) for index in missing[60:-1]))
    assert sorted(os.listdir(os.path.dirname(path))) == [f".{large}", "files", "record"]
    client.fill(data, (large, 1000 + size, size))
    other.fill(data, (large, 1000 + 2 * size, len(LARGE) - 1000 - 2 * size))
    assert len(os.listdir(path)) == 101, "what is whole has its name"
    client.publish(data)
    assert tree_of(path) == data.tree


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The paths of the files that the mover reads."""
    paths: list[bytes] = []
    hashed = incoming.sha256_of

    def note(path: bytes, on_work: Callable[[], None]) -> str:
        paths.append(path)
        return hashed(path, on_work)

    monkeypatch.setattr(incoming, "sha256_of", note)
    return paths


def test_what_came_in_order_is_not_read_again(client: DataClient, read: list[bytes]) -> None:
    data = digits()
    client.bring(data)
    assert client.attach(data)[1] == []
    assert read == []


@pytest.mark.parametrize(
    "order", [[4, 0, 2, 1, 3], [0, 1, 1, 0, 2, 3, 2, 4], [0, 0, 1, 2, 3, 4, 4, 0], [1, 0, 2, 3, 4]]
)
def test_pieces_may_come_twice_and_in_any_order(client: DataClient, order: list[int]) -> None:
    data = Listed().file(b"large", LARGE)
    path, _ = client.attach(data)
    for number in order:
        client.fill(data, (1, number << 20, 1 << 20))
    client.publish(data)
    assert tree_of(path) == data.tree


def test_a_piece_that_overlaps_what_has_come(client: DataClient) -> None:
    data = Listed().file(b"f", b"abcdef")
    client.attach(data)
    client.fill(data, (1, 0, 3))
    client.fill(data, (1, 1, 4))
    client.fill(data, (1, 0, 6), (1, 2, 0))
    assert tree_of(client.publish(data)) == data.tree


def test_an_empty_data_set(client: DataClient) -> None:
    data = Listed()
    path, missing = client.attach(data)
    assert (missing, tree_of(path)) == ([], {})
    data = Listed().file(b"empty", b"").folder(b"d").file(b"d/empty", b"", True)
    path, missing = client.attach(data)
    assert (missing, tree_of(path)) == ([], data.tree)
    assert client.fill_failure(data, (1, 0, 0))[0] == "missing"


# What is refused


def test_a_file_that_is_not_as_it_is_listed_can_come_again(client: DataClient) -> None:
    data = digits()
    path, missing = client.attach(data)
    kind, words, _ = client.fill_failure(data, (1, 0, 8), body=b"a samplE")
    assert (kind, "a.npy has the SHA-256" in words) == ("changed", True)
    client.fill_all(data, missing)
    client.publish(data)
    assert tree_of(path) == data.tree


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([], "a.npy has not come"),
        ([(1, 0, 8)], "deep/caf\ufffd\n has not come"),
        ([(1, 0, 8), (3, 0, 100)], "deep/caf\ufffd\n has 100 of 5242880 bytes"),
        ([(1, 0, 8), (3, (5 << 20) - 1, 1)], "deep/caf\ufffd\n has the SHA-256"),
    ],
)
def test_a_fill_that_is_not_complete_ends_and_what_has_come_stays(
    client: DataClient, cache: Path, ranges: list[tuple[int, int, int]], words: str
) -> None:
    data = digits()
    path, missing = client.attach(data)
    if ranges:
        client.fill(data, *ranges)
    kind, said, _ = client.publish_failure(data)
    assert (kind, words in said) == ("changed", True), said
    assert sorted(os.listdir(cache / data.id)) == ["files", "record"]
    for failed in (client.publish_failure(data), client.fill_failure(data, (1, 0, 8), body=b"a sample")):
        assert (failed[0], "send Attach first" in failed[1]) == ("missing", True)
    assert client.attach(data) == (path, [index for index in missing if index != 1 or not ranges])
    client.bring(data)
    assert tree_of(path) == data.tree


@pytest.mark.parametrize(
    ("ranges", "body", "words"),
    [
        ([(1, 0, 8)], b"", "the ranges have 8 bytes, and the body has 0"),
        ([(1, 0, 8)], b"a sample!", "the ranges have 8 bytes, and the body has 9"),
        ([(1, 0, 9)], b"a sample!", "a.npy has 8 bytes, and a range ends at 9"),
        ([(1, 9, 0)], b"", "a.npy has 8 bytes, and a range ends at 9"),
        ([(1, (1 << 63) - 1, 1)], b"x", "and a range ends at"),
        ([(0, 0, 0)], b"", "entry 0 of the manifest is no file"),
        ([(2, 0, 0)], b"", "entry 2 of the manifest is no file"),
        ([(6, 0, 0)], b"", "entry 6 of the manifest is no file"),
        ([(8, 0, 0)], b"", "entry 8 of the manifest is no file"),
        ([((1 << 63) - 1, 0, 0)], b"", "of the manifest is no file"),
        ([(1, 0, 0)] * 4097, b"", "at most 4096 ranges, and 4097 have arrived"),
        ([(3, 0, (2 << 20) + 1)], bytes((2 << 20) + 1), "at most 2097152 bytes"),
        ([(1, 0, 8), (8, 0, 0)], b"a sample", "entry 8 of the manifest is no file"),
    ],
)
def test_only_ranges_of_listed_files_are_written(
    client: DataClient, cache: Path, ranges: list[tuple[int, int, int]], body: bytes, words: str
) -> None:
    data = digits()
    _, missing = client.attach(data)
    kind, said, _ = client.fill_failure(data, *ranges, body=body)
    assert (kind, words in said) == ("invalid", True), said
    assert sorted(os.listdir(cache / data.id)) == ["files", "record"]
    client.fill_all(data, missing)
    client.publish(data)


@pytest.mark.parametrize("id", ["", "..", "../../x", "0" * 63, "0" * 65, "A" * 64, "x" * 100_000])
def test_only_digests_are_ids(client: DataClient, cache: Path, id: str) -> None:
    for failed in (client.client.failure(wire.PUBLISH, id), client.client.failure(wire.FILL, id, [])):
        assert (failed[0], "64 lower-case hexadecimal digits" in failed[1], len(failed[1]) < 300) == (
            "invalid",
            True,
            True,
        )
    assert not cache.exists()


def test_manifests_that_lead_out_of_the_tree_are_refused(client: DataClient, cache: Path) -> None:
    for data in (Listed().file(b"../x", b"x"), Listed().link(b"x", b"/etc"), Listed(entries=[])):
        assert client.attach_failure(data)[0] == "invalid"
    assert client.client.failure(wire.DATA_ATTACH, 0, body=b"\xc1")[0] == "invalid"
    assert not cache.exists()


def test_what_was_never_attached_is_not_filled(client: DataClient) -> None:
    data = digits()
    assert client.publish_failure(data)[0] == client.fill_failure(data)[0] == "missing"


# A tree that was changed


def change(path: Path, data: bytes, modified: int | None = None) -> None:
    """Change a file in place, as root may, and maybe its time of modification."""
    path.chmod(0o644)
    path.write_bytes(data)
    if modified is not None:
        os.utime(path, ns=(modified, modified))


def replace(path: Path, make: Callable[[Path], object]) -> None:
    artifacts.remove_any(str(path))
    make(path)


DAMAGE: dict[str, tuple[Callable[[Path], object], list[int]]] = {
    "content": (lambda path: change(path / "a.npy", b"a samplE"), [1]),
    "longer": (lambda path: change(path / "a.npy", b"a sample and more"), [1]),
    "shorter": (lambda path: change(path / "a.npy", b""), [1]),
    "not empty any more": (lambda path: change(path / "deep" / "empty", b"x"), []),
    "time of before": (
        lambda path: change(path / "a.npy", b"a longer one", MODIFIED),
        [1],
    ),
    "removed": (lambda path: (path / "a.npy").unlink(), [1]),
    "empty removed": (lambda path: (path / "deep" / "empty").unlink(), []),
    "all removed": (lambda path: replace(path, Path.mkdir), [1, 3, 7]),
    "root is a file": (lambda path: replace(path, Path.touch), [1, 3, 7]),
    "root is a link": (lambda path: replace(path, lambda path: path.symlink_to("/")), [1, 3, 7]),
    "all of it is a link": (lambda path: replace(path.parent, lambda path: path.symlink_to("/")), [1, 3, 7]),
    "folder removed": (lambda path: artifacts.remove(str(path / "deep")), [3]),
    "added": (lambda path: (path / "new").touch(), []),
    "hidden added": (lambda path: (path / ".new").touch(), []),
    "beside": (lambda path: (path.parent / ".7").mkdir(), []),
    "tree added": (lambda path: (path / "deep" / "none" / "a" / "b").mkdir(parents=True), []),
    "pipe": (lambda path: os.mkfifo(path / "pipe"), []),
    "file is a pipe": (lambda path: replace(path / "a.npy", os.mkfifo), [1]),
    "file is a folder": (lambda path: replace(path / "a.npy", Path.mkdir), [1]),
    "file is a link": (lambda path: replace(path / "a.npy", lambda path: path.symlink_to("run.sh")), [1]),
    "link": (lambda path: replace(path / "latest", lambda path: path.symlink_to("a.npy")), []),
    "link is a file": (lambda path: replace(path / "latest", Path.touch), []),
    "folder is a file": (lambda path: replace(path / "deep", Path.touch), [3]),
    "folder is a link": (lambda path: replace(path / "deep", lambda path: path.symlink_to("/etc")), [3]),
    "closed folder": (lambda path: (path / "deep").chmod(0), []),
    "closed file": (lambda path: (path / "a.npy").chmod(0), []),
    "program": (lambda path: (path / "a.npy").chmod(0o777), []),
    "no program": (lambda path: (path / "run.sh").chmod(0o444), []),
    "equal": (lambda path: replace(path / "a.npy", lambda path: path.write_bytes(b"a sample")), []),
    "touched": (lambda path: (path / "a.npy").touch(), []),
    "record removed": (lambda path: (path.parent / "record").unlink(), []),
    "record damaged": (lambda path: (path.parent / "record").write_bytes(b"\x93\x01"), []),
    "record of a newer version": (
        lambda path: (path.parent / "record").write_bytes(msgspec.msgpack.encode([2, 0, [], "more"])),
        [],
    ),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_tree_that_was_changed_is_made_right(here: Here, client: DataClient, cache: Path, how: str) -> None:
    damage, expected = DAMAGE[how]
    data = digits()
    path = client.bring(data)
    damage(Path(path))
    for each in (client, DataClient(Here(here.home).client(attends=False))):
        assert each.attach(data) == (path, expected)
        if expected:
            each.fill_all(data, expected)
            each.publish(data)
        assert tree_of(path) == data.tree
        assert sorted(os.listdir(cache / data.id)) == ["files", "record"]
        assert (cache / data.id).stat().st_mode & 0o777 == 0o700
        expected = []
    assert client.attach(data) == (path, [])


def test_a_file_of_a_tree_is_read_only_if_something_about_it_has_changed(client: DataClient, read: list[bytes]) -> None:
    data = digits()
    path = client.bring(data)
    os.utime(f"{path}/run.sh")
    client.attach(data)
    client.attach(data)
    assert read == [os.fsencode(f"{path}/run.sh")]


def test_a_file_that_the_disk_cannot_read_is_sent_again(client: DataClient, monkeypatch: pytest.MonkeyPatch) -> None:
    data = digits()
    path = client.bring(data)
    os.utime(f"{path}/run.sh")

    def fail(*_: object) -> str:
        raise Refused("io", "Input/output error", errno.EIO)

    with monkeypatch.context() as patched:
        patched.setattr(incoming, "sha256_of", fail)
        assert client.attach(data) == (path, [7])
    client.fill_all(data, [7])
    client.publish(data)
    assert tree_of(path) == data.tree


def test_a_tree_that_is_changed_while_it_is_filled_is_not_complete(client: DataClient) -> None:
    data = digits()
    path, missing = client.attach(data)
    client.fill_all(data, missing)
    change(Path(path, "a.npy"), b"a samplE")
    kind, words, _ = client.publish_failure(data)
    assert (kind, "a.npy has changed since it came" in words) == ("changed", True)
    client.bring(data)
    assert tree_of(path) == data.tree


# Versions of a data set


def versions() -> tuple[Listed, Listed]:
    """Two versions of a data set, and the second one has other places and another program."""
    first = Listed().file(b"a", b"same").file(b"b", LARGE).file(b"c", b"old").file(b"run", b"run", True)
    second = Listed().folder(b"d").file(b"d/a", b"same").file(b"b", LARGE).file(b"c", b"new")
    return first, second.file(b"run", b"run").file(b"run2", b"run", True).file(b"again", b"same")


def test_of_a_new_version_only_what_has_changed_is_missing(client: DataClient) -> None:
    first, second = versions()
    old = client.bring(first)
    path, missing = client.attach(second)
    assert missing == [4, 5], "the changed file, and one that is no program any more"
    client.fill_all(second, missing)
    client.publish(second)
    assert (tree_of(path), tree_of(old)) == (second.tree, first.tree)
    if os.stat(f"{old}/b").st_ino == os.stat(f"{path}/b").st_ino:  # it shares no content on this disk
        assert os.stat(f"{old}/a").st_nlink == 3
    assert (client.attach(first)[1], client.attach(second)[1]) == ([], [])


def test_where_the_disk_can_content_is_shared(client: DataClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def share(source: Any, copy: Any) -> bool:
        os.write(copy.fileno(), os.read(source.fileno(), 10 << 20))
        return True

    monkeypatch.setattr(data_tree, "share", share)
    first, second = versions()
    old = client.bring(first)
    path = client.bring(second)
    assert (tree_of(path), tree_of(old)) == (second.tree, first.tree)
    assert {os.stat(f"{each}/b").st_nlink for each in (old, path)} == {1}
    change(Path(path, "b"), b"x")
    assert client.attach(first)[1] == []


def test_a_damaged_file_is_not_taken_over_and_found_in_both(client: DataClient) -> None:
    first, second = versions()
    old = client.bring(first)
    change(Path(old, "b"), LARGE[:-1] + b"x")
    path, missing = client.attach(second)
    assert missing == [3, 4, 5]
    client.fill_all(second, missing)
    client.publish(second)
    assert tree_of(path) == second.tree
    assert client.attach(first) == (old, []), "and now the second one has it"
    assert tree_of(old) == first.tree
    change(Path(old, "a"), b"SAME")
    for each in (first, second):
        client.bring(each)
    assert (tree_of(path), tree_of(old)) == (second.tree, first.tree)


@pytest.mark.parametrize("number", [errno.EMLINK, errno.EPERM, errno.EXDEV, errno.ENOENT])
def test_a_disk_without_links_has_all_sent(client: DataClient, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    first, second = versions()
    client.bring(first)
    monkeypatch.setattr(os, "link", fail)
    monkeypatch.setattr(data_tree, "share", lambda *_: False)
    path, missing = client.attach(second)
    assert missing == second.indices()
    client.fill_all(second, missing)
    client.publish(second)
    assert tree_of(path) == second.tree


def test_an_interrupted_fill_goes_on_in_another_mover(here: Here, client: DataClient) -> None:
    data = digits()
    client.attach(data)
    client.fill(data, (1, 0, 8), (3, 0, 1000))
    end(here)
    second = DataClient(Here(here.home).client(attends=False))
    path, missing = second.attach(data)
    assert missing == [3, 7]
    second.fill_all(data, missing)
    second.publish(data)
    assert tree_of(path) == data.tree


def test_an_attach_of_the_same_mover_takes_the_fill_over(here: Here, client: DataClient) -> None:
    data = digits()
    client.attach(data)
    client.fill(data, (1, 0, 8), (3, 0, 1000))
    client.client.close()
    second = DataClient(here.client(attends=False))
    assert second.attach(data)[1] == [3, 7]
    second.fill_all(data, [3, 7])
    assert tree_of(second.publish(data)) == data.tree


def test_a_payload_reads_what_the_client_brings(cache: Path, node: Node) -> None:
    client = DataClient(Attendant(ask_for_mover(node.agent)[1]))
    worker = node.ready(
        """
        import skyward as sky
        def main():
            files = sorted(sky.data("digits").rglob("*.npy"))
            return str(sky.data("digits")), [file.read_bytes() for file in sky.shard(files)]
        """,
        cluster={"data": ["digits"]},
    )
    run = worker.start(1)
    channel, number, body = client.client.sent()
    asked = msgspec.msgpack.decode(body)
    assert (asked["kind"], asked["n"], asked["name"], number) == ("data", 1, "digits", 1)
    data = digits()
    path = client.bring(data)
    answer = {"n": 1, "path": path}
    client.client.deliver(channel, 1, msgspec.msgpack.encode(answer))
    assert worker.outcome(run)[1] == [f"{cache}/{data.id}/files", [b"a sample"]]
    assert client.client.told()[0] == [wire.CLOSED, channel]
    assert data_folders.take(data_folders.use_lock(str(cache), data.id), False) is None
