"""A random order that is the same on all workers, with any Python version and without NumPy.

Each position has a key: the output of SplitMix64 at that position, from a start value that the seed
gives. The lowest bits of the key, as many as the largest position has, are replaced by the
position. The order is that of the resulting numbers. No two of them are equal, so every sorting
algorithm gives the same order, and the sorted numbers contain the positions. All arithmetic is
modulo 2**64, which Python and NumPy compute alike.

Drawing one position after another, as `random.shuffle` does, cannot be vectorised with the same
result, and NumPy's own generators are not available without NumPy.
"""

from __future__ import annotations

import sys
from typing import Any, Final

_STEP: Final = 0x9E37_79B9_7F4A_7C15
_FIRST: Final = 0xBF58_476D_1CE4_E5B9
_SECOND: Final = 0x94D0_49BB_1331_11EB
_MASK: Final = (1 << 64) - 1
_MANY: Final = 50_000
"""The number of positions from which importing NumPy saves time."""


def shuffled(total: int, seed: int, start: int, stop: int) -> Any:
    """Return the positions `start` to `stop` of the random order of `total` items.

    Returns:
        The positions as a list of int, or as an int64 NumPy array of shape `(stop - start,)`. Both
        hold the same numbers.
    """
    first = _first(seed)
    numpy = sys.modules.get("numpy") if total < _MANY else _numpy()
    if numpy is None or total < _MANY // 10:
        return _plain(total, first)[start:stop]
    return _vectorised(numpy, total, first, start, stop)


def _plain(total: int, first: int) -> list[int]:
    low = (1 << max(total - 1, 0).bit_length()) - 1
    high = _MASK ^ low
    numbers = sorted([_mix(first + position * _STEP) & high | position for position in range(total)])
    return [number & low for number in numbers]


def _vectorised(numpy: Any, total: int, first: int, start: int, stop: int) -> Any:
    """Do the same with NumPy; only the requested part is sorted."""
    low = (1 << max(total - 1, 0).bit_length()) - 1
    positions = numpy.arange(total, dtype=numpy.uint64)
    numbers = positions * numpy.uint64(_STEP)
    numbers += numpy.uint64(first)
    for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        numbers ^= numbers >> numpy.uint64(shift)
        numbers *= numpy.uint64(factor)
    numbers &= numpy.uint64(_MASK ^ low)
    numbers |= positions
    bounds = sorted({bound for bound in (start, stop) if 0 < bound < total})
    if bounds:
        numbers.partition(bounds)
    part = numpy.sort(numbers[start:stop])
    part &= numpy.uint64(low)
    return part.astype(numpy.int64)


def _first(seed: int) -> int:
    """Derive 64 bits from an int of any size and sign."""
    left = 2 * abs(seed) + (seed < 0)
    state = 0
    while True:
        state = _mix(state + _STEP + (left & _MASK))
        left >>= 64
        if not left:
            return state


def _mix(number: int) -> int:
    """Return SplitMix64's output for a state, of which the lowest 64 bits count."""
    number &= _MASK
    number = (number ^ number >> 30) * _FIRST & _MASK
    number = (number ^ number >> 27) * _SECOND & _MASK
    return number ^ number >> 31


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy
