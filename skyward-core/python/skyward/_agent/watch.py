"""The watch command: a program of the provider that reports when the machine will end."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

from . import tree
from .log import log
from .notices import KINDS, Lines, Notice, Pauses, notice
from .process import spawn

_PIECE: Final = 16 << 10
_EVERY: Final = 0.1
"""Seconds between two reads of at most `_PIECE` bytes.

This way a command that floods its output delays only itself.
"""
_MOST_WAITING: Final = 8
"""The most notices that wait for the client; the latest ones are kept."""
_SHOWN: Final = 200
"""The most bytes of a line that are written to the log."""

Handle = Callable[[int, Callable[[int], None]], None]
"""Registers a function to be called when a descriptor can be read."""


class Command:
    """One start of the watch command."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], number: int) -> None:
        """Start the command, in a session and process group of its own.

        Raises:
            OSError: the command cannot be started.
            ValueError: an argument is not valid for a program.
        """
        if any("\0" in argument for argument in argv):
            raise ValueError("an argument holds a NUL character")
        self.mark = f"SKYWARD_SLOT=watch{number}"
        self.on_end: Callable[[int], None] = lambda _: None
        name, _, value = self.mark.partition("=")
        pipes: list[int] = []
        try:
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            pipes.append(null)
            for _ in range(2):
                pipes += os.pipe()
            _, self.out, out, self.err, err = pipes
            self.pid = spawn(argv, {**environment, name: value}, None, (null, out, err))
        except BaseException:
            for descriptor in pipes:
                os.close(descriptor)
            raise
        for descriptor in (null, out, err):
            os.close(descriptor)
        self.lines = {self.out: Lines(), self.err: Lines()}
        """The output that is not complete lines yet, by the descriptors that are still open."""
        for descriptor in self.lines:
            os.set_blocking(descriptor, False)

    def on_exit(self, status: int) -> None:
        """Report the exit code, after the process was reaped."""
        self.on_end(os.waitstatus_to_exitcode(status))


class Watch:
    """Runs the watch command, restarts it after it has ended, and keeps the last notice."""

    def __init__(
        self,
        handle: Handle,
        forget: Callable[[int], None],
        adopt: Callable[[Command], None],
        environment: Mapping[str, str],
    ) -> None:
        """Create a watch that runs nothing yet.

        Args:
            handle: registers a function that is called when a descriptor can be read.
            forget: removes what `handle` registered for a descriptor.
            adopt: reaps a process, and calls its `on_exit`.
            environment: the agent's environment, for the command.
        """
        self._handle_input = handle
        self._forget = forget
        self._adopt = adopt
        self._environment = environment
        self._argv: list[str] = []
        self._running: Command | None = None
        self._starts = 0
        self._began = 0.0
        self._pauses = Pauses()
        self._start_at: float | None = None
        self._read_at: dict[int, float] = {}
        """Descriptors of which enough was read for now, with the time of their next read."""
        self._last: Notice | None = None
        self._waiting: deque[Notice] = deque(maxlen=_MOST_WAITING)
        self._logged: dict[str, str] = {}
        """The last log line about this command, by topic."""

    def run(self, argv: list[str]) -> None:
        """Run this command from now on. If it runs already, nothing changes."""
        if argv == self._argv:
            return
        self._end()
        self._argv, self._pauses, self._logged = argv, Pauses(), {}
        self._start_at = monotonic()
        self.tick(self._start_at)

    def due(self) -> float | None:
        """Return when `tick` is due next; None while only new output can matter."""
        due = [*self._read_at.values()]
        if self._start_at is not None:
            due.append(self._start_at)
        return min(due, default=None)

    def tick(self, now: float) -> None:
        """Start the command if that is due, and continue delayed reads."""
        if self._start_at is not None and now >= self._start_at:
            self._start()
        for descriptor in [descriptor for descriptor, at in self._read_at.items() if now >= at]:
            del self._read_at[descriptor]
            self._listen(descriptor)

    def take(self) -> list[Notice]:
        """Return the notices since the last call."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def repeat(self) -> None:
        """Queue the last notice again, for a client that may not have it."""
        self._waiting.clear()
        if self._last is not None:
            self._waiting.append(self._last)

    def close(self) -> None:
        """End the command for good."""
        self._end()
        self._argv, self._start_at = [], None

    def _start(self) -> None:
        self._starts += 1
        self._start_at, self._began = None, monotonic()
        try:
            command = Command(self._argv, self._environment, self._starts)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self._log("end", f"cannot be started: {reason}")
            self._start_at = monotonic() + self._pauses.after(0.0)
            return
        self._running = command
        command.on_end = lambda code: self._on_end(command, code)
        self._adopt(command)
        for descriptor in command.lines:
            self._listen(descriptor)

    def _end(self) -> None:
        """Kill the running command; its process is reaped later."""
        command, self._running = self._running, None
        if command is not None:
            tree.kill_group(command.pid)
            self._close(command)

    def _close(self, command: Command) -> None:
        for descriptor in list(command.lines):
            self._close_one(command, descriptor)

    def _close_one(self, command: Command, descriptor: int) -> None:
        del command.lines[descriptor]
        self._read_at.pop(descriptor, None)
        self._forget(descriptor)
        os.close(descriptor)

    def _listen(self, descriptor: int) -> None:
        self._handle_input(descriptor, lambda _: self._on_input(descriptor))

    def _on_input(self, descriptor: int) -> None:
        command = self._running
        if command is None or descriptor not in command.lines:
            return
        if self._read(command, descriptor):
            # Read no more before it is due, however much there is.
            self._forget(descriptor)
            self._read_at[descriptor] = monotonic() + _EVERY

    def _read(self, command: Command, descriptor: int) -> bool:
        """Read a piece of the command's output; return False if there is no more for now."""
        try:
            data = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return False
        lines = command.lines[descriptor]
        self._take_in(command, descriptor, lines.feed(data) if data else lines.rest())
        if not data:
            self._close_one(command, descriptor)
        return bool(data)

    def _take_in(self, command: Command, descriptor: int, lines: list[bytes]) -> None:
        now = monotonic()
        for line in lines:
            given = notice(line, now) if descriptor == command.out else None
            if given is not None:
                self._last = given
                self._waiting.append(given)
            elif descriptor == command.err:
                self._log("error", f"writes to standard error; the first line is {_shown(line)}", True)
            else:
                wanted = f"`KIND SECONDS WORDS`, where KIND is one of {', '.join(KINDS)}"
                self._log("line", f"prints {_shown(line)}, which is ignored; a notice has the form {wanted}", True)

    def _on_end(self, command: Command, code: int) -> None:
        """Handle the end of the process; its whole group has been killed."""
        if command is not self._running:
            return
        for descriptor in list(command.lines):
            # Read its last output: a pipe holds no more than this.
            for _ in range(64):
                if not self._read(command, descriptor):
                    break
            if descriptor in command.lines:
                self._take_in(command, descriptor, command.lines[descriptor].rest())
        self._close(command)
        self._running = None
        pause = self._pauses.after(monotonic() - self._began)
        self._start_at = monotonic() + pause
        how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"
        self._log("end", f"{how}; it is started again after pauses of up to a minute")

    def _log(self, topic: str, text: str, once: bool = False) -> None:
        """Write a line to the log, unless it repeats the last one of its topic."""
        known = self._logged.get(topic)
        if known == text or (once and known is not None):
            return
        self._logged[topic] = text
        log(f"the watch command {_shown(self._argv[0].encode(errors='replace'))} {text}")


def _shown(line: bytes) -> str:
    cut = line[:_SHOWN].decode(errors="replace")
    return f"{cut!r} (cut)" if len(line) > _SHOWN else repr(cut)
