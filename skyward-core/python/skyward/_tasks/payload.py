"""Payloads: make modules from the client's source text, with its file names and line numbers.

A payload of one file is one module. Several files form a package, rooted at the folder that they
share. Its modules may import each other

- relatively: `from .model import Net`,
- by the package's name: `from trainer.model import Net`,
- as scripts do: `from model import Net`.

The last two work inside this payload only. So two payloads with equal names never conflict, and a
payload's file never hides a library's module from that library.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from .._core import modules
from .._core.messages import Source
from .._core.modules import Layout, PayloadError
from .._core.package_names import PREFIX
from .._sky.notices import Function, notices
from . import files

FOLDER = os.environ.get("SKYWARD_PAYLOADS", "")
"""The folder of the payloads of this node; read at the start, because payloads change variables."""


class Payload:
    """One version of a payload's source. It is loaded at its first call."""

    def __init__(self, digest: str, source: Source) -> None:
        self.digest = digest
        self.source = source
        self.name = PREFIX + digest
        """The name of the package of its modules, the same in all processes."""
        self.on_notice: list[Function] = []
        """The functions that its modules registered with `sky.on_notice` during import."""
        self._function: Callable[..., Any] | None = None
        self._mark = f"/{self.name}/"

    def function(self) -> Callable[..., Any]:
        """Return the entry function; load the payload if it is not loaded yet.

        Raises:
            PayloadError: the entry does not exist, or the files cannot be written.
            BaseException: whatever the top level of the payload raises.
        """
        if self._function is None:
            notices.loading = self.on_notice = []
            try:
                self._function = self._load()
            finally:
                notices.loading = None
        return self._function

    def owns(self, filename: str) -> bool:
        """Return whether a code object's file name is one of this payload's files, on any node."""
        return self._mark in filename

    def _load(self) -> Callable[..., Any]:
        main, entry, paths = self.source.main, self.source.entry, [path for path, _ in self.source.files]
        if main not in paths:
            raise PayloadError(f"the payload has no file {main}; it has {', '.join(sorted(paths))}")
        layout = Layout(paths)
        name = next((name for name, path in layout.modules.items() if path == main), None)
        if name is None:
            raise PayloadError(f"{main} cannot be imported: in a payload of several files its name must end in .py")

        def write() -> None:
            files.write(FOLDER, self.digest, self.source, layout)

        write()
        modules.on_loss(self.name, write)
        try:
            module: Any = import_module(f"{self.name}.{name}")
        except BaseException:
            modules.forget(self.name)
            raise
        target: Any = module
        for part in entry.split("."):
            try:
                target = getattr(target, part)
            except AttributeError:
                names = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
                known = f"; it defines {', '.join(names)}" if names else ""
                raise PayloadError(f"{main} has no function {entry}{known}") from None
        if not callable(target):
            raise PayloadError(f"{entry} in {main} is a {type(target).__name__}, not a function")
        return cast("Callable[..., Any]", target)

    def release(self) -> None:
        """Remove the modules and, unless another worker uses them, the files; the next call executes them anew."""
        modules.release(self.name)
        files.release(FOLDER, self.digest)
        self._function = None
