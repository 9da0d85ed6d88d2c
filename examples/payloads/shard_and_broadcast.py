"""Every worker takes its own part of what all of them were given."""

from typing import Any

import skyward as sky


def part(numbers: list[int], shuffle: bool = False, seed: int = 0) -> dict[str, Any]:
    """Add up this worker's part of the numbers.

    Args:
        numbers: the same list on every worker.
        shuffle: take the parts from a random order, on which the workers agree without a word between them.
        seed: chooses that order.

    Returns:
        `node` and `rank` of the worker, its `numbers` and their `sum`.
    """
    info = sky.instance_info()
    mine = sky.shard(numbers, shuffle=shuffle, seed=seed)
    return {"node": info.node, "rank": info.rank, "numbers": mine, "sum": sum(mine)}
