"""Mappings that one call after another uses: never with the changes of an earlier call."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from skyward._calls.mappings import Mappings
from skyward._calls.store import Store, StoreFullError

from .caller import Caller
from .conftest import Node

SIZE = 1 << 20


class Calls:
    """Calls of one process with arrays of one store."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(str(folder / "store"), 3 * SIZE)

    def put(self, value: int) -> str:
        return self.store.put(memoryview(bytes([value]) * SIZE)).digest

    def load(self, *digests: str) -> list[Any]:
        """Return the arrays that a call with these arguments gets."""
        arrays = []
        for digest in digests:
            loaded = self.store.load(digest, SIZE)
            assert loaded is not None
            assert not isinstance(loaded[0], bytearray)
            array = np.ndarray((SIZE,), np.uint8, loaded[0])
            self.store.mappings.keep(digest, loaded[0], address(array), loaded[1])
            arrays.append(array)
        self.store.mappings.on_loaded()
        return arrays

    def address(self, *digests: str) -> int:
        """Run a call that reads its arrays; return the address of the first."""
        arrays = self.load(*digests)
        assert [int(array.max()) for array in arrays] == [int(array[0]) for array in arrays]
        found = address(arrays[0])
        del arrays
        self.store.mappings.on_ended()
        return found


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    calls = Calls(tmp_path)
    calls.address(calls.put(9))
    if not calls.store.mappings:
        pytest.skip("this system does not report changed pages: Linux does since 6.7")
    return calls


def test_the_next_call_gets_the_same_mapping(calls: Calls) -> None:
    digest = calls.put(1)
    first = calls.address(digest)
    # Another mapping of the same length would get the address of one that is given up.
    blocker: Any = np.zeros(8 * SIZE, np.uint8)
    assert calls.address(digest) == calls.address(digest) == first
    assert blocker.nbytes


@pytest.mark.parametrize("at", [0, SIZE // 2, SIZE - 1])
def test_a_change_of_one_call_is_not_seen_by_the_next(calls: Calls, at: int) -> None:
    digest = calls.put(1)
    for _ in range(3):
        [array] = calls.load(digest)
        assert int(array.max()) == 1
        array[at] = 7
        del array
        calls.store.mappings.on_ended()


def test_a_change_that_the_system_makes_is_not_seen_by_the_next_call(calls: Calls) -> None:
    digest = calls.put(1)
    [array] = calls.load(digest)
    with open("/dev/zero", "rb", buffering=0) as zero:
        # The system writes into the page, as with direct input.
        zero.readinto(memoryview(array)[4096:8192])
    del array
    [array] = calls.load(digest)
    assert int(array.min()) == 1


@pytest.mark.parametrize("kept", [lambda array: array, lambda array: array[10:20], memoryview])
def test_an_array_that_is_kept_has_its_mapping_for_itself(calls: Calls, kept: Callable[[Any], Any]) -> None:
    digest = calls.put(1)
    [array] = calls.load(digest)
    mine = kept(array)
    del array
    calls.store.mappings.on_ended()
    [other] = calls.load(digest)
    other[:] = 5
    assert int(mine[0]) == 1
    mine[0] = 6
    assert int(other[10]) == 5


def test_a_mapping_that_a_call_has_closed_is_not_used(calls: Calls) -> None:
    digest = calls.put(1)
    [array] = calls.load(digest)
    array.base.close()
    del array
    calls.store.mappings.on_ended()
    [array] = calls.load(digest)
    assert int(array.max()) == 1


def test_a_change_in_a_forked_child_is_its_own(calls: Calls) -> None:
    digest = calls.put(1)
    first = calls.address(digest)
    child = os.fork()
    if not child:
        [array] = calls.load(digest)
        array[:] = 3
        del array
        [array] = calls.load(digest)
        os._exit(int(array.max()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert calls.address(digest) == first


def test_a_call_gives_up_the_mappings_that_it_does_not_use(calls: Calls) -> None:
    one, two = calls.put(1), calls.put(2)
    calls.address(one, two)
    calls.address(two)
    assert list(calls.store.mappings._kept) == [two]
    calls.address(one)
    assert list(calls.store.mappings._kept) == [one]
    calls.store.mappings.give_up()
    assert not calls.store.mappings


def test_a_file_whose_mapping_is_unused_may_be_removed(calls: Calls, tmp_path: Path) -> None:
    digest = calls.put(1)
    calls.address(digest)
    other = Store(str(tmp_path / "store"), 3 * SIZE)
    holds = [other.put(memoryview(bytes([value]) * SIZE)) for value in (4, 5, 6)]
    assert not (tmp_path / "store" / digest).exists()
    assert calls.store.load(digest, SIZE) is None
    assert len(holds) == 3


def test_a_mapping_that_is_used_again_counts_as_a_use_of_its_file(calls: Calls, tmp_path: Path) -> None:
    digest = calls.put(1)
    path = tmp_path / "store" / digest
    first = calls.address(digest)
    os.utime(path, (1, 1))
    assert calls.address(digest) == first
    assert path.stat().st_mtime > 1


def test_a_file_whose_mapping_is_used_again_is_not_removed(calls: Calls, tmp_path: Path) -> None:
    digest = calls.put(1)
    calls.address(digest)
    arrays = calls.load(digest)
    other = Store(str(tmp_path / "store"), 3 * SIZE)
    holds = [other.put(memoryview(bytes([value]) * SIZE)) for value in (4, 5)]
    with pytest.raises(StoreFullError):
        other.put(memoryview(bytes([6]) * SIZE))
    assert len(holds) + len(arrays) == 3


def test_a_call_on_another_thread_keeps_its_lock_while_a_call_ends(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = calls.put(1)
    [array] = calls.load(digest)
    del array
    flock, arrays = fcntl.flock, []

    def late(file: Any, operation: int) -> None:
        if operation == fcntl.LOCK_UN:
            thread = Thread(target=lambda: arrays.extend(calls.load(digest)))
            thread.start()
            thread.join()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    calls.store.mappings.on_ended()
    monkeypatch.undo()
    assert len(arrays) == 1
    with open(tmp_path / "store" / digest, "rb") as remover, pytest.raises(BlockingIOError):
        fcntl.flock(remover, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_many_arrays_of_a_call_do_not_take_more_descriptors(calls: Calls) -> None:
    digest = calls.put(1)
    arrays = [calls.load(digest) for _ in range(3)]
    before = len(os.listdir("/proc/self/fd"))
    arrays += [calls.load(digest) for _ in range(3)]
    # One for each mapping; only the last one has its file beside it.
    assert len(os.listdir("/proc/self/fd")) == before + 3


def test_nothing_is_kept_where_changes_cannot_be_seen(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    digest = calls.put(1)
    calls.address(digest)
    [array] = calls.load(digest)
    assert int(array.max()) == 1
    fresh = Calls(tmp_path)
    fresh.address(digest)
    assert not fresh.store.mappings


def test_a_mapping_without_a_lock_is_not_used(calls: Calls, tmp_path: Path) -> None:
    digest = calls.put(1)
    calls.address(digest)
    with open(tmp_path / "store" / digest, "rb") as remover:
        fcntl.flock(remover, fcntl.LOCK_EX)
        assert calls.store.mappings.take(digest) is None


PAYLOAD = """
import fcntl
import os
import numpy as np
import skyward as sky
from skyward._core import state

def change(array):
    first = int(array[0])
    array[0] += 1
    return first

def where(array):
    return array.__array_interface__["data"][0]

def view(array):
    return array[:10]

def fail(array):
    raise ValueError("no")

def is_locked(what):
    array = np.arange(100_000)
    error = sky.submit(globals()[what], array).exception()
    folder = state.worker.store_folder
    [path] = [os.path.join(folder, name) for name in os.listdir(folder) if not name.startswith(".")]
    with open(path, "rb") as remover:
        try:
            fcntl.flock(remover, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

def main(what):
    if what in ("view", "fail"):
        return [is_locked(what)]
    array = np.arange(100_000)
    function = globals()[what]
    return [sky.submit(function, array).result() for _ in range(4)]
"""


def helped(node: Node, what: str, count: int = 4) -> Any:
    """Return the results of calls that the caller's own worker runs."""
    caller = Caller(node, PAYLOAD, what=what)
    for number in range(1, count + 1):
        call, _, body = caller.submitted()
        caller.waits()
        caller.help(number, body)
        caller.answer(call, caller.helped(number))
    return caller.value()


def test_calls_of_a_worker_share_a_mapping(node: Node, calls: Calls) -> None:
    assert calls.store.mappings
    assert len(set(helped(node, "where"))) == 1


def test_calls_of_a_worker_share_no_change(node: Node) -> None:
    assert helped(node, "change") == [0, 0, 0, 0]


@pytest.mark.parametrize("what", ["view", "fail"])
def test_the_file_of_a_call_that_returns_a_view_or_raises_may_be_removed(node: Node, what: str) -> None:
    assert helped(node, what, 1) == [False]


def test_mappings_start_empty() -> None:
    mappings = Mappings()
    assert mappings.take("0") is None
    mappings.on_loaded()
    mappings.on_ended()
    assert not mappings
