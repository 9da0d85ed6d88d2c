"""Names of payloads' modules, and how they are found and imported.

All modules of a payload are below one package, `payload_<digest>`, in each process. So an object
that is pickled by the name of its module means the same on all workers. The import system finds the
package by the folder of its files, also in processes that a payload starts.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import FrameType, ModuleType
from typing import Any, Final, cast

from . import process_state
from .package_names import DIGEST, PREFIX, is_root


class PayloadError(ImportError):
    """The payload cannot be used: a file or the entry is missing, or the entry is no function."""


class Layout:
    """Where the files of a payload are below its folder, and which modules they are."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Arrange the files.

        Args:
            paths: the files by the user's paths.

        Raises:
            PayloadError: two files have the same place.
        """
        split = {path: [_part(part) for part in path.split("/") if part not in ("", ".")] or ["_"] for path in paths}
        parts = list(split.values())
        self.is_package = len(parts) > 1
        shared = 0
        if self.is_package:
            folders = [one[:-1] for one in parts]
            while all(len(folder) > shared and folder[shared] == folders[0][shared] for folder in folders):
                shared += 1
        top = parts[0][shared - 1] if shared else "payload"
        if not self.is_package:
            stem = parts[0][-1].rpartition(".")[0] or parts[0][-1]
            top = stem if stem != "__init__" else "payload"
        self.top = _identifier(top)
        """The name of the uppermost module, below the payload's package."""
        # Files without a shared folder get one: the uppermost `__init__.py` is the package's own.
        lonely = self.is_package or (len(parts[0]) == 1 and parts[0][0] == "__init__.py")
        above = ["payload"] if lonely and not shared else []
        self.places = {path: "/".join([*above, *one]) for path, one in split.items()}
        """The place of each file below the folder, by the user's path."""
        if len(set(self.places.values())) < len(self.places):
            raise PayloadError(f"two files of the payload have the same place: {', '.join(sorted(self.places))}")
        self.modules: dict[str, str] = {}
        """The user's paths, by the name of the module below the payload's package."""
        if self.is_package:
            self.place = "/".join([*above, *parts[0][:shared]])
            for path, one in split.items():
                if path.endswith(".py"):
                    names = [self.top, *one[shared:-1], one[-1].removesuffix(".py")]
                    self.modules[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
        else:
            [(path, self.place)] = self.places.items()
            self.modules[self.top] = path


class Root:
    """The package of one payload in this process."""

    def __init__(self, name: str, folder: str, layout: Layout) -> None:
        """Describe the package.

        Args:
            name: its name.
            folder: its folder.
            layout: its files and modules.
        """
        self.name = name
        self.folder = folder
        self.layout = layout
        self._all = {f"{name}.{module}" for module in layout.modules}
        for module in list(self._all):
            while module := module.rpartition(".")[0]:
                self._all.add(module)
        top = layout.top
        is_library = top in sys.stdlib_module_names or PathFinder.find_spec(top) is not None
        self._own = "" if is_library else top
        """The name of the package in absolute imports of the payload's modules; empty if a library
        has that name.
        """

    def find(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Return the spec of one of its modules."""
        file = self.layout.modules.get(name[len(self.name) + 1 :])
        if not os.path.exists(f"{self.folder}/{'__init__.py' if file is None else self.layout.places[file]}"):
            _restore(self.name)
        if name != f"{self.name}.{self.layout.top}":
            return _ours(PathFinder.find_spec(name, path))
        place = f"{self.folder}/{self.layout.place}"
        if not self.layout.is_package:
            return spec_from_file_location(name, place, loader=_Loader(name, place))
        init = f"{place}/__init__.py"
        if os.path.exists(init):
            return spec_from_file_location(name, init, loader=_Loader(name, init), submodule_search_locations=[place])
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [place]
        return spec

    def import_(
        self,
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module for the payload's code; the payload's own files come first."""
        if level == 0:
            top = name.partition(".")[0]
            real = self._real_name(top, globals_)
            if real:
                full = real + name[len(top) :]
                builtins.__import__(full, globals_, locals_, fromlist or (), 0)
                return sys.modules[full if fromlist else real]
        return builtins.__import__(name, globals_, locals_, fromlist or (), level)

    def _real_name(self, top: str, globals_: Mapping[str, object] | None) -> str:
        """Return the payload's module that an import of `top` means; empty for a library."""
        importer = globals_ or {}
        own = f"{self.name}.{self.layout.top}"
        for folder in (importer.get("__package__") or own, own):
            name = f"{folder}.{top}"
            if name in self._all and name != importer.get("__name__"):
                return name
        return own if top == self._own else ""


class _Loader(SourceFileLoader):
    """Python's own loader, but imports of the payload's files find these files first."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        root = _roots.get(module.__name__.partition(".")[0])
        if root is not None and root.layout.is_package:
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": root.import_}
        with process_state.given():
            super().exec_module(module)

    def path_stats(self, path: str) -> Mapping[str, Any]:  # type: ignore[override, unused-ignore]
        """Keep no bytecode: payloads change often, and a full disk could leave a part of it.

        Raises:
            OSError: always.
        """
        raise OSError


class _Finder:
    """Finds the modules of payloads."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a payload's module; called by the import system.

        Raises:
            PayloadError: this node has no payload of this name.
        """
        top, _, below = name.partition(".")
        if not is_root(top):
            return None
        root = _roots.get(top)
        if below:
            return None if root is None else root.find(name, path)
        folder = os.environ.get("SKYWARD_PAYLOADS") if root is None else os.path.dirname(root.folder)
        places = [*([folder] if folder else []), *sys.path]
        spec = PathFinder.find_spec(name, places)
        if spec is None and _restore(name):
            spec = PathFinder.find_spec(name, places)
        if spec is None:
            raise PayloadError(
                f"{name} is a payload that is not loaded on this node; call one of its functions here first", name=name
            )
        return _ours(spec)


def adopt(name: str, file: str, paths: Sequence[str]) -> None:
    """Make the modules of a payload importable; called by the `__init__.py` in its folder.

    Args:
        name: the name of the package.
        file: the path of its `__init__.py`.
        paths: the user's paths of its files.
    """
    _roots[name] = Root(name, os.path.dirname(os.path.abspath(file)), Layout(paths))


def on_loss(name: str, restore: Callable[[], object]) -> None:
    """Register what writes the files of a package again if they are gone when one is imported."""
    _restores[name] = restore


def _restore(name: str) -> bool:
    """Write the files of a package again; return whether this process knows how."""
    restore = _restores.get(name)
    if restore is not None:
        restore()
    return restore is not None


def forget(name: str) -> None:
    """Remove the modules of a payload, so that the next import executes them anew."""
    for module in list(sys.modules):
        if module == name or module.startswith(f"{name}."):
            del sys.modules[module]


def release(name: str) -> None:
    """Remove a payload, so that nothing finds its modules until it is loaded again."""
    forget(name)
    _restores.pop(name, None)
    root = _roots.pop(name, None)
    if root is None:
        return
    # Python keeps what it knows of folders and texts for the life of the process.
    lines = sys.modules.get("linecache")
    for known in (sys.path_importer_cache, lines.cache if lines else {}):
        for path in [path for path in list(known) if f"{path}/".startswith(f"{root.folder}/")]:
            known.pop(path, None)


def is_payload_file(filename: str) -> bool:
    """Return whether a code object's file name is that of a payload's file, on any node."""
    return f"/{PREFIX}" in filename and any(map(is_root, filename.split("/")))


def is_importing_library(frame: FrameType | None) -> bool:
    """Return whether the code of a frame runs within the import of a module that no payload owns.

    Native code of a library may be initialised once per process. If an import is interrupted half
    way, no later task of the process can import the library.
    """
    while frame is not None:
        code = frame.f_code
        is_import = code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>"
        if is_import and not is_root(str(frame.f_locals.get("name")).partition(".")[0]):
            return True
        frame = frame.f_back
    return False


def shown(text: str) -> str:
    """Return a text with the user's names of files and modules, for messages and tracebacks."""
    if PREFIX not in text:
        return text
    import re

    folders = "|".join(re.escape(os.path.dirname(root.folder)) for root in _roots.values())
    for pattern in (
        rf'(?<=")[^"\n]*/{PREFIX}({DIGEST})/([^"\n]*)',
        rf"(?:{folders or '(?!)'})/{PREFIX}({DIGEST})/([^\s\"':,;()]*)",
    ):
        text = re.sub(pattern, lambda found: _user_path(*found.groups()), text)
    return re.sub(rf"\b{PREFIX}{DIGEST}\.", "", text)


def shown_path(path: str) -> str:
    """Return the user's path of a payload's file; other paths unchanged."""
    return shown(f'"{path}"')[1:-1]


def _user_path(digest: str, place: str) -> str:
    root = _roots.get(PREFIX + digest)
    places = {} if root is None else root.layout.places
    return next((path for path, known in places.items() if known == place), place)


def _ours(spec: ModuleSpec | None) -> ModuleSpec | None:
    if spec is not None and type(spec.loader) is SourceFileLoader and spec.origin is not None:
        spec.loader = _Loader(spec.name, spec.origin)
    return spec


def _part(part: str) -> str:
    return "up" if part == ".." else part


def _identifier(name: str) -> str:
    clean = "".join(c if c.isalnum() else "_" for c in name) or "payload"
    return clean if clean.isidentifier() else f"_{clean}"


_roots: Final[dict[str, Root]] = {}
_restores: Final[dict[str, Callable[[], object]]] = {}
sys.meta_path.insert(0, cast("Any", _Finder()))
