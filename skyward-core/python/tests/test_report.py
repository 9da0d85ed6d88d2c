"""`sky.report`: each report once and in order, whatever happens to the connection, and none without a bound."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

import skyward as sky
from skyward import _session, _wire

from .client import WorkerClient
from .conftest import Node


def reports(worker: WorkerClient, task: int) -> tuple[list[Any], list[Any]]:
    """What a task reports until its outcome, and the outcome."""
    values = []
    while True:
        head, body = worker.receive()
        if head[0] == _wire.REPORT:
            assert head[2] == task
            worker.acknowledged = head[1]
            values.append(msgspec.msgpack.decode(body))
        elif head[0] in (_wire.RESULT, _wire.FAILURE):
            assert head[1] == worker.acknowledged + 1, "reports and outcomes are numbered together"
            return values, [head, msgspec.msgpack.decode(body)]


def test_reports_come_in_order_before_the_outcome_as_they_were_when_they_were_made(node: Node) -> None:
    worker = node.ready(
        "import skyward as sky\n"
        "def main(n):\n"
        "    state = bytearray(8)\n"
        "    for i in range(n):\n"
        "        state[0] = i\n"
        "        sky.report({'epoch': i, 'state': state})\n"
        "    return n\n"
    )
    values, outcome = reports(worker, worker.start(1, n=3))
    assert values == [{"epoch": i, "state": bytes([i, *bytes(7)])} for i in range(3)]
    assert outcome[1] == 3


def test_reports_of_hooks_belong_to_their_task_or_to_none(node: Node) -> None:
    source = (
        "import skyward as sky\n"
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def around(config):\n"
        "    sky.report('in')\n"
        "    yield\n"
        "    sky.report('out')\n"
    )
    hooks: list[dict[str, Any]] = [
        {
            "plugin": "reporter",
            "kind": kind,
            "source": source,
            "filename": f"{kind}.py",
            "factory": "around",
            "config": {},
        }
        for kind in ("app", "task")
    ]
    worker = node.worker(hooks=hooks)
    worker.hello()
    head, body = worker.expect(_wire.REPORT)
    assert (head[1:], msgspec.msgpack.decode(body)) == ([1, 0], "in")
    worker.acknowledged = 1
    worker.load(1, "import skyward as sky\ndef main():\n    sky.report('within')\n")
    assert reports(worker, worker.start(1))[0] == ["in", "within", "out"]


def test_a_client_that_comes_back_gets_what_has_not_arrived_once(node: Node) -> None:
    first = node.ready(
        "import skyward as sky, time\n"
        "def main():\n"
        "    for i in range(3):\n"
        "        sky.report(i)\n"
        "    time.sleep(1)\n"
        "    sky.report(3)\n"
        "    return 'end'\n"
    )
    task = first.start(1)
    assert msgspec.msgpack.decode(first.expect(_wire.REPORT)[1]) == 0
    first.close()
    second = WorkerClient(node.started[0][2], acknowledged=1)
    second.hello()
    second.acknowledged = 1
    values, outcome = reports(second, task)
    assert (values, outcome[1]) == ([1, 2, 3], "end")


def test_a_stream_goes_on_while_its_reports_are_acknowledged(node: Node) -> None:
    worker = node.ready(
        "import skyward as sky\ndef main():\n    for i in range(4):\n        sky.report(i)\n        yield i\n"
    )
    task = worker.start(1, 1)
    worker.expect(_wire.ITEM)
    worker.send([_wire.ACK, worker.expect(_wire.REPORT)[0][1]])
    worker.send([_wire.CREDIT, task, 10, 1])
    assert [msgspec.msgpack.decode(worker.expect(_wire.ITEM)[1]) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_payload_waits_until_its_reports_arrive(node: Node, size: int) -> None:
    most = _session._MOST_REPORTED // size if size else _session._MOST_REPORTS
    worker = node.ready(
        "import skyward as sky\n"
        "def main(n, size):\n"
        "    for i in range(n):\n"
        "        sky.report(bytes(size))\n"
        "        print(i)\n"
        "    return n\n"
    )
    task = worker.start(1, n=most + 5, size=size)
    for _ in range(most):
        head, _ = worker.expect(_wire.REPORT)
    assert worker.quiet(0.5), "more than may be on their way"
    worker.send([_wire.ACK, head[1]])
    for _ in range(5):
        worker.expect(_wire.REPORT)
    assert worker.outcome(task)[1] == most + 5


@pytest.mark.parametrize("name", ["ValueError", "TimeoutError"])
def test_a_signal_handler_that_raises_within_a_report_costs_the_connection_and_no_report(node: Node, name: str) -> None:
    first = node.ready(
        "import skyward as sky, signal\n"
        "def ring(*_):\n"
        f"    raise {name}('slow')\n"
        "def main():\n"
        "    signal.signal(signal.SIGALRM, ring)\n"
        "    signal.setitimer(signal.ITIMER_REAL, 1)\n"
        "    try:\n"
        "        sky.report(b'A' * (8 << 20))\n"
        f"    except {name}:\n"
        "        sky.report('caught')\n"
        "    sky.report(b'B' * 1000)\n"
        "    return 'end'\n"
    )
    task = first.start(1)
    # Nobody reads for as long as the frame is on its way.
    time.sleep(2)
    first.close()
    second = WorkerClient(node.started[0][2])
    second.hello()
    values, outcome = reports(second, task)
    assert values == [b"A" * (8 << 20), "caught", b"B" * 1000]
    assert outcome[1] == "end"


def test_what_a_finalizer_or_a_handler_reports_meanwhile_comes_after_it(node: Node) -> None:
    worker = node.ready(
        "import skyward as sky, gc, signal\n"
        "class Cycle:\n"
        "    def __init__(self):\n"
        "        self.me = self\n"
        "    def __del__(self):\n"
        "        sky.report('gone')\n"
        "def main(k):\n"
        "    gc.disable()\n"
        "    gc.collect()\n"
        "    Cycle()\n"
        "    gc.set_threshold(gc.get_count()[0] + k, 1000, 1000)\n"
        "    gc.enable()\n"
        "    sky.report('first')\n"
        "    gc.collect()\n"
    )
    for k in range(1, 60):
        # The numbers are looked at as well.
        assert sorted(reports(worker, worker.start(1, k=k))[0]) == ["first", "gone"]


def test_a_thread_of_a_run_that_has_ended_does_not_report_for_the_next(node: Node) -> None:
    worker = node.ready(
        "import skyward as sky, threading, time\n"
        "failed = []\n"
        "def main(first):\n"
        "    def work():\n"
        "        try:\n"
        "            while True:\n"
        "                time.sleep(0.05)\n"
        "                sky.report('of the first')\n"
        "        except RuntimeError as error:\n"
        "            failed.append(str(error))\n"
        "    if first:\n"
        "        threading.Thread(target=work, daemon=True).start()\n"
        "    time.sleep(0.5)\n"
        "    return failed\n"
    )
    worker.start(1, first=True)
    # What the thread has reported when its run ends may come after that, but as a report of that run.
    second = worker.start(1, first=False)
    failed = worker.outcome(second)[1]
    runs = {head[2] for head, _ in worker.seen if head[0] == _wire.REPORT}
    assert runs == {1}
    assert "`work`, which belongs to a run that has ended" in failed[0]


@pytest.mark.parametrize("ask", ["cancel", "bye"])
def test_a_payload_that_waits_to_report_can_be_ended(node: Node, ask: str) -> None:
    worker = node.ready("import skyward as sky\ndef main():\n    for i in range(10_000):\n        sky.report(i)\n")
    task = worker.start(1)
    for _ in range(_session._MOST_REPORTS):
        worker.expect(_wire.REPORT)
    began = time.monotonic()
    if ask == "cancel":
        worker.send([_wire.CANCEL, task])
        head, failure = worker.outcome(task)
        assert (head[0], failure["kind"]) == (_wire.FAILURE, "cancelled")
        worker.load(2, "def main():\n    return 1\n", main="two.py")
        assert worker.call(2) == 1
    else:
        worker.send([_wire.BYE])
        assert worker.outcome(task)[1] is None
        assert worker.at_end()
    assert time.monotonic() - began < 15


def test_reports_of_threads_leave_with_the_payload_and_are_bounded(node: Node) -> None:
    worker = node.ready(
        "import skyward as sky, threading\n"
        "def main(n, size=None):\n"
        "    failed = []\n"
        "    def work():\n"
        "        try:\n"
        "            for i in range(n):\n"
        "                sky.report(i if size is None else bytes(size - 8))\n"
        "        except RuntimeError as error:\n"
        "            failed.append(str(error))\n"
        "    thread = threading.Thread(target=work)\n"
        "    thread.start()\n"
        "    thread.join()\n"
        "    return failed\n"
    )
    assert reports(worker, worker.start(1, n=3))[0] == [0, 1, 2]
    values, outcome = reports(worker, worker.start(1, n=5000))
    assert values == list(range(4096))
    assert "4096 reports of other threads" in outcome[1][0]
    values, outcome = reports(worker, worker.start(1, n=40, size=1 << 20))
    assert len(values) == 16
    assert "16 reports of other threads" in outcome[1][0]


def test_what_cannot_be_sent_is_refused_where_it_is_reported(node: Node) -> None:
    worker = node.ready(
        "import skyward as sky, subprocess, sys, os\n"
        "def main(what):\n"
        "    if what == 'object':\n"
        "        sky.report({'loss': [1.0, object()]})\n"
        "    if what == 'large':\n"
        "        sky.report(bytes(1 << 20))\n"
        "    if what == 'fork':\n"
        "        read, write = os.pipe()\n"
        "        if not os.fork():\n"
        "            try:\n"
        "                sky.report(1)\n"
        "            except RuntimeError as error:\n"
        "                os.write(write, str(error).encode())\n"
        "            os._exit(0)\n"
        "        raise RuntimeError(os.read(read, 1000).decode())\n"
        "    if what == 'child':\n"
        "        code = 'import skyward as sky; sky.report(1)'\n"
        "        done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
        "        raise RuntimeError(done.stderr.splitlines()[-1])\n",
        max_frame=1 << 20,
    )
    for what, kind, words in [
        ("object", "TypeError", "sky.report cannot send a object at .loss[1]"),
        ("large", "ValueError", "a frame holds 1048576 at most"),
        ("fork", "RuntimeError", "is not the worker but was started by it"),
        ("child", "RuntimeError", "is not the worker but was started by it"),
    ]:
        failure = worker.failure(1, what=what)
        assert failure["type"] == kind
        assert words in failure["message"], failure["message"]


def test_outside_of_a_pool_the_value_is_checked_and_no_more() -> None:
    sky.report({"loss": 0.5})
    with pytest.raises(TypeError, match="cannot send"):
        sky.report(object())
