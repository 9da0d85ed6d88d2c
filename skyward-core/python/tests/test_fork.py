"""Processes that a payload forks: they are no part of the worker, and do not harm it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic, sleep

import msgspec

from skyward._core import wire

from .client import DEADLINE, ROOT, WorkerClient, start_spec
from .conftest import Node

POOLS = int(os.environ.get("SKYWARD_FORK_POOLS", "1000"))
"""Pools per worker. Without the handling of forks, children failed after 8 to 211 pools."""
WINDOW = 8
ROUNDS = 30

MANY_POOLS = """
import multiprocessing

def double(number):
    return 2 * number

def main(count):
    context = multiprocessing.get_context("fork")
    for number in range(count):
        with context.Pool(2) as pool:
            yield pool.map(double, [number, number + 1])
"""


def test_many_pools_of_forked_processes_lose_no_item(make_node: Callable[..., Node]) -> None:
    # Nobody renews the lease, and on a busy host this test takes minutes.
    node = make_node(lease=900.0)
    started = node.agent.start(start_spec(workers=2), [0, 1])
    clients = [WorkerClient(path) for _, _, path in started]
    tasks = []
    for client in clients:
        client.socket.settimeout(10)
        client.hello()
        client.load(1, MANY_POOLS)
        tasks.append(client.start(1, WINDOW, count=POOLS))
    for number in range(POOLS):
        for client, task in zip(clients, tasks, strict=True):
            head, _ = client.expect(wire.ITEM)
            assert head[1:] == [task, number]
            client.send([wire.CREDIT, task, number + 1 + WINDOW, number + 1])
    for client, task in zip(clients, tasks, strict=True):
        assert client.outcome(task)[0][0] == wire.RESULT


STATE = """
import json, os, signal, subprocess, sys

SHOW = '''
import json, os, signal
with open("/proc/self/status") as file:
    status = dict(line.partition(":")[::2] for line in file)
files = {}
for name in os.listdir("/proc/self/fd"):
    if os.path.islink(f"/proc/self/fd/{name}"):
        files[int(name)] = os.readlink(f"/proc/self/fd/{name}")
text = json.dumps({
    "sockets": [number for number, file in files.items() if file.startswith("socket:")],
    "caught": sorted(s for s in range(1, 32) if int(status["SigCgt"], 16) >> s - 1 & 1),
    "blocked": int(status["SigBlk"], 16),
    "python": [str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)],
})
'''

def forked(fork):
    read, write = os.pipe()
    pid = fork()
    if pid == 0:
        values = {}
        exec(SHOW, values)
        os.write(write, values["text"].encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return json.loads(os.read(read, 65536))

def main():
    child = [sys.executable, "-c", SHOW + "print(text)"]
    ran = subprocess.run(child, stdout=subprocess.PIPE, close_fds=False, check=True)
    before = subprocess.run(child, stdout=subprocess.PIPE, close_fds=False, preexec_fn=lambda: None, check=True)
    return {
        "fork": forked(os.fork),
        "forkpty": forked(lambda: os.forkpty()[0]),
        "exec": json.loads(ran.stdout),
        "preexec": json.loads(before.stdout),
    }
"""


PLAIN = """
signal.signal(signal.SIGINT, signal.default_int_handler)
print(json.dumps(main()))
"""


def test_children_have_default_handlers_and_no_connection(node: Node) -> None:
    ways = node.ready(STATE).call(1)
    # A shell that runs the tests in the background may ignore SIGINT, and programs inherit that.
    plain = subprocess.run(
        [sys.executable, "-c", STATE + PLAIN],
        stdout=subprocess.PIPE,
        check=True,
    )
    for name, as_plain in msgspec.json.decode(plain.stdout).items():
        # These signals are handled by faulthandler, in the worker and in its children.
        fatal = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}
        ways[name]["caught"] = sorted(set(ways[name]["caught"]) - fatal)
        assert ways[name] == as_plain, name
        assert as_plain["blocked"] == 0


LEFT = """
from contextlib import contextmanager
import os

@contextmanager
def around(config):
    yield
    print("left", flush=True)
"""

RETURNS = """
import atexit, os, sys
from time import sleep

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def main(how):
    pid = os.fork()
    if pid:
        return ended(pid)
    atexit.register(print, "at exit", flush=True)
    print("child", end="")
    if how == "raise":
        raise ValueError("of the child")
    if how == "stop":
        class Stop(BaseException):
            pass
        raise Stop
    if how == "exit":
        sys.exit(7)
    if how == "text":
        sys.exit("for a reason")

def stream():
    pid = os.fork()
    if pid:
        yield ended(pid)
    else:
        yield "of the child"
        print("too far")
"""


def test_a_child_that_leaves_the_payload_ends_there(node: Node) -> None:
    hook = {
        "plugin": "t",
        "kind": "task",
        "source": LEFT,
        "filename": "t.py",
        "factory": "around",
        "config": {},
    }
    worker = node.ready(RETURNS, hooks=[hook])
    assert [worker.call(1, how=how) for how in ("return", "exit", "raise", "stop", "text")] == [0, 7, 1, 1, 1]
    worker.load(2, RETURNS, entry="stream")
    task = worker.start(2, WINDOW)
    assert worker.outcome(task)[0][0] == wire.RESULT
    assert [msgspec.msgpack.decode(body) for head, body in worker.seen if head[0] == wire.ITEM] == [0]
    assert (node.folder / "g1" / "w0.out").read_text() == "childleft\n" * 5 + "left\n"
    errors = (node.folder / "g1" / "w0.err").read_text()
    assert "ValueError: of the child" in errors
    assert errors.endswith("for a reason\n")


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that guards its forks like a worker."""
    head = """
import os, signal, time
from skyward._core import fork as _fork

def interrupted(number, frame):
    if not forks.defer(frame):
        raise KeyboardInterrupt("ours")

def wait():
    # Not asleep: a signal that comes just before Python sleeps is handled after the sleep.
    end = time.monotonic() + 10
    while time.monotonic() < end:
        pass

forks = _fork.Forks({signal.SIGINT: interrupted}, lambda: None, lambda: None)
signal.signal(signal.SIGINT, interrupted)
"""
    return subprocess.run(
        [sys.executable, "-c", head + program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_signal_to_a_child_inside_fork_is_not_lost() -> None:
    done = run("""
forks._before()
os.kill(os.getpid(), signal.SIGTERM)
print("held", flush=True)
forks._after_in_child()
print("lost", flush=True)
""")
    assert (done.stdout, done.returncode) == ("held\n", -signal.SIGTERM)
    done = run("""
forks._before()
os.kill(os.getpid(), signal.SIGINT)
forks._after_in_child()
try:
    wait()
except KeyboardInterrupt as error:
    print(repr(error), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""")
    assert (done.stdout, done.stderr) == ("KeyboardInterrupt() True\n", "")


def test_an_interrupt_of_the_parent_inside_fork_is_raised_afterwards() -> None:
    done = run("""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
forks._before()
os.kill(os.getpid(), signal.SIGINT)
forks._after_in_parent()
try:
    wait()
except KeyboardInterrupt as error:
    print(error, signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGTERM})
""")
    assert (done.stdout, done.stderr) == ("ours True\n", "")


def test_a_timer_inside_fork_does_not_leave_the_lock_taken() -> None:
    done = run("""
import threading

def late(number, frame):
    raise TimeoutError("late")

def lock():
    os.kill(os.getpid(), signal.SIGALRM)
    return held

held = threading.RLock()
forks = _fork.Forks({signal.SIGINT: interrupted}, lambda: None, lock)
signal.signal(signal.SIGALRM, late)
forks._before()
print(held._is_owned())
try:
    forks._after_in_parent()
except TimeoutError as error:
    print(error, held._is_owned(), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
""")
    assert (done.stdout, done.stderr) == ("True\nlate False set()\n", "")


CALLBACK = """
import os, signal, time

def main(started, go):
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    os.register_at_fork(before=interrupt)
    open(started, "w").close()
    while not os.path.exists(go):
        time.sleep(0.001)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    time.sleep(600)
"""


def test_a_cancel_that_a_callback_of_fork_swallows_is_raised_again(node: Node, tmp_path: Path) -> None:
    worker = node.ready(CALLBACK)
    started, go = tmp_path / "started", tmp_path / "go"
    task = worker.start(1, started=str(started), go=str(go))
    until(started.exists)
    worker.send([wire.CANCEL, task])
    go.touch()
    assert worker.outcome(task)[1]["kind"] == "cancelled"
    assert "Exception ignored" not in (node.folder / "g1" / "w0.err").read_text()


PRINTED = """
import os, signal, sys, time

def main(started, go):
    def again(frame, event, argument):
        if frame.f_code.co_name != "on_unraisable":
            return None
        if not frame.f_locals["self"].runner.interrupted:
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGINT)
            return None
        return again

    def interrupt():
        sys.settrace(again)
        os.kill(os.getpid(), signal.SIGINT)

    os.register_at_fork(before=interrupt)
    open(started, "w").close()
    while not os.path.exists(go):
        time.sleep(0.001)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    time.sleep(600)
"""


def test_a_cancel_that_is_repeated_while_the_first_one_is_swallowed_is_raised(node: Node, tmp_path: Path) -> None:
    worker = node.ready(PRINTED)
    started, go = tmp_path / "started", tmp_path / "go"
    task = worker.start(1, started=str(started), go=str(go))
    until(started.exists)
    worker.send([wire.CANCEL, task])
    go.touch()
    assert worker.outcome(task)[1]["kind"] == "cancelled"


FORKS = """
import multiprocessing

def put(queue, number):
    queue.put(number)

def main(count):
    context = multiprocessing.get_context("fork")
    for number in range(count):
        queue = context.SimpleQueue()
        workers = [context.Process(target=put, args=(queue, number)) for _ in range(2)]
        for worker in workers:
            worker.start()
        assert [queue.get(), queue.get()] == [number, number]
        for worker in workers:
            worker.join()
    return count
"""


def test_a_task_that_forks_is_cancelled_at_any_moment(node: Node) -> None:
    # Do not use `Pool`: an interrupt within it leaves threads and locks behind, also in plain
    # Python.
    worker = node.ready(FORKS)
    assert worker.call(1, count=1) == 1
    chance = Random(7)
    for _ in range(ROUNDS):
        task = worker.start(1, count=1 << 30)
        # The moment is random on purpose: there is no condition to wait for.
        worker.quiet(chance.uniform(0.0, 0.05))
        worker.send([wire.CANCEL, task])
        end = monotonic() + DEADLINE
        while worker.quiet(0.05):
            assert monotonic() < end, (node.folder / "g1" / "w0.err").read_text()
            node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])
        assert worker.outcome(task)[1]["kind"] == "cancelled"
        assert worker.call(1, count=1) == 1


def until(reached: Callable[[], bool]) -> None:
    end = monotonic() + DEADLINE
    while not reached():
        assert monotonic() < end
        sleep(0.001)
