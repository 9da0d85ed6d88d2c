"""Signals of the payload while it uses checkpoints: handlers that raise, and handlers that save."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import skyward as sky
from skyward._sky import mover_link
from skyward._sky.notices import notices

from .checkpoint_mover import FakeMover, later, only, save


@pytest.fixture
def alarm() -> Any:
    """Return a function that makes a signal of the payload raise."""
    before = signal.getsignal(signal.SIGALRM)

    def set_handler(handler: Callable[[], object]) -> None:
        signal.signal(signal.SIGALRM, lambda number, frame: handler())

    yield set_handler
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_wait_is_interrupted_by_a_signal(fake: FakeMover, alarm: Any) -> None:
    fake.answer = only("open")
    alarm(interrupt)
    with pytest.raises(KeyboardInterrupt), sky.checkpoints("run") as ckpt:
        save(ckpt, 1)
        later(lambda: signal.raise_signal(signal.SIGALRM), lambda: fake.messages("wait"))
        began = time.monotonic()
        try:
            ckpt.wait()
        finally:
            assert time.monotonic() - began < 30
    assert fake.messages("close", 1)[0]["failed"] is True


def test_a_handler_may_save_while_the_payload_waits(fake: FakeMover, alarm: Any) -> None:
    fake.answer = only("open")
    with sky.checkpoints("run") as ckpt:
        save(ckpt, 1)

        def act() -> None:
            save(ckpt, 2)
            fake.answer = only("open", "wait")
            ckpt.wait()
            fake.deliver({"n": fake.messages("wait")[0]["n"]})

        alarm(act)
        later(lambda: os.kill(os.getpid(), signal.SIGALRM), lambda: fake.messages("wait"))
        ckpt.wait()
    assert {each["step"] for each in fake.messages("wait")} == {1, 2}


@pytest.mark.parametrize("method", ["send", "recv_into"])
def test_a_connection_that_was_interrupted_in_the_middle_is_not_used_again(
    fake: FakeMover, ckpt: sky.Checkpoints, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    place: Any = ckpt._place
    stream = place._link._stream
    opened = stream._socket

    class Interrupted:
        def send(self, data: Any) -> int:
            if method == "send":
                opened.send(data[:5])
                raise KeyboardInterrupt
            return int(opened.send(data))

        def recv_into(self, *arguments: Any) -> int:
            if method == "recv_into":
                raise KeyboardInterrupt
            return int(opened.recv_into(*arguments))

        def __getattr__(self, name: str) -> Any:
            return getattr(opened, name)

    save(ckpt, 1)
    stream._socket = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ckpt.wait()
    save(ckpt, 2)
    ckpt.wait()
    assert place._link._stream is not stream
    assert len(fake.messages("open")) == 2
    fake.wait(lambda: fake.ended == 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_many_interrupts_at_any_moment_lose_nothing(fake: FakeMover, alarm: Any) -> None:
    class Ring(Exception): ...

    def ring() -> None:
        if armed[0]:
            raise Ring

    armed = [False]
    step = 0
    saved: list[int] = []
    with sky.checkpoints("run", keep=None) as ckpt:
        alarm(ring)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            step += 1
            with suppress(Ring):
                armed[0] = True
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + step % 97 * 0.00005)
                save(ckpt, step)
                saved.append(step)
                ckpt.wait(20)
                armed[0] = False
        armed[0] = False
        step += 1
        save(ckpt, step)
        ckpt.wait(20)
    assert {*saved, step} <= {fake.record(each)["step"] for each in os.listdir(fake.outbox)}
    for each in os.listdir(fake.outbox):
        assert not each.startswith("."), "no half save is left"
        assert (fake.outbox / each / "content" / "model").read_bytes() == b"%d" % fake.record(each)["step"]
    assert fake.messages("wait")[-1]["step"] == step
    assert {each["n"] for each in fake.messages("open")} == {1}


def test_waiting_delivers_notices_and_tells_of_progress(fake: FakeMover, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    said: list[int] = []
    monkeypatch.setattr(notices, "look", lambda: looks.append(1))
    monkeypatch.setattr(mover_link, "progress", lambda: said.append(1))
    monkeypatch.setattr(mover_link, "_SLICE", 0.01)
    fake.answer = only("open")
    with sky.checkpoints("run") as ckpt:
        save(ckpt, 1)
        later(lambda: fake.deliver({"n": fake.messages("wait")[0]["n"]}), lambda: len(looks) > 10)
        ckpt.wait()
    assert len(looks) > 10
    assert said
