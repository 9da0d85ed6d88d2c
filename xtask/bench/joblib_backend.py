"""loky, Dask or Ray under joblib: two workers of this host run what `benches/python/work.py` measures."""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# One thread each: two workers that share two cores are compared, not their thread pools.
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
"""Levels of the tree of calls, each of three."""


def recursive_dask(depth: int) -> int:
    """A tree of calls: a task that waits leaves its thread to another."""
    if depth == 0:
        return 1
    from distributed import get_client

    client = get_client()
    futures = [client.submit(recursive_dask, depth - 1, pure=False) for _ in range(3)]
    return sum(client.gather(futures))


def recursive_ray(depth: int) -> int:
    """A tree of calls: a task that waits gives its core to another process."""
    if depth == 0:
        return 1
    import ray

    call = ray.remote(recursive_ray)
    return sum(ray.get([call.remote(depth - 1) for _ in range(3)]))


@contextmanager
def loky() -> Iterator[None]:
    """joblib's own processes; a tree of calls would never end there."""
    with parallel_config("loky", n_jobs=work.WORKERS):
        yield


@contextmanager
def dask() -> Iterator[Callable[[], int]]:
    """Two worker processes."""
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
    """Two cores of a Ray of its own."""
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
    """Seconds of the second tree."""
    seconds = 0.0
    for _ in range(2):
        began = perf_counter()
        if tree() != 3**DEPTH:
            raise AssertionError("leaves are missing")
        seconds = perf_counter() - began
    return seconds


def main() -> None:
    """Measure."""
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
