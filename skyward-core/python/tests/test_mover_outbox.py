"""The outbox of the mover: saves that wait for the client, and what killed workers leave."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skyward._core import artifacts, checkpoint_folders, wire
from skyward._mover import outbox

from .attending import Attendant, Here, Writer, make_save, make_steps
from .client import DEADLINE, ROOT
from .conftest import Node
from .mover import ask_for_mover

ID = "0123456789abcdef" * 2


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the outbox complains of."""
    said: list[str] = []
    monkeypatch.setattr(outbox, "complain", said.append)
    return said


def saved(here: Here, id: str, record: bytes = b"record") -> tuple[list[Any], bytes]:
    return [wire.SAVED, id, os.fsencode(here.outbox / id / "content")], record


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < deadline


def test_saves_are_told_to_each_client_that_attends(here: Here) -> None:
    ids = sorted(make_save(here.home, b"record %d" % number) for number in range(3))
    expected = [saved(here, id, (here.outbox / id / "record").read_bytes()) for id in ids]
    for _ in range(2):
        client = here.client()
        assert [client.told() for _ in ids] == expected
        assert client.attend() == [wire.DONE]
    client.settle(ids[0])
    client.settle(ids[0])
    assert sorted(os.listdir(here.outbox)) == ids[1:]
    client = here.client()
    assert [client.told() for _ in ids[1:]] == expected[1:]
    assert client.content(os.fsencode(here.outbox / ids[1] / "content" / "rank0.pt")) == b"weights"


def test_a_worker_announces_a_save_and_the_client_is_told_once(here: Here) -> None:
    client, worker = here.client(), here.worker()
    id = make_save(here.home)
    for _ in range(3):
        worker.send([wire.CHANNEL_SAVED, id])
    worker.say(b"after")
    assert client.told() == saved(here, id)
    assert client.sent() == (1, 1, b"after")
    client.settle(id)
    worker.send([wire.CHANNEL_SAVED, id])
    worker.send([wire.CHANNEL_SAVED, ID])
    worker.say(b"end")
    assert client.sent() == (1, 2, b"end"), "what is not there is not told"
    assert not here.program._relay._saves


def test_saves_that_nobody_has_announced_are_told_at_the_end_of_a_worker_before_its_channel_is_closed(
    here: Here,
) -> None:
    client, worker = here.client(), here.worker()
    worker.say(b"last")
    id = make_save(here.home)
    worker.close()
    assert client.sent() == (1, 1, b"last")
    assert client.told() == saved(here, id)
    assert client.told()[0] == [wire.CLOSED, 1]


def test_a_client_that_attends_later_is_told_of_saves_before_channels_are_closed(here: Here) -> None:
    worker = here.worker()
    id = make_save(here.home)
    worker.close()
    until(lambda: not here.program._workers)
    client = here.client()
    assert client.told() == saved(here, id)
    assert client.told()[0] == [wire.CLOSED, 1]


def test_saves_that_nobody_has_announced_are_told_when_a_client_attends_again(here: Here) -> None:
    client = here.client()
    id = make_save(here.home)
    assert client.attend() == [wire.DONE]
    assert client.told() == saved(here, id)


SAVER = """
import os, sys, time
from pathlib import Path
from skyward._core import wire
from tests.attending import Writer, make_steps, make_save
from skyward._core import artifacts, checkpoint_folders

home = Path(sys.argv[1])
worker = Writer(sys.argv[2], make_steps(home))
worker.hello()
worker.say(b"open")
id = make_save(home)
hidden = f"{checkpoint_folders.outbox(str(home))}/.{'1' * 32}"
lock = artifacts.make_locked(hidden)
Path(hidden, "half").write_bytes(b"half of the weights")
print(id, flush=True)
time.sleep(600)
"""


def test_a_killed_worker_leaves_its_saves_and_nothing_that_is_incomplete(node: Node) -> None:
    path = ask_for_mover(node.agent)[1]
    client = Attendant(path)
    process = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(node.folder), path], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout
    id = process.stdout.readline().strip()
    channel, *open = client.sent()
    assert open == [1, b"open"]
    box = Path(checkpoint_folders.outbox(str(node.folder)))
    other = Writer(path, make_steps(node.folder))
    other.hello()
    other.close()
    assert client.told()[0] == [wire.SAVED, id, os.fsencode(box / id / "content")]
    assert client.told()[0] == [wire.CLOSED, channel + 1]
    assert {*os.listdir(box)} == {id, "." + "1" * 32}, "its worker lives"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert client.told()[0] == [wire.CLOSED, channel]
    until(lambda: os.listdir(box) == [id])


def test_what_is_incomplete_is_removed_when_the_mover_starts(node: Node) -> None:
    box = Path(checkpoint_folders.outbox(str(node.folder)))
    kept = make_save(node.folder)
    (box / f".{ID}" / "content").mkdir(parents=True)
    restored = Path(checkpoint_folders.restored(str(node.folder)))
    (restored / f".{ID}").mkdir(parents=True)
    (restored / "whole").mkdir()
    lock = artifacts.make_locked(f"{box}/.{'1' * 32}")
    client = Attendant(ask_for_mover(node.agent)[1])
    assert client.told()[0][:2] == [wire.SAVED, kept]
    until(lambda: {*os.listdir(box)} == {kept, "." + "1" * 32} and os.listdir(restored) == ["whole"])
    os.close(lock)


# What payloads can do to the outbox


def broken(folder: Path, how: str) -> None:
    record, content = folder / "record", folder / "content"
    if how == "no record":
        record.unlink()
    elif how == "long record":
        os.truncate(record, (256 << 10) + 1)
    elif how == "huge record":
        os.truncate(record, 1 << 40)
    elif how == "pipe":
        record.unlink()
        os.mkfifo(record)
    elif how == "link":
        record.unlink()
        record.symlink_to("/etc/passwd")
    elif how == "folder":
        record.unlink()
        record.mkdir()
    elif how == "no content":
        artifacts.remove(str(content))
    elif how == "link for content":
        artifacts.remove(str(content))
        content.symlink_to("/etc")
    elif how == "file for content":
        artifacts.remove(str(content))
        content.write_text("no folder")
    elif how == "file for all":
        artifacts.remove(str(folder))
        folder.write_text("no folder")
    else:
        artifacts.remove(str(folder))
        folder.symlink_to(how)


@pytest.mark.parametrize(
    "how",
    [
        "no record",
        "long record",
        "huge record",
        "pipe",
        "link",
        "folder",
        "no content",
        "link for content",
        "file for content",
        "file for all",
        "/etc",
        "dangling",
    ],
)
def test_a_save_that_is_not_valid_is_removed_and_said(here: Here, said: list[str], how: str) -> None:
    bad, good = make_save(here.home, id="0" * 32), make_save(here.home, id="1" * 32)
    broken(here.outbox / bad, how)
    client = here.client()
    assert client.told() == saved(here, good)
    assert os.listdir(here.outbox) == [good]
    assert bad in said[0]
    assert len(said) == 1
    assert Path("/etc/passwd").exists()
    assert bad not in here.program._relay._saves


def test_a_record_has_up_to_256_kibibytes_and_any_content(here: Here) -> None:
    record = os.urandom(256 << 10)
    id = make_save(here.home, record)
    assert here.client().told() == saved(here, id, record)


def test_a_save_is_kept_if_it_cannot_be_read_now(here: Here, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    id = make_save(here.home)
    client = here.client(attends=False)

    def fail(_: str) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "_record", fail)
        assert client.attend() == [wire.DONE]
        until(lambda: bool(said))
    assert "Too many open files" in said[0]
    assert here.client().told() == saved(here, id)


def test_other_names_are_no_saves(here: Here) -> None:
    id = make_save(here.home)
    for name in (b"caf\xe9", b"0" * 31, b"A" * 32, b"." + b"2" * 32, b"0" * 32 + b".moved"):
        os.mkdir(os.fsencode(here.outbox) + b"/" + name)
    client, worker = here.client(), here.worker()
    assert client.told() == saved(here, id)
    worker.close()
    assert client.told()[0] == [wire.CLOSED, 1]


def test_the_nodes_folder_may_have_any_name(tmp_path: Path) -> None:
    home = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 \n"))
    home.mkdir()
    here = Here(home)
    id = make_save(home)
    (here.outbox / id / "content" / os.fsdecode(b"\xff.pt")).write_bytes(b"x")
    client = here.client()
    head, _ = client.told()
    assert head[2] == os.fsencode(home) + b"/checkpoints/outbox/" + id.encode() + b"/content"
    assert sorted(entry[0] for entry in client.stat(head[2])) == [b"", b"rank0.pt", b"\xff.pt"]
    assert client.content(head[2] + b"/\xff.pt") == b"x"
    broken(here.outbox / id, "no record")
    here.client().settle(id)


@pytest.mark.parametrize("id", ["", "..", "../" + "0" * 29, ID.upper(), ID + "\n", "0" * 31 + "\0", "x" * 1_000_000])
def test_only_a_save_is_settled(here: Here, id: str) -> None:
    kept = make_save(here.home)
    client = here.client()
    kind, words, _ = client.failure(wire.SETTLE, id)
    assert (kind, "hexadecimal" in words, len(words) < 300) == ("invalid", True, True)
    client.settle(ID)
    assert os.listdir(here.outbox) == [kept]


def test_a_save_that_cannot_be_removed_is_not_told_again_and_is_removed_later(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = make_save(here.home)
    client, worker = here.client(), here.worker()

    def fail(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    with monkeypatch.context() as patched:
        patched.setattr(artifacts, "remove", fail)
        kind, words, number = client.failure(wire.SETTLE, id)
        assert (kind, number) == ("io", errno.EBUSY)
        assert id in words
        client.settle(id)
    assert here.outbox.exists()
    worker.close()
    until(lambda: os.listdir(here.outbox) == [])


def test_a_save_that_is_being_written_is_not_removed(here: Here) -> None:
    lock = artifacts.make_locked(str(make_parent(here) / f".{ID}"))
    here.worker().close()
    until(lambda: not here.program._workers)
    assert os.listdir(here.outbox) == [f".{ID}"]
    os.close(lock)


def make_parent(here: Here) -> Path:
    here.outbox.mkdir(parents=True)
    return here.outbox


def test_a_worker_that_announces_without_end_costs_no_memory(here: Here) -> None:
    worker = here.worker()
    for number in range(2000):
        worker.send([wire.CHANNEL_SAVED, f"{number:032x}"])
    worker.say(b"end")
    until(lambda: bool(here.program._relay._channels[1].kept))
    assert not here.program._relay._saves
