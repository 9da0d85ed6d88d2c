"""What a worker has buffered is written before its process ends."""

from __future__ import annotations

import gzip
import os
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from skyward._core import wire

from .client import gone, source
from .conftest import Node

FILES = """
    import atexit, bz2, csv, gc, gzip, io, json, logging, lzma, multiprocessing, os, threading, time, zipfile

    file = rows = packed = other = None
    kept = []

    def main(folder, what):
        global file, rows, packed, other
        os.chdir(folder)
        globals()["do_" + what]()

    def do_text():
        global file
        file = open("text", "w")
        file.write("text")

    def do_bytes():
        global file
        file = open("bytes", "wb")
        file.write(b"bytes")
        kept.append(open("both", "w+b"))
        kept[0].write(b"both")

    def do_kept():
        # By the module of a library, and by a cycle.
        logging.kept = open("kept", "w")
        logging.kept.write("kept")
        cycle = [open("cycle", "w")]
        cycle.append(cycle)
        cycle[0].write("cycle")
        logging.cycle = cycle

    def do_rows():
        global file, rows
        file = open("rows", "w", newline="")
        rows = csv.writer(file)
        rows.writerow([1, 2])

    def do_packed():
        global file, packed, other
        file = gzip.open("gzip", "wt")
        file.write("gzip")
        packed = bz2.open("bz2", "wb")
        packed.write(b"bz2")
        other = lzma.open("lzma", "wb")
        other.write(b"lzma")

    def do_archive():
        global file
        file = zipfile.ZipFile("archive", "w")
        file.writestr("a", "in the archive")

    class Holder:
        file = None

    def holder():
        pass

    def do_held():
        # By a class, by a function, and by a closure.
        Holder.file, holder.file = zipfile.ZipFile("class", "w"), zipfile.ZipFile("function", "w")
        closed = zipfile.ZipFile("closure", "w")
        for one in (Holder.file, holder.file, closed):
            one.writestr("a", "in the archive")
        global file
        file = lambda: closed

    def dump(value):
        file.write(json.dumps(value))

    class Last:
        def __del__(self):
            dump("last")

    def do_finalizer():
        # It writes to a file that was opened before it, and uses names of its module.
        global file, other
        file = open("finalizer", "w")
        other = Last()

    class Through(io.RawIOBase):
        def __init__(self, raw):
            self.raw_ = raw
        def writable(self):
            return True
        def write(self, data):
            return self.raw_.write(data)

    def do_through():
        # To flush one file puts something into the buffer of another one.
        first, logging.through = Through(None), Through(None)
        for through in (first, logging.through):
            through.above = io.BufferedWriter(through)
            gc.collect()
            through.raw_ = open("through" if through is first else "next", "wb")
            through.above.write(b"through")
        logging.first = first

    def do_native():
        import ctypes
        libc = ctypes.CDLL(None)
        libc.printf(b"printed\\n")
        libc.fopen.restype = ctypes.c_void_p
        stream = libc.fopen(b"native", b"w")
        libc.fputs(b"native", ctypes.c_void_p(stream))

    def do_blocked():
        global file, other
        read, write = os.pipe()
        pipe = open(write, "wb", buffering=1 << 20)
        pipe.write(bytes(1 << 19))
        kept.append((read, pipe))
        do_text()

    class Framed(io.BufferedIOBase):
        # Writes the length before each part.
        def __init__(self, raw):
            self.raw_, self.parts = raw, []
        def writable(self):
            return True
        def write(self, data):
            self.parts.append(bytes(data))
            return len(data)
        def flush(self):
            while self.parts:
                self.raw_.write(b"%d " % len(self.parts[0]))
                time.sleep(0.001)
                self.raw_.write(self.parts.pop(0) + b"|")

    def do_above():
        # Text above frames above a file, and frames that are not written yet.
        for number in range(5):
            framed = Framed(open(f"above{number}", "wb"))
            kept.append(io.TextIOWrapper(framed))
            framed.write(b"frame")
            kept[-1].write("text")

    def do_frozen():
        # As before many forks: the collector does not list what is frozen.
        do_text()
        gc.freeze()

    def do_ended_thread():
        # It executes code of the payload at the end of the run, and no longer at that of the worker.
        do_archive()
        threading.Thread(target=lambda: time.sleep(0.2)).start()

    def do_waiting():
        do_text()
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()

    def do_stuck():
        do_text()
        atexit.register(time.sleep, 600)

    class Slow:
        def __del__(self):
            time.sleep(1)

    def do_thread():
        global file, packed, other
        do_text()
        packed = gzip.open("gzip", "wb")
        packed.write(b"gzip")
        other = Slow()
        def wait():
            while True:
                kept.copy()
                threading.Event().wait(0.01)
        threading.Thread(target=wait, daemon=True).start()
"""


def ended(node: Node, folder: Path, what: str, end: str = "stop", wait: float = 0.0) -> None:
    """Run a task, wait, and end its worker."""
    # With PYTHONUNBUFFERED, Python has the C library buffer nothing either.
    worker = node.ready(FILES, env={"PYTHONUNBUFFERED": ""})
    worker.call(1, folder=str(folder), what=what)
    sleep(wait)
    if end == "stop":
        node.agent.send([wire.STOP, 1, 1, [0], 20.0])
    elif end == "bye":
        worker.send([wire.BYE])
    elif end == "shutdown":
        node.agent.send([wire.SHUTDOWN, 1, 20.0])
    else:
        os.kill(node.pid, signal.SIGTERM)
    assert node.agent.expect(wire.EXITED)[0][4] == 0
    assert gone(node.pid)


@pytest.mark.parametrize("end", ["stop", "bye", "shutdown", "signal"])
def test_a_text_file_is_whole_however_the_worker_is_ended(node: Node, tmp_path: Path, end: str) -> None:
    ended(node, tmp_path, "text", end)
    assert (tmp_path / "text").read_text() == "text"


STUCK = """
    import time
    from contextlib import contextmanager

    @contextmanager
    def make(config):
        yield
        time.sleep(600)
"""


@pytest.mark.parametrize("what", ["waiting", "stuck", "hook"])
def test_files_are_whole_although_the_worker_does_not_come_to_its_end(node: Node, tmp_path: Path, what: str) -> None:
    hooks = [{"plugin": "test", "kind": "app", "source": source(STUCK), "filename": "test.py", "factory": "make"}]
    worker = node.ready(FILES, hooks=hooks if what == "hook" else [])
    worker.call(1, folder=str(tmp_path), what="text" if what == "hook" else what)
    node.agent.send([wire.STOP, 1, 1, [0], 0.5])
    assert node.agent.expect(wire.EXITED)[0][5] == signal.SIGKILL
    assert (tmp_path / "text").read_text() == "text"


def test_files_of_all_kinds_are_whole(make_node: Callable[..., Node], tmp_path: Path) -> None:
    for what, contents in {
        "bytes": {"bytes": "bytes", "both": "both"},
        "kept": {"kept": "kept", "cycle": "cycle"},
        "rows": {"rows": "1,2\n"},
        "native": {"native": "native"},
        "finalizer": {"finalizer": '"last"'},
        "frozen": {"text": "text"},
        "through": {"through": "through", "next": "through"},
    }.items():
        ended(make_node(), tmp_path, what)
        assert {name: (tmp_path / name).read_text() for name in contents} == contents


def test_compressed_files_and_archives_are_complete(make_node: Callable[..., Node], tmp_path: Path) -> None:
    import bz2
    import lzma

    ended(make_node(), tmp_path, "packed")
    assert gzip.decompress((tmp_path / "gzip").read_bytes()) == b"gzip"
    assert bz2.decompress((tmp_path / "bz2").read_bytes()) == b"bz2"
    assert lzma.decompress((tmp_path / "lzma").read_bytes()) == b"lzma"
    for what, wait in {"archive": 0.0, "ended_thread": 0.5}.items():
        ended(make_node(), tmp_path, what, wait=wait)
        assert zipfile.ZipFile(tmp_path / "archive").read("a") == b"in the archive"
        (tmp_path / "archive").unlink()


def test_archives_that_functions_and_classes_hold_are_complete(node: Node, tmp_path: Path) -> None:
    ended(node, tmp_path, "held")
    for name in ("class", "function", "closure"):
        assert zipfile.ZipFile(tmp_path / name).read("a") == b"in the archive"
    assert (node.folder / "g1" / "w0.err").read_text() == ""


def test_files_that_lie_above_each_other_are_not_written_at_the_same_time(node: Node, tmp_path: Path) -> None:
    ended(node, tmp_path, "above")
    for number in range(5):
        assert (tmp_path / f"above{number}").read_bytes() in (b"5 frame|4 text|", b"4 text|5 frame|")


def test_native_output_is_output_of_the_worker(node: Node, tmp_path: Path) -> None:
    ended(node, tmp_path, "native")
    assert (node.folder / "g1" / "w0.out").read_text() == "printed\n"


def test_a_full_pipe_keeps_neither_the_worker_nor_other_files(node: Node, tmp_path: Path) -> None:
    began = monotonic()
    ended(node, tmp_path, "blocked")
    assert (tmp_path / "text").read_text() == "text"
    # It is not the agent that has ended the worker, after the grace.
    assert monotonic() - began < 20


def test_a_thread_of_the_payload_is_not_disturbed(node: Node, tmp_path: Path) -> None:
    ended(node, tmp_path, "thread")
    assert (tmp_path / "text").read_text() == "text"
    with gzip.open(tmp_path / "gzip") as packed:
        assert packed.read(4) == b"gzip"
    assert (node.folder / "g1" / "w0.err").read_text() == ""
