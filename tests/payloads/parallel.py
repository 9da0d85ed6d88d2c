"""Payloads that use joblib on threads of their own, and while their pool grows."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import skyward as sky
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

Used = tuple[str, int, int]


def double(number: int) -> int:
    """A function that only the workers of the pool can import."""
    return 2 * number


def used() -> Used:
    """Use the backend of this thread; return its name, its jobs, and its retries after a crash."""
    found = Parallel(n_jobs=-1)(delayed(double)(number) for number in range(20))
    if found != [2 * number for number in range(20)]:
        raise ValueError(found)
    backend, _ = get_active_backend()
    return type(backend).__name__, effective_n_jobs(-1), backend.retry.crash


def below() -> Used:
    """Use the backend on a thread of its own."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(used).result()


def on_threads(folder: str) -> list[Used]:
    """On a thread of this task, and in calls: on their main threads, on threads below, and beside."""
    calls = [sky.submit(below), sky.submit(used), sky.submit(below), sky.submit(used)]
    while not all(call.done() for call in calls):
        time.sleep(0.01)  # the worker does not see this wait, so calls run beside it
    return [used(), below(), *(call.result() for call in calls)]


def meet(folder: str, ranks: int) -> int:
    """Wait until this many ranks have come; return this one."""
    rank = sky.instance_info().rank
    Path(folder, str(rank)).touch()
    end = time.monotonic() + 60
    while len(os.listdir(folder)) < ranks and time.monotonic() < end:
        time.sleep(0.01)
    return rank


def grow(folder: str) -> tuple[int, list[int]]:
    """Have calls wait that only a larger pool can run."""
    jobs = effective_n_jobs(-1)
    return jobs, sorted(set(Parallel(n_jobs=-1)(delayed(meet)(folder, 3) for _ in range(12))))


def jobs(folder: str) -> int:
    """The number of jobs for -1."""
    return int(effective_n_jobs(-1))
