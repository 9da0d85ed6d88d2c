"""Data sets that the cache has in part: of an earlier version, of an interrupted fill, of another mover."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from skyward._mover import data_tree

from .attending import Here
from .data_client import LARGE, DataClient, Listed, change, digits, end, tree_of


@pytest.fixture
def here(tmp_path: Path, cache: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def client(here: Here) -> DataClient:
    return DataClient(here.client(attends=False))


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
