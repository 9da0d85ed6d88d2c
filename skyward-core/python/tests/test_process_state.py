"""What a task changes in its process ends with it, and what a module does when it is loaded stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from skyward._core import wire

from .client import WorkerClient
from .conftest import Node
from .test_tasks import began

# Accelerate passes the settings of one training by such variables.
MAIN = """
    import os, sys

    {top}
    def main(within=""):
        exec(within, {{}})
        return {{name: value for name, value in os.environ.items() if name.startswith(("ACCELERATE_", "FSDP_"))}}
"""
GIVEN = {"ACCELERATE_LOG_LEVEL": "info"}


def tasks(node: Node, top: str = "", *within: str, **files: str) -> list[Any]:
    """Return the variables in tasks of a payload, where each changes something before."""
    main = MAIN.format(top=top)
    payload = {"job.py": main, **{f"{name}.py": text for name, text in files.items()}} if files else main
    worker = node.ready(payload, env=GIVEN)
    worker.gang = None
    return [worker.call(1, within=text) for text in within]


def test_a_variable_that_a_task_sets_ends_with_it(node: Node) -> None:
    change = "import os; os.environ.update(FSDP_VERSION='2', ACCELERATE_LOG_LEVEL='debug')"
    found = tasks(node, "", change, "", "import os; del os.environ['ACCELERATE_LOG_LEVEL']", "")
    assert found == [{"FSDP_VERSION": "2", "ACCELERATE_LOG_LEVEL": "debug"}, GIVEN, {}, GIVEN]


@pytest.mark.parametrize(
    ("top", "wanted"),
    [
        ("os.environ['ACCELERATE_MIXED_PRECISION'] = 'bf16'", {**GIVEN, "ACCELERATE_MIXED_PRECISION": "bf16"}),
        ("os.environ['ACCELERATE_LOG_LEVEL'] = 'debug'", {"ACCELERATE_LOG_LEVEL": "debug"}),
        ("del os.environ['ACCELERATE_LOG_LEVEL']", {}),
    ],
)
def test_what_a_module_does_when_it_is_loaded_holds_for_every_task(
    node: Node, top: str, wanted: dict[str, str]
) -> None:
    assert tasks(node, top, "", "import os; os.environ['FSDP_VERSION'] = '2'", "")[::2] == [wanted] * 2


def test_modules_that_are_loaded_later_count_too(node: Node) -> None:
    helper = "import os\nos.environ['FSDP_VERSION'] = '1'\nimport other\n"
    other = "import os\nos.environ['FSDP_STATE_DICT_TYPE'] = 'FULL'\n"
    load = "import sys; from importlib import import_module as load; load(NAME)"
    name = "next(n for n in sys.modules if n.startswith('payload_')).partition('.')[0] + '.payload.helper'"
    found = tasks(node, "", load.replace("NAME", name), "", helper=helper, other=other)
    assert found == [{**GIVEN, "FSDP_VERSION": "1", "FSDP_STATE_DICT_TYPE": "FULL"}] * 2


RUN = """
    def main(code, seconds=0.0):
        import time
        time.sleep(seconds)
        names = {}
        exec(code, names)
        return names.get("found")
"""
LONG = 0.005
"""Seconds. After a long task a worker looks for all that the task may have changed."""

CHANGES = {
    "a variable": ("import os; os.environ['HOME'] = '/nowhere'", "import os; found = os.environ['HOME']"),
    "a new variable": ("import os; os.environ['LEFT'] = '1'", "import os; found = os.environ.get('LEFT')"),
    "no variable": ("import os; del os.environ['HOME']", "import os; found = os.environ.get('HOME')"),
    "the folder": ("import os; os.chdir('/')", "import os; found = os.getcwd()"),
    "a folder that goes": (
        "import os, tempfile; name = tempfile.mkdtemp(); os.chdir(name); os.rmdir(name)",
        "import os; found = os.getcwd()",
    ),
    "the mask": ("import os; os.umask(0o777)", "import os; found = os.umask(0); os.umask(found)"),
    "output": ("import sys, io; sys.stdout = io.StringIO()", "import sys; found = type(sys.stdout).__name__"),
    "output that is closed": ("import sys; sys.stdout.close()", "import sys; found = sys.stdout.closed"),
    "output below another stream": (
        "import sys, io; sys.stderr = io.TextIOWrapper(sys.stderr.buffer)",
        "import sys, gc; gc.collect(); found = [type(sys.stderr).__name__, sys.stderr.write('said'), sys.stderr.closed]",
    ),
    "input": ("import sys, io; sys.stdin = io.StringIO('x')", "import sys; found = type(sys.stdin).__name__"),
    "no output": ("import sys; sys.stdout = None", "import sys; found = type(sys.stdout).__name__"),
}
LOOKED_FOR = {
    "a soft limit": (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, r.getrlimit(r.RLIMIT_NOFILE)[1]))",
        "import resource as r; found = r.getrlimit(r.RLIMIT_NOFILE)[0]",
    ),
    "a signal handler": (
        "import signal; signal.signal(signal.SIGHUP, print)",
        "import signal; found = str(signal.getsignal(signal.SIGHUP))",
    ),
    "an alarm's handler": (
        "import signal; signal.signal(signal.SIGALRM, print)",
        "import signal; found = str(signal.getsignal(signal.SIGALRM))",
    ),
    "the start method": (
        "import multiprocessing as m; m.set_start_method('spawn', force=True)",
        "import multiprocessing as m; found = m.get_start_method(allow_none=True)",
    ),
    "a function of builtins": ("import builtins; builtins.print = None", "found = str(print)"),
    "a function of os": ("import os; os.getpid = lambda: 1", "import os; found = os.getpid() == 1"),
    "a function that is gone": ("import os; del os.listdir", "import os; found = hasattr(os, 'listdir')"),
    "sleep": ("import time; time.sleep = print", "import time; found = str(time.sleep)"),
    "a class": ("import threading; threading.Thread = object", "import threading; found = str(threading.Thread)"),
    "the descriptor of the output": (
        "import os; os.dup2(os.open('/dev/null', os.O_WRONLY), 1)",
        "import os; found = os.readlink('/proc/self/fd/1')",
    ),
    "no descriptor of the output": ("import os; os.close(2)", "import os; found = os.readlink('/proc/self/fd/2')"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_ends_with_its_task(node: Node, what: str) -> None:
    change, look = CHANGES[what]
    worker = node.ready(RUN)
    before = worker.call(1, code=look)
    worker.call(1, code=change)
    assert worker.call(1, code=look) == before


@pytest.mark.parametrize("what", LOOKED_FOR)
def test_what_takes_a_while_to_find_is_set_back_before_the_next_payload_and_after_a_long_task(
    node: Node, what: str
) -> None:
    change, look = LOOKED_FOR[what]
    worker = node.ready(RUN)
    worker.load(2, RUN + "    # the other one\n")
    before = worker.call(1, code="import multiprocessing\n" + look)
    worker.call(1, code=change)
    assert worker.call(2, code=look) == before, "the next payload"
    worker.call(1, code=change, seconds=LONG)
    assert worker.call(1, code=look) == before, "after a long task"


def test_a_start_method_is_set_back_where_its_task_is_the_first_that_needs_one(node: Node) -> None:
    change, look = LOOKED_FOR["the start method"]
    worker = node.ready(RUN)
    worker.call(1, code=change, seconds=LONG)
    assert worker.call(1, code=look) is None


def test_what_a_module_changes_holds_for_all_tasks(node: Node) -> None:
    top = "os.umask(0o027); os.chdir('/tmp'); import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n    os.spam = len"
    worker = node.ready(MAIN.format(top=top) + "        pass\n")
    worker.load(2, RUN)
    worker.call(1)
    look = "import os, signal; found = [os.getcwd(), os.umask(0o027), str(signal.getsignal(signal.SIGHUP)), hasattr(os, 'spam')]"
    for seconds in (0.0, LONG, 0.0):
        assert worker.call(2, code=look, seconds=seconds) == ["/tmp", 0o027, str(signal.SIG_IGN), True]


def _may_raise_limits() -> bool:
    code = "import resource as r; n = r.RLIMIT_NOFILE; r.setrlimit(n, (500, 500)); r.setrlimit(n, (501, 501))"
    return subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL).returncode == 0


@pytest.mark.skipif(_may_raise_limits(), reason="this user may raise every limit again")
def test_a_limit_that_cannot_be_raised_again_ends_the_worker(node: Node) -> None:
    _replaced(
        node.ready(RUN), node, "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (500, 500))", "limit RLIMIT_NOFILE"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_that_cannot_be_changed_back_ends_the_worker(node: Node) -> None:
    _replaced(
        node.ready(RUN), node, "import os; os.setresgid(12345, 12345, 12345); os.setresuid(12345, 12345, 12345)", "user"
    )


def _replaced(worker: WorkerClient, node: Node, change: str, name: str) -> None:
    worker.call(1, code=change, seconds=LONG)
    exited, _ = node.agent.expect(wire.EXITED)
    assert exited[4] == 5
    assert f"main of job.py changed {name} for good" in (node.folder / "g1/w0.err").read_text()


def test_files_of_payloads_have_the_modes_that_the_user_asks_for(make_node: Callable[..., Node]) -> None:
    before = os.umask(0o002)
    try:
        node = make_node()
    finally:
        os.umask(before)
    worker = node.ready(RUN)
    assert (
        worker.call(1, code="open('result', 'w').close(); import os; found = os.stat('result').st_mode & 0o777")
        == 0o664
    )
    assert node.folder.stat().st_mode & 0o777 == 0o700


def test_coroutines_share_one_loop(node: Node) -> None:
    worker = node.ready("""
        import asyncio
        gate, kept = asyncio.Semaphore(1), {}

        async def main(what):
            loop = asyncio.get_running_loop()
            if what == "connect":
                server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
                kept.update(loop=loop, server=server, task=loop.create_task(asyncio.sleep(0.01, "later")))
                kept["reader"], _ = await asyncio.open_connection(*server.sockets[0].getsockname())
                # Makes the semaphore belong to the loop.
                await gate.acquire()
                loop.call_soon(gate.release)
                await gate.acquire()
                gate.release()
                return "connected"
            async with gate:
                return [kept["loop"] is loop, await kept["reader"].read(), await kept["task"]]
    """)
    assert worker.call(1, what="connect") == "connected"
    assert worker.call(1, what="use") == [True, b"", "later"]


@pytest.mark.parametrize("within", ["", "asyncio.run(asyncio.sleep(0))"])
def test_code_that_asks_for_the_loop_after_a_coroutine_gets_one(node: Node, within: str) -> None:
    worker = node.ready("""
        import asyncio

        async def later(number):
            return number

        def main(within, number):
            if number == 0:
                return later(number)
            if within:
                eval(within)
                return later(number)
            return asyncio.get_event_loop().run_until_complete(later(number))
    """)
    assert [worker.call(1, within=within, number=number) for number in range(3)] == [0, 1, 2]


def test_an_interrupted_coroutine_takes_its_loop_with_it(node: Node) -> None:
    worker = node.ready("""
        import asyncio
        left = []

        async def main(wait):
            if not wait:
                return left
            try:
                print("began")
                await asyncio.sleep(60)
            finally:
                left.append("left")
    """)
    run = worker.start(1, wait=True)
    began(node)
    worker.send([wire.CANCEL, run])
    node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
    head, failure = worker.outcome(run)
    assert head[0] == wire.FAILURE, failure
    assert failure["kind"] == "cancelled"
    assert worker.call(1, wait=False) in ([], ["left"])
