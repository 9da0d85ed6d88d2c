"""`sky.report`: each report arrives once and in order, and the memory for reports is bounded."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

import skyward as sky
from skyward._core import wire
from skyward._tasks import session

from .client import WorkerClient, source
from .conftest import Node


def reports(worker: WorkerClient, task: int) -> tuple[list[Any], list[Any]]:
    """Return the reports of a task until its outcome, and the outcome."""
    values = []
    while True:
        head, body = worker.receive()
        if head[0] == wire.REPORT:
            assert head[2] == task
            worker.acknowledged = head[1]
            values.append(msgspec.msgpack.decode(body))
        elif head[0] in (wire.RESULT, wire.FAILURE):
            assert head[1] == worker.acknowledged + 1, "reports and outcomes are numbered together"
            return values, [head, msgspec.msgpack.decode(body)]


def test_reports_come_in_order_before_the_outcome_as_they_were_when_they_were_made(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main(n):
            state = bytearray(8)
            for i in range(n):
                state[0] = i
                sky.report({'epoch': i, 'state': state})
            return n
    """)
    values, outcome = reports(worker, worker.start(1, n=3))
    assert values == [{"epoch": i, "state": bytes([i, *bytes(7)])} for i in range(3)]
    assert outcome[1] == 3


def test_reports_of_hooks_belong_to_their_task_or_to_none(node: Node) -> None:
    hook = source("""
        import skyward as sky
        from contextlib import contextmanager
        @contextmanager
        def around(config):
            sky.report('in')
            yield
            sky.report('out')
    """)
    hooks: list[dict[str, Any]] = [
        {
            "plugin": "reporter",
            "kind": kind,
            "source": hook,
            "filename": f"{kind}.py",
            "factory": "around",
            "config": {},
        }
        for kind in ("app", "task")
    ]
    worker = node.worker(hooks=hooks)
    worker.hello()
    head, body = worker.expect(wire.REPORT)
    assert (head[1:], msgspec.msgpack.decode(body)) == ([1, 0], "in")
    worker.acknowledged = 1
    worker.load(
        1,
        """
        import skyward as sky
        def main():
            sky.report('within')
        """,
    )
    assert reports(worker, worker.start(1))[0] == ["in", "within", "out"]


def test_a_reconnected_client_gets_missing_reports_once(node: Node) -> None:
    first = node.ready("""
        import skyward as sky, time
        def main():
            for i in range(3):
                sky.report(i)
            time.sleep(1)
            sky.report(3)
            return 'end'
    """)
    task = first.start(1)
    assert msgspec.msgpack.decode(first.expect(wire.REPORT)[1]) == 0
    first.close()
    second = WorkerClient(node.started[0][2], acknowledged=1)
    second.hello()
    second.acknowledged = 1
    values, outcome = reports(second, task)
    assert (values, outcome[1]) == ([1, 2, 3], "end")


def test_a_stream_goes_on_while_its_reports_are_acknowledged(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            for i in range(4):
                sky.report(i)
                yield i
    """)
    task = worker.start(1, 1)
    worker.expect(wire.ITEM)
    worker.send([wire.ACK, worker.expect(wire.REPORT)[0][1]])
    worker.send([wire.CREDIT, task, 10, 1])
    assert [msgspec.msgpack.decode(worker.expect(wire.ITEM)[1]) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_payload_waits_until_its_reports_arrive(node: Node, size: int) -> None:
    most = session._MOST_REPORTED // size if size else session._MOST_REPORTS
    worker = node.ready("""
        import skyward as sky
        def main(n, size):
            for i in range(n):
                sky.report(bytes(size))
                print(i)
            return n
    """)
    task = worker.start(1, n=most + 5, size=size)
    for _ in range(most):
        head, _ = worker.expect(wire.REPORT)
    assert worker.quiet(0.5), "more than may be on their way"
    worker.send([wire.ACK, head[1]])
    for _ in range(5):
        worker.expect(wire.REPORT)
    assert worker.outcome(task)[1] == most + 5


@pytest.mark.parametrize("name", ["ValueError", "TimeoutError"])
def test_a_signal_handler_that_raises_within_a_report_costs_the_connection_and_no_report(node: Node, name: str) -> None:
    first = node.ready(f"""
        import skyward as sky, signal
        def ring(*_):
            raise {name}('slow')
        def main():
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 1)
            try:
                sky.report(b'A' * (8 << 20))
            except {name}:
                sky.report('caught')
            sky.report(b'B' * 1000)
            return 'end'
    """)
    task = first.start(1)
    # Do not read while the frame is being sent.
    time.sleep(2)
    first.close()
    second = WorkerClient(node.started[0][2])
    second.hello()
    values, outcome = reports(second, task)
    assert values == [b"A" * (8 << 20), "caught", b"B" * 1000]
    assert outcome[1] == "end"


def test_reports_of_finalizers_and_handlers_come_after_the_current_one(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky, gc, signal
        class Cycle:
            def __init__(self):
                self.me = self
            def __del__(self):
                sky.report('gone')
        def main(k):
            gc.disable()
            gc.collect()
            Cycle()
            gc.set_threshold(gc.get_count()[0] + k, 1000, 1000)
            gc.enable()
            sky.report('first')
            gc.collect()
    """)
    for k in range(1, 60):
        # `reports` checks the numbers too.
        assert sorted(reports(worker, worker.start(1, k=k))[0]) == ["first", "gone"]


def test_a_thread_of_a_run_that_has_ended_does_not_report_for_the_next(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky, threading, time
        made, failed = [], []
        def main(first):
            def work():
                try:
                    while True:
                        time.sleep(0.05)
                        sky.report('of the first')
                        made.append(1)
                except RuntimeError as error:
                    failed.append(str(error))
            if first:
                threading.Thread(target=work, daemon=True).start()
            while not (made if first else failed):
                time.sleep(0.01)
            return failed
    """)
    worker.start(1, first=True)
    # A report that the thread made before the end of its run may arrive later, but as a report of
    # that run.
    second = worker.start(1, first=False)
    failed = worker.outcome(second)[1]
    runs = {head[2] for head, _ in worker.seen if head[0] == wire.REPORT}
    assert runs == {1}
    assert "`work` of a run that has ended" in failed[0]


@pytest.mark.parametrize("ask", ["cancel", "bye"])
def test_a_payload_that_waits_to_report_can_be_ended(node: Node, ask: str) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            for i in range(10_000):
                sky.report(i)
    """)
    task = worker.start(1)
    for _ in range(session._MOST_REPORTS):
        worker.expect(wire.REPORT)
    if ask == "cancel":
        worker.send([wire.CANCEL, task])
        head, failure = worker.outcome(task)
        assert (head[0], failure["kind"]) == (wire.FAILURE, "cancelled")
        worker.load(
            2,
            """
            def main():
                return 1
            """,
            main="two.py",
        )
        assert worker.call(2) == 1
    else:
        worker.send([wire.BYE])
        assert worker.outcome(task)[1] is None
        assert worker.at_end()


def test_reports_of_threads_leave_with_the_payload_and_are_bounded(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky, threading
        def main(n, size=None):
            failed = []
            def work():
                try:
                    for i in range(n):
                        sky.report(i if size is None else bytes(size - 8))
                except RuntimeError as error:
                    failed.append(str(error))
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            return failed
    """)
    assert reports(worker, worker.start(1, n=3))[0] == [0, 1, 2]
    values, outcome = reports(worker, worker.start(1, n=5000))
    assert values == list(range(4096))
    assert "4096 reports of other threads" in outcome[1][0]
    values, outcome = reports(worker, worker.start(1, n=40, size=1 << 20))
    assert len(values) == 16
    assert "16 reports of other threads" in outcome[1][0]


def test_values_that_cannot_be_sent_are_refused_by_report(node: Node) -> None:
    worker = node.ready(
        """
        import skyward as sky, subprocess, sys, os
        def main(what):
            if what == 'object':
                sky.report({'loss': [1.0, object()]})
            if what == 'large':
                sky.report(bytes(1 << 20))
            if what == 'fork':
                read, write = os.pipe()
                if not os.fork():
                    try:
                        sky.report(1)
                    except RuntimeError as error:
                        os.write(write, str(error).encode())
                    os._exit(0)
                raise RuntimeError(os.read(read, 1000).decode())
            if what == 'child':
                code = 'import skyward as sky; sky.report(1)'
                done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
                raise RuntimeError(done.stderr.splitlines()[-1])
        """,
        max_frame_bytes=1 << 20,
    )
    for what, kind, words in [
        ("object", "TypeError", "sky.report cannot send a object at .loss[1]"),
        ("large", "ValueError", "a frame holds at most 1048576"),
        ("fork", "RuntimeError", "which the payload started"),
        ("child", "RuntimeError", "which the payload started"),
    ]:
        failure = worker.failure(1, what=what)
        assert failure["type"] == kind
        assert words in failure["message"], failure["message"]


def test_outside_a_pool_report_only_checks_the_value() -> None:
    sky.report({"loss": 0.5})
    with pytest.raises(TypeError, match="cannot send"):
        sky.report(object())
