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

import builtins
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any, Final, cast

import msgspec

from ._complaint import complain
from ._messages import Source
from ._notices import Function, notices


class PayloadError(ImportError):
    """The payload cannot be used: a file or the entry is missing, or the entry is no function."""


class Payload:
    """One version of a payload's source. It is loaded at its first call."""

    def __init__(self, digest: str, source: Source) -> None:
        self.digest = digest
        self.source = source
        self.entry = source.entry
        self.main = source.main
        self.first_line = source.first_line
        self.files = dict(source.files)
        self.on_notice: list[Function] = []
        """The functions that its modules registered with `sky.on_notice` during import."""
        self._function: Callable[..., Any] | None = None
        self._root = ""
        self._own_name = ""
        """The name of the root in absolute imports of the payload's modules; empty if a library has
        that name.
        """
        self._modules: dict[str, str] = {}
        """Paths of files by module name; empty for a folder without `__init__.py`."""

    def function(self) -> Callable[..., Any]:
        """Return the entry function; load the payload if it is not loaded yet.

        Raises:
            PayloadError: the entry does not exist.
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
        """Return whether a code object's file name is one of this payload's files."""
        return filename in self.files

    def _load(self) -> Callable[..., Any]:
        if self.main not in self.files:
            raise PayloadError(f"the payload has no file {self.main}; it has {', '.join(sorted(self.files))}")
        if self not in _FINDER.payloads:
            self._name_modules()
            self._keep()
            # The payload owns its names from here on, also if loading fails or is interrupted.
            _FINDER.payloads.append(self)
        main = next(name for name, path in self._modules.items() if path == self.main)
        try:
            module: Any = sys.modules.get(main) or __import__(main, fromlist=["*"])
        except BaseException:
            self._forget()
            raise
        target: Any = module
        for part in self.entry.split("."):
            try:
                target = getattr(target, part)
            except AttributeError:
                names = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
                known = f"; it defines {', '.join(names)}" if names else ""
                raise PayloadError(f"{self.main} has no function {self.entry}{known}") from None
        if not callable(target):
            raise PayloadError(f"{self.entry} in {self.main} is a {type(target).__name__}, not a function")
        return cast("Callable[..., Any]", target)

    def _keep(self) -> None:
        """Write a copy for `adopt`, if the worker has a folder for copies."""
        folder = os.environ.get("SKYWARD_PAYLOADS")
        if folder is None:
            return
        kept = [self.digest, self.source, self._root, self._own_name, self._modules]
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            with open(f"{folder}/{self._root}.new", "wb") as file:
                file.write(msgspec.msgpack.encode(kept))
            os.rename(f"{folder}/{self._root}.new", f"{folder}/{self._root}.payload")
        except OSError as error:
            complain(f"processes started by {self.main} cannot import its modules: {error}")

    def _name_modules(self) -> None:
        """Give each file its module name, under a root name that is not in use."""
        if len(self.files) == 1:
            self._root = self._free(_stem(self.main))
            self._modules = {self._root: self.main}
            return
        parts = [path.split("/")[:-1] for path in self.files]
        shared = 0
        while all(len(folder) > shared and folder[shared] == parts[0][shared] for folder in parts):
            shared += 1
        self._root = self._free(_identifier(parts[0][shared - 1]) if shared else "payload")
        self._modules = {self._root: ""}
        for path in self.files:
            if not path.endswith(".py"):
                continue
            names = [self._root, *path.removesuffix(".py").split("/")[shared:]]
            if names[-1] == "__init__":
                names.pop()
            for depth in range(1, len(names)):
                self._modules.setdefault(".".join(names[:depth]), "")
            self._modules[".".join(names)] = path

    def _free(self, name: str) -> str:
        """Return an unused module name: a payload may have a library's name, such as `jax.py`."""
        library = name in sys.stdlib_module_names or PathFinder.find_spec(name) is not None
        self._own_name = "" if library else name
        if not library and not _is_taken(name):
            return name
        short = f"{name}_{self.digest[:8]}"
        return short if not _is_taken(short) else f"{name}_{self.digest}"

    def release(self) -> None:
        """Remove the modules, so that nothing finds them until the payload is loaded again."""
        if self not in _FINDER.payloads:
            return
        _FINDER.payloads.remove(self)
        self._forget()
        self._function = None
        import linecache

        for path in self.files:
            if not any(other.owns(path) for other in _FINDER.payloads):
                linecache.cache.pop(path, None)
        if folder := os.environ.get("SKYWARD_PAYLOADS"):
            try:
                os.unlink(f"{folder}/{self._root}.payload")
            except OSError:
                pass  # there was no copy

    def _forget(self) -> None:
        """Remove the modules from `sys.modules`, so that the next call loads the payload anew."""
        for name in self._modules:
            sys.modules.pop(name, None)

    def _exec(self, module: ModuleType) -> None:
        path = self._modules[module.__name__]
        if not path:
            return
        first_line = self.first_line if path == self.main else 1
        if len(self._modules) > 1:
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        run_source(self.files[path], path, module.__dict__, first_line)

    def _import(
        self,
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import a module for this payload's code; the payload's own files come first."""
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
        for folder in (importer.get("__package__") or self._root, self._root):
            name = f"{folder}.{top}"
            if name in self._modules and name != importer.get("__name__"):
                return name
        return self._root if top == self._own_name else ""


def _is_taken(name: str) -> bool:
    """Return whether a module has this name, or a payload that is not loaded now."""
    return name in sys.modules or any(name in payload._modules for payload in _FINDER.payloads)


def files() -> set[str]:
    """Return the file names of all payloads that are loaded."""
    return {path for payload in _FINDER.payloads for path in payload.files}


def is_importing_library(frame: FrameType | None) -> bool:
    """Return whether the code of a frame runs within the import of a module that no payload owns.

    Native code of a library may be initialised once per process. If an import is interrupted half
    way, no later task of the process can import the library.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_find_and_load" and code.co_filename == "<frozen importlib._bootstrap>":
            name = frame.f_locals.get("name")
            if not any(name in payload._modules for payload in _FINDER.payloads):
                return True
        frame = frame.f_back
    return False


def adopt() -> None:
    """Make the payloads' modules importable in a process that `multiprocessing` started."""
    folder = os.environ.get("SKYWARD_PAYLOADS")
    for name in os.listdir(folder) if folder and os.path.isdir(folder) else ():
        if name.endswith(".payload"):
            with open(f"{folder}/{name}", "rb") as file:
                kept = msgspec.msgpack.decode(file.read(), type=tuple[str, Source, str, str, dict[str, str]])
            digest, source, root, own_name, modules = kept
            payload = Payload(digest, source)
            payload._root, payload._own_name, payload._modules = root, own_name, modules
            _FINDER.payloads.append(payload)


def reference(thing: Any) -> tuple[Callable[..., Any], tuple[str, str, str]] | None:
    """Return how another worker finds a payload's module, function or class, for pickling.

    None for anything else. A module name itself is not enough: `_free` may choose another one on
    another worker.
    """
    is_module = isinstance(thing, ModuleType)
    module = thing.__name__ if is_module else getattr(thing, "__module__", None)
    # A loop, because this runs for each function and class in a call.
    for payload in _FINDER.payloads:
        if module in payload._modules:
            break
    else:
        return None
    name = "" if is_module else thing.__qualname__
    found: Any = sys.modules.get(module)
    for part in name.split(".") if name else ():
        found = getattr(found, part, None)
    if found is not thing:
        return None
    return resolve, (payload.digest, module[len(payload._root) + 1 :], name)


def resolve(digest: str, module: str, name: str) -> Any:
    """Return what `reference` named on another worker.

    Args:
        digest: the digest of the payload.
        module: the module's name below the payload's root; empty for the root itself.
        name: the function or class in the module; empty for the module itself.

    Raises:
        PayloadError: this worker does not have the payload, or the module has no such name.
        BaseException: whatever the module raises when it is loaded.
    """
    for payload in _FINDER.payloads:
        if payload.digest == digest:
            break
    else:
        raise PayloadError(f"{name or module} belongs to a payload that is not loaded on this worker")
    full = f"{payload._root}.{module}" if module else payload._root
    __import__(full)
    found: Any = sys.modules[full]
    for part in name.split(".") if name else ():
        try:
            found = getattr(found, part)
        except AttributeError:
            raise PayloadError(f"{payload._modules[full]} has no {name} on this worker") from None
    return found


class _Finder:
    """Finds payloads' modules by real names, for relative imports, pickling and `importlib`."""

    def __init__(self) -> None:
        self.payloads: list[Payload] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a payload's module; called by the import system."""
        for payload in self.payloads:
            file = payload._modules.get(name)
            if file is not None:
                prefix = name + "."
                package = not file or any(other.startswith(prefix) for other in payload._modules)
                package = package or file.endswith("__init__.py")
                spec = ModuleSpec(name, cast("Any", _Loader(payload)), origin=file or None, is_package=package)
                spec.has_location = bool(file)
                return spec
        return None


class _Loader:
    """Executes one module of a payload."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the import system create the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module's source."""
        self.payload._exec(module)

    def get_source(self, name: str) -> str | None:
        """Return the module's source, for `inspect` and similar tools."""
        path = self.payload._modules.get(name)
        return self.payload.files.get(path) if path else None


def run_source(text: str, filename: str, namespace: dict[str, Any], first_line: int = 1) -> None:
    """Compile and run source text that is in no file here; tracebacks still show its lines.

    Args:
        text: the source.
        filename: the name that tracebacks show.
        namespace: the globals in which the source runs.
        first_line: the line of the file at which the text begins, counted from 1.
    """
    text = "\n" * (first_line - 1) + text
    code = compile(text, filename, "exec", dont_inherit=True)
    import linecache

    lines = text.splitlines(keepends=True)
    if first_line > 1:
        # Other payloads may be in other lines of the same Rust file; keep their lines.
        known = linecache.getlines(filename)
        above = known[: first_line - 1]
        lines = above + lines[len(above) :] + known[len(lines) :]
    # `linecache` keeps an entry without a modification time, although the file does not exist.
    linecache.cache[filename] = (len(text), None, lines, filename)
    exec(code, namespace)


def _stem(path: str) -> str:
    return _identifier(path.rpartition("/")[2].rpartition(".")[0] or path)


def _identifier(name: str) -> str:
    clean = "".join(c if c.isalnum() else "_" for c in name) or "payload"
    return clean if clean.isidentifier() else f"_{clean}"


_FINDER: Final = _Finder()
sys.meta_path.append(cast("Any", _FINDER))
