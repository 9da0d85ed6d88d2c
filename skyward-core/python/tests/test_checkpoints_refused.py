"""`sky.checkpoints` in a pool: what is refused, and how it is said."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward._core import fork, state
from skyward._sky import cluster, listing

from .checkpoint_mover import FakeMover
from .client import ROOT


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


# What is refused


@pytest.mark.parametrize("name", ["", ".", ".a", "a/b", "a b", "é", "a" * 101, "a\n", "a\0"])
def test_names_that_are_none(fake: FakeMover, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of checkpoints: a name has 1 to 100"):
        sky.checkpoints(name)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"name": 3}, TypeError, "name of checkpoints must be a str, not an object of type int"),
        ({"keep": 0}, ValueError, "keep=0: at least 1"),
        ({"keep": 1.5}, TypeError, "keep must be a whole number, not an object of type float"),
        ({"keep": True}, TypeError, "of type bool"),
        ({"writers": "rank0"}, ValueError, 'writers=\'rank0\'.*"all".*"head"'),
        ({"own": 1}, TypeError, "own must be True or False"),
        ({"timeout": 0}, ValueError, "timeout=0: it must be more than 0 seconds"),
        ({"timeout": math.inf}, ValueError, "finite"),
        ({"timeout": "1"}, TypeError, "timeout must be a number of seconds"),
        ({"timeout": None}, TypeError, "timeout must be a number of seconds"),
    ],
)
def test_options_that_are_none(fake: FakeMover, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sky.checkpoints(**{"name": "run", **options})
    assert fake.hellos == []


def test_steps_that_are_none(fake: FakeMover, ckpt: sky.Checkpoints) -> None:
    for step in (1.0, "1", None, True):
        for call in (ckpt.due, ckpt.save):
            with pytest.raises(TypeError, match="the step must be a whole number"):
                call(step)  # type: ignore[arg-type]
    for step in (-1, 1 << 63):
        for call in (ckpt.due, ckpt.save):
            with pytest.raises(ValueError, match=f"{step} cannot be a step: steps are counted from 0"):
                call(step)
    ckpt.due((1 << 63) - 1)
    with pytest.raises(ValueError, match="due was called for step 9223372036854775807 before, and now for 3"):
        ckpt.due(3)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        *(({"every": 0}, ValueError), ({"every": 1.5}, TypeError), ({"every": "1"}, TypeError)),
        *(({"seconds": 0}, ValueError), ({"seconds": math.nan}, ValueError), ({"seconds": "1"}, TypeError)),
    ],
)
def test_times_that_are_none(ckpt: sky.Checkpoints, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        ckpt.due(1, **options)


def test_numbers_of_libraries_are_numbers(ckpt: sky.Checkpoints) -> None:
    numpy = pytest.importorskip("numpy")
    assert ckpt.due(numpy.int64(4), every=numpy.int32(2), seconds=numpy.float32(100.0))
    with ckpt.save(numpy.int64(4)):
        pass


@pytest.mark.parametrize(
    ("meta", "error", "text"),
    [
        ([1], TypeError, "meta must be a dict, not an object of type list"),
        ({"loss": object()}, TypeError, r"meta cannot be written as JSON.*float\(loss\)"),
        ({"loss": math.nan}, ValueError, "meta cannot be written as JSON"),
        ({"name": "\ud800"}, ValueError, "meta cannot be written as JSON"),
        ({"text": "x" * 65536}, ValueError, "meta has 65548 bytes as JSON, and 65536 are possible"),
    ],
)
def test_meta_that_is_none(ckpt: sky.Checkpoints, meta: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ckpt.save(1, meta=meta)


def test_steps_of_saves_must_grow(fake: FakeMover, tmp_path: Path) -> None:
    fake.start = {"step": 10, "meta": None, "path": str(tmp_path)}
    with sky.checkpoints("run") as ckpt:
        with pytest.raises(ValueError, match="step 10 cannot be saved: this block began from step 10"):
            ckpt.save(10)
        with ckpt.save(12):
            pass
        with pytest.raises(ValueError, match="step 12 cannot be saved after step 12"):
            ckpt.save(12)


def test_saves_cannot_be_nested_and_exceptions_remove_them(fake: FakeMover, ckpt: sky.Checkpoints) -> None:
    with pytest.raises(KeyError), ckpt.save(1) as folder:
        (folder / "half").write_bytes(b"x")
        with pytest.raises(RuntimeError, match="saves cannot be nested"), ckpt.save(2):
            pass
        raise KeyError
    assert names(fake.outbox) == []
    with ckpt.save(1):
        pass
    fake.wait(lambda: len(fake.saved) == 1)


def test_what_cannot_be_kept_is_named(fake: FakeMover, ckpt: sky.Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(ValueError, match=r"sky\.checkpoints cannot keep the link .*/out: it leads to /etc"),
        ckpt.save(1) as to,
    ):
        (to / "out").symlink_to("/etc")
    with (
        pytest.raises(ValueError, match=r"sky\.checkpoints cannot keep .*/pipe: it is a named pipe"),
        ckpt.save(1) as to,
    ):
        os.mkfifo(to / "pipe")
    with pytest.raises(ValueError, match="it is a socket"), ckpt.save(1) as to, socket.socket(socket.AF_UNIX) as one:
        one.bind(str(to / "s"))
    with pytest.raises(ValueError, match="something else has taken the place"), ckpt.save(1) as to:
        to.rmdir()
        to.symlink_to("/etc")
    with pytest.raises(FileNotFoundError), ckpt.save(1) as to:
        to.rmdir()
    monkeypatch.setattr(listing, "_MOST", 3)
    with pytest.raises(ValueError, match=r"sky\.checkpoints cannot keep .*more than 3 files"), ckpt.save(1) as to:
        for name in "abc":
            (to / name).touch()
    assert (names(fake.outbox), fake.saved) == ([], [])


def test_a_block_is_used_while_it_lasts(fake: FakeMover) -> None:
    ckpt = sky.checkpoints("run")
    for call in (
        ckpt.latest,
        ckpt.folder,
        ckpt.wait,
        lambda: ckpt.due(1),
        lambda: ckpt.save(1),
        lambda: ckpt.commit(1),
    ):
        with pytest.raises(RuntimeError, match="was not entered: use it as `with"):
            call()
    with ckpt:
        pass
    with pytest.raises(RuntimeError, match=r"this block of sky\.checkpoints has ended"):
        ckpt.due(1)
    with pytest.raises(RuntimeError, match="one `with` block"), ckpt:
        pass


def test_a_pool_without_a_storage_names_how_to_get_one(node_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ({"node": 0}, {"node": 0, "storage": False}):
        monkeypatch.setattr(state, "cluster", place)
        with pytest.raises(sky.CheckpointError, match=r"no storage.*Pool::builder\(\)\.storage\(Storage::folder"):
            sky.checkpoints("run")
    monkeypatch.setattr(state, "cluster", {"node": 0, "storage": True})
    monkeypatch.setattr(cluster, "_cached", None)
    monkeypatch.delenv("SKYWARD_PAYLOADS")
    with pytest.raises(RuntimeError, match="cannot find the node's folder"):
        sky.checkpoints("run")


def test_other_processes_cannot_open_any(node_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import skyward as sky; sky.checkpoints('run')"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"forked or started by the process of the task" in ran.stderr
    monkeypatch.setattr(fork, "is_child", True)
    with pytest.raises(sky.CheckpointError, match="on the process that runs the payload"):
        sky.checkpoints("run")


def test_names_are_public() -> None:
    assert {"Checkpoint", "CheckpointError", "Checkpoints", "checkpoints"} <= set(sky.__all__)
