"""Imports a file that lies beside it, in a way that the compiler cannot refuse."""

import importlib


def lonely() -> str:
    """Fails, because the file is no part of the payload."""
    return importlib.import_module("searched").__name__
