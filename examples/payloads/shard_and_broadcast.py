"""Every worker gets the same data and takes its own part."""

from typing import Any

import skyward as sky


def part(numbers: list[int], shuffle: bool = False, seed: int = 0) -> dict[str, Any]:
    """Add up this worker's part of the numbers.

    Args:
        numbers: the same list on every worker.
        shuffle: shuffle the numbers first; the order is the same on all workers.
        seed: selects that order.

    Returns:
        A dict of the worker's `node` and `rank`, its `numbers`, and their `sum`.
    """
    info = sky.instance_info()
    mine = sky.shard(numbers, shuffle=shuffle, seed=seed)
    return {"node": info.node, "rank": info.rank, "numbers": mine, "sum": sum(mine)}
