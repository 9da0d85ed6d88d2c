"""Checkpoints outside a pool: folders that are whole, whenever the process is killed, and full disks."""

from __future__ import annotations

import errno
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward._core import artifacts, state
from skyward._sky import checkpoint_save, copying

from .checkpoint_mover import FakeMover
from .client import ROOT


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the checkpoints `run`, of a process outside a pool."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKYWARD_PAYLOADS", raising=False)
    monkeypatch.setattr(state, "cluster", None)
    return tmp_path / "checkpoints" / "run"


def train(*steps: int, keep: int | None = 3) -> int | None:
    """Save some steps; return the one from which the block began."""
    with sky.checkpoints("run", keep=keep) as ckpt:
        start = ckpt.latest()
        for step in steps:
            with ckpt.save(step, meta={"step": step}) as folder:
                (folder / "model").write_text(f"{step}")
        ckpt.wait()
    return None if start is None else start.step


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_run_continues_from_its_latest_step(here: Path) -> None:
    assert train(1, 5) is None
    with sky.checkpoints("run") as ckpt:
        start = ckpt.latest()
        assert start == sky.Checkpoint(5, here / "000000000005" / "content", {"step": 5})
        assert (start.path / "model").read_text() == "5"
        assert [step for step in range(6, 10) if ckpt.due(step, every=4)] == [8]
        with pytest.raises(ValueError, match="this block began from step 5"):
            ckpt.save(5)
    with sky.checkpoints("other") as ckpt:
        assert ckpt.latest() is None
    assert json.loads((here / "000000000005" / "meta").read_text()) == {"step": 5}


def test_large_steps_are_later_than_small_ones(here: Path) -> None:
    train(7, 999_999_999_999, 1_000_000_000_000)
    assert train() == 1_000_000_000_000


@pytest.mark.parametrize(("keep", "left"), [(1, [6]), (2, [4, 6]), (None, [1, 2, 4, 6])])
def test_the_latest_ones_are_kept(here: Path, keep: int | None, left: list[int]) -> None:
    train(1, 2, 4, 6, keep=keep)
    assert names(here) == [f"{step:012}" for step in left]


def test_the_one_from_which_a_block_began_is_kept_while_it_lasts(here: Path) -> None:
    train(1)
    with sky.checkpoints("run", keep=1) as ckpt:
        start = ckpt.latest()
        for step in (2, 3):
            with ckpt.save(step):
                pass
        assert start is not None
        assert (start.path / "model").read_text() == "1"
        assert names(here) == ["000000000001", "000000000003"]
    assert names(here) == ["000000000003"]


def test_files_of_others_are_left_alone(here: Path) -> None:
    here.mkdir(parents=True)
    for name in ("notes", "12", "0000000000123", "best"):
        (here / name).mkdir()
    assert train(1, 2, keep=1) is None
    assert names(here) == ["000000000002", "0000000000123", "12", "best", "notes"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "meta").unlink(),
        lambda folder: (folder / "meta").write_text("[1]"),
        lambda folder: (folder / "meta").write_bytes(b"\xff"),
        lambda folder: ((folder / "content" / "model").unlink(), (folder / "content").rmdir()),
    ],
)
def test_one_that_is_damaged_is_skipped_and_can_be_saved_again(
    here: Path, damage: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    train(1, 2)
    damage(here / "000000000002")
    assert train(2) == 1
    assert f"skyward: sky.checkpoints skips {here}/000000000002, which is not whole" in capsys.readouterr().err
    assert train() == 2


def test_two_processes_with_one_name_are_told(here: Path) -> None:
    with sky.checkpoints("run") as ckpt:
        train(1)
        with pytest.raises(sky.CheckpointError, match="another process saves under the same name"), ckpt.save(1):
            pass
    assert names(here) == ["000000000001"]


def test_a_folder_of_the_payload_is_removed_at_the_end(here: Path) -> None:
    train(1)
    with sky.checkpoints("run") as ckpt:
        (ckpt.folder() / "more").write_text("x")
        ckpt.commit(2)
        assert len(names(here)) == 3
    assert names(here / "000000000002" / "content") == ["model", "more"]
    assert names(here) == ["000000000001", "000000000002"]


def test_an_old_one_that_cannot_be_removed_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: str) -> None:
        raise PermissionError(errno.EACCES, "no", path)

    monkeypatch.setattr(artifacts, "remove", fail)
    with suppress(PermissionError):
        train(1, 2, keep=1)
    assert f"cannot remove the old checkpoint {here}/000000000001" in capsys.readouterr().err


# Killed


CHILD = """
import os, signal, sys
import skyward as sky

left = int(sys.argv[1])

def hook(event, arguments):
    global left
    if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.listdir", "fcntl.flock"):
        if event == "open" and "checkpoints" not in str(arguments[0]):
            return
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

with sky.checkpoints("run", keep=2) as ckpt:
    step = ckpt.latest().step + 1
    folder = ckpt.folder()
    sys.addaudithook(hook)
    with ckpt.save(step, meta={"step": step}) as folder:
        (folder / "model").write_text(f"{step}")
    ckpt.commit(step + 1, meta={"step": step + 1})
"""


def test_whenever_it_is_killed_the_latest_is_whole(here: Path) -> None:
    train(1, 2)
    latest = 2
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SKYWARD_")}
    for moment in itertools.count():
        ran = subprocess.run(
            [sys.executable, "-c", CHILD, str(moment)],
            env={**environment, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
        for name in filter(str.isdigit, names(here)):
            assert names(here / name) == ["content", "meta"], "old ones are whole or gone"
            assert (here / name / "content" / "model").exists()
        with sky.checkpoints("run", keep=2) as ckpt:
            found = ckpt.latest()
            assert found is not None
            assert found.step in (latest, latest + 1, latest + 2), moment
            assert found.meta == {"step": found.step}
            text = (found.path / "model").read_text()
            latest = found.step
            # A copy of the folder has what the step before it began with.
            assert text.isdigit()
            ckpt.folder()
        assert all(name.isdigit() for name in names(here)), "what was half is gone"
        if ran.returncode == 0:
            break
        assert ran.returncode == -signal.SIGKILL
    assert moment > 20


# Full disks


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file have more than 1000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files")
def test_a_disk_that_is_full_for_the_payload_is_its_own_error(here: Path) -> None:
    with sky.checkpoints("run") as ckpt:
        with pytest.raises(OSError, match="too large"), ckpt.save(1) as folder:
            (folder / "model").write_bytes(bytes(2000))
        assert names(here) == []
        with ckpt.save(1) as folder:
            (folder / "model").write_bytes(bytes(1000))
    assert names(here) == ["000000000001"]


@pytest.mark.usefixtures("small_files")
def test_a_disk_that_is_full_for_what_is_written_beside_it_is_named(here: Path, fake: FakeMover) -> None:
    with sky.checkpoints("run") as ckpt:
        with (
            pytest.raises(OSError, match=r"sky\.checkpoints cannot write this file: .*record"),
            ckpt.save(1, meta={"a": "x" * 2000}),
        ):
            pass
        assert names(fake.outbox) == []
        with ckpt.save(1):
            pass
    fake.wait(lambda: len(fake.saved) == 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_for_a_copy_is_named(here: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    with sky.checkpoints("run") as ckpt:
        (ckpt.folder() / "model").write_bytes(b"x")
        original: Any = copying.create

        class Full:
            def __init__(self, file: Any) -> None:
                self.file = file

            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                self.file.close()

            def fileno(self) -> int:
                raise OSError(errno.EOPNOTSUPP, "no sharing")

            def write(self, data: object) -> int:
                raise OSError(number, os.strerror(number))

        monkeypatch.setattr(copying, "create", lambda *arguments: Full(original(*arguments)))
        with pytest.raises(OSError, match=r"sky\.checkpoints cannot write this file: '.*/content/model'") as caught:
            ckpt.commit(1)
        assert caught.value.errno == number
        assert len(names(here)) == 1, "the folder of the payload stays"
    assert names(here) == []


# Other processes


def test_an_exception_in_a_forked_process_does_not_remove_the_save_of_its_parent(here: Path) -> None:
    process = os.getpid()
    try:
        with sky.checkpoints("run") as ckpt, ckpt.save(1) as folder:
            child = os.fork()
            if child == 0:
                raise KeyError
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            (folder / "model").write_text("1")
    finally:
        if os.getpid() != process:
            os._exit(7)
    assert names(here) == ["000000000001"]


def test_a_forked_process_neither_saves_nor_removes(here: Path) -> None:
    with sky.checkpoints("run") as ckpt, ckpt.save(1) as folder:
        child = os.fork()
        if child == 0:
            try:
                ckpt.wait()
                os._exit(1)
            except sky.CheckpointError as error:
                os._exit(7 if "forked or started" in str(error) else 2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        child = os.fork()
        if child == 0:
            try:
                with ckpt:
                    pass
            except sky.CheckpointError:
                ckpt.__exit__(None, None, None)
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        (folder / "model").write_text("1")
    assert names(here) == ["000000000001"]


def test_the_lock_of_a_save_ends_with_its_process_though_a_child_lives(here: Path) -> None:
    here.mkdir(parents=True)
    (said, say), (stays, end) = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(end)
        with checkpoint_save.half(str(here)):
            if os.fork() == 0:
                os.write(say, b"x")
                os.read(stays, 1)
                os._exit(0)
            os.read(stays, 1)
            os._exit(0)
    os.read(said, 1)
    artifacts.sweep(str(here))
    assert len(names(here)) == 1
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    artifacts.sweep(str(here))
    assert names(here) == []
    for each in (said, say, stays, end):
        os.close(each)
