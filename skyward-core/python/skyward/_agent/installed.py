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
        here: dict[str, set[str]] = {}
        for name, version in _distributions(folder or "."):
            if name not in _INSTALLERS:
                here.setdefault(name, set()).add(version)
        for name, versions in here.items():
            # The first folder counts. What is imported of two versions in one is not known.
            found.setdefault(name, " and ".join(sorted(versions)))
    kind = sys.implementation.name.replace("cpython", "python")
    # The flags of a build are a part of it: extension modules of one do not fit another.
    found[kind] = f"{sys.version_info[0]}.{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
    return dict(sorted(found.items()))


def path_of_workers(work: str, besides: str) -> list[str]:
    """Return the folders from which workers import.

    Args:
        work: the working folder of the workers.
        besides: the image's `PYTHONPATH`. The agent itself imports nothing from there.
    """
    # The first entry is the folder in which the agent was started.
    mine = sys.path[0 if getattr(sys.flags, "safe_path", False) else 1 :]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    after = 1 + max((place for place, folder in enumerate(mine) if folder in given), default=-1)
    theirs = [os.path.join(work, folder) for folder in besides.split(os.pathsep) if folder]
    return [work, *mine[:after], *theirs, *mine[after:]]


def _distributions(folder: str) -> Iterator[tuple[str, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for entry in names:
        if entry.endswith(_SUFFIXES):
            # A name may be no text.
            stem = os.path.splitext(os.fsencode(entry).decode(errors="replace"))[0]
            package, _, version = stem.partition("-")
            # `name-version-py3.12.egg-info`
            yield package.replace("_", "-").replace(".", "-").lower(), version.partition("-")[0]
