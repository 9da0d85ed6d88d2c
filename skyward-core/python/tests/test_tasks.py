"""Calls over real sockets: results, failures, streams, cancelling, reconnecting."""

from __future__ import annotations

import signal

from skyward import _wire

from .client import WorkerClient, gone
from .conftest import Node


def test_a_call_returns_its_value(node: Node) -> None:
    worker = node.ready("def main(a, b=2):\n    return {'sum': a + b, 'list': [1, 2.5, None, b'x']}\n")
    assert worker.call(1, a=1) == {"sum": 3, "list": [1, 2.5, None, b"x"]}
    assert worker.call(1, a=1, b=5)["sum"] == 6


def test_an_exception_comes_with_the_payloads_lines(node: Node) -> None:
    worker = node.worker()
    worker.load(
        1, "def inner(x):\n    return 1 / x\n\ndef main(x):\n    return inner(x)\n", main="jobs/a.py", first_line=11
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
    worker = node.ready(
        "import os\ndef main(out, err):\n    os.write(1, out)\n    os.write(2, err)\n    print('é', end='')\n"
    )
    head, _ = worker.outcome(worker.start(1, out=b"\xff\x00\xfe", err=b"\x80"))
    assert (head[3], head[4]) == (5, 1)
    node.agent.send([_wire.LOGS, 1, 0, 0, 0])
    logs = {1: b"", 2: b""}
    while len(logs[1]) < 5 or not logs[2]:
        log, data = node.agent.expect(_wire.LOG)
        assert log[4] == len(logs[log[3]])
        logs[log[3]] += data
    assert logs == {1: b"\xff\x00\xfe\xc3\xa9", 2: b"\x80"}


def test_a_generator_runs_while_it_has_credit(node: Node) -> None:
    worker = node.ready("def main(n):\n    for i in range(n):\n        print(i)\n        yield i\n")
    task = worker.start(1, 2, n=5)
    assert [worker.expect(_wire.ITEM)[0] for _ in range(2)] == [[100, task, 0], [100, task, 1]]
    worker.send([_wire.CREDIT, task, 10])
    assert [worker.expect(_wire.ITEM)[1] for _ in range(3)] == [b"\x02", b"\x03", b"\x04"]
    head, value = worker.outcome(task)
    assert (head[0], value) == (_wire.RESULT, None)


def test_a_running_task_is_cancelled_by_an_interrupt(node: Node) -> None:
    worker = node.ready("import time\ndef main():\n    print('began')\n    time.sleep(60)\n")
    task = worker.start(1)
    node.agent.send([_wire.LOGS, 1, 0, 0, 0])
    assert node.agent.expect(_wire.LOG)[1] == b"began\n"
    worker.send([_wire.CANCEL, task])
    node.agent.send([_wire.SIGNAL, 1, 0, "interrupt"])
    assert worker.outcome(task)[1]["kind"] == "cancelled"
    worker.load(2, "def main():\n    return 1\n", main="two.py")
    assert worker.call(2) == 1


def test_a_reconnected_client_gets_what_it_has_not_acknowledged(node: Node) -> None:
    first = node.ready("def main(x):\n    return x\n")
    tasks = [first.start(1, x=x) for x in range(3)]
    assert [first.outcome(task)[1] for task in tasks] == [0, 1, 2]
    first.close()
    second = WorkerClient(node.started[0][2], acknowledged=1, awaited=[[tasks[1], 0, 0], [tasks[2], 0, 0], [99, 0, 0]])
    second.hello()
    again = [second.receive() for _ in range(3)]
    assert [(head[0], head[1], head[2]) for head, _ in again[:2]] == [(98, 2, tasks[1]), (98, 3, tasks[2])]
    assert again[2][0][:3] == [99, 4, 99]
    assert b"unknown" in again[2][1]


def test_the_death_of_a_worker_is_told(node: Node) -> None:
    worker = node.ready("import os\ndef main():\n    os._exit(7)\n")
    worker.start(1)
    exited, _ = node.agent.expect(_wire.EXITED)
    assert exited[1:] == [1, 0, node.pid, 7, None, False]
    worker = node.ready("import os, signal\ndef main():\n    os.kill(os.getpid(), signal.SIGSEGV)\n", index=1)
    worker.start(1)
    exited, _ = node.agent.expect(_wire.EXITED)
    assert exited[1:] == [1, 1, node.pid, None, signal.SIGSEGV, False]


def test_shutdown_ends_agent_and_worker(node: Node) -> None:
    node.ready()
    node.agent.shutdown()
    node.agent.at_end()
    assert gone(node.pid)
    assert gone(node.line["pid"])
    assert not (node.folder / "agent.sock").exists()
