"""Measure `concurrent.futures.ProcessPoolExecutor` with two processes on this host."""

from concurrent.futures import ProcessPoolExecutor
from time import perf_counter

import numpy as np
from measure import SIZE, Table, gib_per_second, nothing, p50_us, per_second, same


def main() -> None:
    """Run the measurements."""
    table = Table()
    began = perf_counter()
    with ProcessPoolExecutor(2) as pool:
        pool.submit(nothing).result()
        table.started(began)

        def many(count: int) -> None:
            for future in [pool.submit(nothing) for _ in range(count)]:
                future.result()

        table.row("call_p50_us", lambda: p50_us(lambda: pool.submit(nothing).result(), table.times(5000)))
        table.row("calls_per_s", lambda: per_second(many, table.times(20_000)))
        data = bytes(SIZE)
        table.row(
            "bytes_64mib_gib_s",
            lambda: gib_per_second(lambda: len(pool.submit(same, data).result()), table.times(5)),
        )
        array = np.full(SIZE // 4, 7, np.float32)
        table.row(
            "numpy_64mib_gib_s",
            lambda: gib_per_second(lambda: int(pool.submit(same, array).result().nbytes), table.times(5)),
        )
    table.print()


if __name__ == "__main__":
    main()
