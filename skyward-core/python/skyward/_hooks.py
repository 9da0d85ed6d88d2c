"""Hooks: context managers that plugins put around the worker's life (`app`) and around each task (`task`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

from ._payload import run_source


class HookError(Exception):
    """A hook raised; the cause is the exception."""

    def __init__(self, plugin: str, phase: str, cause: BaseException) -> None:
        super().__init__(f"the hook of plugin {plugin} failed in phase {phase}: {cause}")
        self.plugin = plugin
        self.phase = phase
        self.cause = cause


class Hook:
    """One hook: a factory from the plugin's source, and the configuration that it is called with."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.plugin: str = spec["plugin"]
        self.kind: str = spec["kind"]
        self.source: str = spec["source"]
        self.filename: str = spec["filename"]
        self.name: str = spec["factory"]
        self.config: Any = spec.get("config") or {}
        self._factory: Callable[[Any], Any] | None = None

    def make(self) -> AbstractContextManager[Any]:
        """A new context manager."""
        if self._factory is None:
            module = _module(self.source, self.filename)
            try:
                factory = getattr(module, self.name)
            except AttributeError:
                raise TypeError(f"{self.filename} defines no {self.name}") from None
            # A generator function; `inspect` would say so too, at the price of its import.
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


class Stack:
    """Context managers that were entered, left in reverse order. A failure to leave one does not skip the others."""

    def __init__(self) -> None:
        self._entered: list[tuple[Hook, AbstractContextManager[Any]]] = []

    def enter(self, hooks: Iterable[Hook]) -> None:
        """Enter in the order given; what was entered before a failure stays so, for `leave`.

        Raises:
            HookError: one of them raised.
        """
        for hook in hooks:
            try:
                manager = hook.make()
                manager.__enter__()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                raise HookError(hook.plugin, "enter", error) from error
            self._entered.append((hook, manager))

    def leave(self, error: BaseException | None = None) -> HookError | None:
        """Leave all of them, telling them of `error`; the first failure of a hook of its own, if any.

        A hook cannot swallow the task's error: what it returns is ignored.
        """
        failure: HookError | None = None
        while self._entered:
            hook, manager = self._entered.pop()
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
    """The hooks of a start spec: those around the app, and those around each task."""
    hooks = [Hook(spec) for spec in specs]
    return [h for h in hooks if h.kind == "app"], [h for h in hooks if h.kind == "task"]


_MODULES: dict[tuple[str, str], ModuleType] = {}


def _module(source: str, filename: str) -> ModuleType:
    """The module of a hook's source; hooks with equal source share it, and so its state."""
    module = _MODULES.get((filename, source))
    if module is None:
        name = filename.removesuffix(".py").replace("/", ".")
        module = ModuleType(f"_skyward_hooks.{name}")
        module.__file__ = filename
        sys.modules[module.__name__] = module
        run_source(source, filename, module.__dict__)
        _MODULES[filename, source] = module
    return module
