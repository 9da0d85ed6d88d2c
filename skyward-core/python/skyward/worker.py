"""The program of a worker: `python -m skyward.worker`."""

from __future__ import annotations

# isort: off
from ._core import startup

# isort: on
import os
import socket
import sys
from typing import NoReturn

from ._core import state
from ._core.conceal import conceal
from ._core.descriptors import raise_descriptor
from ._libraries import head_port, keys
from ._tasks.session import LostDescriptorsError
from ._worker import terminal
from ._worker.interrupts import LeaveError
from ._worker.logging_level import set_up_logging
from ._worker.process import end, open_file, read_spec, set_up_output
from ._worker.worker import EXIT_CHANGED, EXIT_DESCRIPTORS, ChangedError, Worker


def main() -> None:
    """Run the worker. The start spec is on standard input, the listener in the environment."""
    startup.restore()
    spec = read_spec()
    listener = raise_descriptor(socket.socket(fileno=int(os.environ.pop("SKYWARD_LISTEN_FD"))))
    listener.setblocking(False)
    conceal(spec.get("secrets") or ())
    state.cluster = spec["cluster"]
    head_port.share(spec["cluster"])
    if sys.path[0] == os.getcwd():
        # Modules in the working folder can be imported, but must not hide modules of libraries.
        sys.path.append(sys.path.pop(0))
    if authkey := spec.get("authkey"):
        keys.share(authkey)
    set_up_output(spec.get("stacks"))
    set_up_logging()
    terminal.explain_its_absence()
    if progress := spec.get("progress"):
        state.progress = open_file(progress, os.O_CREAT)
    worker = state.worker = Worker(spec, listener)
    worker.take_signals()
    sys.unraisablehook = worker.on_unraisable
    try:
        worker.enter()
        worker.serve()
    except LeaveError:
        pass
    except LostDescriptorsError as error:
        _abandon(
            EXIT_DESCRIPTORS, f"the payload closed descriptors of the worker, which cannot continue without {error}"
        )
    except ChangedError as error:
        _abandon(EXIT_CHANGED, f"{error}: the worker ends, so that no other task finds that")
    code = worker.leave()
    end(code)


def _abandon(code: int, text: str) -> NoReturn:
    """End a process in which not even the hooks can be left."""
    try:
        os.write(2, f"skyward: {text}\n".encode())
        from ._worker.buffered import write_out

        write_out()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    # `multiprocessing` imports the main module under this name in a process that it spawns.
    from ._sky.cluster import inherited

    startup.restore()
    head_port.share(inherited() or {})
