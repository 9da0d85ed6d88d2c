"""Hooks in real workers: their order, their failures, and their exits."""

from __future__ import annotations

from typing import Any

import pytest

from skyward._core import wire
from skyward._tasks import hooks as _hooks

from .client import source
from .conftest import Node

SOURCE = """
from contextlib import contextmanager

events = []

@contextmanager
def around(config):
    name = config["name"]
    events.append(f"enter {name}")
    if config.get("fail") == "enter":
        raise ValueError(f"cannot enter {name}")
    try:
        yield
    except BaseException as error:
        events.append(f"{name} saw {type(error).__name__}")
        if config.get("swallow"):
            return
        raise
    finally:
        events.append(f"leave {name}")
        if config.get("fail") == "exit":
            raise ValueError(f"cannot leave {name}")
        print(" ".join(events[-1:]), flush=True)

def no_manager(config):
    return 3

class Exits:
    def __init__(self, config): pass
    def __enter__(self): raise SystemExit(3)
    def __exit__(self, *_): pass
"""
PAYLOAD = """
import sys
def main(what="events"):
    if what == "raise":
        raise KeyError("mine")
    return list(sys.modules["_skyward_hooks.skyward_plugins.demo"].events)
"""


def hook(name: str, kind: str = "app", factory: str = "around", **config: Any) -> dict[str, Any]:
    return {
        "plugin": name,
        "kind": kind,
        "source": SOURCE,
        "filename": "skyward_plugins/demo.py",
        "factory": factory,
        "config": {"name": name, **config},
    }


def test_hooks_are_entered_in_order_and_left_in_reverse(node: Node) -> None:
    worker = node.ready(PAYLOAD, hooks=[hook("a"), hook("b")])
    assert worker.call(1) == ["enter a", "enter b"]
    worker.send([wire.BYE])
    head, _ = node.agent.expect(wire.EXITED)
    assert head[4:7] == [0, None, False]
    assert (node.folder / "g1" / "w0.out").read_text() == "leave b\nleave a\n"


def test_task_hooks_go_around_every_call(node: Node) -> None:
    worker = node.ready(PAYLOAD, hooks=[hook("t", "task"), hook("a"), hook("u", "task")])
    assert worker.call(1) == ["enter a", "enter t", "enter u"]
    assert worker.failure(1, what="raise")["type"] == "KeyError"
    assert worker.call(1)[3:] == [
        "leave u",
        "leave t",
        "enter t",
        "enter u",
        "u saw KeyError",
        "leave u",
        "t saw KeyError",
        "leave t",
        "enter t",
        "enter u",
    ]


@pytest.mark.parametrize("kinds", [["app"], ["app", "task"]])
def test_a_payload_gets_what_the_innermost_hook_of_a_plugin_yields(node: Node, kinds: list[str]) -> None:
    source = """
from contextlib import contextmanager

@contextmanager
def around(config):
    yield config.get("value")
"""
    payload = """
import skyward as sky
def main(plugin):
    try:
        return sky.hook_value(plugin)
    except LookupError as error:
        return str(error)
"""
    hooks = [*(hook("tracker", kind, value=kind) for kind in kinds), hook("silent", "task")]
    worker = node.ready(payload, hooks=[{**entry, "source": source} for entry in hooks])
    assert worker.call(1, plugin="tracker") == kinds[-1]
    assert worker.call(1, plugin="silent").endswith("plugins whose hooks have: tracker")


def test_a_task_hook_cannot_swallow_an_error(node: Node) -> None:
    worker = node.ready(PAYLOAD, hooks=[hook("t", "task", swallow=True)])
    assert worker.failure(1, what="raise")["kind"] == "exception"


@pytest.mark.parametrize("phase", ["enter", "exit"])
def test_a_task_hook_that_raises(node: Node, phase: str) -> None:
    worker = node.ready(PAYLOAD, hooks=[hook("t", "task", fail=phase)])
    failure = worker.failure(1)
    assert (failure["kind"], failure["plugin"], failure["phase"]) == ("hook", "t", phase)
    assert (failure["type"], failure["message"][:6]) == ("ValueError", "cannot")


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (hook("bad", fail="enter"), "ValueError"),
        (hook("bad", factory="no_manager"), "TypeError"),
        (hook("bad", factory="missing"), "TypeError"),
        ({**hook("bad"), "source": "import no_such_module"}, "ModuleNotFoundError"),
        ({**hook("bad"), "source": "x = = 1"}, "SyntaxError"),
    ],
)
def test_an_app_hook_that_raises_is_reported_in_the_hello(node: Node, bad: dict[str, Any], kind: str) -> None:
    worker = node.worker(hooks=[hook("a"), bad])
    head, failure = worker.hello()
    assert head[5] is False
    assert (failure["kind"], failure["plugin"], failure["phase"], failure["type"]) == ("hook", "bad", "enter", kind)
    # Work that is sent nevertheless is answered with the reason.
    worker.load(1, PAYLOAD)
    assert worker.failure(1)["kind"] == "hook"
    node.agent.send([wire.STOP, 1, 1, [0], 10.0])
    assert node.agent.expect(wire.EXITED)[0][4:6] == [0, None]
    assert "leave a" in (node.folder / "g1" / "w0.out").read_text()


def test_the_traceback_of_a_hook_has_its_lines(node: Node) -> None:
    _, failure = node.worker(hooks=[hook("bad", fail="enter")]).hello()
    assert 'File "skyward_plugins/demo.py", line 11, in around' in failure["traceback"]
    assert 'raise ValueError(f"cannot enter {name}")' in failure["traceback"]


def test_a_hook_that_exits_is_a_failure(node: Node) -> None:
    head, failure = node.worker(hooks=[hook("bad", factory="Exits")]).hello()
    assert (head[5], failure["kind"]) == (False, "hook")


def test_a_hook_that_raises_on_exit_sets_the_exit_code(node: Node) -> None:
    worker = node.ready(hooks=[hook("a"), hook("b", fail="exit")])
    worker.send([wire.BYE])
    assert node.agent.expect(wire.EXITED)[0][4:7] == [3, None, False]
    assert "cannot leave b" in (node.folder / "g1" / "w0.err").read_text()
    assert "leave a" in (node.folder / "g1" / "w0.out").read_text()


def test_a_stopped_worker_leaves_its_hooks(node: Node) -> None:
    worker = node.ready(
        PAYLOAD
        + source("""

            def wait():
                import time
                print('began')
                time.sleep(60)
        """),
        hooks=[hook("a")],
    )
    worker.load(
        2,
        """
        def main():
            import time
            print('began')
            time.sleep(60)
        """,
        main="wait.py",
    )
    task = worker.start(2)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    node.agent.expect(wire.LOG)
    node.agent.send([wire.STOP, 7, 1, [0], 20.0])
    assert worker.outcome(task)[1]["kind"] == "cancelled"
    assert node.agent.expect(wire.EXITED)[0][4:7] == [0, None, False]
    assert node.agent.expect(wire.STOPPED)[0][1:] == [7, 1, [0]]
    assert (node.folder / "g1" / "w0.out").read_text() == "began\nleave a\n"


def test_a_task_knows_whether_all_ranks_run_it(node: Node) -> None:
    worker = node.ready("""
        from skyward._core import state
        def main():
            return state.gang
    """)
    assert worker.call(1) is True
    for gang in (False, True):
        worker.task += 1
        number = [7, 1, 1] if gang else None
        worker.send([wire.RUN, worker.task, 1, worker.acknowledged, 0, None, number], b"\x80")
        assert worker.outcome(worker.task)[1] is gang


def test_a_hook_that_is_interrupted_when_it_was_entered_has_no_value() -> None:
    class Interrupting(list[Any]):
        def append(self, entered: Any) -> None:
            raise KeyboardInterrupt

    module = "import contextlib\n@contextlib.contextmanager\ndef around(config):\n    yield 'value'"
    _, [task] = _hooks.load([{**hook("t", "task"), "source": module, "filename": "skyward_plugins/value.py"}])
    stack = _hooks.Stack()
    stack._entered = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        stack.enter([task])
    with pytest.raises(LookupError):
        _hooks.hook_value("t")
    _hooks.load([])


TIMERS = """
import signal
from contextlib import contextmanager

rung = []

@contextmanager
def around(config):
    signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, config["seconds"], config["interval"])
    yield
"""
TIMED = """
import signal, sys, time

def main(arm, fatal=False):
    if arm:
        signal.signal(signal.SIGALRM, signal.SIG_DFL if fatal else lambda *_: 1 / 0)
        signal.setitimer(signal.ITIMER_REAL, 0.3)

def rung():
    return len(sys.modules["_skyward_hooks.skyward_plugins.timers"].rung)

def wait():
    before = rung()
    until = time.monotonic() + 10
    while rung() == before and time.monotonic() < until:
        time.sleep(0.01)
    return rung() - before

def sleep():
    time.sleep(0.6)
    return "slept"
"""


@pytest.mark.parametrize("arm", [False, True])
@pytest.mark.parametrize(("seconds", "interval"), [(0.5, 0.05), (3.0, 0.0)])
def test_a_timer_of_a_hook_around_the_app_outlives_tasks(
    node: Node, arm: bool, seconds: float, interval: float
) -> None:
    config = {"seconds": seconds, "interval": interval}
    hooks = [{**hook("a"), "source": TIMERS, "filename": "skyward_plugins/timers.py", "config": config}]
    worker = node.ready(TIMED, hooks=hooks)
    worker.load(2, TIMED, entry="wait", main="wait.py")
    worker.call(1, arm=arm)
    worker.call(1, arm=False)
    assert worker.call(2) >= 1


@pytest.mark.parametrize("fatal", [False, True])
def test_a_timer_of_a_task_ends_with_the_task(node: Node, fatal: bool) -> None:
    worker = node.ready(TIMED)
    worker.load(2, TIMED, entry="sleep", main="sleep.py")
    worker.call(1, arm=True, fatal=fatal)
    assert worker.call(2) == "slept"
