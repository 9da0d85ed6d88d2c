"""Large arrays in calls: the store, fetching from other nodes, and missing files."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from skyward._calls.answers import unpack
from skyward._core import wire

from .caller import Caller
from .conftest import Node

PAYLOAD = '''
import gc
import os
import threading
import time
from functools import partial

import numpy as np
import skyward as sky

def about(array, *more):
    """What a call sees of an array."""
    total = float(array.sum()) if array.dtype.kind == "f" else 0.0
    return [total, list(array.shape), str(array.dtype), bool(array.flags.writeable), bool(array.flags.f_contiguous)]

def change(array):
    array[0] += 1
    return float(array[0])

def main(what, **more):
    return globals()["do_" + what](**more)

def large():
    return np.arange(100_000, dtype=np.float64)

def submit(*arguments):
    return sky.submit(about, *arguments).result()

def do_large():
    return submit(large())

def do_forms():
    columns = np.asfortranarray(large().reshape(100, 1000))
    strided = large()[::2]
    dates = np.arange(100_000).astype("M8[s]")
    fields = np.zeros(50_000, [("x", "f8"), ("y", "i4")])
    return [submit(array) for array in (columns, strided, dates, fields, large()[:1000])]

class Named(np.ndarray):
    pass

class NamedMap(np.memmap):
    pass

class Packed(np.ndarray):
    def __reduce__(self):
        return Packed.made, (float(self[0]),)

    @staticmethod
    def made(first):
        return np.full(3, first)

def class_of(array, *more):
    return [type(array).__name__, *about(array), float(np.asarray(array).reshape(-1)[-1])]

def do_mapped(folder):
    path = folder + "/mapped"
    large().tofile(path)
    whole = np.memmap(path, np.float64, "r")
    square = np.memmap(path, np.float64, "r+", shape=(200, 500))
    columns = np.memmap(path, np.float64, "r", shape=(200, 500), order="F")
    tail = NamedMap(path, np.float64, "r", 80_000)
    fixed = whole[:]
    fixed.flags.writeable = False
    arrays = [whole, square, columns, tail, whole[1:], whole[::2], whole[::-1], fixed, square.T, whole.view(np.ndarray)]
    return [sky.submit(class_of, array).result() for array in arrays]

def do_derived():
    record = np.rec.fromarrays([large(), large()], names="x,y").view(np.recarray)
    arrays = [large().view(Named), np.asmatrix(large().reshape(100, 1000)), large().view(Packed)]
    found = [sky.submit(class_of, array).result() for array in arrays]
    return [*found, sky.submit(last_of, record).result()]

def last_of(record):
    return [type(record).__name__, float(record.y[-1])]

def do_changed_map(folder):
    path = folder + "/mapped"
    large().tofile(path)
    mapped = np.memmap(path, np.float64, "r+")
    mapped[0] = 5
    return [sky.submit(change, mapped).result(), float(mapped[0]), float(np.fromfile(path)[0])]

def do_objects():
    array = np.empty(100_000, object)
    return sky.submit(len, array).result()

def do_change():
    array = large()
    return [sky.submit(change, array).result(), sky.submit(change, array).result(), float(array[0])]

def half(array):
    return array[:len(array) // 2]

def do_view():
    found = sky.submit(half, large()).result()
    found += 1
    return float(found[0])

def do_mutated():
    array = large()
    first = sky.submit(about, array)
    array[:] = 1.0
    second = sky.submit(about, array)
    return [first.result()[0], second.result()[0]]

def do_put(count, size):
    shared = sky.put({"array": np.arange(size, dtype=np.float64), "name": "x"})
    functions = [sky.submit(named, shared, number) for number in range(count)]
    return [future.result() for future in functions] + [shared.get()["name"]]

def named(value, number):
    return [value["name"], float(value["array"].sum()), number]

def do_put_wrong(folder):
    try:
        sky.put(lambda: threading.Lock()) if False else sky.put(threading.Lock())
    except sky.CallError as error:
        return str(error)

def do_put_elsewhere():
    import pickle
    try:
        pickle.dumps(sky.put(1))
    except TypeError as error:
        return str(error)

def held():
    return len(sky._core.state.worker.store._files)

def do_held():
    future = sky.submit(about, large())
    before = held()
    future.result()
    del future
    gc.collect()
    return [before, held()]

def do_many(count):
    arrays = [np.full(40_000, float(number)) for number in range(count)]
    def total(arrays):
        return [float(array[0]) for array in arrays]
    return sky.submit(first_of_all, arrays).result()

def first_of_all(arrays, *_):
    return [float(array[0]) for array in arrays], sum(type(array.base).__name__ == "mmap" for array in arrays)

def do_second(count):
    arrays = [np.full(40_000, float(number)) for number in range(count)]
    return sky.submit(first_of_all, arrays, lambda: 1).result()

def do_full(size):
    try:
        return submit(np.ones(size))
    except sky.StoreFull as error:
        return str(error)

def do_larger():
    return submit(np.arange(1_000_000, dtype=np.float64))

def do_wait(patience=600.0):
    from skyward._nested import fetching
    fetching._LONGEST = patience
    return sky.submit(about, np.zeros(10)).result()
'''

TOTAL = float(sum(range(100_000)))


def digests(node: Node) -> list[str]:
    return [name for name in os.listdir(node.folder / "store") if not name.startswith(".")]


def value(answer: bytes) -> Any:
    found, error = unpack(answer)
    assert error is None, error
    return found


def helped(caller: Caller, number: int = 1) -> Any:
    """Return the value of the next call, which the caller's own worker runs."""
    call, _, body = caller.submitted()
    caller.waits()
    caller.help(number, body)
    answer = caller.helped(number)
    caller.answer(call, answer)
    return body


def test_a_large_array_is_sent_by_name(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="large")
    body = helped(caller)
    assert len(body) < 1000
    assert len(digests(node)) == 1
    assert caller.value() == [TOTAL, [100_000], "float64", True, True]


def test_arrays_of_all_forms_arrive_as_they_were(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="forms")
    for number in range(1, 6):
        helped(caller, number)
    assert caller.value() == [
        [TOTAL, [100, 1000], "float64", True, True],
        [float(sum(range(0, 100_000, 2))), [50_000], "float64", True, True],
        [0.0, [100_000], "datetime64[s]", True, True],
        [0.0, [50_000], "[('x', '<f8'), ('y', '<i4')]", True, True],
        # A small array is part of the call.
        [499_500.0, [1000], "float64", True, True],
    ]
    assert len(digests(node)) == 4


def test_a_mapped_file_is_sent_by_name_in_all_its_forms(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, PAYLOAD, what="mapped", folder=str(tmp_path))
    sizes = [len(helped(caller, number)) for number in range(1, 11)]
    even = float(sum(range(0, 100_000, 2)))
    flat = [TOTAL, [100_000], "float64", True, True]
    assert caller.value() == [
        ["memmap", *flat, 99_999.0],
        ["memmap", TOTAL, [200, 500], "float64", True, False, 99_999.0],
        ["memmap", TOTAL, [200, 500], "float64", True, True, 99_999.0],
        ["NamedMap", float(sum(range(10_000, 100_000))), [90_000], "float64", True, True, 99_999.0],
        ["memmap", TOTAL, [99_999], "float64", True, True, 99_999.0],
        ["memmap", even, [50_000], "float64", True, True, 99_998.0],
        ["memmap", TOTAL, [100_000], "float64", True, True, 0.0],
        ["memmap", *flat, 99_999.0],
        ["memmap", TOTAL, [500, 200], "float64", True, True, 99_999.0],
        ["ndarray", *flat, 99_999.0],
    ]
    assert max(sizes) < 1000


def test_an_array_of_a_derived_class_is_sent_by_name_unless_the_class_says_otherwise(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="derived")
    sizes = [len(helped(caller, number)) for number in range(1, 5)]
    assert caller.value() == [
        ["Named", TOTAL, [100_000], "float64", True, True, 99_999.0],
        ["matrix", TOTAL, [100, 1000], "float64", True, False, 99_999.0],
        ["ndarray", 0.0, [3], "float64", True, True, 0.0],
        ["recarray", 99_999.0],
    ]
    assert max(sizes) < 1000
    assert len(digests(node)) == 2


def test_a_call_changes_neither_a_mapped_file_nor_its_caller_s_mapping(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, PAYLOAD, what="changed_map", folder=str(tmp_path))
    helped(caller)
    assert caller.value() == [6.0, 5.0, 5.0]


def test_an_array_of_objects_is_pickled(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="objects")
    helped(caller)
    assert caller.value() == 100_000
    assert not (node.folder / "store").exists()


def test_a_call_changes_only_its_own_copy_of_an_array(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="change")
    helped(caller, 1)
    helped(caller, 2)
    assert caller.value() == [1.0, 1.0, 0.0]


def test_a_result_that_is_a_part_of_an_array_can_be_changed(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="view")
    helped(caller)
    assert caller.value() == 1.0


def test_a_second_pickler_does_not_count_arrays_twice(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="second", count=40)
    assert len(helped(caller)) < 20_000
    assert caller.value() == [[float(number) for number in range(40)], 40]


def test_a_call_gets_the_array_as_it_was_when_it_was_submitted(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="mutated")
    calls = [caller.submitted() for _ in range(2)]
    for number, (call, _, body) in enumerate(calls, 1):
        caller.waits()
        caller.help(number, body)
        caller.answer(call, caller.helped(number))
    assert caller.value() == [TOTAL, 100_000.0]


@pytest.mark.parametrize("size", [10, 100_000])
def test_put_pickles_once_and_calls_get_the_value(node: Node, size: int) -> None:
    caller = Caller(node, PAYLOAD, what="put", count=3, size=size)
    calls = [caller.submitted() for _ in range(3)]
    for number, (call, _, body) in enumerate(calls, 1):
        assert len(body) < 1000
        caller.waits()
        caller.help(number, body)
        caller.answer(call, caller.helped(number))
    total = float(sum(range(size)))
    assert caller.value() == [*(["x", total, number] for number in range(3)), "x"]
    assert (node.folder / "store").exists() == (size > 10)


def test_what_cannot_be_put_is_named(node: Node) -> None:
    worker = node.ready(PAYLOAD)
    worker.gang = None
    run = worker.start(1, what="put_wrong", folder="")
    head, said = worker.outcome(run)
    assert head[0] == wire.RESULT, said
    assert said.startswith("a lock cannot be put into the store, because it cannot be pickled: ")
    head, said = worker.outcome(worker.start(1, what="put_elsewhere"))
    assert (head[0], said) == (
        wire.RESULT,
        "the result of sky.put can only be passed to calls of the same pool",
    )


def test_an_array_is_held_until_its_call_has_an_outcome(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="held")
    helped(caller)
    assert caller.value() == [1, 0]


def test_arrays_beyond_the_limit_are_part_of_the_call(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="many", count=70)
    helped(caller)
    assert caller.value() == [[float(number) for number in range(70)], 64]


def test_an_array_is_part_of_the_call_if_the_store_is_full(node: Node) -> None:
    caller = Caller(node, PAYLOAD, spec={"store_bytes": 1 << 20}, what="full", size=200_000)
    body = helped(caller)
    assert len(body) > 1_600_000
    assert caller.value() == [200_000.0, [200_000], "float64", True, True]


def test_an_array_too_large_for_the_store_and_the_call_is_an_error(node: Node) -> None:
    worker = node.ready(PAYLOAD, store_bytes=1 << 20, max_frame_bytes=1 << 20)
    worker.gang = None
    head, said = worker.outcome(worker.start(1, what="full", size=200_000))
    assert head[0] == wire.RESULT, said
    assert said.startswith("the call of about has 1600")
    assert said.endswith("in use, and `Limits::store_bytes` is 1048576")


def test_an_array_of_another_node_is_fetched_in_pieces_once_per_node(make_node: Callable[..., Node]) -> None:
    owner, other = make_node(), make_node()
    first = Caller(owner, PAYLOAD, what="larger")
    call, _, body = first.submitted()
    second = Caller(other, PAYLOAD, spec={"max_frame_bytes": 1 << 20}, what="wait")
    second.submitted()
    second.help(1, body, aside=True)
    got = 0
    while got < 8_000_000:
        head, _ = second.calls.expect(wire.FETCH)
        fetch, rank, digest, offset, length = head[2:]
        assert (rank, digest, offset) == (0, digests(owner)[0], got)
        assert length <= 1 << 20
        first.calls.send(wire.READ, 5, digest, offset, length)
        told, piece = first.calls.expect(wire.PIECE)
        assert (told[2], len(piece)) == (5, length)
        second.calls.send(wire.FETCHED, fetch, body=piece)
        got += length
    total = 499_999_500_000.0
    assert value(second.helped(1))[0] == total
    # Now the file is on this node.
    second.help(2, body, aside=True)
    assert value(second.helped(2))[0] == total
    assert digests(other) == digests(owner)
    first.answer(call, b"\0\x80\x05K\x07.")
    assert first.value() == 7


def test_a_missing_array_is_an_error_of_the_call(make_node: Callable[..., Node]) -> None:
    owner, other = make_node(), make_node()
    first = Caller(owner, PAYLOAD, what="large")
    _, _, body = first.submitted()
    (owner.folder / "store" / digests(owner)[0]).unlink()
    second = Caller(other, PAYLOAD, what="wait")
    second.submitted()
    second.help(1, body, aside=True)
    head, _ = second.calls.expect(wire.FETCH)
    # The owner still holds the file open, so the test answers in place of another worker of its
    # node.
    second.calls.send(wire.NOT_FETCHED, head[2])
    failure = second.help_failed(1)
    assert failure["kind"] == "arguments"
    assert "an argument of 800000 bytes is no longer on the node of rank 0" in failure["message"]


def test_a_worker_that_sends_no_part_of_an_array_fails_the_call(make_node: Callable[..., Node]) -> None:
    owner, other = make_node(), make_node()
    first = Caller(owner, PAYLOAD, what="large")
    _, _, body = first.submitted()
    second = Caller(other, PAYLOAD, what="wait", patience=0.5)
    second.submitted()
    second.help(1, body, aside=True)
    second.calls.expect(wire.FETCH)
    failure = second.help_failed(1)
    assert failure["kind"] == "arguments"
    assert "rank 0 has sent no part of an argument of 800000 bytes for 0.5 s" in failure["message"]


def test_a_worker_reports_a_missing_file(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="large")
    call, _, _ = caller.submitted()
    caller.calls.send(wire.READ, 9, "0" * 64, 0, 10)
    assert caller.calls.expect(wire.MISSING)[0][2:] == [9]
    caller.answer(call, b"\0\x80\x05K\x07.")
    assert caller.value() == 7


def test_a_name_that_is_a_path_is_refused(node: Node, tmp_path: Path) -> None:
    caller = Caller(node, PAYLOAD, what="large")
    caller.submitted()
    caller.calls.send(wire.READ, 9, f"../../{tmp_path.name}".ljust(64, "0")[:64], 0, 10)
    assert caller.calls.frames is not None
    # The error may be lost, because the worker closes the connection.
    with suppress(EOFError, ConnectionResetError):
        while True:
            head, _ = caller.calls.frames.receive()
            assert head[0] != wire.PIECE
            if head[0] == wire.ERROR:
                break


def test_a_task_that_is_cancelled_while_its_array_is_fetched_ends_at_once(make_node: Callable[..., Node]) -> None:
    owner, other = make_node(), make_node()
    first = Caller(owner, PAYLOAD, what="large")
    _, _, body = first.submitted()
    second = Caller(other, PAYLOAD, what="wait")
    second.submitted()
    second.waits()
    second.help(1, body)
    second.calls.expect(wire.FETCH)
    second.calls.send(wire.CANCEL_HELP, 1)
    assert second.help_failed(1)["kind"] == "cancelled"
    # The cancelled call has left no lock on which this one would have to wait.
    second.help(2, body)
    second.calls.expect(wire.FETCH)
    second.cancel()
    assert second.failure()["kind"] == "cancelled"
