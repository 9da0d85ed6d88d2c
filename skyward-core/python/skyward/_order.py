"""A random order on which all workers agree, whatever Python they run, and whether they have NumPy.

Each position has a key: SplitMix64 at the position, from a start that the seed gives. The lowest bits of the key, as
many as the largest position has, make room for the position itself. The order is that of these numbers. No two of them
are equal, so every way to sort gives one order; and what was sorted are the positions already. Sums and products are
those of 64-bit integers, which Python and NumPy compute alike.

Drawing one position after the other, as `random.shuffle` does, has no vectorised form with the same order, and NumPy's
own generators are missing where NumPy is.
"""

from __future__ import annotations

import sys
from typing import Any, Final

_STEP: Final = 0x9E37_79B9_7F4A_7C15
_FIRST: Final = 0xBF58_476D_1CE4_E5B9
_SECOND: Final = 0x94D0_49BB_1331_11EB
_MASK: Final = (1 << 64) - 1
_MANY: Final = 50_000
"""Positions from which on NumPy is worth its import."""


def shuffled(total: int, seed: int, start: int, stop: int) -> Any:
    """The positions `start` to `stop` of the random order of `total` things.

    Returns:
        Positions as a list of int, or as a NumPy array of shape `(stop - start,)` and int64; the same numbers.
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
    """The same with NumPy: only the part that is asked for is sorted."""
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
    """64 bits from an int of any size and sign."""
    left = 2 * abs(seed) + (seed < 0)
    state = 0
    while True:
        state = _mix(state + _STEP + (left & _MASK))
        left >>= 64
        if not left:
            return state


def _mix(number: int) -> int:
    """SplitMix64's output for this state; sums may be larger than 64 bits, of which the lowest count."""
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
