"""The agent of a node: `python -m skyward.agent --dir DIR --addr ADDR --lease SECONDS …`.

The agent detaches. The process that was started prints one line about the agent as soon as the
agent listens, and then exits.
"""

from __future__ import annotations

# isort: off
from ._core import startup

# isort: on
import os
import socket
import sys
from typing import NoReturn

from ._agent import process, tree
from ._agent.installed import path_of_workers
from ._agent.log import log
from ._agent.loop import Agent
from ._core import wire

_USAGE = "usage: python -m skyward.agent --dir DIR --addr ADDR --lease SECONDS [--owner-pid PID] [--path PYTHONPATH]"


class _Arguments:
    """The command line, parsed by hand: `argparse` takes longer to import than the agent."""

    def __init__(self, argv: list[str]) -> None:
        given: dict[str, str] = {}
        rest = list(argv)
        while rest:
            name = rest.pop(0)
            name, equals, value = name.partition("=")
            if name not in ("--dir", "--addr", "--lease", "--owner-pid", "--path") or not (equals or rest):
                _fail(f"unknown option, or an option without a value: {name}\n{_USAGE}")
            given[name] = value if equals else rest.pop(0)
        missing = [name for name in ("--dir", "--addr", "--lease") if name not in given]
        if missing:
            _fail(f"missing options: {', '.join(missing)}\n{_USAGE}")
        self.folder = os.path.abspath(given["--dir"])
        self.address = given["--addr"]
        self.path = given.get("--path", "")
        try:
            self.lease = float(given["--lease"])
            self.owner = int(given["--owner-pid"]) if "--owner-pid" in given else None
        except ValueError as error:
            _fail(f"{error}\n{_USAGE}")


def _fail(reason: str) -> NoReturn:
    sys.stderr.write(f"skyward agent: {reason}\n")
    sys.exit(1)


def main() -> None:
    """Detach, and report in the started process whether the agent runs."""
    startup.restore()
    arguments = _Arguments(sys.argv[1:])
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        os.waitpid(pid, 0)
        with open(read, "rb") as pipe:
            answer = pipe.read().decode(errors="replace")
        if answer.startswith("{"):
            os.write(1, answer.encode())
            os._exit(0)
        os.write(2, f"skyward agent: {answer or 'it ended unexpectedly; see agent.log in its folder'}\n".encode())
        os._exit(1)
    os.close(read)
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        agent = _boot(arguments)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        os.write(write, f"{error.strerror or error}{where}".encode())
        os._exit(1)
    python = ".".join(map(str, sys.version_info[:3]))
    line = f'{{"pid": {os.getpid()}, "protocol": {wire.PROTOCOL}, "python": "{python}"}}\n'
    os.write(write, line.encode())
    os.close(write)
    code = 0
    try:
        log(f"agent {os.getpid()} listens, lease {arguments.lease:g} s")
        log(f"agent ends: {agent.run()}")
    except BaseException:
        import traceback

        log(traceback.format_exc())
        code = 1
    finally:
        try:
            os.unlink("agent.sock")
        except OSError:
            pass
        os._exit(code)


def _boot(arguments: _Arguments) -> Agent:
    folder = arguments.folder
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    os.makedirs(f"{folder}/work", exist_ok=True)
    os.chdir(folder)
    process.users_mask = os.umask(0o077)
    _lock(folder)
    _redirect(f"{folder}/agent.log")
    tree.become_subreaper()
    path = f"{folder}/agent.sock"
    if len(os.fsencode(path)) > 100:
        raise OSError(None, f"the path of the folder is too long for the sockets in it: {folder}")
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(16)
    listener.setblocking(False)
    machine = os.environ.get("SKYWARD_MACHINE", "")
    imports = path_of_workers(f"{folder}/work", arguments.path)
    agent = Agent(folder, arguments.address, arguments.lease, listener, machine, imports)
    if arguments.owner is not None:
        agent.watch_owner(arguments.owner)
    return agent


def _lock(folder: str) -> None:
    """Make sure that a folder has at most one agent. The lock ends with the process."""
    import fcntl

    lock = os.open(f"{folder}/agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OSError(None, f"another agent runs in {folder}") from None


def _redirect(path: str) -> None:
    """Detach standard input and output from the terminal and pipes of the starting process."""
    null = os.open(os.devnull, os.O_RDONLY)
    log_file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(null, 0)
    os.dup2(log_file, 1)
    os.dup2(log_file, 2)
    os.close(null)
    os.close(log_file)


if __name__ == "__main__":
    main()
