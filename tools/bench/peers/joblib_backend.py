"""Measure `benches/python/work.py` with joblib on loky, Dask or Ray: two workers on this host."""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# One thread per worker, so that two workers on two cores are compared, not their thread pools.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import work
from joblib import parallel_config
from measure import Table

DEPTH = 4
"""The levels of the tree of calls, with three calls on each level."""


def recursive_dask(depth: int) -> int:
    """Run a tree of calls; a task that waits gives its thread to another task."""
    if depth == 0:
        return 1
    from distributed import get_client, rejoin, secede

    client = get_client()
    futures = [client.submit(recursive_dask, depth - 1, pure=False) for _ in range(3)]
    # Without this call, waiting tasks would occupy all threads that their own calls need.
    secede()
    leaves = client.gather(futures)
    rejoin()
    return sum(leaves)


def recursive_ray(depth: int) -> int:
    """Run a tree of calls; a task that waits gives its core to another process."""
    if depth == 0:
        return 1
    import ray

    call = ray.remote(recursive_ray)
    return sum(ray.get([call.remote(depth - 1) for _ in range(3)]))


@contextmanager
def loky() -> Iterator[None]:
    """Use joblib's own processes, in which a tree of calls would never end."""
    with parallel_config("loky", n_jobs=work.WORKERS):
        yield


@contextmanager
def dask() -> Iterator[Callable[[], int]]:
    """Use two worker processes of Dask."""
    import dask as library
    from distributed import Client, LocalCluster

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    library.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
    with (
        LocalCluster(
            n_workers=work.WORKERS, threads_per_worker=1, host="127.0.0.1", dashboard_address=""
        ) as cluster,
        Client(cluster) as client,
        parallel_config("dask", n_jobs=work.WORKERS),
    ):
        yield lambda: int(client.submit(recursive_dask, DEPTH, pure=False).result())


@contextmanager
def ray() -> Iterator[Callable[[], int]]:
    """Use two cores of a separate Ray instance."""
    import ray as library
    from ray.util.joblib import register_ray

    library.init(
        num_cpus=work.WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _node_ip_address="127.0.0.1",
    )
    register_ray()
    tree = library.remote(recursive_ray)
    with parallel_config("ray", n_jobs=work.WORKERS):
        yield lambda: int(library.get(tree.remote(DEPTH)))
    library.shutdown()


BACKENDS = {"loky": loky, "dask": dask, "ray": ray}


def timed_tree(tree: Callable[[], int]) -> float:
    """Run a tree twice, and return the seconds of the second one."""
    seconds = 0.0
    for _ in range(2):
        began = perf_counter()
        if tree() != 3**DEPTH:
            raise AssertionError("leaves are missing")
        seconds = perf_counter() - began
    return seconds


def main() -> None:
    """Run the measurements."""
    table = Table(BACKENDS)
    with BACKENDS[table.word]() as tree:
        table.row("py_tiny_ms", lambda: 1e3 * work.tiny(2000))
        table.row("py_one_by_one_s", lambda: work.one_by_one(table.times(2000)) * (2000 / table.times(2000)))
        table.row("py_10ms_of_ideal", lambda: work.busy(200))
        table.row("py_grid_s", work.grid)
        if table.wants("py_array_first_s") or table.wants("py_array_again_s"):
            first, again = work.array(20 if table.quick else 200, os.getpid())
            table.row("py_array_first_s", lambda: first)
            table.row("py_array_again_s", lambda: again)
        if tree is not None:
            table.row("py_recursion_s", lambda: timed_tree(tree))
    table.print()


if __name__ == "__main__":
    main()
