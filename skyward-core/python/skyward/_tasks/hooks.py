"""Hooks: context managers of plugins around the worker's life (`app`) and each task (`task`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any


class HookError(Exception):
    """A hook raised an exception, which is the cause."""

    def __init__(self, plugin: str, phase: str, cause: BaseException) -> None:
        super().__init__(f"the hook of plugin {plugin} failed in phase {phase}: {cause}")
        self.plugin = plugin
        self.phase = phase
        self.cause = cause


class Hook:
    """A hook: a factory in the plugin's source, and the configuration with which it is called."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.plugin: str = spec["plugin"]
        self.kind: str = spec["kind"]
        self.source: str = spec["source"]
        self.filename: str = spec["filename"]
        self.name: str = spec["factory"]
        self.config: Any = spec.get("config") or {}
        self.value: Any = None
        """What it has yielded, while it is entered."""
        self._factory: Callable[[Any], Any] | None = None

    def make(self) -> AbstractContextManager[Any]:
        """Call the factory, and return the new context manager."""
        if self._factory is None:
            module = _module(self.source, self.filename)
            try:
                factory = getattr(module, self.name)
            except AttributeError:
                raise TypeError(f"{self.filename} defines no {self.name}") from None
            # Test for a generator function without importing `inspect`, which takes long.
            if getattr(getattr(factory, "__code__", None), "co_flags", 0) & 0x20:
                factory = contextmanager(factory)
            self._factory = factory
        manager = self._factory(self.config)
        if not (hasattr(type(manager), "__enter__") and hasattr(type(manager), "__exit__")):
            raise TypeError(
                f"{self.name} in {self.filename} must return a context manager, not a {type(manager).__name__}: "
                "decorate it with contextlib.contextmanager, or let it yield once"
            )
        return manager  # type: ignore[no-any-return]


_loaded: list[Hook] = []
"""The hooks of this worker: those around the app, then those around each task."""


def hook_value(plugin: str) -> Any:
    """Return the object that a plugin's hook has yielded, such as an open connection.

    For example, a plugin `tracker` whose hook opens a connection::

        @contextmanager
        def around_app(config):
            with connect(config["url"]) as connection:
                yield connection

    and a payload that uses it::

        def train(epochs: int) -> float:
            sky.hook_value("tracker").log(epochs=epochs)

    Args:
        plugin: the plugin's name.

    Returns:
        What its hook around this task has yielded; otherwise what its hook around the worker has yielded.

    Raises:
        LookupError: no hook of this plugin is entered, or it has yielded nothing.
    """
    for hook in reversed(_loaded):
        if hook.plugin == plugin and hook.value is not None:
            return hook.value
    known = ", ".join(sorted({hook.plugin for hook in _loaded if hook.value is not None})) or "none"
    raise LookupError(f"no hook of a plugin {plugin!r} has yielded a value here; plugins whose hooks have: {known}")


class Stack:
    """Entered context managers, left in reverse order even if leaving one of them fails."""

    def __init__(self) -> None:
        self._entered: list[tuple[Hook, AbstractContextManager[Any]]] = []

    def enter(self, hooks: Iterable[Hook]) -> None:
        """Enter hooks in the order given. Those entered before a failure stay entered, for `leave`.

        Raises:
            HookError: a hook raised.
        """
        for hook in hooks:
            try:
                manager = hook.make()
                hook.value = manager.__enter__()
                self._entered.append((hook, manager))
            except (KeyboardInterrupt, SystemExit):
                if not any(hook is entered for entered, _ in self._entered):
                    hook.value = None  # interrupted after it was set
                raise
            except BaseException as error:
                raise HookError(hook.plugin, "enter", error) from error

    def leave(self, error: BaseException | None = None) -> HookError | None:
        """Leave all hooks, passing `error` to them; return the first failure of a hook, if any.

        A hook cannot suppress the task's error: what its `__exit__` returns is ignored.
        """
        failure: HookError | None = None
        while self._entered:
            hook, manager = self._entered.pop()
            hook.value = None
            try:
                if error is None:
                    manager.__exit__(None, None, None)
                else:
                    manager.__exit__(type(error), error, error.__traceback__)
            except KeyboardInterrupt:
                raise
            except BaseException as raised:
                if raised is not error and failure is None:
                    failure = HookError(hook.plugin, "exit", raised)
        return failure


def load(specs: Iterable[Mapping[str, Any]]) -> tuple[list[Hook], list[Hook]]:
    """Load the hooks of a start spec; return those around the app, and those around each task."""
    hooks = [Hook(spec) for spec in specs]
    app, task = [h for h in hooks if h.kind == "app"], [h for h in hooks if h.kind == "task"]
    _loaded[:] = [*app, *task]
    return app, task


_MODULES: dict[tuple[str, str], ModuleType] = {}


def _module(source: str, filename: str) -> ModuleType:
    """Return the module of a hook's source; hooks with the same source share it."""
    module = _MODULES.get((filename, source))
    if module is None:
        name = filename.removesuffix(".py").replace("/", ".")
        module = ModuleType(f"_skyward_hooks.{name}")
        module.__file__ = filename
        sys.modules[module.__name__] = module
        import io
        import linecache

        code = compile(source, filename, "exec", dont_inherit=True)
        # `linecache` keeps an entry without a modification time, although the file does not exist.
        lines = io.StringIO(source).readlines()
        linecache.cache[filename] = (len(source), None, lines, filename)
        exec(code, module.__dict__)
        _MODULES[filename, source] = module
    return module
