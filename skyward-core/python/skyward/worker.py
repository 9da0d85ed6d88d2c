"""The program of a worker: `python -m skyward.worker`."""

from __future__ import annotations

# isort: off
from ._core import bytecode

# isort: on
import os
import socket
import sys

from ._core import state
from ._core.conceal import conceal
from ._core.descriptors import raise_descriptor
from ._libraries import head_port, keys
from ._tasks.session import LostDescriptorsError
from ._worker.interrupts import LeaveError
from ._worker.process import end, open_file, read_spec, set_up_output
from ._worker.worker import EXIT_DESCRIPTORS, Worker


def main() -> None:
    """Run the worker. The start spec is on standard input, the listener in the environment."""
    bytecode.restore()
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
        text = f"skyward: the payload closed descriptors of the worker, which cannot continue without {error}\n"
        from ._worker.buffered import write_out

        try:
            os.write(2, text.encode())
            write_out()
        finally:
            os._exit(EXIT_DESCRIPTORS)
    code = worker.leave()
    end(code)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    # `multiprocessing` imports the main module under this name in a process that it spawns.
    from ._sky.cluster import inherited

    bytecode.restore()
    head_port.share(inherited() or {})
