"""The trace of a task."""

from __future__ import annotations

from skyward import trace_context
from skyward._core import wire

from .conftest import Node

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SOURCE = """
import os
import subprocess
import sys

import skyward as sky

def main():
    code = "import os; print(os.environ.get('TRACEPARENT', ''), end='')"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return [sky.trace_context(), child, os.environ.get("TRACESTATE")]
"""


def test_a_task_sees_its_trace_and_the_next_one_does_not(node: Node) -> None:
    worker = node.ready(SOURCE, env={"TRACESTATE": "outside=1"})
    outside = [{"tracestate": "outside=1"}, "", "outside=1"]

    def seen(trace: list[str] | None) -> object:
        worker.task += 1
        worker.send([wire.RUN, worker.task, 1, 0, 0, trace], b"\x80")
        return worker.outcome(worker.task)[1]

    assert seen(None) == outside
    both = {"traceparent": PARENT, "tracestate": "vendor=1"}
    assert seen([PARENT, "vendor=1"]) == seen([PARENT, "vendor=1"]) == [both, PARENT, "vendor=1"]
    assert seen([PARENT, ""]) == [{"traceparent": PARENT}, PARENT, None]
    assert seen(None) == outside


def test_there_is_none_outside_of_a_pool() -> None:
    assert trace_context() == {}
