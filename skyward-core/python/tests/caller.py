"""A worker that submits calls, for tests that play its client message by message."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import msgspec

from skyward._core import wire

from .client import DEADLINE, CallsClient
from .conftest import Node


class Caller:
    """A worker whose payload submits calls, and the client of its calls connection."""

    def __init__(self, node: Node, payload: str, spec: dict[str, Any] | None = None, **arguments: Any) -> None:
        self.node = node
        self.worker = node.ready(payload, **(spec or {}))
        self.worker.gang = None
        self.run = self.worker.start(1, **arguments)
        self.told = node.agent.expect(wire.CALLS)[0]
        self.calls = CallsClient(self.told[4])

    def submitted(self) -> tuple[int, int, bytes]:
        """Return the next call: its number, the helped call that submitted it, and its body."""
        head, body = self.calls.expect(wire.SUBMIT)
        assert head[3] == self.run
        return head[2], head[4], body

    def waits(self, help: int = 0) -> None:
        """Wait until the main thread waits, in the run or in a helped call."""
        assert self.calls.expect(wire.WAIT)[0][2:] == [self.run, help]

    def help(
        self, number: int, body: bytes, depth: int = 1, aside: bool = False, run: int = 0, within: int = 0
    ) -> None:
        self.calls.send(wire.HELP, number, run or self.run, within, depth, aside, body=body)

    def helped(self, number: int) -> bytes:
        """Return the answer of a helped call."""
        head, body = self.calls.expect(wire.HELPED)
        assert head[2] == number
        return body

    def help_failed(self, number: int) -> dict[str, Any]:
        head, body = self.calls.expect(wire.HELP_FAILED)
        assert head[2] == number
        return msgspec.msgpack.decode(body)  # type: ignore[no-any-return]

    def answer(self, call: int, body: bytes) -> None:
        self.calls.send(wire.OUTCOME, call, True, 5, body=body)

    def fail(self, call: int, kind: str, **more: Any) -> None:
        body = msgspec.msgpack.encode({"kind": kind, "message": f"it was {kind}", **more})
        self.calls.send(wire.OUTCOME, call, False, 0, body=body)

    def cancel(self) -> None:
        """Cancel the run."""
        self.worker.send([wire.CANCEL, self.run])
        self.node.agent.send([wire.SIGNAL, 1, 0, "interrupt"])

    def value(self) -> Any:
        head, value = self.worker.outcome(self.run)
        assert head[0] == wire.RESULT, value
        return value

    def failure(self) -> Any:
        head, value = self.worker.outcome(self.run)
        assert head[0] == wire.FAILURE, value
        return value


def until(reached: Callable[[], bool]) -> None:
    end = monotonic() + DEADLINE
    while not reached():
        assert monotonic() < end
        sleep(0.001)
