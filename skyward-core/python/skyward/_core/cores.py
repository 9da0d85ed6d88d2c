"""A worker's share of the processor cores, and the variables through which libraries learn it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

_QUOTAS: Final = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
"""The kernel's files with a container's quota: one in version 2 of cgroups, two in version 1."""

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


DEFAULTS: Final = "SKYWARD_DEFAULTS"
"""The variable with the names of those that the agent has set, and the image has not."""


def share(workers: int) -> int:
    """Return the cores per worker, for this number of workers on the node; at least one."""
    return max(1, cores() // workers)


def cores() -> int:
    """Return the cores that this process may use, by its affinity and its container's quota."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    quota = _quota()
    return count if quota is None else max(1, min(count, quota))


def defaults(cluster: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a worker that shares its host with others, unless they are given.

    Otherwise each of the workers would start a thread for each core.

    Args:
        cluster: the worker's cluster. Nodes with the same address, or on loopback, share a host. So do
            all nodes where the cluster says so, as containers do that have no cores of their own.
        given: the variables of the image and of the host.
    """
    here = _host(cluster["addr"])
    nodes = sum(_host(peer["addr"]) == here for peer in cluster.get("peers", ()))
    if nodes <= 1 and cluster.get("shared_host") and _quota() is None:
        nodes = cluster["total_nodes"]
    workers = cluster["workers_per_node"] * max(1, nodes)
    if workers == 1:
        return {}
    names = [name for name in _POOLS if name not in given]
    return {**dict.fromkeys(names, str(share(workers))), DEFAULTS: ",".join(names)}


def variables(threads: int, cores: int) -> dict[str, str]:
    """Return the variables that numeric libraries and joblib read, unless the image sets them.

    Args:
        threads: the number of threads of each library.
        cores: the most processes or threads that joblib may start by itself.
    """
    values = {**dict.fromkeys(_POOLS, str(threads)), "LOKY_MAX_CPU_COUNT": str(cores)}
    ours = os.environ.get(DEFAULTS, "").split(",")
    return {name: value for name, value in values.items() if name not in os.environ or name in ours}


def _host(address: str) -> str:
    return "127." if address.startswith("127.") else address


def _quota() -> int | None:
    """Return the container's quota in cores, rounded up; None without a quota."""
    for paths in _QUOTAS:
        try:
            words = [word for path in paths for word in _read(path).split()]
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):
            continue  # the file does not exist, or contains `max`
        if quota > 0 and period > 0:
            return -(-quota // period)
    return None


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
