"""`sky.checkpoints` in a pool: what the client and the mover are told, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward._core import state
from skyward._sky.notices import notices

from .checkpoint_mover import FakeMover


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


# What is told


def test_opening_says_who_opens_what(fake: FakeMover) -> None:
    with sky.checkpoints("run-42", keep=None, own=True) as ckpt:
        assert ckpt.latest() is None
        [hello] = fake.hellos
        assert hello[:2] == [257, 3]
        assert re.fullmatch("[0-9a-f]{32}", hello[2])
        steps = fake.home / "checkpoints" / "steps" / hello[2]
        assert steps.read_bytes() == b"\xff" * 8 + bytes(8)
        assert steps.stat().st_mode & 0o777 == 0o600
    [message] = fake.messages("open")
    opened = message.pop("open")
    assert re.fullmatch("[0-9a-f]{32}", opened)
    assert message == {
        **{"kind": "open", "n": 1, "name": "run-42", "keep": None, "writers": "all", "own": True, "try": opened},
        **{"rank": 0, "ranks": 1, "node": 3, "worker_rank": 3, "generation": 7},
    }
    [closed] = fake.messages("close", 1)
    assert (closed["open"], closed["failed"]) == (opened, False)
    fake.wait(lambda: fake.ended == 1)
    assert names(fake.home / "checkpoints" / "steps") == []


@pytest.mark.parametrize(("joined", "expected"), [(True, (1, 2, "7.5.2.1")), (False, (0, 1, None))])
def test_only_ranks_of_a_joined_world_save_together(
    fake: FakeMover, monkeypatch: pytest.MonkeyPatch, joined: bool, expected: tuple[int, int, str | None]
) -> None:
    place = {"node": 1, "total_nodes": 2, "generation": 7, "storage": True, "joined": joined}
    monkeypatch.setattr(state, "cluster", place)
    monkeypatch.setattr(state, "gang", True)
    monkeypatch.setattr(state, "ranks", 2)
    monkeypatch.setattr(state, "attempt", (5, 2))
    with sky.checkpoints("run"):
        pass
    [message] = fake.messages("open")
    assert (message["rank"], message["ranks"], message["worker_rank"]) == (*expected[:2], 1)
    assert message["try"] == expected[2] or message["try"] == message["open"]


def test_the_latest_is_what_the_client_has_brought(fake: FakeMover, tmp_path: Path) -> None:
    fake.start = {"step": 100, "meta": '{"loss": 0.5}', "path": str(tmp_path), "unknown": 1}
    with sky.checkpoints("run") as ckpt:
        assert ckpt.latest() == sky.Checkpoint(100, tmp_path, {"loss": 0.5})
        with ckpt.save(101):
            pass
        assert ckpt.latest() == sky.Checkpoint(100, tmp_path, {"loss": 0.5}), "it is what the block began from"


def test_a_save_is_in_the_outbox_before_the_mover_is_told(fake: FakeMover, ckpt: sky.Checkpoints) -> None:
    with ckpt.save(3, meta={"loss": 0.25}) as folder:
        assert isinstance(folder, Path)
        assert names(folder) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "model.pt").write_bytes(b"weights")
        (folder / "link").symlink_to("a/model.pt")
        assert [name[0] for name in names(fake.outbox)] == ["."]
    fake.wait(lambda: len(fake.saved) == 1)
    [save] = fake.saved
    assert names(fake.outbox) == [save]
    content = fake.outbox / save / "content"
    assert (content / "a" / "model.pt").read_bytes() == b"weights"
    assert os.readlink(content / "link") == "a/model.pt"
    opened = fake.messages("open")[0]["open"]
    assert fake.record(save) == {
        **{"name": "run-42", "try": opened, "step": 3, "rank": 0, "ranks": 1, "writers": "all"},
        "meta": '{"loss": 0.25}',
    }


def test_leaving_waits_for_the_last_save_and_an_exception_does_not(fake: FakeMover) -> None:
    with sky.checkpoints("run") as ckpt:
        for step in (0, 4):
            with ckpt.save(step):
                pass
    assert [each["step"] for each in fake.messages("wait")] == [4]
    with pytest.raises(KeyError), sky.checkpoints("run") as ckpt:
        with ckpt.save(5):
            pass
        raise KeyError
    assert len(fake.messages("wait")) == 1
    assert [each["failed"] for each in fake.messages("close", 2)] == [False, True]


def test_wait_asks_only_for_what_is_not_known(fake: FakeMover, ckpt: sky.Checkpoints) -> None:
    ckpt.wait()
    with ckpt.save(1):
        pass
    ckpt.wait()
    ckpt.wait(5)
    with ckpt.save(2):
        pass
    ckpt.wait()
    assert [each["step"] for each in fake.messages("wait")] == [1, 2]


def test_what_other_ranks_than_the_head_write_is_thrown_away(fake: FakeMover, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"node": 1, "total_nodes": 2, "storage": True, "joined": True}
    monkeypatch.setattr(state, "cluster", place)
    monkeypatch.setattr(state, "gang", True)
    monkeypatch.setattr(state, "ranks", 2)
    with sky.checkpoints("run", writers="head") as ckpt:
        with ckpt.save(7) as folder:
            (folder / "model.pt").write_bytes(b"weights")
        ckpt.folder()
        ckpt.commit(9)
    assert [each["step"] for each in fake.messages("wait")] == [9]
    assert (fake.saved, names(fake.outbox)) == ([], [])


# A folder of the payload's own


def test_a_folder_begins_as_the_latest_and_is_saved_as_it_is(fake: FakeMover, tmp_path: Path) -> None:
    (tmp_path / "latest" / "a").mkdir(parents=True)
    (tmp_path / "latest" / "a" / "tool").write_bytes(b"old")
    (tmp_path / "latest" / "a" / "tool").chmod(0o755)
    (tmp_path / "latest" / "link").symlink_to("a/tool")
    fake.start = {"step": 10, "meta": None, "path": str(tmp_path / "latest")}
    with sky.checkpoints("run") as ckpt:
        with pytest.raises(RuntimeError, match=r"ckpt\.folder\(\), which was not called"):
            ckpt.commit(11)
        folder = ckpt.folder()
        assert folder == ckpt.folder()
        assert (folder / "a" / "tool").read_bytes() == b"old"
        assert os.access(folder / "a" / "tool", os.X_OK)
        assert os.readlink(folder / "link") == "a/tool"
        (folder / "a" / "tool").write_bytes(b"new")
        ckpt.commit(11, meta={"a": 1})
        (folder / "a" / "tool").write_bytes(b"newer")
        ckpt.commit(12)
    fake.wait(lambda: len(fake.saved) == 2)
    contents = [(fake.outbox / save / "content" / "a" / "tool").read_bytes() for save in fake.saved]
    assert contents == [b"new", b"newer"]
    assert [fake.record(save)["meta"] for save in fake.saved] == ['{"a": 1}', "{}"]
    assert (tmp_path / "latest" / "a" / "tool").read_bytes() == b"old"
    assert names(fake.outbox) == sorted(fake.saved), "the folder is gone"


def test_a_file_that_is_written_during_a_commit_is_refused(
    fake: FakeMover, ckpt: sky.Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skyward._sky import copying

    file = ckpt.folder() / "log"
    file.write_bytes(b"1")

    def share(source: object, copy: object) -> bool:
        file.write_bytes(b"12")
        return False

    monkeypatch.setattr(copying, "share", share)
    with pytest.raises(RuntimeError, match=f"the file {file} changed while sky.checkpoints copied it"):
        ckpt.commit(1)
    assert fake.saved == []


# When to save


def test_due_is_true_at_each_multiple(ckpt: sky.Checkpoints) -> None:
    assert [step for step in range(10) if ckpt.due(step, every=3)] == [0, 3, 6, 9]
    assert not ckpt.due(10)


def test_due_is_true_when_the_time_since_the_last_save_is_over(
    ckpt: sky.Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = ckpt._since
    monkeypatch.setattr("skyward._sky.checkpoints.monotonic", lambda: now)
    assert not ckpt.due(1, seconds=10)
    now += 9.9
    assert not ckpt.due(2, seconds=10)
    now += 0.1
    assert ckpt.due(3, seconds=10)
    assert ckpt.due(4, seconds=10), "nothing was saved"
    with ckpt.save(4):
        pass
    assert not ckpt.due(5, seconds=10)


def test_due_is_true_once_after_each_notice(ckpt: sky.Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_number", 0)
    due = [ckpt.due(0)]
    for number, step in ((1, 1), (1, 2), (3, 3), (3, 4)):
        monkeypatch.setattr(notices, "_number", number)
        due.append(ckpt.due(step))
    assert due == [False, True, False, True, False]


def test_due_without_work_uses_no_connection(
    fake: FakeMover, ckpt: sky.Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Any = ckpt._place
    monkeypatch.setattr(place, "_link", None)
    monkeypatch.setattr(os, "getpid", None)
    assert not any(ckpt.due(step, every=1000, seconds=1e6) for step in range(1, 1000))
    monkeypatch.undo()
    assert fake.ask(fake.hellos[0][2], 0) == 999
