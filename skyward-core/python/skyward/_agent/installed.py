"""What is installed on a node: Python itself, and the packages that its workers can import.

Nodes of one pool must have the same: a call is pickled on one node and unpickled on another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Final

_INSTALLERS: Final = frozenset(("pip", "setuptools", "uv", "wheel"))
"""Packages that install others. They often differ with the patch version of Python alone, and no
call needs them.
"""
_SUFFIXES: Final = (".dist-info", ".egg-info")


def installed(path: Iterable[str] | None = None) -> dict[str, str]:
    """Return versions by names, in the order of the names; Python is among them.

    The names of folders are enough: to read the metadata takes a hundred times as long.

    Args:
        path: the folders from which modules are imported; None for those of this process.
    """
    found: dict[str, str] = {}
    for folder in sys.path if path is None else path:
        for name, version in _distributions(folder or "."):
            # The first one is imported.
            if name not in _INSTALLERS:
                found.setdefault(name, version)
    kind = sys.implementation.name.replace("cpython", "python")
    # The flags of a build are a part of it: extension modules of one do not fit another.
    found[kind] = f"{sys.version_info[0]}.{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
    return dict(sorted(found.items()))


def _distributions(folder: str) -> Iterator[tuple[str, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix in _SUFFIXES:
            package, _, version = stem.partition("-")
            # `name-version-py3.12.egg-info`
            yield package.replace("_", "-").replace(".", "-").lower(), version.partition("-")[0]
