"""The state of NumPy's global generator, kept and set in a moment.

NumPy's own functions take 50 microseconds to read that state, and as long to set it, because each
number of it becomes an object. Here they are called only where somebody has drawn from the generator.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from .on_import import on_import

_BYTES: Final = 4 * 624 + 4
"""The size of the state of an MT19937: its key, and the position in it."""


class NumpyState:
    """The global generator of NumPy.

    Its state has two parts: the memory of an MT19937, and a normal number that may be kept for the next
    draw. None is kept while the memory is as a seed has made it.
    """

    def __init__(self, numpy_random: Any) -> None:
        """Find the memory of the generator, which nobody has used, of the module `numpy.random`.

        Raises:
            AttributeError: this version of NumPy has no access to it.
            TypeError: the generator is no MT19937.
        """
        # Workers that import no NumPy start without this module.
        import ctypes

        self._random = numpy_random
        self._copy, self._bytes_at = ctypes.memmove, ctypes.string_at
        self._generator = numpy_random.get_bit_generator()
        if type(self._generator) is not numpy_random.MT19937:
            raise TypeError("the memory of this generator is not known")
        self._address: int = self._generator.ctypes.state_address
        self._undrawn = self._read()
        """The memory as the last seed has made it that NumPy's import or this class has set."""

    def begin(self, seed: int, restores: list[Callable[[], object]]) -> bool:
        """Seed the generator.

        Args:
            seed: 32 bits.
            restores: gets the function that restores the present state, before the state changes.

        Returns:
            Whether the generator is the one that NumPy had at first; if not, nothing was done.
        """
        if not self._is_same():
            return False
        memory = self._read()
        drawn = None if memory == self._undrawn else self._random.get_state(legacy=False)
        seeded = b""

        def restore() -> None:
            is_drawn = not self._is_same() or self._read() != seeded
            if is_drawn:
                self._random.set_bit_generator(self._generator)
            if drawn is None:
                if is_drawn:
                    # Also forgets a normal number that is kept.
                    self._random.seed(seed)
                self._undrawn = memory
            if drawn is None or not (is_drawn or drawn["has_gauss"]):
                self._copy(self._address, memory, _BYTES)
            else:
                self._random.set_state(drawn)

        restores.append(restore)
        self._random.seed(seed)
        seeded = self._undrawn = self._read()
        return True

    def _is_same(self) -> bool:
        return self._random.get_bit_generator() is self._generator

    def _read(self) -> bytes:
        return self._bytes_at(self._address, _BYTES)


generator: NumpyState | None = None
"""The generator from its import on; None without NumPy, or with a version before 1.24."""


def watch() -> None:
    """Find the generator as soon as NumPy is imported."""
    on_import("numpy.random", _note)


def _note(module: ModuleType) -> None:
    global generator
    with suppress(Exception):
        generator = NumpyState(module)
