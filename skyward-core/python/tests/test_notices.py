"""Notices in payloads: when functions are called, on which thread, and for which task."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from skyward._core import wire
from skyward._core.messages import Source
from skyward._sky.notices import Notices, notices
from skyward._tasks.payload import Payload
from skyward._tasks.runner import Runner
from skyward._worker.worker import Worker

from .client import DEADLINE, ROOT, WorkerClient, source
from .conftest import Node


def give(worker: WorkerClient, kind: str = "preempted", seconds: float = 100.0) -> None:
    worker.send([wire.NOTICE, kind, seconds, "the market wants it back"])


def attend(node: Node, done: Callable[[], bool]) -> None:
    """Make the worker read its connection until a condition holds."""
    until = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < until, "nothing came of the notice"
        node.agent.send([wire.SIGNAL, 1, 0, "attend"])
        node.agent.quiet(0.01)


def answered(worker: WorkerClient) -> Callable[[], bool]:
    return lambda: not worker.quiet(0)


def begun(node: Node, text: bytes = b"began\n") -> None:
    """Wait until the task has printed this text."""
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    said = b""
    while text not in said:
        said += node.agent.expect(wire.LOG)[1]


def test_a_worker_without_notice_has_none(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            return sky.notice(), sky.on_notice(print) is print
    """)
    assert worker.call(1) == [None, True]


def test_outside_of_a_worker_there_is_no_notice() -> None:
    script = "import skyward as sky; assert sky.on_notice(print) is print; assert sky.notice() is None"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=20)


def test_a_notice_before_the_first_task_is_known_to_it(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            return sky.notice()
    """)
    give(worker, seconds=50.0)
    assert 40.0 < worker.call(1) <= 50.0
    give(worker, seconds=0.0)
    assert worker.call(1) == 0.0
    assert worker.call(1) == 0.0, "never below 0"


def test_a_loop_that_asks_for_it_sees_a_notice_without_any_signal(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            print('began', flush=True)
            while (left := sky.notice()) is None: pass
            return left
    """)
    task = worker.start(1)
    begun(node)
    give(worker)
    assert 90.0 < worker.outcome(task)[1] <= 100.0


LOOP = """
import threading
import skyward as sky

def main():
    calls = []

    @sky.on_notice
    def note(left):
        calls.append([left, threading.current_thread() is threading.main_thread()])

    print('began', flush=True)
    while not calls: pass
    return calls
"""


def test_a_function_is_called_while_python_computes(node: Node) -> None:
    worker = node.ready(LOOP)
    task = worker.start(1)
    begun(node)
    give(worker)
    attend(node, answered(worker))
    [[left, on_main]] = worker.outcome(task)[1]
    assert 90.0 < left <= 100.0
    assert on_main


def test_a_notice_does_not_reorder_or_end_what_waits(node: Node) -> None:
    worker = node.ready(LOOP)
    worker.load(
        2,
        """
        def main(x):
            return x
        """,
    )
    task = worker.start(1)
    begun(node)
    rest = [worker.start(2, x=x) for x in range(3)]
    give(worker)
    attend(node, answered(worker))
    assert len(worker.outcome(task)[1]) == 1
    assert worker.seen == []
    assert [worker.outcome(x)[1] for x in rest] == [0, 1, 2]


COUNT = """
import skyward as sky

def main(wanted):
    calls = []

    @sky.on_notice
    def note(left):
        calls.append(round(left, -1))
        print(f'call {len(calls)}', flush=True)

    print('began', flush=True)
    while len(calls) < wanted: pass
    return calls
"""


def test_a_repeated_notice_calls_nothing_and_another_one_does(node: Node) -> None:
    worker = node.ready(COUNT)
    task = worker.start(1, wanted=3)
    begun(node)
    output = node.folder / "g1" / "w0.out"
    for number, notice in enumerate([("budget", 100.0), ("preempted", 100.0), ("preempted", 30.0)], 1):
        said = f"call {number}\n".encode()
        give(worker, *notice)
        attend(node, lambda said=said: said in output.read_bytes())  # type: ignore[misc]
        for difference in (1.0, -1.0) if number < 3 else ():
            give(worker, notice[0], notice[1] + difference)
            for _ in range(5):
                node.agent.send([wire.SIGNAL, 1, 0, "attend"])
                worker.quiet(0.02)
    assert worker.outcome(task)[1] == [100.0, 100.0, 30.0]


def test_a_notice_that_comes_again_over_a_new_connection_is_the_same(node: Node) -> None:
    worker = node.ready("""
        import os, skyward as sky
        def main(gate):
            calls = []
            sky.on_notice(lambda left: (calls.append(left), print('called', flush=True)))
            print('began', flush=True)
            while not os.path.exists(gate): pass
            return len(calls), sky.notice() is not None
    """)
    gate = node.folder / "gate"
    task = worker.start(1, gate=str(gate))
    begun(node)
    give(worker)
    said: list[bytes] = []
    while not any(b"called" in data for data in said):
        node.agent.send([wire.SIGNAL, 1, 0, "attend"])
        node.agent.quiet(0.02)
        said.append(node.agent.expect(wire.LOG)[1])
    worker.close()
    again = WorkerClient(node.started[0][2])
    give(again)
    attend(node, answered(again))
    again.hello()
    for _ in range(10):
        node.agent.send([wire.SIGNAL, 1, 0, "attend"])
        node.agent.quiet(0.02)
    gate.touch()
    assert again.outcome(task)[1] == [1, True]


def test_a_function_that_is_registered_late_is_called_at_once_and_once(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            calls = []
            sky.on_notice(calls.append)
            first = len(calls)
            sky.on_notice(calls.append)
            sky.notice()
            return first, len(calls)
    """)
    give(worker)
    assert worker.call(1) == [1, 1]


def test_functions_are_forgotten_when_their_task_ends(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        calls = []
        def main(register):
            if register:
                sky.on_notice(calls.append)
            sky.notice()
            return len(calls)
    """)
    assert worker.call(1, register=True) == 0
    give(worker)
    assert worker.call(1, register=False) == 0
    assert worker.call(1, register=True) == 1
    assert worker.call(1, register=False) == 1


def test_functions_of_a_payloads_module_belong_to_each_of_its_tasks(node: Node) -> None:
    worker = node.ready()
    worker.load(
        1,
        """
        import skyward as sky
        calls = []
        @sky.on_notice
        def note(left):
            calls.append(ready)
        ready = True
        def main():
            return calls
        """,
        main="module.py",
    )
    worker.load(
        2,
        """
        def main():
            import sys; return next(m.calls for n, m in sys.modules.items() if n.endswith('.module') and hasattr(m, 'calls'))
        """,
        main="other.py",
    )
    assert worker.call(1) == []
    give(worker)
    assert worker.call(2) == [], "another payload's task is not theirs"
    assert worker.call(1) == [True]
    assert worker.call(1) == [True, True]


HOOK = """
import sys
import skyward as sky

calls = []

def around_app(config):
    sky.on_notice(calls.append)
    sky.on_notice(fail)
    yield

def fail(left):
    sys.exit("between tasks")
"""


def test_functions_of_hooks_around_the_app_are_called_between_tasks(node: Node) -> None:
    hook = {"plugin": "p", "kind": "app", "source": HOOK, "filename": "p.py", "factory": "around_app", "config": {}}
    worker = node.ready(
        """
        import sys
        def main():
            return len(sys.modules['_skyward_hooks.p'].calls)
        """,
        hooks=[hook],
    )
    assert worker.call(1) == 0
    give(worker)
    begun_in = time.monotonic() + DEADLINE
    while b"between tasks" not in (node.folder / "g1" / "w0.err").read_bytes():
        assert time.monotonic() < begun_in
        time.sleep(0.01)
    assert worker.call(1) == 1, "the function that raised has not ended the worker"


def test_what_a_function_raises_is_raised_in_the_payload(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        class Ending(Exception): ...
        def main(caught):
            calls = []
            @sky.on_notice
            def stop(left):
                raise Ending('save now')
            try:
                sky.on_notice(calls.append)
                print('began', flush=True)
                while True: pass
            except Ending as error:
                if not caught: raise
                return str(error), len(calls)
    """)
    task = worker.start(1, caught=True)
    begun(node)
    give(worker)
    attend(node, answered(worker))
    assert worker.outcome(task)[1] == ["save now", 1], "the functions after it are called too"
    # The notice exists already, so it is raised at the call that registers the function.
    failure = worker.failure(1, caught=False)
    assert (failure["kind"], failure["type"], failure["message"]) == ("exception", "Ending", "save now")
    assert "in stop" in failure["traceback"]


def test_a_cancel_that_comes_with_a_notice_keeps_its_meaning(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            @sky.on_notice
            def never(left):
                print('called', flush=True)
                while True: pass
            while True: pass
    """)
    task = worker.start(1)
    give(worker)
    attend(node, lambda: b"called" in (node.folder / "g1" / "w0.out").read_bytes())
    worker.send([wire.CANCEL, task])
    while worker.quiet(0.02):
        node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    assert worker.outcome(task)[1]["kind"] == "cancelled"
    task = worker.start(1)
    begun(node, b"called\ncalled\n")
    worker.send([wire.CANCEL, task])
    while worker.quiet(0.02):
        node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    assert worker.outcome(task)[1]["kind"] == "cancelled"


def test_a_function_that_another_thread_registers_is_called_on_the_main_thread(node: Node) -> None:
    worker = node.ready("""
        import threading, skyward as sky
        def main():
            calls = []
            def note(left): calls.append(threading.current_thread() is threading.main_thread())
            asked = []
            def register():
                sky.on_notice(note)
                asked.append(sky.notice())
            threading.Thread(target=register).start()
            print('began', flush=True)
            while not calls or not asked: pass
            return calls, asked[0] is None
    """)
    task = worker.start(1)
    begun(node)
    give(worker)
    attend(node, answered(worker))
    assert worker.outcome(task)[1] == [[True], True]
    # The notice exists already, so only the registering thread can wake the main thread.
    assert worker.call(1) == [[True], False]


STREAM = """
import skyward as sky

class Ending(Exception): ...

def main(caught):
    @sky.on_notice
    def stop(left):
        print('called', flush=True)
        raise Ending
    number = 0
    while True:
        try:
            yield number
        except Ending:
            if not caught: raise
            yield 'saved'
            return
        number += 1
"""


@pytest.mark.parametrize("caught", [True, False])
def test_a_generator_that_waits_for_credit_gets_the_notice_at_its_yield(node: Node, caught: bool) -> None:
    worker = node.ready(STREAM)
    task = worker.start(1, 2, caught=caught)
    assert [worker.expect(wire.ITEM)[1] for _ in range(2)] == [b"\x00", b"\x01"]
    give(worker)
    begun(node, b"called")
    if caught:
        # The item that the generator yields then waits for credit like any other.
        assert worker.quiet()
        worker.send([wire.CREDIT, task, 3, 2])
        head, body = worker.expect(wire.ITEM)
        assert (head[2], body) == (2, b"\xa5saved")
        worker.send([wire.CREDIT, task, 4, 3])
        assert worker.outcome(task)[0][0] == wire.RESULT
    else:
        assert worker.outcome(task)[1]["type"] == "Ending"


def test_a_generator_that_goes_on_loses_no_item_by_a_notice(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            calls = []
            sky.on_notice(calls.append)
            for number in range(5): yield number
            yield len(calls)
    """)
    task = worker.start(1, 2)
    give(worker)
    for granted in range(3, 8):
        worker.send([wire.CREDIT, task, granted, 0])
    items = [worker.expect(wire.ITEM) for _ in range(6)]
    assert [(head[2], body) for head, body in items] == [(n, bytes([n])) for n in range(5)] + [(5, b"\x01")]
    assert worker.outcome(task)[0][0] == wire.RESULT


def test_a_child_of_a_task_gets_no_notice(node: Node) -> None:
    worker = node.ready("""
        import os, skyward as sky
        def main():
            read, write = os.pipe()
            sky.on_notice(lambda left: None)
            if os.fork() == 0:
                sky.on_notice(lambda left: os.write(write, b'told'))
                known = sky.notice() is not None
                os.write(write, b'known' if known else b'unknown')
                os._exit(0)
            os.wait()
            return os.read(read, 100)
    """)
    give(worker)
    assert worker.call(1) == b"known"


def test_a_look_that_comes_between_two_lines_of_the_worker_is_not_lost() -> None:
    worker = Worker.__new__(Worker)
    worker.runner = Runner([], lambda: None, lambda _: None)
    worker.on_attend(signal.SIGURG, None)
    assert worker.runner.missed


@pytest.mark.usefixtures("payloads")
def test_a_notice_before_a_run_is_delivered_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    told = source("""
        def main():
            return 1
    """)
    payload = Payload("1" * 32, Source("main", "told.py", [("told.py", told)]))
    looked: list[bool] = []
    runner = Runner([], lambda: looked.append(runner.busy), lambda _: None)
    monkeypatch.setattr(notices, "pending", True)
    assert runner.run(payload, {}, None, None) == ([b"\x01"], {})
    assert looked == [True]


class Ending(Exception): ...


@pytest.mark.usefixtures("payloads")
def test_what_a_function_raises_between_two_lines_of_the_worker_ends_the_task_alone() -> None:
    class Racing(Runner):
        """Is interrupted as soon as the payload has raised an exception."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "busy" and value is False and getattr(self, "trace", None) is not None:
                self.trace = None
                raise Ending

    runner = Racing([], lambda: None, lambda _: None)
    racing = source("""
        def main():
            raise ValueError
    """)
    payload = Payload("2" * 32, Source("main", "racing.py", [("racing.py", racing)]))
    assert runner.run(payload, {}, ("", ""), None)[1]["type"] == "Ending"
    assert runner.run(payload, {}, None, None)[1]["type"] == "ValueError"


def registry() -> Notices:
    made = Notices()
    made.main = threading.get_ident()
    return made


def test_functions_do_not_interrupt_each_other() -> None:
    known = registry()
    calls: list[Any] = []

    def first(left: float) -> None:
        calls.append("begin")
        if len(calls) == 1:
            # Another notice arrives while functions are called for this one, as after a signal.
            known.give("expired", 10.0)
            known.deliver()
        calls.append("end")

    known.register(first)
    known.register(calls.append)
    known.give("preempted", 100.0)
    known.deliver()
    assert calls[:2] == ["begin", "end"]
    assert [call for call in calls if isinstance(call, str)] == ["begin", "end"] * 2
    assert all(left <= 10.0 for left in calls if isinstance(left, float)), "the latest notice wins"
    assert not known.pending


def test_what_interrupts_a_function_leaves_the_others_for_later() -> None:
    known = registry()
    calls: list[float] = []

    def cancelled(left: float) -> None:
        raise KeyboardInterrupt

    known.register(cancelled)
    known.register(calls.append)
    known.give("preempted", 100.0)
    with pytest.raises(KeyboardInterrupt):
        known.deliver()
    assert calls == []
    assert known.pending
    known.deliver()
    assert len(calls) == 1
