"""Several movers of one machine, and movers and clients that end at any time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skyward._core import data_folders, wire
from skyward._mover import connection, data_cache, data_sets, data_tree

from .client import DEADLINE, ROOT
from .data_client import REQUEST, DataClient, Listed, mover, of_size, tree_of


@pytest.fixture
def client(tmp_path: Path, cache: Path) -> DataClient:
    return mover(tmp_path)[1]


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mover that says often that it is busy."""
    monkeypatch.setattr(connection, "_BUSY", 0.01)
    monkeypatch.setattr(data_cache, "_PAUSE", 0.01)
    monkeypatch.setattr(data_sets, "_PAUSE", 0.01)


@pytest.mark.usefixtures("signs")
def test_of_two_movers_one_fills_and_the_other_finds_all_there(tmp_path: Path, cache: Path, client: DataClient) -> None:
    data = of_size(1000)
    path, missing = client.attach(data)
    _, second = mover(tmp_path)
    second.send(wire.DATA_ATTACH, 0, body=data.body)
    for _ in range(3):
        assert second.client.receive() == ([wire.MOVER_BUSY, REQUEST], b"")
    client.fill_all(data, missing)
    client.publish(data)
    assert DataClient.attached(*second.answer(), data) == (path, [])


@pytest.mark.usefixtures("signs")
def test_a_client_that_leaves_ends_the_wait(tmp_path: Path, cache: Path, client: DataClient) -> None:
    data = of_size(1000)
    client.attach(data)
    here, second = mover(tmp_path)
    second.send(wire.DATA_ATTACH, 0, body=data.body)
    second.client.receive()
    second.client.close()
    _, missing = client.attach(data)
    client.fill_all(data, missing)
    client.publish(data)
    third = DataClient(here.client(attends=False))
    assert third.attach(data)[1] == []


@pytest.mark.usefixtures("signs")
def test_requests_of_two_connections_follow_each_other(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, client = mover(tmp_path)
    data = Listed().file(b"f", b"xyz")
    client.attach(data)
    client.fill(data, (1, 2, 1))
    client.fill(data, (1, 0, 2))
    began, go_on = threading.Event(), threading.Event()
    hashed = data_tree.Tree.complete

    def slow(*arguments: Any) -> None:
        began.set()
        assert go_on.wait(DEADLINE)
        hashed(*arguments)

    monkeypatch.setattr(data_tree.Tree, "complete", slow)
    client.send(wire.PUBLISH, data.id)
    assert began.wait(DEADLINE)
    other = DataClient(here.client(attends=False))
    other.send(wire.DATA_ATTACH, 0, body=data.body)
    assert other.client.receive()[0] == [wire.MOVER_BUSY, REQUEST]
    go_on.set()
    for each in (client, other):
        assert DataClient.attached(*each.answer(), data)[1] == []


@pytest.mark.usefixtures("signs")
def test_a_fill_whose_client_does_not_go_on_is_given_up(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert data_sets._IDLE == 120.0
    monkeypatch.setattr(data_sets, "_IDLE", 0.1)
    _, client = mover(tmp_path)
    data = of_size(1000).file(b"g", b"g")
    client.attach(data)
    client.fill(data, (2, 0, 1), (1, 0, 10))
    _, second = mover(tmp_path)
    second.send(wire.DATA_ATTACH, 0, body=data.body)
    assert second.answer()[0][0] == wire.ATTACHED
    assert client.publish_failure(data)[0] == "missing"
    assert f"gives up the fill of data set {data.id[:12]}: no piece came for 0.1 s" in capfd.readouterr().err


def test_an_attach_that_fails_keeps_no_lock(
    tmp_path: Path, cache: Path, client: DataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = of_size(10)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", fail)
        assert client.attach_failure(data)[::2] == ("io", errno.EIO)
    assert mover(tmp_path)[1].bring(data)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda _: fail())
        assert client.attach_failure(of_size(11))[0] == "io"
    lock = data_folders.take(data_folders.fill_lock(str(cache), data.id), False)
    assert lock is not None
    os.close(lock)


# Movers that are killed, and several at once


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_mover_may_be_killed_at_each_of_its_steps(seed: int) -> None:
    command = [sys.executable, "-m", "tests.data_killed", str(seed), str(seed), "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def test_movers_of_several_processes_bring_the_same_set(tmp_path: Path, cache: Path) -> None:
    data = Listed()
    for number in range(100):
        data.file(b"%d" % number, b"%d" % number * 1000)
    code = (
        "import sys; from pathlib import Path; "
        "from tests.data_client import Listed, mover; import msgspec; "
        "data = Listed(*msgspec.msgpack.decode(Path(sys.argv[1], 'set').read_bytes(), type=tuple[list, dict[int, bytes]]));"
        "_, client = mover(Path(sys.argv[1])); path, missing = client.attach(data); "
        "client.fill_all(data, missing); missing and client.publish(data); print(len(missing))"
    )
    (tmp_path / "set").write_bytes(msgspec.msgpack.encode((data.entries, data.contents)))
    command = [sys.executable, "-c", code, str(tmp_path)]
    movers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    assert sorted(int(each.communicate(timeout=DEADLINE)[0]) for each in movers) == [0, 0, 100]
    assert tree_of(str(cache / data.id / "files")) == data.tree
