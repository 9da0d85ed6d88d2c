"""What a worker wrote last on standard error arrives with the report of its end."""

from __future__ import annotations

import signal

import pytest

from skyward._core import wire

from .client import AgentClient
from .conftest import Node

ENDS = """
    import ctypes, os, signal, sys
    def main(how):
        print('on stdout')
        print('last words', file=sys.stderr)
        here(how)
    def here(how):
        if how == 'exit': os._exit(7)
        if how == 'c_exit': ctypes.CDLL(None).exit(8)
        if how == 'kill': os.kill(os.getpid(), signal.SIGKILL)
        if how == 'abort': os.abort()
        if how == 'segv': ctypes.string_at(1)
"""


@pytest.mark.parametrize(
    ("how", "code", "number"),
    [
        ("exit", 7, None),
        ("c_exit", 8, None),
        ("kill", None, signal.SIGKILL),
        ("abort", None, signal.SIGABRT),
        ("segv", None, signal.SIGSEGV),
    ],
)
def test_the_report_of_an_end_has_the_last_words(node: Node, how: str, code: int | None, number: int | None) -> None:
    node.ready(ENDS).start(1, how=how)
    head, words = node.agent.expect(wire.EXITED)
    assert head[4:6] == [code, number]
    assert words.startswith(b"last words\n")
    fatal = number in (signal.SIGABRT, signal.SIGSEGV)
    assert (b'File "job.py", line ' in words) == fatal, "by the user's name"
    assert (b"Fatal Python error: " in words) == fatal


def test_a_crash_before_the_first_task_has_them_too(node: Node) -> None:
    source = "import os, sys\nprint('no driver', file=sys.stderr)\nos.abort()\n"
    hook = {"plugin": "p", "kind": "app", "source": source, "filename": "crashes.py", "factory": "f", "config": {}}
    node.worker(hooks=[hook])
    head, words = node.agent.expect(wire.EXITED)
    assert head[5] == signal.SIGABRT
    assert words.startswith(b"no driver\n")
    assert b"crashes.py" in words


def test_they_are_bounded_and_those_of_the_process_itself(node: Node) -> None:
    worker = node.ready("""
        import os, sys
        def main(text, times):
            sys.stderr.write(text * times)
            sys.stderr.flush()
            os._exit(1)
    """)
    worker.start(1, text="a", times=100_000)
    _, words = node.agent.expect(wire.EXITED)
    assert words == b"a" * (64 << 10)
    worker = node.ready(ENDS)
    worker.start(1, how="exit")
    assert node.agent.expect(wire.EXITED)[1] == b"last words\n"


def test_a_client_that_connects_later_gets_them(node: Node) -> None:
    node.ready(ENDS).start(1, how="exit")
    node.agent.expect(wire.EXITED)
    assert AgentClient(node.folder).expect(wire.EXITED)[1] == b"last words\n"
