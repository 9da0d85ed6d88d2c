"""The hash that names a file of the store, and the threads that compute it."""

from __future__ import annotations

import os
import threading
from hashlib import sha256
from io import FileIO
from pathlib import Path

import pytest

from skyward._calls import hashing
from skyward._calls.hashing import Hash, hash_of

MIB = 1 << 20
SIZES = [1, 1000, MIB - 1, MIB, MIB + 1, 3 * MIB, 20 * MIB + 5]


def some(size: int) -> memoryview:
    """Return bytes that differ from piece to piece."""
    return memoryview(
        b"".join(bytes([number % 251]) * min(MIB, size - number * MIB) for number in range(size // MIB + 1))
    )


@pytest.fixture(params=[1, 4])
def cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make the machine have this many cores."""
    count: int = request.param
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    return count


@pytest.mark.parametrize("size", SIZES)
def test_the_hash_is_that_of_the_hashes_of_the_pieces(cores: int, size: int) -> None:
    data = some(size)
    pieces = [sha256(data[start : start + MIB]).digest() for start in range(0, size, MIB)]
    assert hash_of(data) == sha256(b"".join(pieces)).hexdigest()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("part", [7_777, MIB, 3 * MIB + 1])
def test_bytes_that_arrive_in_parts_have_the_same_hash(size: int, part: int) -> None:
    data, arriving = some(size), Hash()
    for start in range(0, size, part):
        arriving.update(data[start : start + part])
    assert arriving.hexdigest() == hash_of(data)


@pytest.mark.parametrize("size", SIZES)
def test_the_file_has_the_bytes(cores: int, size: int, tmp_path: Path) -> None:
    with FileIO(tmp_path / "file", "w+") as file:
        assert hash_of(some(size), file) == hash_of(some(size))
    assert (tmp_path / "file").read_bytes() == some(size)
    assert not [thread for thread in threading.enumerate() if thread.name == "skyward-store"]


def test_a_failure_of_any_thread_is_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    main, failed = threading.get_ident(), threading.Event()

    def write(file: FileIO, data: bytes, offset: int) -> None:
        if threading.get_ident() == main:
            # Leaves a piece to the other thread.
            assert failed.wait(10)
        else:
            failed.set()
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(hashing, "_write", write)
    with FileIO(tmp_path / "file", "w+") as file, pytest.raises(OSError, match="No space left"):
        hash_of(some(20 * MIB), file)


def test_an_interrupt_ends_the_other_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    main, written = threading.get_ident(), []

    def interrupted(file: FileIO, data: bytes, offset: int) -> None:
        if threading.get_ident() == main:
            raise KeyboardInterrupt
        written.append(offset)

    monkeypatch.setattr(hashing, "_write", interrupted)
    with FileIO(tmp_path / "file", "w+") as file, pytest.raises(KeyboardInterrupt):
        hash_of(some(200 * MIB), file)
    for thread in threading.enumerate():
        if thread.name == "skyward-store":
            thread.join(10)
    assert len(written) < 199


def test_without_another_thread_the_caller_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    data = some(20 * MIB)
    expected = hash_of(data)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert hash_of(data) == expected
