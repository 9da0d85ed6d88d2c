"""The processor cores that a worker has for itself, and the variables by which libraries know of them."""

from __future__ import annotations

import os
from typing import Final

_QUOTAS: Final = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
"""Where the kernel says what a container may use: of version 2 in one file, of version 1 in two."""

_POOLS: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""The variables that numeric libraries read when they are loaded."""


def share(workers: int) -> int:
    """The cores of each of so many workers of this node; at least one."""
    return max(1, cores() // workers)


def cores() -> int:
    """The cores that this process may use, by its affinity and by the quota of its container."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    quota = _quota()
    return count if quota is None else max(1, min(count, quota))


def variables(threads: int, cores: int) -> dict[str, str]:
    """What numeric libraries and joblib read, for those of the variables that are not set.

    Args:
        threads: the threads of one library.
        cores: the most processes or threads that joblib starts by itself.
    """
    values = {**dict.fromkeys(_POOLS, str(threads)), "LOKY_MAX_CPU_COUNT": str(cores)}
    return {name: value for name, value in values.items() if name not in os.environ}


def _quota() -> int | None:
    """Whole cores of the container's quota, rounded up; None where there is none."""
    for paths in _QUOTAS:
        try:
            words = [word for path in paths for word in _read(path).split()]
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):
            continue  # no such file, or `max`
        if quota > 0 and period > 0:
            return -(-quota // period)
    return None


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
