"""How functions, arguments, results and exceptions travel between workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from types import FunctionType, ModuleType
from typing import Any, Final

from .. import _payload
from .._values import Buffer
from .errors import CallError

_PROTOCOL: Final = 5
_NAMED: Final = (FunctionType, type, ModuleType)


class _Pickler(pickle.Pickler):
    """Names what belongs to a payload in a way that holds on every worker."""

    def reducer_override(self, thing: Any) -> Any:
        found = _payload.reference(thing) if isinstance(thing, _NAMED) else None
        return NotImplemented if found is None else found


_by_value: Any = None
"""The same for what can only be pickled by value; False where there is nothing for that."""


def dumps(value: Any, prefix: bytes = b"") -> memoryview:
    """Pickle a value: as plain Python does, and what that cannot as cloudpickle does, if it is there.

    Args:
        value: anything.
        prefix: stands before the pickle.

    Raises:
        Exception: it cannot be pickled.
    """
    buffer = BytesIO()
    buffer.write(prefix)
    try:
        _Pickler(buffer, _PROTOCOL).dump(value)
    except Exception:
        pickler = _find_by_value()
        if not pickler:
            raise
        buffer.seek(len(prefix))
        buffer.truncate()
        pickler(buffer, _PROTOCOL).dump(value)
    return buffer.getbuffer()


def loads(data: Buffer) -> Any:
    """The value of a pickle.

    Raises:
        BaseException: whatever the things in it raise.
    """
    return pickle.loads(data)


def pack_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> memoryview:
    """The body of a call.

    Raises:
        CallError: the function or an argument cannot be pickled.
    """
    try:
        return dumps((function, tuple(args), dict(kwargs)))
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
        def reducer_override(self, thing: Any) -> Any:
            found = _payload.reference(thing) if isinstance(thing, _NAMED) else None
            return super().reducer_override(thing) if found is None else found

    return ByValue
