"""Measure Ray with two actors on this host."""

import os

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

from time import perf_counter
from typing import TypeVar

import numpy as np
import ray
from measure import SIZE, Table, gib_per_second, p50_us, per_second

T = TypeVar("T")


class Echo:
    """An actor that answers calls."""

    def nothing(self) -> None:
        """Do nothing."""

    def same(self, value: T) -> T:
        """Return the argument."""
        return value


def main() -> None:
    """Run the measurements."""
    table = Table()
    began = perf_counter()
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _node_ip_address="127.0.0.1",
    )
    actors = [ray.remote(Echo).remote() for _ in range(2)]
    ray.get(actors[0].nothing.remote())
    table.started(began)

    def many(count: int) -> None:
        ray.get([actors[index % 2].nothing.remote() for index in range(count)])

    table.row("call_p50_us", lambda: p50_us(lambda: ray.get(actors[0].nothing.remote()), table.times(2000)))
    table.row("calls_per_s", lambda: per_second(many, table.times(10_000)))
    data = bytes(SIZE)
    array = np.full(SIZE // 4, 7, np.float32)

    def bytes_back() -> int:
        return len(ray.get(actors[0].same.remote(data)))

    def array_back() -> int:
        return int(ray.get(actors[0].same.remote(array)).nbytes)

    table.row("bytes_64mib_gib_s", lambda: gib_per_second(bytes_back, table.times(30)))
    table.row("numpy_64mib_gib_s", lambda: gib_per_second(array_back, table.times(30)))
    ray.shutdown()
    table.print()


if __name__ == "__main__":
    main()
