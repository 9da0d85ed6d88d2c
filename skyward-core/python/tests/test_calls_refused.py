"""Calls that cannot be submitted or sent, and the environment in which calls run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skyward._core import wire

from .client import ROOT, CallsClient, WorkerClient, start_spec
from .conftest import Node
from .pool import Pool

PAYLOAD = '''
import asyncio
import os
import sys
import threading

import skyward as sky

class Plain:
    pass

def double(number):
    return 2 * number

async def slowly(number):
    await asyncio.sleep(0)
    return 2 * number

def deeper(levels):
    return levels if levels == 0 else sky.submit(deeper, levels - 1).result()

def bottomless(level):
    try:
        return sky.submit(bottomless, level + 1).result()
    except sky.CallError as error:
        return [level, str(error)]

def main(what, **more):
    return globals()["do_" + what](**more)

def do_nothing():
    pass

def without_cloudpickle():
    sys.modules["cloudpickle"] = sys.modules["joblib"] = None

def told(function, *args, **kwargs):
    try:
        return sky.submit(function, *args, **kwargs).result()
    except (sky.CallError, TypeError) as error:
        return str(error)

def do_unpicklable():
    without_cloudpickle()
    future = sky.submit(double, 1)
    return [
        told(lambda: 1),
        told(double, threading.Lock()),
        told(double, 1, number=threading.Lock()),
        told(double, future),
        told(7),
        told(os.getpid().__class__, "12"),
    ]

def do_by_value():
    factor = 3
    return [sky.submit(lambda number: factor * double(number), 7).result(), told(double, threading.Lock())]

def do_large():
    return told(len, bytes(10_000))

def do_told():
    return told(double, 1)

def do_forked():
    future = sky.submit(double, 4)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        sockets = sum(os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
                      for name in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{name}"))
        try:
            future.result()
        except sky.CallError as error:
            text = str(error)
        said = [told(double, 1), text, str(future.cancel()), str(sockets), str(future.done())]
        os.write(write, "\\n".join(said).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return [os.read(read, 4096).decode().split("\\n"), future.result()]

def do_fork_and_return():
    """A call that comes back twice."""
    return sky.submit(forks).result()

def forks():
    pid = os.fork()
    return os.waitpid(pid, 0)[1] if pid else -1

def do_deeper(levels):
    sys.setrecursionlimit(400)
    found = deeper(levels)
    return [found, sys.getrecursionlimit()]

def do_bottomless():
    return bottomless(0)

def do_coroutine():
    async def ask():
        return [sky.submit(slowly, 3).result(), sky.submit(double, 4).result(), asyncio.get_running_loop() is not None]
    return asyncio.run(ask())

def do_coroutine_plain():
    return sky.submit(slowly, 3).result()

def do_stream(count):
    for number in range(count):
        yield sky.submit(double, number).result()

def do_finalizer():
    said = []
    class Ends:
        def __init__(self):
            self.me = self
        def __del__(self):
            try:
                said.append(sky.submit(double, 1))
            except sky.CallError as error:
                said.append(str(error))
    import gc
    gc.set_threshold(1)
    try:
        for number in range(300):
            Ends()
            assert sky.submit(double, number).result() == 2 * number
    finally:
        gc.set_threshold(700)
    return len(said) > 0

def do_processes():
    before = os.listdir("/proc")
    value = deeper(10)
    own = str(os.getpid())
    def children():
        with open(f"/proc/{own}/task/{own}/children") as file:
            return file.read().split()
    return [value, children(), threading.active_count()]

def do_options():
    sky.options(retry=sky.Retry(crash=0), timeout=5).submit(double, 1)
    sky.options().submit(double, 2)
    sky.options(queue_timeout=7, help=False).submit(double, 3)
    return "sent"

def do_bad_options():
    said = []
    for make in (lambda: sky.options(retry=3), lambda: sky.options(timeout=0),
                 lambda: sky.options(queue_timeout=-1), lambda: sky.options(help=0),
                 lambda: sky.options(retry=sky.Retry(crash=-1)), lambda: sky.options(retry=sky.Retry(preempted=True)),
                 lambda: sky.map(double), lambda: sky.map(double, [1], chunksize="many"),
                 lambda: sky.map(double, [1], window=0), lambda: sky.wait([1]),
                 lambda: sky.wait([], return_when="SOON")):
        try:
            make()
        except (TypeError, ValueError) as error:
            said.append(type(error).__name__)
    return said
'''


@pytest.fixture
def make_pool(node: Node) -> Callable[..., Pool]:
    def make(workers: int = 1, payload: Any = PAYLOAD, **more: Any) -> Pool:
        return Pool(node, workers, payload, **more)

    return make


@pytest.mark.parametrize("workers", [1, 2])
def test_what_cannot_be_pickled_is_named(make_pool: Callable[..., Pool], workers: int) -> None:
    function, first, named, future, number, fine = make_pool(workers).call(what="unpicklable")
    assert "the function do_unpicklable.<locals>.<lambda> cannot be pickled" in function
    assert "define it at the top level of its module, or add `cloudpickle` to the image's packages" in function
    assert "argument 1 of double, a lock, cannot be pickled" in first
    assert "`cloudpickle`" in first
    assert "argument `number` of double, a lock, cannot be pickled" in named
    assert "pass its result" in future
    assert number == "sky.submit takes a function and its arguments, not a int"
    assert fine == 12


def test_functions_are_pickled_by_value_with_cloudpickle(make_pool: Callable[..., Pool]) -> None:
    value, refused = make_pool(2).call(what="by_value")
    assert value == 42
    assert "argument 1 of double, a lock, cannot be pickled" in refused
    assert "add `cloudpickle`" not in refused


def test_a_call_that_is_too_large(node: Node) -> None:
    worker = node.ready(PAYLOAD, max_frame_bytes=10_000)
    worker.gang = None
    told = worker.call(1, what="large")
    assert "the call of len has 100" in told
    assert "a frame holds at most 10000" in told


def test_only_a_single_task_can_submit_calls(node: Node) -> None:
    worker = node.ready(PAYLOAD)
    assert "a task of a gang" in worker.call(1, what="told")
    # The agent has not asked the client to connect.
    node.agent.send([wire.PING, 1, 60.0])
    node.agent.expect(wire.PONG)
    assert not [head for head, _ in node.agent.seen if head[0] == wire.CALLS]


def test_a_forked_child_cannot_use_calls(make_pool: Callable[..., Pool]) -> None:
    (told, result, cancelled, sockets, done), value = make_pool().call(what="forked")
    assert "a process that a payload has forked cannot submit calls" in told
    assert "a process that a payload has forked cannot wait for calls" in result
    assert (cancelled, sockets, done) == ("False", "0", "False")
    assert value == 8


@pytest.mark.parametrize("workers", [1, 2])
def test_a_forked_child_that_returns_from_a_call_ends(make_pool: Callable[..., Pool], workers: int) -> None:
    pool = make_pool(workers)
    assert pool.call(what="fork_and_return") == 0
    assert pool.call(what="coroutine_plain") == 6


def test_calls_nest_sixty_four_deep(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    assert pool.call(what="deeper", levels=64) == [0, 400]
    level, text = pool.call(what="bottomless")
    assert level == 64
    assert "64 callers above it" in text


@pytest.mark.parametrize("workers", [1, 2])
def test_coroutines(make_pool: Callable[..., Pool], workers: int) -> None:
    assert make_pool(workers).call(what="coroutine") == [6, 8, True]


def test_generators_submit(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    worker = pool.workers[0]
    run = worker.start(1, 100, what="streamed", count=5)
    pool.running[0, run, 0] = None
    assert pool.outcome((0, run, 0))[0] is False
    worker.load(2, PAYLOAD.replace("def main(what, **more):\n    return", "def main(what, **more):\n    yield from"))
    run = worker.start(2, 100, what="stream", count=5)
    pool.running[0, run, 0] = None
    ok, value = pool.outcome((0, run, 0))
    assert ok, value
    assert pool.items == [0, 2, 4, 6, 8]


def test_finalizers_run_at_any_moment(make_pool: Callable[..., Pool]) -> None:
    assert make_pool().call(what="finalizer") is True


def test_calls_start_no_processes(make_pool: Callable[..., Pool]) -> None:
    value, children, threads = make_pool().call(what="processes")
    assert (value, children) == (0, [])
    assert threads == 2


def test_options_are_sent(node: Node) -> None:
    worker = node.ready(PAYLOAD)
    worker.gang = None
    run = worker.start(1, what="options")
    calls = CallsClient(node.agent.expect(wire.CALLS)[0][4])
    retry = {"crash": 0, "out_of_memory": 1, "node_lost": 2, "preempted": 5}
    assert calls.expect(wire.SUBMIT)[0][5] == {**retry, "timeout": 5.0}
    assert calls.expect(wire.SUBMIT)[0][5] is None
    assert calls.expect(wire.SUBMIT)[0][5] == {"queue_timeout": 7.0, "help": False}
    assert worker.outcome(run)[1] == "sent"


def test_options_are_checked(make_pool: Callable[..., Pool]) -> None:
    options = ["TypeError", "ValueError", "ValueError", "TypeError", "ValueError", "ValueError"]
    functions = ["TypeError", "ValueError", "ValueError", "TypeError", "ValueError"]
    assert make_pool().call(what="bad_options") == options + functions


TRAIN = """
import skyward as sky

class Kind{name}:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is type(self) and other.value == self.value

def whose(kind):
    assert type(kind) is Kind{name}, type(kind)
    return ["{name}", __name__, Kind{name}(kind.value + 1)]

def main(submits):
    if not submits:
        return __name__
    name, module, kind = sky.submit(whose, Kind{name}(1)).result()
    assert kind == Kind{name}(2), kind
    return [name, __name__, module]
"""


def test_payloads_with_one_name_find_their_own_functions(make_pool: Callable[..., Pool]) -> None:
    first, second = TRAIN.format(name="A"), TRAIN.format(name="B")
    pool = make_pool(2, first, main="train.py")
    for worker in pool.workers:
        worker.load(2, second, main="train.py")
    # The second worker loads the payloads in the other order.
    names = [
        [worker.call(slot, submits=False) for slot in order]
        for worker, order in zip(pool.workers, ((1, 2), (2, 1)), strict=True)
    ]
    assert names[0] == names[1][::-1]
    assert names[0][0] != names[0][1]
    pool.helps_waiting = False
    for payload, name in ((1, "A"), (2, "B")):
        pool.payload = payload
        run = pool.workers[0].start(payload, submits=True)
        pool.running[0, run, 0] = None
        ok, (found, here, there) = pool.outcome((0, run, 0))
        assert ok
        assert found == name
        assert here == there == names[0][payload - 1]


FOLDER = {
    "trainer/main.py": """
        import skyward as sky
        from . import model
        from model import Net
        def main():
            return sky.submit(model.fit, Net(3), module=model).result().size
    """,
    "trainer/model.py": """
        class Net:
            def __init__(self, size):
                self.size = size
        def fit(net, module):
            assert type(net) is Net and module.Net is Net
            return Net(net.size + 1)
    """,
}


def test_modules_of_a_payload_with_several_files(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(2, FOLDER, main="trainer/main.py")
    assert pool.call() == 4


HOOK = """
from contextlib import contextmanager

entered = []

@contextmanager
def around_task(config):
    entered.append(1)
    yield
"""


def test_a_call_runs_inside_the_task_hooks_unless_it_is_helped(node: Node) -> None:
    hook = {
        "plugin": "p",
        "kind": "task",
        "source": HOOK,
        "filename": "p.py",
        "factory": "around_task",
        "config": {},
    }
    source = """
        import sys
        import skyward as sky
        def count():
            return len(sys.modules['_skyward_hooks.p'].entered)
        def main():
            return [count(), sky.submit(count).result()]
    """
    worker = node.ready(source, hooks=[hook])
    worker.gang = None
    run = worker.start(1)
    calls = CallsClient(node.agent.expect(wire.CALLS)[0][4])
    _, body = calls.expect(wire.SUBMIT)
    calls.expect(wire.WAIT)
    calls.send(wire.HELP, 1, run, 0, 1, False, body=body)
    _, answer = calls.expect(wire.HELPED)
    calls.send(wire.OUTCOME, 1, True, 1, body=answer)
    assert worker.outcome(run)[1] == [1, 1]
    worker.task += 1
    worker.send([wire.RUN, worker.task, 1, 0, 0, None, None, 1], body)
    _, found = worker.expect(wire.RESULT)
    assert found == b"\0\x80\x05K\x02."


@pytest.mark.parametrize(
    ("source", "kind"),
    [("import nowhere", "import"), ("def other(): pass", "import"), ("1 / 0", "exception")],
)
def test_a_payload_that_does_not_load_fails_its_calls(node: Node, source: str, kind: str) -> None:
    worker = node.ready(source)
    worker.send([wire.RUN, 1, 1, 0, 0, None, None, 1], b"what")
    assert worker.outcome(1)[1]["kind"] == kind


def test_a_body_that_cannot_be_read_fails_its_call(node: Node) -> None:
    worker = node.ready("def main(): pass")
    worker.send([wire.RUN, 1, 1, 0, 0, None, None, 64], b"what")
    failure = worker.outcome(1)[1]
    assert failure["kind"] == "arguments"
    assert "cannot unpickle the function or its arguments" in failure["message"]
    # The same on a worker without calls of its own, which starts neither a thread nor a second
    # connection.
    worker.send([wire.RUN, 2, 1, 0, 0, None, None, 65], b"what")
    assert worker.expect(wire.ERROR)[0][1] == wire.RUN


def test_a_run_of_a_call_that_is_cancelled_says_so(node: Node, tmp_path: Path) -> None:
    pool = Pool(
        node,
        2,
        """
        import skyward as sky, time
        def sleep(path):
            open(path, 'w').close()
            time.sleep(600)
        def main(path):
            future = sky.submit(sleep, path)
            import os
            while not os.path.exists(path):
                time.sleep(0.001)
            return [future.cancel(), future.cancelled()]
        """,
    )
    assert pool.call(path=str(tmp_path / "began")) == [True, True]
    pool.settle()
    assert pool.last_failure["kind"] == "cancelled"


def test_a_worker_starts_without_any_of_it(node: Node) -> None:
    worker = node.ready("""
        import sys
        def main():
            parts = ('_calls', '_nested', 'threading', 'pickle')
            return sorted(name for name in sys.modules if any(part in parts for part in name.split('.')))
    """)
    plain = subprocess.run(
        [sys.executable, "-c", "import mmap, sys; print('threading' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert plain.stdout == "False\n"
    assert worker.call(1) == []


def test_two_workers_report_their_calls(node: Node) -> None:
    started = node.agent.start(start_spec(workers=2), [0, 1])
    for index, (_, pid, path) in enumerate(started):
        client = WorkerClient(path)
        client.hello()
        client.load(1, PAYLOAD)
        client.gang = None
        client.start(1, what="told")
        told = node.agent.expect(wire.CALLS)[0]
        assert told[1:4] == [1, index, pid]
