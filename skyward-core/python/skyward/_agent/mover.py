"""The mover, as the agent sees it: a process that reads files of the node for the client."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from .._core import wire
from . import tree
from .log import log
from .process import import_path, listen, spawn
from .workers import Refusal


class Program:
    """One start of the mover."""

    def __init__(self, path: str, environment: Mapping[str, str], number: int, pool: str) -> None:
        """Start the program. Its socket accepts connections when this returns.

        Args:
            path: the path of its socket.
            environment: the agent's environment, on which its own is based.
            number: how many movers were started, with this one.
            pool: the id of the pool, to which its clients must belong.

        Raises:
            OSError: the program cannot be run, or the socket cannot be created.
        """
        self.mark = f"SKYWARD_SLOT=mover{number}"
        self.on_end: Callable[[int], None] = lambda _: None
        name, _, value = self.mark.partition("=")
        with listen(path, 0o600) as listener:
            full = {
                **environment,
                name: value,
                "PYTHONPATH": os.pathsep.join(import_path(environment)),
                # No file of its working folder, which is that of the agent, hides a module.
                "PYTHONSAFEPATH": "1",
                "SKYWARD_LISTEN_FD": str(listener.fileno()),
                # An environment cannot hold every text.
                "SKYWARD_POOL": pool.encode().hex(),
            }
            # The agent's own input is empty, and its output is its log.
            self.pid = spawn([sys.executable, "-m", "skyward.mover"], full, None, (0, 1, 2), listener.fileno())

    def on_exit(self, status: int) -> None:
        """Report how the process ended, after it was reaped."""
        self.on_end(os.waitstatus_to_exitcode(status))


class Mover:
    """Starts the mover when a client needs it, and again when that one has ended."""

    def __init__(self, folder: str, adopt: Callable[[Program], None], environment: Mapping[str, str]) -> None:
        """Start nothing yet.

        Args:
            folder: the agent's folder.
            adopt: reaps a process, and calls its `on_exit`.
            environment: the agent's environment.
        """
        self._path = f"{folder}/mover.sock"
        self._adopt = adopt
        self._environment = environment
        self._running: Program | None = None
        self._starts = 0

    def answer(self, request: int, pool: str) -> list[Any]:
        """Start the mover unless it runs, and return the answer to a request for it.

        Args:
            request: the number of the request.
            pool: the id of the agent's pool.

        Raises:
            Refusal: it cannot be started.
        """
        running = self._running
        if running is not None and not self._listens():
            # It is ending, or something has removed its socket.
            tree.kill_group(running.pid)
            running = None
        if running is None:
            running = self._start(pool)
        return [wire.AGENT_MOVER, request, running.pid, self._path]

    def _listens(self) -> bool:
        """Return whether the mover can be reached. An ending process closes its sockets first."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(self._path)
            except OSError as error:
                return error.errno == errno.EAGAIN  # many wait already
        return True

    def _start(self, pool: str) -> Program:
        self._starts += 1
        try:
            started = Program(self._path, self._environment, self._starts, pool)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise Refusal(f"cannot start the mover: {error.strerror or error}{where}") from None
        self._running = started
        started.on_end = lambda code: self._on_end(started, code)
        self._adopt(started)
        return started

    def _on_end(self, ended: Program, code: int) -> None:
        how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"
        log(f"the mover, process {ended.pid}, {how}; the next request for it starts another one")
        if ended is self._running:
            self._running = None
            with suppress(OSError):
                os.unlink(self._path)
