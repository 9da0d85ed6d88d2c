"""Checkpoints of several ranks, which agree on a step, and in real workers: notices, cancels, forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import skyward as sky
from skyward._core import state, wire
from skyward._sky.notices import notices

from .checkpoint_mover import FakeMover, Message, eventually
from .client import DEADLINE, ROOT
from .conftest import Node

RANK = """
import json, sys
import skyward as sky
from skyward._core import state

rank, seconds, pace = int(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
state.cluster = {"node": rank, "total_nodes": 2, "joined": True, "generation": 1, "storage": True}
state.gang, state.ranks, state.attempt = True, 2, (1, 1)
saved = []
with sky.checkpoints("run", timeout=30) as ckpt:
    step = 0
    while not saved:
        step += pace
        if ckpt.due(step, seconds=seconds):
            with ckpt.save(step) as folder:
                (folder / f"rank{rank}").touch()
            saved.append(step)
print(json.dumps(saved))
"""


@pytest.fixture
def second(fake: FakeMover, monkeypatch: pytest.MonkeyPatch) -> FakeMover:
    """Make this process rank 1 of two."""
    place = {"node": 1, "total_nodes": 2, "joined": True, "generation": 1, "storage": True}
    monkeypatch.setattr(state, "cluster", place)
    monkeypatch.setattr(state, "gang", True)
    monkeypatch.setattr(state, "ranks", 2)
    monkeypatch.setattr(state, "attempt", (1, 1))
    return fake


def rank(fake: FakeMover, number: int, seconds: float | None, pace: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SKYWARD_PAYLOADS": str(fake.home / "payloads")}
    command = [sys.executable, "-c", RANK, str(number), json.dumps(seconds), str(pace)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("pace", [1, 10])
def test_two_ranks_save_the_same_step_when_the_time_of_one_is_over(fake: FakeMover, pace: int) -> None:
    ranks = [rank(fake, 0, 0.05, pace), rank(fake, 1, None, pace)]
    fake.messages("open", 2)
    for number in range(1, 4):
        # The first asks come before both ranks save: a rank that goes on asks again.
        due = fake.messages("due", number)[-1]
        assert (due["why"], due["step"] > 0) == ("seconds", True)
        steps = [fake.ask(hello[2], number) for hello in fake.hellos]
        assert len(steps) == 2
        fake.deliver({"target": number, "step": max(steps) + 1 if number == 3 else None})
    said = [json.loads(each.communicate(timeout=DEADLINE)[0]) for each in ranks]
    assert said[0] == said[1]
    assert said[0][0] > max(steps)
    assert said[0][0] - max(steps) <= pace
    assert len(fake.saved) == 2
    records = [fake.record(save) for save in fake.saved]
    assert {(each["rank"], each["ranks"], each["try"]) for each in records} == {(0, 2, "1.1.1.1"), (1, 2, "1.1.1.1")}
    assert len(fake.messages("due")) == 3, "once for each ask"


def test_a_rank_that_is_ahead_waits_for_the_step(second: FakeMover) -> None:
    with sky.checkpoints("run") as ckpt:
        steps = second.hellos[0][2]
        assert second.ask(steps, 0) == -1
        assert not ckpt.due(4, every=3)
        assert second.ask(steps, 1) == 4
        second.deliver({"target": 1, "step": 7})
        assert [step for step in range(5, 10) if ckpt.due(step)] == [7]
        second.deliver({"target": 1, "step": 9})
        with ckpt.save(8):
            pass  # reads the connection
        assert not ckpt.due(10), "an answer that comes twice"


def test_ranks_that_do_not_answer_are_named(second: FakeMover) -> None:
    with (
        pytest.raises(sky.CheckpointError, match="did not agree on a step"),
        sky.checkpoints("run", timeout=0.2) as ckpt,
    ):
        second.ask(second.hellos[0][2], 1)
        ckpt.due(1)
    assert second.messages("close", 1)[0]["failed"] is True


def test_a_failed_try_ends_the_wait_for_a_step(second: FakeMover) -> None:
    with pytest.raises(sky.CheckpointError, match="rank 0 is gone"), sky.checkpoints("run") as ckpt:
        second.ask(second.hellos[0][2], 1)
        second.deliver({"failed": {"message": "rank 0 is gone"}})
        ckpt.due(1)


def test_each_notice_asks_once_and_a_new_mover_is_asked_again(
    second: FakeMover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_number", 0)
    with sky.checkpoints("run") as ckpt:
        monkeypatch.setattr(notices, "_number", 1)
        assert [ckpt.due(step) for step in range(3)] == [False] * 3
        assert [(each["why"], each["step"]) for each in second.messages("due", 1)] == [("notice", 0)]
        second.die()
        second.listen()
        with ckpt.save(3):
            pass
        second.messages("due", 2)
        assert [each["kind"] for each in second.got] == ["open", "due", "open", "due"]
        second.ask(second.hellos[0][2], 1)
        second.deliver({"target": 1, "step": 4})
        assert ckpt.due(4)
        second.die()
        second.listen()
        with ckpt.save(5):
            pass
    second.messages("close", 1)
    assert len(second.messages("due")) == 2, "what is answered is not repeated"


def test_a_killed_rank_is_known_though_its_child_lives(fake: FakeMover) -> None:
    stays, end = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.close(end)
        with sky.checkpoints("run") as ckpt:
            if os.fork() > 0:
                with ckpt.save(1):
                    pass
            os.read(stays, 1)
            os._exit(0)
    fake.wait(lambda: len(fake.saved) == 1)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    fake.wait(lambda: fake.ended == 1)
    os.close(end)
    os.close(stays)


# Real workers


@pytest.fixture
def mover(node: Node) -> Iterator[FakeMover]:
    made = FakeMover(node.folder)
    yield made
    made.die()


def attend(node: Node, done: Any) -> None:
    def look() -> bool:
        node.agent.send([wire.SIGNAL, 1, 0, "attend"])
        return bool(done())

    eventually(look)


def test_a_task_that_waits_for_a_commit_is_cancelled(node: Node, mover: FakeMover) -> None:
    mover.answer = lambda message: {"n": 1} if message["kind"] == "open" else None
    worker = node.ready(
        """
        import skyward as sky
        def main():
            with sky.checkpoints("run") as ckpt:
                with ckpt.save(1): pass
        """,
        cluster={"storage": True},
    )
    task = worker.start(1)
    mover.messages("wait", 1)
    worker.send([wire.CANCEL, task])
    attend(node, lambda: not worker.quiet(0.05))
    head, failure = worker.outcome(task)
    assert (head[0], failure["kind"]) == (wire.FAILURE, "cancelled")
    assert mover.messages("close", 1)[0]["failed"] is True


def test_a_notice_is_due_and_its_functions_run_while_the_payload_waits(node: Node, mover: FakeMover) -> None:
    def answer(message: Message) -> Message | None:
        return {"n": message["n"]} if message["kind"] == "open" or message.get("step") == 9 else None

    mover.answer = answer
    worker = node.ready(
        """
        import skyward as sky
        def main():
            with sky.checkpoints("run") as ckpt:
                seen = []
                @sky.on_notice
                def save(left):
                    seen.append(ckpt.due(2))
                    with ckpt.save(9): pass
                    ckpt.wait()
                with ckpt.save(1): pass
                ckpt.wait()
            return seen, ckpt._place._try
        """,
        cluster={"storage": True},
    )
    task = worker.start(1)
    mover.messages("wait", 1)
    worker.send([wire.NOTICE, "preempted", 100.0, "the market wants it back"])
    attend(node, lambda: len(mover.messages("wait")) > 1)
    seen, attempt = worker.outcome(task)[1]
    assert seen == [True], "what is committed with step 9 is not waited for any more"
    assert attempt == "1.1.1.1"


def test_children_of_a_worker_cannot_use_its_checkpoints(node: Node, mover: FakeMover) -> None:
    worker = node.ready(
        """
        import multiprocessing, os, subprocess, sys
        import skyward as sky
        def use(ckpt, say):
            calls = (lambda: ckpt.due(1), lambda: ckpt.save(1), lambda: sky.checkpoints("other"))
            for call in calls:
                try:
                    call()
                    say.send("nothing")
                except sky.CheckpointError as error:
                    say.send(str(error))
        def main():
            with sky.checkpoints("run") as ckpt:
                hear, say = multiprocessing.get_context("fork").Pipe()
                child = multiprocessing.get_context("fork").Process(target=use, args=(ckpt, say))
                child.start()
                said = [hear.recv() for _ in range(3)]
                child.join()
                with ckpt.save(1): pass
            return said
        """,
        cluster={"storage": True},
    )
    said = worker.call(1)
    assert all("was forked or started by the process of the task" in each for each in said), said
    assert len(mover.messages("open")) == 1
