"""One worker process, as the agent sees it: started, running, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .._core import cores, wire
from .._core.messages import StartSpec
from . import tree
from .account import Account
from .memory import OutOfMemory
from .spool import Spool

_PACKAGE_ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

WAKE: Final = "wake"
"""A named pipe in the agent's folder. A worker whose task has printed writes its index into it."""


users_mask = 0o077
"""The mask of new files with which the agent was started; workers have it, and the agent has not."""

_AUTHKEY: Final = os.urandom(32)
"""The key of `multiprocessing` in all workers of this agent."""


class StartError(Exception):
    """A worker could not be started."""


class Worker:
    """A worker process and its files.

    The files are its socket and, in the folder of its generation, its output, stacks, progress,
    account and peers.
    """

    def __init__(self, folder: str, generation: int, index: int, memory: OutOfMemory) -> None:
        self.generation = generation
        self.index = index
        self.pid = 0
        self.ended: tuple[int | None, int | None, bool] | None = None
        """Exit code, signal, and whether the kernel killed it because memory ran out."""
        self.is_killed = False
        self.socket_path = f"{folder}/g{generation}w{index}.sock"
        self.calls_path = f"{folder}/g{generation}w{index}.calls"
        """Where the worker listens for a second connection, once its payload submits calls."""
        self.has_calls = False
        self._store_path = f"{folder}/store"
        logs = f"{folder}/g{generation}"
        self.spools = (Spool(f"{logs}/w{index}.out"), Spool(f"{logs}/w{index}.err"))
        """Standard output and standard error."""
        self.err_start = 0
        """The size of the file of standard error when the process was started."""
        self.stacks_path = f"{logs}/w{index}.stacks"
        self.progress_path = f"{logs}/w{index}.progress"
        self._peers_path = f"{logs}/w{index}.peers"
        self.account = Account(f"{logs}/w{index}.account")
        self.wake_path = f"{folder}/{WAKE}"
        self._payloads = f"{folder}/payloads"
        self.mark = f"SKYWARD_SLOT=g{generation}w{index}"
        self._memory = memory

    def start(self, spec: StartSpec, whole: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        """Start the process. Its socket accepts connections when this returns.

        Args:
            spec: the parts of the start spec that the agent uses.
            whole: the whole start spec, for the worker.
            environment: the variables on which the worker's environment is based.

        Raises:
            StartError: the program cannot be run, or the socket or a log file cannot be created.
        """
        try:
            self._start(spec, whole, environment)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            text = f"cannot start worker {self.index} of generation {self.generation}: {error.strerror}{where}"
            raise StartError(text) from None

    def _start(self, spec: StartSpec, whole: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        cluster = {**whole["cluster"], "worker": self.index, "generation": self.generation}
        # An environment variable holds at most 128 KiB, and thousands of peers need more.
        peers = msgspec.json.encode(cluster.pop("peers", []))
        cluster["peers_file"] = self._peers_path
        files = {
            "stacks": self.stacks_path,
            "progress": self.progress_path,
            "account": self.account.path,
            "wake": self.wake_path,
            "calls": self.calls_path,
            "store": self._store_path,
            "authkey": _AUTHKEY,
        }
        stdin = _spool(
            wire.frame([wire.START, self.generation, [self.index]], _encode({**whole, **files, "cluster": cluster}))
        )
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        opened = [stdin]
        os.makedirs(os.path.dirname(self.stacks_path), mode=0o700, exist_ok=True)
        # The sticky bit means that a connection may be handed over as a descriptor: see `Adopt`.
        listener = listen(self.socket_path, 0o1600)
        try:
            _replace(self._peers_path, peers)
            self.account.make()
            for path in (self.stacks_path, self.progress_path):
                os.close(os.open(path, flags, 0o600))
            for spool in self.spools:
                opened.append(spool.open())
            _, out, err = opened
            self.err_start = os.fstat(err).st_size
            argv = [*spec.launcher, spec.python, "-m", "skyward.worker"]
            full = {**cores.defaults(whole["cluster"], {**environment, **spec.env}), **environment}
            full = self._environment(spec, cluster, full, listener.fileno())
            self.pid = spawn(argv, full, spec.cwd, (stdin, out, err), listener.fileno())
        finally:
            listener.close()
            for descriptor in opened:
                os.close(descriptor)

    def _environment(
        self, spec: StartSpec, cluster: Mapping[str, Any], inherited: Mapping[str, str], listener: int
    ) -> dict[str, str]:
        full = {**inherited, **spec.env, **spec.secrets}
        # Processes that a payload starts import its modules by their names.
        paths = [*import_path(full), self._payloads]
        rank = spec.cluster.node * spec.cluster.workers_per_node + self.index
        name, _, value = self.mark.partition("=")
        return {
            **full,
            name: value,
            "PYTHONPATH": os.pathsep.join(paths),
            "SKYWARD_CLUSTER": msgspec.json.encode(cluster).decode(),
            "SKYWARD_GENERATION": str(self.generation),
            "SKYWARD_LISTEN_FD": str(listener),
            "SKYWARD_NODE": str(spec.cluster.node),
            "SKYWARD_PAYLOADS": self._payloads,
            "SKYWARD_RANK": str(rank),
            "SKYWARD_WORKER": str(self.index),
        }

    def signal(self, number: int) -> None:
        """Send a signal to the worker process itself."""
        if self.ended is None:
            self.is_killed |= number == signal.SIGKILL
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def attend(self) -> None:
        """Make the worker look at its connection, if it is computing.

        A worker that waits in a system call gets no signal: native code may not expect that the
        call ends early. Python's own waits return to the worker by themselves, or with the next
        task.
        """
        running = tree.process(self.pid)
        if self.ended is None and running is not None and running.state == "R":
            self.signal(signal.SIGURG)

    def on_exit(self, status: int) -> None:
        """Record how the process ended, after it was reaped."""
        code = os.waitstatus_to_exitcode(status)
        ended_by = -code if code < 0 else None
        self.account.close()
        oom = ended_by == signal.SIGKILL and not self.is_killed and self._memory.claim()
        self.ended = (None if code < 0 else code, ended_by, oom)
        for path in (self.socket_path, self.calls_path):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def stacks_size(self) -> int:
        """Return the size of the stacks file in bytes."""
        try:
            return os.stat(self.stacks_path).st_size
        except OSError:
            return 0


_encode: Final = msgspec.msgpack.Encoder().encode


def _replace(path: str, data: bytes) -> None:
    """Replace a file, unless it has the same content; open readers keep the old content."""
    with contextlib.suppress(OSError), open(path, "rb") as known:
        if known.read(len(data) + 1) == data:
            return
    new = f"{path}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
    os.replace(new, path)


def _spool(data: bytes) -> int:
    """Return a descriptor from which the data can be read; in memory where the system allows it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("skyward-start")
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def import_path(environment: Mapping[str, str]) -> list[str]:
    """Return the folders of the environment's `PYTHONPATH`, after that of this package."""
    inherited = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [_PACKAGE_ROOT, *(folder for folder in inherited if folder and folder != _PACKAGE_ROOT)]


def listen(path: str, mode: int) -> socket.socket:
    """Listen on a new socket at this path, in place of what is there.

    Raises:
        OSError: the socket cannot be created.
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        os.chmod(path, mode)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def spawn(
    argv: list[str],
    environment: Mapping[str, str],
    cwd: str | None,
    stdio: tuple[int, int, int],
    listener: int | None = None,
) -> int:
    """Fork and exec a program in a session of its own. It is killed when this process ends.

    Args:
        argv: the program and its arguments.
        environment: its complete environment.
        cwd: its working folder; None for the folder of this process.
        stdio: its descriptors 0 to 2.
        listener: a socket that it inherits, if it is a program of this package.

    Raises:
        OSError: the program cannot be run.
        ValueError: an argument is not valid for a program.
    """
    read, write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            tree.die_with(parent)
            os.setsid()
            for target, source in enumerate(stdio):
                os.dup2(source, target)
            signal.set_wakeup_fd(-1)
            for changed in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE):
                signal.signal(changed, signal.SIG_DFL)
            if listener is not None:
                os.set_inheritable(listener, True)
                for early in (signal.SIGINT, signal.SIGUSR1):
                    # These signals may arrive before the worker handles them, and must not end it.
                    signal.signal(early, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.umask(users_mask)
            if cwd:
                os.chdir(cwd)
            os.execvpe(argv[0], argv, environment)
        except BaseException as error:
            number = error.errno if isinstance(error, OSError) and error.errno else 0
            where = cwd if isinstance(error, OSError) and error.filename == cwd else argv[0]
            os.write(write, f"{number} {where}".encode())
        finally:
            os._exit(127)
    os.close(write)
    with open(read, "rb") as pipe:
        failure = pipe.read()
    if failure:
        os.waitpid(pid, 0)
        number_text, _, where_text = failure.decode().partition(" ")
        raise OSError(int(number_text), os.strerror(int(number_text)), where_text)
    return pid
