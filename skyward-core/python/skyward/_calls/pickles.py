"""Pickle functions, arguments, results and exceptions for other workers."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from types import FunctionType
from typing import Any, Final

from .._core import state
from .._values import tensors
from .._values.codec import Buffer
from . import proxies
from .errors import CallError
from .handlers import raised_by_handler
from .references import Reference, Unstored

_PROTOCOL: Final = 5

_pickler: Any = None
"""The class that pickles; None before the first call."""
_is_by_value = False
"""Whether it can also pickle by value."""


def dumps(value: Any, prefix: bytes = b"", storing: Unstored | None = None) -> memoryview:
    """Pickle a value, with cloudpickle if this environment has it.

    Args:
        value: any object.
        prefix: bytes before the pickle.
        storing: stores large arrays; None to include them in the pickle.

    Raises:
        Exception: the value cannot be pickled.
    """
    kind = type(value)
    if kind is int or kind is float or kind is bool or value is None:
        # All picklers pickle these alike, and Python's own takes a fourth of the time.
        return memoryview(prefix + pickle.dumps(value, _PROTOCOL))
    buffer = BytesIO()
    buffer.write(prefix)
    pickler = (_pickler or _find())(buffer, _PROTOCOL)
    pickler.storing = storing
    pickler.dump(value)
    return buffer.getbuffer()


def loads(data: Buffer) -> Any:
    """Unpickle a value.

    Raises:
        BaseException: what the unpickled objects raise.
    """
    return pickle.loads(data)


def pack_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    storing: Unstored | None = None,
    seed: int | None = None,
) -> memoryview:
    """Encode the body of a call.

    Args:
        function: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
        storing: stores large arrays; None to include them in the body.
        seed: the seed of its random numbers; None without one.

    Raises:
        CallError: the function or an argument cannot be pickled.
        Exception: what a signal handler of the payload raised meanwhile.
    """
    try:
        return dumps((function, tuple(args), dict(kwargs), seed), storing=storing)
    except Exception as error:
        if raised_by_handler(error):
            raise
        raise CallError(_explain(function, args, kwargs, error)) from error


def name_of(function: Any) -> str:
    """Return the name of a function for messages."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _explain(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> str:
    """Return which part of a call cannot be pickled, and what to do about it."""
    name = name_of(function)
    advice = "" if _is_by_value else ", or add `cloudpickle` to the image's packages"
    if found := _fails(function):
        return f"the function {name} cannot be pickled: {found}; define it at the top level of its module{advice}"
    numbered = [(str(number), value) for number, value in enumerate(args, 1)]
    for argument, value in [*numbered, *((f"`{key}`", value) for key, value in kwargs.items())]:
        if found := _fails(value):
            kind = type(value).__qualname__
            text = f"argument {argument} of {name}, a {kind}, cannot be pickled: {found}"
            return f"{text}; pass what it is made from{advice}"
    return f"the call of {name} cannot be pickled: {error}"


def _fails(value: Any) -> str:
    try:
        dumps(value, storing=Unstored())
    except Exception as error:
        if raised_by_handler(error):
            raise
        return str(error) or type(error).__name__
    return ""


def _find() -> Any:
    """Return the class that pickles, found at its first use."""
    global _pickler, _is_by_value
    base = _cloudpickle()
    is_outside = state.worker is None
    _is_by_value = base is not None

    class Pickler(base or pickle.Pickler):  # type: ignore[misc]
        storing: Unstored | None = None

        def reducer_override(self, thing: Any) -> Any:
            if "torch" in sys.modules and hasattr(type(thing), "untyped_storage"):
                _check_tensor(thing)
            storing = self.storing
            if storing is not None:
                if storing.kind is not None and issubclass(type(thing), storing.kind):
                    found = storing.reduce(thing)
                    if found is not None:
                        return found
                elif isinstance(thing, Reference):
                    storing.holds.extend(thing.holds)
                    return thing.reduced
            managers = sys.modules.get("multiprocessing.managers")
            if managers is not None and issubclass(type(thing), managers.BaseProxy):
                return proxies.reduce(thing)
            if base is None or (is_outside and _is_of_script(thing)):
                return NotImplemented
            return super().reducer_override(thing)

    _pickler = Pickler
    return Pickler


def _is_of_script(thing: Any) -> bool:
    """Return whether this is a function or class at the top level of a script that runs outside a pool.

    In a worker it would be one of the payload's module, and its globals those of the module.
    """
    if not isinstance(thing, type | FunctionType) or thing.__module__ != "__main__":
        return False
    return getattr(sys.modules["__main__"], thing.__qualname__, None) is thing


def _check_tensor(tensor: Any) -> None:
    """Refuse a tensor whose memory was freed: torch would pickle whatever is there."""
    try:
        tensors.check_pickled(sys.modules["torch"], tensor)
    except tensors.TensorError as error:
        raise pickle.PicklingError(str(error)) from None


def _cloudpickle() -> Any:
    """Return the pickler of cloudpickle, or of joblib's copy of it; None without both."""
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        try:
            from joblib.externals import cloudpickle  # type: ignore[import-not-found,import-untyped,no-redef,unused-ignore]
        except ImportError:
            return None
    return cloudpickle.Pickler
