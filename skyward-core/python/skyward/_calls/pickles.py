"""How functions, arguments, results and exceptions travel between workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from types import FunctionType, ModuleType
from typing import Any, Final

from .. import _payload
from .._values import Buffer
from .arrays import Reference, Storing
from .errors import CallError

_PROTOCOL: Final = 5
_NAMED: Final = (FunctionType, type, ModuleType)


class _Pickler(pickle.Pickler):
    """Names what belongs to a payload, and large arrays, in a way that holds on every worker."""

    storing: Storing | None = None

    def reducer_override(self, thing: Any) -> Any:
        found = _reduce(thing, self.storing)
        return NotImplemented if found is None else found


_by_value: Any = None
"""The same for what can only be pickled by value; False where there is nothing for that."""


def _reduce(thing: Any, storing: Storing | None) -> Any:
    """How to pickle what has a name on other workers; None for all else."""
    if isinstance(thing, _NAMED):
        return _payload.reference(thing)
    if storing is not None:
        if type(thing) is storing.kind:
            return storing.reduce(thing)
        if isinstance(thing, Reference):
            storing.holds.extend(thing.holds)
            return thing.reduced
    return None


def dumps(value: Any, prefix: bytes = b"", storing: Storing | None = None) -> memoryview:
    """Pickle a value: as plain Python does, and what that cannot as cloudpickle does, if it is there.

    Args:
        value: anything.
        prefix: stands before the pickle.
        storing: takes the large arrays; None: they are in the pickle.

    Raises:
        Exception: it cannot be pickled.
    """
    buffer = BytesIO()
    buffer.write(prefix)
    try:
        plain = _Pickler(buffer, _PROTOCOL)
        plain.storing = storing
        plain.dump(value)
    except Exception:
        pickler = _find_by_value()
        if not pickler:
            raise
        buffer.seek(len(prefix))
        buffer.truncate()
        if storing is not None:
            storing.begin_again()
        by_value = pickler(buffer, _PROTOCOL)
        by_value.storing = storing
        by_value.dump(value)
    return buffer.getbuffer()


def loads(data: Buffer) -> Any:
    """The value of a pickle.

    Raises:
        BaseException: whatever the things in it raise.
    """
    return pickle.loads(data)


def pack_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], storing: Storing | None = None
) -> memoryview:
    """The body of a call.

    Args:
        function: what is called.
        args: its arguments.
        kwargs: its arguments by name.
        storing: takes the large arrays; None: they are in the body.

    Raises:
        CallError: the function or an argument cannot be pickled.
    """
    try:
        return dumps((function, tuple(args), dict(kwargs)), storing=storing)
    except Exception as error:
        raise CallError(_explain(function, args, kwargs, error)) from error


def name_of(function: Any) -> str:
    """What to call a function in a message."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _explain(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> str:
    """Which part of a call cannot be pickled, and what to do about it."""
    name = name_of(function)
    advice = "" if _find_by_value() else ", or add `cloudpickle` to the image's packages"
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
        dumps(value)
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def _find_by_value() -> Any:
    global _by_value
    if _by_value is None:
        _by_value = _make_by_value() or False
    return _by_value


def _make_by_value() -> Any:
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        try:
            from joblib.externals import cloudpickle  # type: ignore[import-not-found,import-untyped,no-redef,unused-ignore]
        except ImportError:
            return None

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc,name-defined,unused-ignore]
        storing: Storing | None = None

        def reducer_override(self, thing: Any) -> Any:
            found = _reduce(thing, self.storing)
            return super().reducer_override(thing) if found is None else found

    return ByValue
