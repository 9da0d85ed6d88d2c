"""Data sets: the client sends what the machine's cache does not have, and the tree is as it is listed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .attending import Here
from .data_client import DataClient, Listed, tree_of

LARGE = os.urandom(5 << 20)


def digits() -> Listed:
    data = Listed().file(b"a.npy", b"a sample").folder(b"deep").file(b"deep/caf\xe9\n", LARGE)
    data.file(b"deep/empty", b"").folder(b"deep/none").link(b"latest", b"deep/caf\xe9\n")
    return data.file(b"run.sh", b"#!/bin/sh\n", True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


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
