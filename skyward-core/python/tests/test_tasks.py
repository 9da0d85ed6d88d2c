"""Calls over real sockets: results, failures, streams, cancelling, reconnecting."""

from __future__ import annotations

import os
import select
import signal
import time

import pytest

from skyward._core import wire
from skyward._core.messages import Source
from skyward._tasks.payload import Payload
from skyward._tasks.runner import Runner

from .client import DEADLINE, WorkerClient, gone, source
from .conftest import Node


def test_a_call_returns_its_value(node: Node) -> None:
    worker = node.ready("""
        def main(a, b=2):
            return {'sum': a + b, 'list': [1, 2.5, None, b'x']}
    """)
    assert worker.call(1, a=1) == {"sum": 3, "list": [1, 2.5, None, b"x"]}
    assert worker.call(1, a=1, b=5)["sum"] == 6


def test_an_exception_comes_with_the_payloads_lines(node: Node) -> None:
    worker = node.worker()
    worker.load(
        1,
        """
        def inner(x):
            return 1 / x

        def main(x):
            return inner(x)
        """,
        main="jobs/a.py",
        first_line=11,
    )
    failure = worker.failure(1, x=0)
    assert failure["kind"] == "exception"
    assert (failure["type"], failure["module"]) == ("ZeroDivisionError", "builtins")
    assert failure["message"] == "division by zero"
    lines = failure["traceback"].splitlines()
    assert lines[1] == '  File "jobs/a.py", line 15, in main'
    assert lines[2] == "    return inner(x)"
    assert '  File "jobs/a.py", line 12, in inner' in lines


def test_output_offsets_are_exact(node: Node) -> None:
    worker = node.ready("""
        import os
        def main(out, err):
            os.write(1, out)
            os.write(2, err)
            print('é', end='')
    """)
    head, _ = worker.outcome(worker.start(1, out=b"\xff\x00\xfe", err=b"\x80"))
    assert (head[3], head[4]) == (5, 1)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    logs = {1: b"", 2: b""}
    while len(logs[1]) < 5 or not logs[2]:
        log, data = node.agent.expect(wire.LOG)
        assert log[4] == len(logs[log[3]])
        logs[log[3]] += data
    assert logs == {1: b"\xff\x00\xfe\xc3\xa9", 2: b"\x80"}


def test_a_generator_runs_while_it_has_credit(node: Node) -> None:
    worker = node.ready("""
        def main(n):
            for i in range(n):
                print(i)
                yield i
    """)
    task = worker.start(1, 2, n=5)
    assert [worker.expect(wire.ITEM)[0] for _ in range(2)] == [[100, task, 0], [100, task, 1]]
    worker.send([wire.CREDIT, task, 10, 2])
    assert [worker.expect(wire.ITEM)[1] for _ in range(3)] == [b"\x02", b"\x03", b"\x04"]
    head, value = worker.outcome(task)
    assert (head[0], value) == (wire.RESULT, None)


def test_a_running_task_is_cancelled_by_an_interrupt(node: Node) -> None:
    worker = node.ready(SLEEPER)
    task = worker.start(1)
    began(node)
    worker.send([wire.CANCEL, task])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    assert worker.outcome(task)[1]["kind"] == "cancelled"
    worker.load(2, ONE, main="two.py")
    assert worker.call(2) == 1


def test_a_reconnected_client_gets_what_it_has_not_acknowledged(node: Node) -> None:
    first = node.ready(ECHO)
    tasks = [first.start(1, x=x) for x in range(3)]
    assert [first.outcome(task)[1] for task in tasks] == [0, 1, 2]
    first.close()
    second = WorkerClient(node.started[0][2], acknowledged=1)
    assert second.hello()[0][7] == 3, "the runs that have arrived"
    again = [second.receive() for _ in range(2)]
    assert [(head[0], head[1], head[2]) for head, _ in again] == [(98, 2, tasks[1]), (98, 3, tasks[2])]
    assert second.quiet()


def test_the_death_of_a_worker_is_reported(node: Node) -> None:
    worker = node.ready("""
        import os
        def main():
            os._exit(7)
    """)
    worker.start(1)
    exited, _ = node.agent.expect(wire.EXITED)
    assert exited[1:] == [1, 0, node.pid, 7, None, False, 1]
    worker = node.ready(
        """
        import os, signal
        def main():
            os.kill(os.getpid(), signal.SIGSEGV)
        """,
        index=1,
    )
    worker.start(1)
    exited, _ = node.agent.expect(wire.EXITED)
    assert exited[1:] == [1, 1, node.pid, None, signal.SIGSEGV, False, 1]


def test_shutdown_ends_agent_and_worker(node: Node) -> None:
    node.ready()
    node.agent.shutdown()
    node.agent.at_end()
    assert gone(node.pid)
    assert gone(node.line["pid"])
    assert not (node.folder / "agent.sock").exists()


def test_waiting_tasks_are_cancelled_before_they_begin(node: Node) -> None:
    worker = node.ready(GATED)
    fifo = node.folder / "gate"
    os.mkfifo(fifo)
    tasks = [worker.start(1, x=0, fifo=str(fifo)), *(worker.start(1, x=x) for x in range(1, 5))]
    worker.send([wire.CANCEL, tasks[2]])
    worker.send([wire.CANCEL, tasks[4]])
    with open(fifo, "w"):
        pass
    assert [worker.outcome(task)[1] for task in (tasks[0], tasks[1], tasks[3])] == [0, 1, 3]
    for task in (tasks[2], tasks[4]):
        assert worker.outcome(task)[1]["kind"] == "cancelled"
    assert (node.folder / "g1" / "w0.out").read_text() == "began\n0\n1\n3\n"


def test_an_interrupt_hits_no_other_task_than_its_own(node: Node) -> None:
    worker = node.ready(SLEEPER)
    running = worker.start(1)
    began(node)
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    worker.send([wire.CANCEL, running + 1000])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    node.agent.send([wire.SIGNAL, 1, 0, "stacks"])
    # The stacks show that the task still sleeps after the worker has handled both interrupts.
    assert b"job.py" in node.agent.expect(wire.STACKS)[1]
    worker.send([wire.CANCEL, running])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    assert worker.outcome(running)[1]["kind"] == "cancelled"


@pytest.mark.usefixtures("payloads")
def test_an_interrupt_that_is_repeated_raises_once(node: Node) -> None:
    worker = node.ready("""
        import time
        def main():
            print('began')
            try:
                time.sleep(60)
            finally:
                print('cleans')
                for _ in range(20):
                    time.sleep(0.02)
                print('clean')
    """)
    running = worker.start(1)
    began(node)
    worker.send([wire.CANCEL, running])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    head, _ = node.agent.expect(wire.LOG)
    assert head[3] == 1
    for _ in range(5):
        node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    assert worker.outcome(running)[1]["kind"] == "cancelled"
    assert (node.folder / "g1" / "w0.out").read_text() == "began\ncleans\nclean\n"


@pytest.mark.usefixtures("payloads")
def test_an_interrupt_between_two_lines_of_the_worker_is_not_lost() -> None:
    def look() -> None:
        runner.missed = False
        runner.interrupted = True
        raise KeyboardInterrupt

    runner = Runner([], look, lambda _: None)
    payload = Payload("3" * 32, Source("main", "x.py", [("x.py", source(ONE))]))
    runner.missed = True
    assert runner.run(payload, {}, None, None)[1]["kind"] == "cancelled"
    assert runner.run(payload, {}, None, None) == ([b"\x01"], {})

    class Pipe:
        def wait(self) -> bool:
            return True

        def may_put(self) -> bool:
            return True

        def put(self, parts: object) -> None:
            runner.missed = True

    ones = source("""
        def main():
            while True: yield 1
    """)
    endless = Payload("4" * 32, Source("main", "y.py", [("y.py", ones)]))
    assert runner.run(endless, {}, None, Pipe())[1]["kind"] == "cancelled"


@pytest.mark.parametrize("place", ["at the top", "in a function", "in a file of the payload"])
def test_a_cancel_does_not_interrupt_the_import_of_a_library(node: Node, place: str) -> None:
    library = """
        import os, sys, time
        if hasattr(sys, 'native'):
            raise RuntimeError('native can only be initialized once per process')
        sys.native = True
        print('began', flush=True)
        while not os.path.exists('gate'):
            time.sleep(0.01)
    """
    (node.folder / "native.py").write_text(source(library))
    files = {"jobs/train.py": "import native\ndef main():\n    return 1"}
    if place == "in a function":
        files = {"jobs/train.py": "import time\ndef main():\n    import native\n    time.sleep(60)"}
    elif place == "in a file of the payload":
        files = {"jobs/train.py": "import helper\ndef main():\n    return 1", "jobs/helper.py": "import native"}
    worker = node.ready(cwd=str(node.folder))
    worker.load(1, files, main="jobs/train.py")
    worker.load(2, "import native\ndef main():\n    return 2", main="other.py")
    running = worker.start(1)
    began(node)
    worker.send([wire.CANCEL, running])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    node.agent.send([wire.SIGNAL, 1, 0, "stacks"])
    # The stacks show that the import continues after the worker has handled the interrupt.
    assert b"native.py" in node.agent.expect(wire.STACKS)[1]
    (node.folder / "gate").touch()
    while place == "in a function" and worker.quiet(0.02):
        node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    assert worker.outcome(running)[1]["kind"] == "cancelled"
    assert worker.call(2) == 2


def test_a_cancel_interrupts_what_a_payload_does_when_it_is_loaded(node: Node) -> None:
    worker = node.ready("""
        import time
        print('began', flush=True)
        time.sleep(60)
    """)
    running = worker.start(1)
    began(node)
    worker.send([wire.CANCEL, running])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    assert worker.outcome(running)[1]["kind"] == "cancelled"


def test_a_cancel_over_a_new_connection_reaches_the_running_task(node: Node) -> None:
    worker = node.ready(SLEEPER)
    running = worker.start(1)
    began(node)
    worker.close()
    again = WorkerClient(node.started[0][2])
    again.send([wire.CANCEL, running])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    again.hello()
    assert again.outcome(running)[1]["kind"] == "cancelled"


def test_a_payload_that_turns_the_interrupt_into_another_error_is_cancelled(node: Node) -> None:
    worker = node.ready("""
        import time
        def main():
            print('began')
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                raise ValueError('wrapped')
    """)
    running = worker.start(1)
    began(node)
    worker.send([wire.CANCEL, running])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    failure = worker.outcome(running)[1]
    assert (failure["kind"], failure["type"]) == ("cancelled", "ValueError")


def test_a_generator_that_waits_for_credit_is_cancelled(node: Node) -> None:
    worker = node.ready("""
        def main():
            try:
                for i in range(9): yield i
            finally:
                print('closed', flush=True)
    """)
    task = worker.start(1, 1)
    worker.expect(wire.ITEM)
    worker.send([wire.CANCEL, task])
    assert worker.outcome(task)[1]["kind"] == "cancelled"
    assert (node.folder / "g1" / "w0.out").read_text() == "closed\n"


def test_a_stream_goes_on_after_a_reconnect(node: Node) -> None:
    first = node.ready(COUNTER)
    task = first.start(1, 4, n=6)
    assert [first.expect(wire.ITEM)[0][2] for _ in range(4)] == [0, 1, 2, 3]
    first.close()
    # Two of the four items have arrived at the client, which has room for three more.
    second = WorkerClient(node.started[0][2], streams=[[task, 2, 5]])
    second.hello()
    assert [second.expect(wire.ITEM)[0][2] for _ in range(3)] == [2, 3, 4]
    second.send([wire.CREDIT, task, 10, 5])
    assert second.expect(wire.ITEM)[0][2] == 5
    assert second.outcome(task)[0][0] == wire.RESULT


def test_a_stream_that_ended_unseen_is_sent_again_with_its_result(node: Node) -> None:
    first = node.ready(COUNTER)
    task = first.start(1, 10, n=4)
    first.outcome(task)
    first.close()
    second = WorkerClient(node.started[0][2], streams=[[task, 1, 10]])
    second.hello()
    head, _ = second.outcome(task)
    assert head[1] == 1
    assert [item[0][2] for item in second.seen] == [1, 2, 3]


def test_credit_that_is_repeated_late_or_small_changes_nothing(node: Node) -> None:
    worker = node.ready(COUNTER)
    task = worker.start(1, 2, n=6)
    for credit in ([4, 2], [4, 2], [3, 1], [0, 0]):
        worker.send([wire.CREDIT, task, *credit])
    assert [worker.expect(wire.ITEM)[0][2] for _ in range(4)] == [0, 1, 2, 3]
    assert worker.quiet()
    worker.close()
    second = WorkerClient(node.started[0][2], streams=[[task, 3, 3]])
    second.hello()
    assert second.expect(wire.ITEM)[0][2] == 3
    assert second.quiet(), "the smaller grant takes nothing back, and gives nothing"
    second.send([wire.CREDIT, task, 9, 4])
    assert [second.expect(wire.ITEM)[0][2] for _ in range(2)] == [4, 5]
    assert second.outcome(task)[0][0] == wire.RESULT


def test_items_wait_for_a_client_that_comes_back_while_there_is_credit(node: Node) -> None:
    worker = node.ready("""
        import time
        def main(fifo):
            yield 0
            open(fifo).read()
            yield 1
            open(fifo).read()
    """)
    fifo = node.folder / "gate"
    os.mkfifo(fifo)
    task = worker.start(1, 9, fifo=str(fifo))
    worker.expect(wire.ITEM)
    worker.close()
    second = WorkerClient(node.started[0][2], streams=[[task, 1, 9]])
    with open(fifo, "w"):
        pass
    second.hello()
    assert second.expect(wire.ITEM)[0][2] == 1
    with open(fifo, "w"):
        pass
    assert second.outcome(task)[0][0] == wire.RESULT


def test_a_repeated_run_is_executed_once(node: Node) -> None:
    worker = node.ready(COUNTS)
    assert worker.call(1) == 1
    worker.close()
    second = WorkerClient(node.started[0][2], acknowledged=1)
    assert second.hello()[0][7] == 1
    second.send([wire.RUN, 1, 1, 1, 0, None], b"\x80")
    assert second.call(1) == 2
    assert second.acknowledged == 2


def test_waiting_tasks_survive_a_lost_connection(node: Node) -> None:
    worker = node.ready(GATED)
    fifo = node.folder / "gate"
    os.mkfifo(fifo)
    tasks = [worker.start(1, x=0, fifo=str(fifo)), worker.start(1, x=1), worker.start(1, x=2)]
    began(node)
    worker.close()
    again = WorkerClient(node.started[0][2])
    with open(fifo, "w"):
        pass
    assert again.hello()[0][7] == 3
    assert [again.outcome(task)[1] for task in tasks] == [0, 1, 2]


def test_recalled_runs_never_begin(node: Node) -> None:
    worker = node.ready(GATED)
    fifo = node.folder / "gate"
    os.mkfifo(fifo)
    tasks = [worker.start(1, x=0, fifo=str(fifo)), *(worker.start(1, x=x) for x in range(1, 4))]
    began(node)
    for _ in range(2):
        node.agent.send([wire.RECALL, 1, 0, node.pid, tasks[2]])
        assert node.agent.expect(wire.RECALLED)[0][1:] == [1, 0, node.pid, tasks[2], tasks[0]]
    node.agent.send([wire.RECALL, 1, 0, node.pid + 1, tasks[3]])
    later = worker.start(1, x=4)
    with open(fifo, "w"):
        pass
    assert [worker.outcome(tasks[n])[1] for n in (0, 3)] == [0, 3]
    assert [worker.outcome(tasks[n])[1]["kind"] for n in (1, 2)] == ["recalled", "recalled"]
    assert worker.outcome(later)[1] == 4
    assert (node.folder / "g1" / "w0.out").read_text() == "began\n0\n3\n4\n"


def test_an_exit_reports_the_last_run_and_a_new_worker_starts_at_zero(node: Node) -> None:
    worker = node.ready(GATED)
    fifo = node.folder / "gate"
    os.mkfifo(fifo)
    worker.start(1, x=0, fifo=str(fifo))
    worker.start(1, x=2)
    began(node)
    node.agent.send([wire.SIGNAL, 1, 0, "kill"])
    assert node.agent.expect(wire.EXITED)[0][4:] == [None, 9, False, 1]
    fresh = node.ready(ONE)
    node.agent.send([wire.RECALL, 1, 0, node.pid, 0])
    assert node.agent.expect(wire.RECALLED)[0][4:] == [0, 0]
    assert fresh.call(1) == 1


def test_attend_reaches_a_loop_and_does_not_end_a_native_wait(node: Node) -> None:
    worker = node.ready("""
        import ctypes, os, time
        def main(native, fifo):
            print('began', flush=True)
            if native:
                return ctypes.PyDLL(None).usleep(900_000)
            while not os.path.exists(fifo): pass
            return 'done'
    """)
    gate = node.folder / "gate"
    task = worker.start(1, native=False, fifo=str(gate))
    began(node)
    worker.close()
    again = WorkerClient(node.started[0][2])
    until = time.monotonic() + DEADLINE
    while again.quiet(0.02):
        assert time.monotonic() < until, "the worker does not look at its connection"
        node.agent.send([wire.SIGNAL, 1, 0, "attend"])
    again.hello()
    gate.touch()
    assert again.outcome(task)[1] == "done"
    task = again.start(1, native=True, fifo="")
    began(node, offset=6)
    while again.quiet(0.02):
        node.agent.send([wire.SIGNAL, 1, 0, "attend"])
    assert again.outcome(task)[1] == 0, "it slept for its whole time"


def test_a_payload_keeps_its_modules_for_as_long_as_it_has_a_slot(node: Node) -> None:
    worker = node.ready(COUNTS)
    assert worker.call(1) == 1
    worker.close()
    worker = WorkerClient(node.started[0][2], acknowledged=1)
    worker.hello()
    worker.load(1, COUNTS)
    assert worker.call(1) == 2
    worker.load(2, COUNTS)
    assert worker.call(2) == 3, "under another number too"
    worker.load(
        1,
        """
        def main():
            return 'other'
        """,
        main="other.py",
    )
    assert (worker.call(1), worker.call(2)) == ("other", 4)


def test_payloads_that_lost_their_numbers_are_released(node: Node) -> None:
    worker = node.ready()
    count = """
        import gc, sys
        class Held: ...
        held = Held()
        NUMBER = {n}
        def main():
            gc.collect()
            names = [n for n in sys.modules if n.endswith('.dynamic')]
            return len(names), sum(type(o).__name__ == 'Held' for o in gc.get_objects())
    """
    for n in range(3 * wire.PAYLOADS):
        worker.load(n % wire.PAYLOADS, count.replace("{n}", str(n)), main="dynamic.py")
        worker.start(n % wire.PAYLOADS)
    worker.outcome(worker.task - 1)
    assert worker.outcome(worker.task)[1] == [wire.PAYLOADS, wire.PAYLOADS]
    kept = list((node.folder / "payloads").iterdir())
    assert len(kept) <= wire.PAYLOADS


def test_requests_of_a_disconnected_client_are_read(node: Node) -> None:
    worker = node.ready(GATED)
    fifo = node.folder / "gate"
    os.mkfifo(fifo)
    first = worker.start(1, x=0, fifo=str(fifo))
    began(node)
    rest = [worker.start(1, x=x) for x in range(1, 4)]
    worker.close()
    with open(fifo, "w"):
        pass
    # The worker notices the broken connection at its first answer; nevertheless it answers all four
    # runs.
    again = WorkerClient(node.started[0][2])
    again.hello()
    assert [again.outcome(task)[1] for task in (first, *rest)] == [0, 1, 2, 3]


def test_large_values_there_and_back(node: Node) -> None:
    worker = node.ready("""
        def main(x, y):
            return [x, len(y), {'again': y}]
    """)
    large, other = os.urandom(1 << 20) * 20, os.urandom(1 << 17)
    assert worker.call(1, x=large, y=other) == [large, len(other), {"again": other}]


def test_results_wait_for_their_acknowledgement_within_bounds(node: Node) -> None:
    worker = node.ready(
        """
        def main(x):
            print(x, flush=True)
            return bytes(100_000)
        """,
        retain_bytes=250_000,
    )
    tasks = [worker.start(1, x=x) for x in range(5)]
    sequences = [worker.outcome(task)[0][1] for task in tasks[:3]]
    # Three results exceed the limit, so the fourth task does not begin before one is acknowledged.
    assert worker.quiet()
    worker.send([wire.ACK, sequences[2]])
    assert len(worker.outcome(tasks[3])[1]) == 100_000


def test_a_client_that_does_not_read_is_replaced(node: Node) -> None:
    first = node.ready("""
        def main():
            return bytes(8 << 20)
    """)
    task = first.start(1)
    # The worker cannot send this result, because nobody reads.
    second = WorkerClient(node.started[0][2])
    second.hello()
    assert len(second.outcome(task)[1]) == 8 << 20


def test_many_calls_in_a_row_are_answered_in_order(node: Node) -> None:
    worker = node.ready(ECHO)
    tasks = [worker.start(1, x=x) for x in range(3000)]
    assert [worker.outcome(task)[1] for task in tasks] == list(range(3000))


def test_a_payload_with_the_same_digest_is_not_loaded_again(node: Node) -> None:
    worker = node.ready(COUNTS)
    assert worker.call(1) == 1
    worker.load(1, COUNTS)
    assert worker.call(1) == 2


def test_children_inherit_no_descriptor_of_the_worker(node: Node) -> None:
    worker = node.ready("""
        import subprocess
        def main():
            return subprocess.run(['ls', '-l', '/proc/self/fd'], capture_output=True, close_fds=False, text=True).stdout
    """)
    listing = worker.call(1)
    assert "socket:" not in listing
    assert "memfd" not in listing


def began(node: Node, offset: int = 0) -> None:
    """Wait until the payload has printed the word; its line may arrive in two parts."""
    node.agent.send([wire.LOGS, 1, 0, offset, 0])
    assert node.agent.expect(wire.LOG)[1].startswith(b"began")


ONE = """
    def main():
        return 1
"""
ECHO = """
    def main(x):
        return x
"""
COUNTS = """
    n = 0
    def main():
        global n
        n += 1
        return n
"""
SLEEPER = """
    import time
    def main():
        print('began')
        time.sleep(60)
"""
# Longer than the worker lets pass between two looks at its connection, once the gate is open.
GATED = """
import time
def main(x, fifo=None):
    if fifo:
        print('began', flush=True)
        open(fifo).read()
        time.sleep(0.002)
    print(x)
    return x
"""
COUNTER = """
    def main(n):
        for i in range(n):
            yield i
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_a_payload_starts_find_its_modules(node: Node, method: str) -> None:
    files = {
        "jobs/train.py": f"""
            import multiprocessing
            from helper import Item
            import skyward as sky
            def work(item):
                return item.n * 2, sky.instance_info().job_id
            def main():
                with multiprocessing.get_context({method!r}).Pool(1) as pool:
                    return pool.map(work, [Item(1), Item(2)])
        """,
        "jobs/helper.py": """
            class Item:
                def __init__(self, n):
                    self.n = n
        """,
    }
    worker = node.ready()
    worker.load(1, files, main="jobs/train.py")
    assert worker.call(1) == [[2, "pool"], [4, "pool"]]


@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_a_client_that_does_not_read_keeps_no_task_and_no_worker(node: Node, how: str) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            print('began', flush=True)
            sky.report(bytes(8 << 20))
            print('went on', flush=True)
    """)
    running = worker.start(1)
    worker.expect_import(running, False)
    # The worker is in the middle of the frame.
    assert select.select([worker.socket], [], [], DEADLINE)[0]
    if how == "terminate":
        os.kill(node.pid, signal.SIGTERM)
        assert gone(node.pid)
        return
    worker.send([wire.CANCEL, running])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    ended = select.poll()
    ended.register(worker.socket, 0)
    assert ended.poll(DEADLINE * 1000), "the worker ends the connection"
    again = WorkerClient(node.started[0][2])
    again.hello()
    assert len(again.expect(wire.REPORT)[1]) > 8 << 20
    head, failure = again.outcome(running)
    assert (head[1], failure["kind"]) == (2, "cancelled")
    assert (node.folder / "g1" / "w0.out").read_text() == "began\n"
