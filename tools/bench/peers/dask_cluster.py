"""Measure Dask with two worker processes on this host."""

import logging
import warnings
from time import perf_counter
from typing import TypeVar

import dask
import numpy as np
from distributed import Client, LocalCluster
from measure import SIZE, Table, gib_per_second, nothing, p50_us, per_second, same

T = TypeVar("T")


def main() -> None:
    """Run the measurements."""
    table = Table()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
    began = perf_counter()
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="")
    client = Client(cluster)
    client.submit(nothing, pure=False).result()
    table.started(began)

    def many(count: int) -> None:
        client.gather(client.map(nothing, range(count), pure=False))

    def echo(value: T) -> T:
        back: T = client.submit(same, value, pure=False).result()
        return back

    table.row(
        "call_p50_us", lambda: p50_us(lambda: client.submit(nothing, pure=False).result(), table.times(500))
    )
    table.row("calls_per_s", lambda: per_second(many, table.times(5000)))
    data = bytes(SIZE)
    table.row("bytes_64mib_gib_s", lambda: gib_per_second(lambda: len(echo(data)), table.times(5)))
    array = np.full(SIZE // 4, 7, np.float32)
    table.row("numpy_64mib_gib_s", lambda: gib_per_second(lambda: int(echo(array).nbytes), table.times(5)))
    client.close()
    cluster.close()
    table.print()


if __name__ == "__main__":
    main()
