"""`sky.data`: the client is asked once per process, and the folder stays as long as the process."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward._core import data_folders, fork, state
from skyward._sky import data as module
from skyward._sky import mover_link

from .checkpoint_mover import FakeMover, Message, later
from .client import DEADLINE


@pytest.fixture(autouse=True)
def _no_folder_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ("_found", "_locks"):
        monkeypatch.setattr(module, known, {})
    monkeypatch.setattr(module, "_held", [])


@pytest.fixture
def home(node_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a node whose pool has data sets."""
    monkeypatch.setattr(state, "cluster", {"node": 3, "data": ["digits", "images"]})
    return node_home


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A data set in a cache, as the mover makes it."""
    return made(tmp_path / "cache", "1" * 64)


def made(cache: Path, id: str) -> Path:
    tree = cache / id / data_folders.FILES
    tree.mkdir(parents=True)
    lock = Path(data_folders.use_lock_of(str(tree)))
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    os.utime(lock, (1, 1))
    return tree


@pytest.fixture
def mover(home: Path, fake: FakeMover, tree: Path) -> FakeMover:
    fake.answer = lambda message: {"n": message["n"], "path": str(tree)}
    return fake


def is_free(tree: Path) -> bool:
    """Return whether nobody uses a data set."""
    lock = data_folders.take(data_folders.use_lock_of(str(tree)), False, 0)
    if lock is not None:
        os.close(lock)
    return lock is not None


def close_all() -> None:
    for held in module._held:
        os.close(held)


def test_the_client_is_asked_once_and_the_folder_is_kept_in_use(mover: FakeMover, tree: Path) -> None:
    assert sky.data("digits") == tree
    assert sky.data("digits") is sky.data("digits", timeout=1)
    [message] = mover.got
    assert {**message, "open": ""} == {"kind": "data", "n": 1, "open": "", "name": "digits"}
    assert len(message["open"]) == 32
    assert mover.hellos == [[257, 3, ""]]
    mover.wait(lambda: mover.ended == 1)
    assert not is_free(tree)
    assert os.stat(data_folders.use_lock_of(str(tree))).st_mtime > 1
    assert min(module._held) > 900
    close_all()
    assert is_free(tree)


def test_each_name_has_its_folder(mover: FakeMover, tmp_path: Path, tree: Path) -> None:
    other = made(tmp_path / "cache", "2" * 64)
    trees = {"digits": tree, "images": other}
    mover.answer = lambda message: {"n": message["n"], "path": str(trees[message["name"]])}
    assert [sky.data(name) for name in ("images", "digits", "images")] == [other, tree, other]
    assert len({message["open"] for message in mover.got}) == 2
    close_all()


def test_threads_ask_together(mover: FakeMover, tree: Path) -> None:
    found: list[Path] = []
    held = threading.Event()
    answer = mover.answer

    def slowly(message: Message) -> Message | None:
        held.wait(DEADLINE)
        return answer(message)

    mover.answer = slowly
    threads = [threading.Thread(target=lambda: found.append(sky.data("digits"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    later(held.set, lambda: mover.channels).join(DEADLINE)
    for thread in threads:
        thread.join(DEADLINE)
    assert (found, len(mover.got)) == ([tree] * 4, 1)
    close_all()


def test_a_mover_that_is_replaced_is_asked_again(mover: FakeMover, tree: Path) -> None:
    answer = mover.answer
    mover.answer = lambda _: None

    def replace() -> None:
        mover.die()
        mover.answer = answer
        mover.listen()

    thread = later(replace, lambda: mover.got)
    assert sky.data("digits") == tree
    thread.join(DEADLINE)
    assert mover.got[0] == mover.got[1]
    close_all()


def test_waiting_for_it_is_progress(mover: FakeMover, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    monkeypatch.setattr(mover_link, "progress", lambda: said.append(1))
    monkeypatch.setattr(mover_link, "_SLICE", 0.01)
    mover.answer = lambda _: None
    thread = later(
        lambda: mover.deliver({"n": 1, "path": str(tree)}), lambda: len(said) > 3 and mover.got and mover.channels
    )
    sky.data("digits")
    thread.join(DEADLINE)
    close_all()


# A folder that is not there any more


@contextmanager
def damaged(tree: Path, how: str) -> Iterator[None]:
    """Context manager: a data set cannot be used."""
    lock = data_folders.use_lock_of(str(tree))
    held = data_folders.take(lock, False, 0) if how == "removal" else None
    if how == "folder":
        tree.rmdir()
    elif how == "lock":
        os.unlink(lock)
    yield
    if held is not None:
        os.close(held)


@pytest.mark.parametrize("how", ["folder", "lock", "removal"])
def test_a_folder_that_is_gone_is_asked_for_again(mover: FakeMover, tmp_path: Path, tree: Path, how: str) -> None:
    gone = made(tmp_path / "other", "3" * 64)
    mover.answer = lambda message: {"n": message["n"], "path": str(gone if message["n"] == 1 else tree)}
    with damaged(gone, how):
        assert sky.data("digits") == tree
    assert [message["n"] for message in mover.got] == [1, 2]
    assert len({message["open"] for message in mover.got}) == 1
    if how == "folder":
        assert is_free(gone), "what was locked in vain is given back"
    close_all()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("folder", "there is no folder .*files: look for what removes files from the cache"),
        ("lock", r".*1\.use cannot be locked \(No such file or directory\)"),
        ("removal", "something removes .*files:"),
    ],
)
def test_a_folder_that_is_gone_again_is_named(mover: FakeMover, tree: Path, how: str, why: str) -> None:
    text = f'the data set "digits" was brought to this machine twice, and {why}'
    with damaged(tree, how), pytest.raises(sky.DataError, match=text):
        sky.data("digits")
    assert len(mover.got) == 2
    assert module._held == []


def test_a_system_without_locks_is_named(mover: FakeMover, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(sky.DataError, match=r"use cannot be locked \(Function not implemented\)"):
        sky.data("digits")


# Answers that do not come, or say no


@pytest.mark.parametrize(("hint", "text"), [("wait", "the folder is gone; wait$"), (None, "the folder is gone$")])
def test_the_client_says_why_it_cannot_be_brought(mover: FakeMover, hint: str | None, text: str) -> None:
    mover.answer = lambda message: {"n": message["n"], "error": {"message": "the folder is gone", "hint": hint}}
    with pytest.raises(sky.DataError, match=text):
        sky.data("digits")
    mover.wait(lambda: mover.ended == 1)


@pytest.mark.parametrize("answer", [{"n": "x"}, [1], {"path": "/x"}, {"n": 1, "error": 3}, {"n": 1, "path": 3}])
def test_an_answer_that_is_none(mover: FakeMover, answer: Any) -> None:
    mover.answer = lambda _: answer
    with pytest.raises(sky.DataError, match='cannot read what the client says of the data set "digits"'):
        sky.data("digits")


def test_an_answer_without_a_folder(mover: FakeMover) -> None:
    mover.answer = lambda message: {"n": message["n"]}
    with pytest.raises(sky.DataError, match='the client names no folder for the data set "digits"'):
        sky.data("digits")


def test_a_data_set_that_is_not_brought_in_time(mover: FakeMover, tree: Path) -> None:
    answer, mover.answer = mover.answer, lambda _: None
    with pytest.raises(sky.DataError, match=r'"digits" was not brought to this machine within 0.1 s: pass a longer'):
        sky.data("digits", timeout=0.1)
    mover.answer = answer
    assert sky.data("digits") == tree
    close_all()


def test_a_thread_that_waits_for_another_one_has_its_own_time(mover: FakeMover, tree: Path) -> None:
    mover.answer = lambda _: None
    first = threading.Thread(target=lambda: sky.data("digits"))
    first.start()
    mover.messages("data", 1)
    with pytest.raises(sky.DataError, match=r"within 0.1 s"):
        sky.data("digits", timeout=0.1)
    mover.deliver({"n": 1, "path": str(tree)})
    first.join(DEADLINE)
    assert sky.data("digits", timeout=1e300) == tree
    close_all()


def test_a_mover_that_is_not_there_is_named(home: Path) -> None:
    with pytest.raises(sky.DataError, match=r"the mover of this node does not answer at .*mover.sock"):
        sky.data("digits", timeout=0.1)


def test_a_mover_that_refuses_is_quoted(mover: FakeMover) -> None:
    mover.refusal = "1024 workers are connected"
    with pytest.raises(sky.DataError, match=r"refuses sky\.data of this worker: 1024 workers are connected"):
        sky.data("digits")


# Names and processes


def test_a_name_that_the_pool_does_not_have(home: Path) -> None:
    text = r'this pool has no data set "digit"; did you mean "digits"\? It has "digits", "images"; add others with Pool'
    with pytest.raises(sky.DataError, match=text):
        sky.data("digit")
    with pytest.raises(sky.DataError, match=r'no data set "x"\. It has "digits", "images"; .*\.data\("x", Data::fold'):
        sky.data("x")


def test_of_many_names_some_are_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "cluster", {"data": [f"set{n}" for n in range(100)]})
    with pytest.raises(sky.DataError, match='"set9" and 90 more; add'):
        sky.data("x")


@pytest.mark.parametrize("cluster", [{}, {"data": []}, {"data": None}])
def test_a_pool_without_data_sets(home: Path, monkeypatch: pytest.MonkeyPatch, cluster: dict[str, Any]) -> None:
    monkeypatch.setattr(state, "cluster", cluster)
    with pytest.raises(sky.DataError, match=r'no data sets, and sky.data asks for "x": .*Pool::builder\(\)\.data\("x"'):
        sky.data("x")


@pytest.mark.parametrize("name", ["", ".x", "..", "a/b", "a b", "é", "x" * 101, "a\n"])
def test_only_plain_names_are_data_sets(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a data set: a name has 1 to 100"):
        sky.data(name)


@pytest.mark.parametrize("name", [None, 3, b"x", ["x"], Path("x")])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(TypeError, match="the name of a data set must be a str, not an object of type"):
        sky.data(name)


def test_the_time_is_a_number_of_seconds(home: Path) -> None:
    with pytest.raises(ValueError, match="timeout=0"):
        sky.data("digits", timeout=0)
    with pytest.raises(TypeError, match="timeout must be a number"):
        sky.data("digits", timeout="1")  # type: ignore[arg-type]


def test_a_forked_child_has_the_folders_that_are_known(mover: FakeMover, monkeypatch: pytest.MonkeyPatch) -> None:
    known = sky.data("digits")
    monkeypatch.setattr(fork, "is_child", True)
    assert sky.data("digits") is known
    with pytest.raises(sky.DataError, match=r'Call sky\.data\("images"\) in the task before, and pass the path on'):
        sky.data("images")
    assert len(mover.got) == 1
    close_all()


def test_a_spawned_process_is_told_to_ask_in_the_task(home: Path) -> None:
    code = "import skyward as sky; sky.data('digits')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DataError: process" in done.stderr
    assert "it was forked or started by the process of the task" in done.stderr


def test_a_worker_whose_payload_has_removed_the_variable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKYWARD_PAYLOADS")
    with pytest.raises(RuntimeError, match=r"sky\.data cannot find the node's folder"):
        sky.data("digits")


# Outside a pool


def test_outside_a_pool_it_is_a_folder_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKYWARD_PAYLOADS", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sky.DataError, match=rf"there is no folder {tmp_path}/data/digits, which .*Pool::builder\(\)"):
        sky.data("digits")
    (tmp_path / "data" / "digits").mkdir(parents=True)
    assert sky.data("digits") == tmp_path / "data" / "digits"
    (tmp_path / "data" / "file").touch()
    with pytest.raises(sky.DataError, match="there is no folder"):
        sky.data("file")
    monkeypatch.chdir("/")
    with pytest.raises(sky.DataError, match="there is no folder /data/digits"):
        sky.data("digits")


def test_it_is_exported() -> None:
    assert {"DataError", "data"} <= set(sky.__all__)
    assert issubclass(sky.DataError, RuntimeError)
