"""The states of Python's and NumPy's global generators, kept and set in a moment.

The libraries' own functions take 13 microseconds (Python) and 50 (NumPy) to read such a state, and as
long to set it, because each number of it becomes an object. Seeding takes 4 more. Here the memory is
copied, and a state for a call is cut from many random bytes that were made at once.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

from .on_import import on_import

Restore = Callable[[], object]

_NUMBERS: Final = 624
"""The numbers of an MT19937, of 32 bits each. Random ones are as good a state as those that follow from a seed."""
_KEY_BYTES: Final = 4 * _NUMBERS
_POSITION: Final = _NUMBERS.to_bytes(4, sys.byteorder)
"""The position behind the numbers: the next draw begins with new ones."""
_BYTES: Final = _KEY_BYTES + len(_POSITION)
_AT_ONCE: Final = 32
"""States whose numbers are made at once."""
_UNKNOWN: Final = "the memory of this generator is not known"

_keys: list[bytes] = []
# A child would otherwise have the numbers of its parent.
os.register_at_fork(after_in_child=_keys.clear)


def _new_key() -> bytes:
    """Return the numbers of a state that nobody has had."""
    if not _keys:
        size = _AT_ONCE * _KEY_BYTES
        numpy: Any = sys.modules.get("numpy.random")
        try:
            # Seeded by the system, and ten times faster than the system.
            made: bytes = numpy.Generator(numpy.SFC64()).bytes(size)
        except Exception:
            # Without NumPy, or while another thread imports it.
            made = os.urandom(size)
        _keys.extend(made[start : start + _KEY_BYTES] for start in range(0, size, _KEY_BYTES))
    return _keys.pop()


class _Memory:
    """The memory of the state of an MT19937."""

    def __init__(self, address: int) -> None:
        # Workers that help with no call start without this module.
        import ctypes

        self._bytes = (ctypes.c_char * _BYTES).from_address(address)
        # Reads three times as fast.
        self._view = memoryview(self._bytes)

    def read(self) -> bytes:
        return self._view.tobytes()

    def write(self, state: bytes) -> None:
        self._bytes.raw = state


class PythonGenerator:
    """The generator of the functions of the module `random`.

    Its state has two parts: the memory of an MT19937, and a normal number that may be kept for the next
    draw.
    """

    def __init__(self, random: Any) -> None:
        """Find the memory of the generator.

        Args:
            random: the module.

        Raises:
            Exception: the module has no such generator, or its memory is not known.
        """
        self._random = random
        self._generator = random._inst
        head = object.__basicsize__
        if type(self._generator).__basicsize__ < head + _BYTES:
            raise TypeError(_UNKNOWN)
        self._memory = _Memory(id(self._generator) + head)
        position, *key = struct.unpack(f"=i{_NUMBERS}I", self._memory.read())
        if self._generator.getstate()[1] != (*key, position):
            raise TypeError(_UNKNOWN)

    def begin(self, restores: list[Restore]) -> None:
        """Set a new state.

        Args:
            restores: gets the function that restores the present state, before the state changes.

        Raises:
            AttributeError, TypeError: the module draws from something else; nothing was done.
        """
        generator, memory = self._generator, self._memory
        if self._random.random.__self__ is not generator:
            raise TypeError("the module draws from another generator")
        before, normal = memory.read(), generator.gauss_next

        def restore() -> None:
            memory.write(before)
            generator.gauss_next = normal

        restores.append(restore)
        memory.write(_POSITION + _new_key())
        generator.gauss_next = None


class NumpyGenerator:
    """The global generator of NumPy.

    Its state has two parts: the memory of an MT19937, and a normal number that may be kept for the next
    draw, which only NumPy's own functions read and set. None is kept while the memory is as NumPy's
    import or this class has set it.
    """

    def __init__(self, numpy_random: Any) -> None:
        """Find the memory of the generator of the module `numpy.random`.

        Raises:
            AttributeError: this version of NumPy has no access to it.
            TypeError: the generator is no MT19937.
        """
        self._random = numpy_random
        self._generator = numpy_random.get_bit_generator()
        if type(self._generator) is not numpy_random.MT19937:
            raise TypeError(_UNKNOWN)
        self._memory = _Memory(self._generator.ctypes.state_address)
        # Hooks and declared payloads have run already.
        has_drawn = numpy_random.get_state(legacy=False)["has_gauss"]
        self._undrawn = b"" if has_drawn else self._memory.read()
        """The memory as it was set last."""

    def begin(self, restores: list[Restore]) -> None:
        """Set a new state.

        Args:
            restores: gets the function that restores the present state, before the state changes.

        Raises:
            Exception: the payload has chosen a generator that cannot be made anew.
        """
        if not self._is_same():
            self._replace(restores)
            return
        memory = self._memory
        before = memory.read()
        drawn = None if before == self._undrawn else self._random.get_state(legacy=False)
        begun = b""

        def restore() -> None:
            is_drawn = not self._is_same() or memory.read() != begun
            if is_drawn:
                self._forget_normal()
            if drawn is None:
                self._undrawn = before
            if drawn is None or not (is_drawn or drawn["has_gauss"]):
                memory.write(before)
            else:
                self._random.set_state(drawn)

        restores.append(restore)
        if drawn is not None:
            self._forget_normal()
        begun = self._undrawn = _new_key() + _POSITION
        memory.write(begun)

    def _replace(self, restores: list[Restore]) -> None:
        """Put a new generator in the place of the one that the payload has chosen."""
        module = self._random
        before, state = module.get_bit_generator(), module.get_state(legacy=False)

        def restore() -> None:
            module.set_bit_generator(before)
            module.set_state(state)

        restores.append(restore)
        module.set_bit_generator(type(before)())

    def _forget_normal(self) -> None:
        """Forget a normal number that is kept, and use the generator that NumPy had at first."""
        self._random.set_bit_generator(self._generator)

    def _is_same(self) -> bool:
        return self._random.get_bit_generator() is self._generator


_python: PythonGenerator | None = None
_is_python_known = False
_numpy: NumpyGenerator | None = None


def python() -> PythonGenerator | None:
    """Return Python's generator; None if nobody has imported it, or its memory is not known."""
    global _python, _is_python_known
    module = None if _is_python_known else sys.modules.get("random")
    if module is not None:
        with suppress(Exception):
            _python = PythonGenerator(module)
        _is_python_known = True
    return _python


def numpy() -> NumpyGenerator | None:
    """Return NumPy's generator, from its import on; None without NumPy, or with a version before 1.24."""
    return _numpy


def watch() -> None:
    """Find NumPy's generator as soon as NumPy is imported."""
    on_import("numpy.random", _note)


def _note(module: ModuleType) -> None:
    global _numpy
    with suppress(Exception):
        _numpy = NumpyGenerator(module)
