"""What no payload should do."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path


def breed(count: int) -> list[int]:
    """Leave children behind: in the worker's group, in sessions of their own, orphaned, without a mark."""
    children = []
    for index in range(count):
        read, write = os.pipe()
        if os.fork() == 0:
            if index % 2:
                os.setsid()
            if index % 3 == 0 and os.fork():
                os._exit(0)
            if index % 7 == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.write(write, b"%d\n" % os.getpid())
            # With no environment there is no mark to find it by.
            environment = {} if index % 5 == 0 else dict(os.environ)
            os.closerange(3, 1 << 12)
            os.execvpe("sleep", ["sleep", "3600"], {**environment, "PATH": os.environ["PATH"]})
        children.append(int(os.read(read, 100)))
        os.close(read)
        os.close(write)
    # It is to be seen as what it becomes.
    for child in children:
        while b"sleep" not in Path(f"/proc/{child}/cmdline").read_bytes():
            time.sleep(0.001)
    return children


def ignore_signals() -> None:
    """Ignore what can be ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)


def mask_signals() -> None:
    """Let none through."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(3600)


def swallow_interrupts() -> None:
    """Take each interrupt for an error of the loop's body."""
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            continue


def _never_return(library: type) -> None:
    import ctypes

    mutex = ctypes.create_string_buffer(64)
    lock = library(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)


def block_in_native_code() -> None:
    """Wait in C for what never comes; a signal's handler in Python cannot run."""
    import ctypes

    _never_return(ctypes.CDLL)


def hold_the_interpreter() -> None:
    """The same, and no other thread can run either."""
    import ctypes

    _never_return(ctypes.PyDLL)


def spoil_connection(garbage: str) -> str:
    """Write to the worker's connection to its client."""
    bytes_ = {
        "noise": b"\xff" * 4096,
        # The beginning of a frame of a mebibyte, which the next one is taken for the rest of.
        "cut": struct.pack("<II", 4, 1 << 20),
        # A whole frame: the result 16 777 215 of the worker, of a task that nobody has.
        "forged": struct.pack("<II", 13, 1) + bytes.fromhex("96 62 ce00ffffff cd7fff 00 00 00 c0"),
    }
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with copy:
            try:
                copy.getpeername()
            except OSError:
                continue
            if copy.family == socket.AF_UNIX:
                if garbage == "shut":
                    copy.shutdown(socket.SHUT_RDWR)
                else:
                    copy.sendall(bytes_[garbage])
    return garbage


def write_all_bytes() -> None:
    """Output that is no text."""
    os.write(1, bytes(range(256)) * 1000)
    print("caf\udce9 \u20ac")
    sys.stderr.buffer.write("hi".encode("utf-16") + b"\xc0\x80\xed\xa0\x80")


def eat_up_to_a_limit() -> None:
    """Take more memory than this process may."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, hard))
    try:
        bytearray(4 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def eat() -> int:
    """Take more memory than there is, and use it."""
    return len(bytes(b"x" * (1 << 30)))


def eat_in_a_child() -> int:
    """The same in a process of its own; what became of that."""
    code = "b'x' * (1 << 30)"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


def fill_disk() -> None:
    """Write to the working folder until there is no room."""
    with open("filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def free_disk() -> None:
    """Make room again."""
    os.unlink("filler")


def print_much() -> None:
    """Print more than a small disk holds."""
    for _ in range(4096):
        print("x" * 4095)
