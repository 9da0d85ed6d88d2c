"""Failures: convert an exception into the map from which the client makes its error."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from .._core.conceal import concealed
from .._core.modules import is_payload_file, shown, shown_path
from .._values.errors import EncodeError, TooLargeError
from .hooks import HookError
from .missing import missing

_OWN: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LONGEST: Final = 1 << 18
"""Characters of a message or traceback; longer ones are cut in the middle."""


def failure_map(error: BaseException, owned: Callable[[str], bool] | None = None) -> dict[str, Any]:
    """Describe an exception that a payload or a hook raised.

    Args:
        error: the exception.
        owned: returns whether a file belongs to the payload; the traceback begins with the first
            such frame.
    """
    if isinstance(error, HookError):
        return {
            **failure_map(error.cause),
            "kind": "hook",
            "plugin": error.plugin,
            "phase": error.phase,
        }
    described = _describe(error, owned)
    if isinstance(error, EncodeError):
        return {
            **described,
            "kind": "encode",
            "type": "TypeError",
            "module": "builtins",
            "traceback": "",
            "path": error.path,
            "value_type": error.value_type,
        }
    if isinstance(error, TooLargeError):
        return {**described, "kind": "too_large", "type": "ValueError", "module": "builtins", "traceback": ""}
    if isinstance(error, ImportError):
        return {**described, "kind": "import", **missing(error)}
    if isinstance(error, SystemExit):
        return {**described, "kind": "exit", "message": "" if error.code is None else _text(error.code)}
    return described


def simple_failure(kind: str, message: str, **more: str) -> dict[str, Any]:
    """Describe a failure that no exception represents."""
    names = {"type": "RuntimeError", "module": "builtins", "message": message, "traceback": ""}
    return {"kind": kind, **names, **more}


def misfit(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[str, str] | None:
    """Return why arguments do not fit a function, and the wrong one's path; else None."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None
    try:
        signature.bind(**arguments)
    except TypeError as error:
        parameters = signature.parameters
        unknown = next((name for name in arguments if name not in parameters), None)
        missing = next(
            (n for n, p in parameters.items() if p.default is p.empty and n not in arguments and p.kind not in (2, 4)),
            None,
        )
        at_fault = unknown or missing
        return f"{error}; the function takes {signature}", f".{at_fault}" if at_fault else ""
    return None


def _describe(error: BaseException, owned: Callable[[str], bool] | None) -> dict[str, Any]:
    kind = type(error)
    if isinstance(error, SyntaxError) and is_payload_file(str(error.filename)):
        # Its text has the last part of this path.
        error.filename = shown_path(str(error.filename))
    return {
        "kind": "exception",
        "type": kind.__qualname__,
        "module": shown(f"{kind.__module__}.")[:-1],
        "message": _text(error),
        "traceback": _traceback(error, owned),
    }


def _traceback(error: BaseException, owned: Callable[[str], bool] | None) -> str:
    import traceback

    try:
        lines = traceback.format_exception(type(error), error, _trim(error.__traceback__, owned))
        return _printable("".join(lines))
    except Exception as broken:
        return f"(the traceback cannot be shown: {type(broken).__name__})"


def _trim(trace: TracebackType | None, owned: Callable[[str], bool] | None) -> TracebackType | None:
    """Cut off the frames before the payload's first frame, or else this package's own frames."""
    first: TracebackType | None = trace
    while owned and first is not None:
        if owned(first.tb_frame.f_code.co_filename):
            return first
        first = first.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((_OWN, "<frozen importlib")):
        trace = trace.tb_next
    return trace


def _text(value: object) -> str:
    try:
        return _printable(str(value))
    except Exception:
        return f"(a {type(value).__name__} whose str() fails)"


def _printable(text: str) -> str:
    text = shown(concealed(text))
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}\n… {len(text) - _LONGEST} characters left out …\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()
