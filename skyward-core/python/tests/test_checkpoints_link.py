"""The connection of checkpoints to the mover: it is made anew, what is unanswered is repeated, and errors are told."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward._core import wire
from skyward._sky import mover_link

from .checkpoint_mover import Channel, FakeMover, Message, later, only, save
from .client import DEADLINE

# Connecting


def test_a_mover_that_comes_later_is_waited_for(node_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    movers: list[FakeMover] = []
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            movers.append(FakeMover(node_home))

    monkeypatch.setattr(mover_link, "sleep", sleep)
    with sky.checkpoints("run"):
        pass
    assert pauses == [0.05] * 3
    movers[0].die()


def test_a_mover_that_does_not_come_is_named(node_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mover_link._PATIENCE == 60.0
    monkeypatch.setattr(mover_link, "_PATIENCE", 0.1)
    text = f"the mover of this node does not answer at {node_home}/mover.sock: .*No such file.*log of the node's agent"
    with pytest.raises(sky.CheckpointError, match=text), sky.checkpoints("run"):
        pass
    assert os.listdir(node_home / "checkpoints" / "steps") == []


def test_a_short_timeout_holds_for_connecting_too(node_home: Path) -> None:
    began = time.monotonic()
    with pytest.raises(sky.CheckpointError, match="does not answer"), sky.checkpoints("run", timeout=0.1):
        pass
    assert time.monotonic() - began < 30


def test_a_mover_that_says_nothing_is_named(fake: FakeMover, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "_take", lambda *_: None)
    text = "it accepts the connection, and says nothing"
    with pytest.raises(sky.CheckpointError, match=text), sky.checkpoints("run", timeout=0.1):
        pass


def test_a_mover_that_refuses_is_quoted(fake: FakeMover) -> None:
    fake.refusal = "1024 workers are connected"
    with (
        pytest.raises(sky.CheckpointError, match="refuses the checkpoints of this worker: 1024 workers"),
        sky.checkpoints("run"),
    ):
        pass


# Answers that do not come, or say no


def test_a_checkpoint_that_is_not_brought_in_time(fake: FakeMover) -> None:
    fake.answer = only()
    with (
        pytest.raises(
            sky.CheckpointError, match=r'the checkpoints "run" were not brought to this node within 0.2 s: pass'
        ),
        sky.checkpoints("run", timeout=0.2),
    ):
        pass
    assert fake.messages("close", 1)[0]["failed"] is True


@pytest.mark.parametrize(("hint", "text"), [("wait", "pool a has it; wait"), (None, "pool a has it$")])
def test_the_client_says_why_nothing_can_be_opened(fake: FakeMover, hint: str | None, text: str) -> None:
    fake.answer = lambda message: {"n": 1, "error": {"message": "pool a has it", "hint": hint}}
    with pytest.raises(sky.CheckpointError, match=text), sky.checkpoints("run"):
        pass


@pytest.mark.parametrize("answer", [{"n": "x"}, [1], {"error": 3}])
def test_an_answer_that_is_none(fake: FakeMover, answer: Any) -> None:
    fake.answer = lambda message: answer if message["kind"] == "open" else None
    with (
        pytest.raises(sky.CheckpointError, match="this worker cannot read what the client says"),
        sky.checkpoints("run"),
    ):
        pass


def test_bytes_that_are_no_frame(fake: FakeMover) -> None:
    fake.answer = only()
    thread = later(lambda: fake.channels[0].socket.sendall(b"\xff" * 64), lambda: fake.got)
    with (
        pytest.raises(sky.CheckpointError, match="cannot read what the mover of its node sends"),
        sky.checkpoints("run"),
    ):
        pass
    thread.join(DEADLINE)


def test_a_wait_that_takes_too_long_names_the_steps(fake: FakeMover) -> None:
    fake.answer = only("open")
    text = r'steps 3, 4, 5, 6, 7 and 2 earlier ones of the checkpoints "run" were not committed within 0.1 s'
    with pytest.raises(KeyError), sky.checkpoints("run", timeout=0.2) as ckpt:
        save(ckpt, 0)
        with pytest.raises(sky.CheckpointError, match=r"step 0 of .* was not committed within 0.1 s"):
            ckpt.wait(0.1)
        for step in (2, 3, 4, 5, 6, 7):
            save(ckpt, step)
        with pytest.raises(sky.CheckpointError, match=text):
            ckpt.wait(0.1)
        with pytest.raises(sky.CheckpointError, match=r"within 0.2 s"):
            ckpt.wait()
        fake.answer = only("open", "wait")
        fake.deliver({"n": fake.messages("wait")[0]["n"]})
        ckpt.wait()
        raise KeyError
    with pytest.raises(ValueError, match="timeout=0"), sky.checkpoints("run") as ckpt:
        ckpt.wait(0)


def test_leaving_fails_if_the_saves_are_not_committed(fake: FakeMover) -> None:
    fake.answer = only("open")
    with (
        pytest.raises(sky.CheckpointError, match=r"step 1 .* not committed"),
        sky.checkpoints("run", timeout=0.3) as ckpt,
    ):
        save(ckpt, 1)
    assert fake.messages("close", 1)[0]["failed"] is True


def test_a_commit_that_the_client_refuses(fake: FakeMover) -> None:
    def answer(message: Message) -> Message | None:
        if message["kind"] == "wait":
            return {"n": message["n"], "error": {"message": "two ranks wrote model.pt"}}
        return only("open")(message)

    fake.answer = answer
    with pytest.raises(sky.CheckpointError, match=r"^two ranks wrote model\.pt$"), sky.checkpoints("run") as ckpt:
        save(ckpt, 1)


@pytest.mark.parametrize("use", ["save", "wait"])
def test_after_a_failed_try_nothing_can_be_saved(fake: FakeMover, use: str) -> None:
    fake.answer = only("open")
    failed = {"failed": {"message": "pool b has taken the name", "hint": "end one of them"}}
    with pytest.raises(KeyError), sky.checkpoints("run") as ckpt:
        save(ckpt, 1)
        if use == "wait":
            thread = later(lambda: fake.deliver(failed), lambda: fake.messages("wait"))
            with pytest.raises(sky.CheckpointError, match="pool b has taken the name; end one of them"):
                ckpt.wait()
            thread.join(DEADLINE)
        else:
            fake.deliver(failed)
            place: Any = ckpt._place
            select.select([place._link._stream._socket], [], [], DEADLINE)
        with pytest.raises(sky.CheckpointError, match="pool b"), ckpt.save(2):
            pytest.fail("nothing is written in vain")
        with pytest.raises(sky.CheckpointError, match="pool b"):
            ckpt.wait()
        raise KeyError


# A connection that is lost


def test_a_new_mover_is_told_again_what_is_unanswered(fake: FakeMover) -> None:
    fake.answer = only("open")
    with sky.checkpoints("run") as ckpt:
        save(ckpt, 5)

        def restart() -> None:
            fake.die()
            fake.answer = only("open", "wait")
            fake.listen()

        thread = later(restart, lambda: fake.messages("wait"))
        ckpt.wait()
        thread.join(DEADLINE)
    fake.messages("close", 1)
    opens, waits = fake.messages("open"), fake.messages("wait")
    assert opens == [opens[0]] * 2
    assert waits == [waits[0]] * 2
    assert [each["kind"] for each in fake.got] == ["open", "wait", "open", "wait", "close"]
    assert fake.hellos == [fake.hellos[0]] * 2


def test_a_save_is_announced_to_a_new_mover(fake: FakeMover, ckpt: sky.Checkpoints) -> None:
    save(ckpt, 1)
    fake.wait(lambda: len(fake.saved) == 1)
    fake.die()
    fake.listen()
    save(ckpt, 2)
    fake.wait(lambda: len(fake.saved) == 2)
    assert [each["kind"] for each in fake.got] == ["open", "open"]


def test_a_wait_ends_though_each_connection_is_cut_once(fake: FakeMover, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()

    def take(channel: Channel, head: list[Any], body: bytes) -> None:
        original(channel, head, body)
        kind = f"{head[0]}" if head[0] != wire.CHANNEL_SEND else fake.got[-1]["kind"]
        if kind not in seen:
            seen.add(kind)
            fake.cut(channel)

    original = fake._take
    monkeypatch.setattr(fake, "_take", take)
    with sky.checkpoints("run") as ckpt:
        save(ckpt, 1)
        ckpt.wait()
    fake.messages("close", 1)
    assert seen == {"257", "259", "open", "wait", "close"}
    assert {each["n"] for each in fake.messages("open")} == {1}


def test_an_answer_that_comes_twice_is_ignored(fake: FakeMover) -> None:
    with sky.checkpoints("run") as ckpt:
        save(ckpt, 1)
        fake.deliver({"n": 1, "step": 9, "meta": None, "path": "/"})
        ckpt.wait()
        fake.deliver({"n": fake.messages("wait")[0]["n"]})
        fake.answer = only()
        save(ckpt, 2)
        with pytest.raises(sky.CheckpointError, match="step 2"):
            ckpt.wait(0.1)
        fake.answer = only("open", "wait")
        assert ckpt.latest() is None
