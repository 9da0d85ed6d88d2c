"""What the tasks of a chaos round do."""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator

import skyward as sky


def ran(call: int, log: str) -> int:
    """Leave a line for this execution; the rank that it runs on."""
    info = sky.instance_info()
    rank = info.global_worker_index
    leave(log, f"{call} {rank} {info.generation} {os.getpid()}")
    return rank


def leave(log: str, line: str) -> None:
    """Write a line, all of it at once."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def sleep(call: int, log: str, millis: int) -> tuple[int, int]:
    """Take a while, or no time at all."""
    rank = ran(call, log)
    if millis:
        time.sleep(millis / 1000)
    return call, rank


def hold(call: int, log: str, millis: int, native: bool) -> tuple[int, int]:
    """Run for a while, in Python or in native code that keeps the interpreter's lock."""
    rank = ran(call, log)
    usleep = ctypes.PyDLL(None).usleep
    end = time.monotonic() + millis / 1000
    while (left := end - time.monotonic()) > 0:
        # A signal ends the native call early.
        usleep(int(left * 1e6) + 1 if native else 500)
    return call, rank


def tree(call: int, log: str, width: int, depth: int, millis: int, form: str, again: bool) -> tuple[int, int]:
    """Grow a tree of calls, and count its nodes."""
    ran(call, log)
    return call, grow(log, width, depth, millis, form, again)


def grow(log: str, width: int, depth: int, millis: int, form: str, again: bool) -> int:
    """Call as many branches as the tree is wide, and wait for them in the way that is named."""
    if not depth:
        time.sleep(millis / 1000)
        return 1
    # What calls this execution makes, and no other one of the same task.
    caller = os.urandom(8).hex()
    retry = sky.Retry() if again else sky.Retry(crash=0, out_of_memory=0, node_lost=0, preempted=0)
    calls = sky.options(retry=retry)

    def branch_of(index: int) -> tuple[object, ...]:
        return log, caller, index, width, depth - 1, millis, form, again

    if form == "map":
        branches = [branch_of(index) for index in range(width)]
        return 1 + int(sum(calls.map(branch, *zip(*branches, strict=True), chunksize=1)))
    futures = [calls.submit(branch, *branch_of(index)) for index in range(width)]
    if form == "hidden":
        # The worker does not see that it waits.
        concurrent.futures.wait(futures)
    return 1 + int(sum(future.result() for future in futures))


def branch(
    log: str, caller: str, index: int, width: int, depth: int, millis: int, form: str, again: bool
) -> int:
    """A call: leave a line for this execution, and grow."""
    leave(log, f"+ {caller} {index}")
    return grow(log, width, depth, millis, form, again)


def stream(call: int, log: str, count: int, pause: int) -> Iterator[tuple[int, int]]:
    """Give so many items, with so many milliseconds before each."""
    ran(call, log)
    for index in range(count):
        time.sleep(pause / 1000)
        yield call, index


def artifact(call: int, log: str, size: int, files: int) -> sky.Artifact:
    """Give a file, or a folder of files, whose bytes follow from the call."""
    ran(call, log)
    content = call.to_bytes(8, "little") * (size // 8)
    if not files:
        return sky.artifact(content, name=f"{call}")
    folder = f"artifact-{call}-{os.urandom(8).hex()}"
    os.mkdir(folder)
    for number in range(files):
        with open(f"{folder}/{number}", "wb") as file:
            file.write(content)
    return sky.artifact(folder, move=True)


def train(call: int, log: str, steps: int, every: int, millis: int) -> tuple[int, int]:
    """Train from the last checkpoint on; the state, which each step changes."""
    ran(call, log)
    state = 1
    with sky.checkpoints(f"call-{call}", keep=2) as ckpt:
        start = ckpt.latest()
        if start is not None:
            state = restored(start, "0")
        for step in range(start.step + 1 if start else 1, steps + 1):
            state = (state * 31 + step) % 1000003
            time.sleep(millis / 1000)
            if ckpt.due(step, every=every) or step == steps:
                with ckpt.save(step, meta={"state": state}) as folder:
                    keep(folder, "0", state)
    return call, state


def train_together(call: int, log: str, steps: int, millis: int) -> tuple[int, int, int]:
    """Train on all ranks in lockstep; they agree on the steps at which they save."""
    rank = ran(call, log)
    import builtins

    world = builtins.chaos_world  # type: ignore[attr-defined]
    ranks = sky.instance_info().total_workers
    state = 1
    with sky.checkpoints(f"call-{call}", keep=2) as ckpt:
        start = ckpt.latest()
        if start is not None:
            state = restored(start, str(rank))
            if {path.name for path in start.path.iterdir()} != {str(each) for each in range(ranks)}:
                raise AssertionError("the checkpoint has not the files of all ranks")
        for step in range(start.step + 1 if start else 1, steps + 1):
            # Each rank knows that all others are at the same step, and in the same state.
            if world.add_up(call << 16 | step, state) != state * ranks:
                raise AssertionError(f"the ranks are in different states at step {step}")
            state = (state * 31 + step) % 1000003
            time.sleep(millis / 1000)
            if ckpt.due(step, seconds=0.05) or step == steps:
                with ckpt.save(step, meta={"state": state}) as folder:
                    keep(folder, str(rank), state)
    return call, rank, state


def keep(folder: pathlib.Path, name: str, state: int) -> None:
    """Write the state at the beginning and at the end of a file, so that a torn one shows."""
    with open(folder / name, "wb") as file:
        for _ in range(state % 5 * 1000 + 2):
            file.write(state.to_bytes(8, "little"))


def restored(start: sky.Checkpoint, name: str) -> int:
    """Return the state of a checkpoint, which must be whole."""
    state = int(start.meta["state"])
    expected = 1
    for step in range(1, start.step + 1):
        expected = (expected * 31 + step) % 1000003
    content = (start.path / name).read_bytes()
    if state != expected or content != state.to_bytes(8, "little") * (state % 5 * 1000 + 2):
        raise AssertionError(f"the checkpoint of step {start.step} is torn")
    return state


def litter(call: int, log: str) -> tuple[int, int]:
    """Leave processes behind, one of them in a session of its own."""
    rank = ran(call, log)
    for apart in (False, True):
        subprocess.Popen(["sleep", "600"], start_new_session=apart)
    return call, rank


def meet(call: int, log: str) -> tuple[int, int, int]:
    """Add up what all ranks bring."""
    rank = ran(call, log)
    import builtins

    return call, rank, builtins.chaos_world.add_up(call, rank + 1)  # type: ignore[attr-defined]
