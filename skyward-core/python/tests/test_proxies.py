"""Proxies of `multiprocessing.Manager` in calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .caller import Caller
from .conftest import Node
from .pool import Pool
from .test_calls_store import value

PAYLOAD = """
    import os
    import multiprocessing
    import multiprocessing.managers
    from multiprocessing.managers import SyncManager

    import skyward as sky

    def use(proxy, key):
        proxy[key] = os.getpid()
        return os.getpid()

    def put(queue, count):
        for number in range(count):
            queue.put(number)

    def add(lock, counter):
        with lock:
            counter.value += 1

    def deep(outer):
        outer["inner"].append(os.getpid())
        return outer["inner"][0]

    def in_child(proxy):
        process = multiprocessing.Process(target=use, args=(proxy, "child"))
        process.start()
        process.join()
        return process.exitcode

    def make():
        manager = multiprocessing.Manager()
        made = manager.list([1, 2])
        keep.append((manager, made))
        return made

    keep = []

    def main(what):
        return globals()["do_" + what]()

    def do_dict():
        with multiprocessing.Manager() as manager:
            shared = manager.dict()
            pids = [sky.submit(use, shared, key) for key in "ab"]
            pids = [future.result() for future in pids]
            return [shared["a"] == pids[0] != os.getpid(), shared["b"] == pids[1]]

    def do_queue():
        with multiprocessing.Manager() as manager:
            queue = manager.Queue()
            sky.submit(put, queue, 3).result()
            return [queue.get(timeout=10) for _ in range(3)]

    def do_lock():
        with multiprocessing.Manager() as manager:
            lock, counter = manager.Lock(), manager.Value("i", 0)
            [future.result() for future in [sky.submit(add, lock, counter) for _ in range(4)]]
            return counter.value

    def do_nested():
        with multiprocessing.Manager() as manager:
            outer = manager.dict(inner=manager.list([7]))
            first = sky.submit(deep, outer).result()
            return [first, len(outer["inner"])]

    def do_own_key():
        with SyncManager(authkey=b"own") as manager:
            shared = manager.dict()
            return sky.submit(use, shared, "a").result() == shared["a"]

    class Own(multiprocessing.managers.BaseProxy):
        def __reduce__(self):
            return str, ("reduced by itself",)

    class OwnManager(multiprocessing.managers.BaseManager):
        pass

    OwnManager.register("make", list, Own)

    def do_own_reduce():
        with OwnManager() as manager:
            return sky.submit(str.upper, manager.make()).result()

    def do_address():
        with SyncManager(("127.0.0.1", 0)) as manager:
            shared = manager.dict()
            return sky.submit(use, shared, "a").result() == shared["a"]

    def do_child():
        with multiprocessing.Manager() as manager:
            shared = manager.dict()
            return [sky.submit(in_child, shared).result(), "child" in shared]

    def do_put():
        with multiprocessing.Manager() as manager:
            shared = manager.dict()
            ref = sky.put({"shared": shared})
            sky.submit(lambda_, ref).result()
            return shared["x"]

    def lambda_(ref):
        ref["shared"]["x"] = 5

    def do_result():
        return list(sky.submit(make).result())

    def do_gone():
        with multiprocessing.Manager() as manager:
            shared = manager.dict()
            future = sky.submit(use, shared, "a")
        try:
            return future.result()
        except sky.CallError as error:
            return str(error)

    def do_wait():
        return sky.submit(os.getpid).result()
"""

WANTED = {
    "dict": [True, True],
    "queue": [0, 1, 2],
    "lock": 4,
    "nested": [7, 2],
    "own_key": True,
    "own_reduce": "REDUCED BY ITSELF",
    "address": True,
    "child": [0, True],
    "put": 5,
    "result": [1, 2],
}


@pytest.mark.parametrize("what", WANTED)
def test_proxies_work_on_the_node_of_their_manager(node: Node, what: str) -> None:
    pool = Pool(node, 2, PAYLOAD)
    pool.helps_waiting = False
    assert pool.call(0, what=what) == WANTED[what]


def test_a_proxy_on_another_node_is_an_error_that_says_so(make_node: Callable[..., Node]) -> None:
    owner, other = make_node(), make_node()
    first = Caller(owner, PAYLOAD, what="queue")
    call, _, body = first.submitted()
    second = Caller(other, PAYLOAD, spec={"cluster": {"node": 1, "total_nodes": 2}}, what="wait")
    second.submitted()
    second.help(1, body, aside=True)
    failure = second.help_failed(1)
    assert failure["kind"] == "arguments"
    assert (
        "works on node 0 alone, where the manager listens at a path, and this call runs on node 1"
        in (failure["message"])
    )
    assert "pass values in its place" in failure["message"]
    first.fail(call, "lost")


def test_a_manager_with_an_address_is_reached_from_another_node(make_node: Callable[..., Node]) -> None:
    owner, other = make_node(), make_node()
    first = Caller(owner, PAYLOAD, what="address")
    call, _, body = first.submitted()
    second = Caller(other, PAYLOAD, spec={"cluster": {"node": 1, "total_nodes": 2}}, what="wait")
    second.submitted()
    second.help(1, body, aside=True)
    answer = second.helped(1)
    assert isinstance(value(answer), int)
    first.answer(call, answer)
    assert first.value() is True


def test_a_manager_that_has_ended_is_an_error_that_says_so(node: Node) -> None:
    caller = Caller(node, PAYLOAD, what="gone")
    _, _, body = caller.submitted()
    caller.waits()
    caller.help(1, body)
    failure = caller.help_failed(1)
    assert failure["kind"] == "arguments"
    assert "of which the call has a proxy, cannot be reached: " in failure["message"]
    assert "keep the manager until the call has ended" in failure["message"]
