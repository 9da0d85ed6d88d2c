"""Payloads are imported before the worker is ready, or by their first call, which says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skyward._core import wire

from .client import WorkerClient, source
from .conftest import Node


def declared(text: str, digest: str = "00000000000000aa") -> list[Any]:
    """Return a payload of one file as the start spec declares it."""
    return [digest, {"entry": "main", "main": "job.py", "first_line": 1, "files": [["job.py", source(text)]]}]


def load(worker: WorkerClient, payload: list[Any]) -> None:
    worker.send([wire.LOAD, 1, payload[0]], msgspec.msgpack.encode(payload[1]))


def test_a_declared_payload_is_imported_before_the_worker_is_ready(node: Node) -> None:
    payload = declared("print('imported')\ndef main():\n    return 1\n")
    worker = node.worker(payloads=[payload])
    assert worker.hello()[0][5]
    load(worker, payload)
    head, value = worker.outcome(worker.start(1))
    assert (value, worker.imports) == (1, [])
    assert head[3] == len("imported\n"), "it was printed before the call, and once"


def test_the_hooks_come_before_the_imports(node: Node) -> None:
    hook = source("""
        import builtins
        from contextlib import contextmanager
        @contextmanager
        def around(config):
            builtins.joined = True
            yield
    """)
    hooks = [{"plugin": "p", "kind": "app", "source": hook, "filename": "p.py", "factory": "around", "config": {}}]
    payload = declared("seen = joined\ndef main():\n    return seen\n")
    worker = node.worker(hooks=hooks, payloads=[payload])
    assert worker.hello()[0][5]
    load(worker, payload)
    assert worker.outcome(worker.start(1))[1] is True


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import nowhere_to_be_found\ndef main(): ...\n", "import"),
        ("1 / 0\ndef main(): ...\n", "exception"),
        ("raise SystemExit(3)\n", "exit"),
        ("def other(): ...\n", "import"),
    ],
)
def test_a_worker_whose_payload_cannot_be_imported_is_not_ready(node: Node, text: str, kind: str) -> None:
    worker = node.worker(payloads=[declared("def main(): ...\n"), declared(text, "00000000000000bb")])
    head, failure = worker.hello()
    assert not head[5]
    assert (failure["kind"], failure["payload"]) == (kind, "00000000000000bb")


def test_what_a_module_changes_when_it_is_imported_holds_for_all_tasks(node: Node) -> None:
    payload = declared("import os\nos.environ['BACKEND'] = 'jax'\ndef main():\n    return os.environ['BACKEND']\n")
    worker = node.worker(payloads=[payload])
    assert worker.hello()[0][5]
    load(worker, payload)
    assert [worker.outcome(worker.start(1))[1] for _ in range(2)] == ["jax", "jax"]


def test_a_first_call_says_when_it_imports(node: Node) -> None:
    worker = node.ready("def main():\n    return True\n")
    first, second = worker.start(1), worker.start(1)
    assert worker.outcome(first)[1] is worker.outcome(second)[1] is True
    assert worker.imports == [[first, True], [first, False]]


def test_an_import_that_fails_is_tried_again_by_the_next_call(node: Node) -> None:
    worker = node.ready("raise ValueError\ndef main(): ...\n")
    first, second = worker.start(1), worker.start(1)
    assert worker.outcome(first)[1]["type"] == worker.outcome(second)[1]["type"] == "ValueError"
    assert worker.imports == [[first, True], [second, True]]


def test_a_client_that_connects_again_learns_that_the_payload_is_imported(node: Node) -> None:
    worker = node.ready("import time\ntime.sleep(1)\ndef main():\n    yield 1\n    yield 2\n")
    task = worker.start(1, 1)
    worker.expect_import(task, True)
    worker.close()
    second = WorkerClient(node.started[0][2], streams=[[task, 0, 1]])
    second.expect_import(task, False)


def test_an_import_that_failed_is_none_of_the_next_task(node: Node) -> None:
    worker = node.ready("raise ValueError\ndef main(): ...\n")
    worker.load(2, "def main():\n    yield 1\n    yield 2\n")
    worker.outcome(worker.start(2, 9))
    worker.outcome(worker.start(1))
    worker.seen.clear()
    task = worker.start(2, 1)
    worker.expect(wire.ITEM)
    worker.close()
    second = WorkerClient(node.started[0][2], streams=[[task, 0, 1]])
    second.expect_import(task, False)
    assert second.imports == [[task, False]]
