"""Actions at the import of a module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import zipfile
import zipimport
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from skyward._libraries.on_import import on_import

NAME = "skyward_of_this_test"


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Write the module; yield the values that the action has found in it."""
    (tmp_path / f"{NAME}.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    values: list[int] = []
    on_import(NAME, lambda module: values.append(module.value))
    yield values
    sys.modules.pop(NAME, None)


def test_the_action_gets_the_module_once_and_the_finder_goes(seen: list[int]) -> None:
    finders = len(sys.meta_path)
    assert (seen, importlib.import_module(NAME).value, seen) == ([7], 7, [7])
    assert len(sys.meta_path) == finders - 1
    importlib.reload(sys.modules[NAME])
    assert seen == [7]


def test_a_look_for_the_module_is_no_import(seen: list[int]) -> None:
    assert importlib.util.find_spec(NAME) is not None
    assert seen == []
    importlib.import_module(NAME)
    assert seen == [7]


def test_what_was_found_before_the_import_can_be_used_after_it(seen: list[int]) -> None:
    finder, spec = sys.meta_path[0], importlib.util.find_spec(NAME)
    importlib.import_module(NAME)
    assert finder.find_spec(NAME, None) is not None
    assert spec is not None
    loader: Any = spec.loader
    loader.exec_module(importlib.util.module_from_spec(spec))
    assert seen == [7]


def test_a_module_with_a_finder_of_its_own_is_found(seen: list[int], tmp_path: Path) -> None:
    # As of a package that is installed for editing.
    (tmp_path / f"{NAME}.py").rename(tmp_path / "elsewhere.py")

    class Finder:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            return importlib.util.spec_from_file_location(name, tmp_path / "elsewhere.py") if name == NAME else None

    sys.meta_path.append(Finder())
    importlib.import_module(NAME)
    assert seen == [7]


def test_two_actions_are_both_called(seen: list[int]) -> None:
    more: list[ModuleType] = []
    on_import(NAME, more.append)
    module = importlib.import_module(NAME)
    assert (seen, more) == ([7], [module])
    on_import(NAME, more.append)
    assert more == [module, module]


def test_an_import_that_fails_can_be_tried_again(seen: list[int], tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.py").write_text("raise RuntimeError('not now')\n")
    with pytest.raises(RuntimeError, match="not now"):
        importlib.import_module(NAME)
    (tmp_path / f"{NAME}.py").write_text("value = 8\n# Longer.\n")
    importlib.invalidate_caches()
    importlib.import_module(NAME)
    assert seen == [8]


def test_a_finder_of_the_payload_may_lack_the_method(seen: list[int]) -> None:
    # `importlib` passes over it too; before Python 3.12 it warns.
    sys.meta_path.insert(1, object())  # type: ignore[arg-type]
    importlib.import_module(NAME)
    assert seen == [7]


def test_a_loader_of_many_modules_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as archive:
        for name in (NAME, f"{NAME}_too"):
            archive.writestr(f"{name}.py", "")
    monkeypatch.syspath_prepend(tmp_path / "modules.zip")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    got: list[str] = []
    on_import(NAME, lambda module: got.append(module.__name__))
    assert importlib.util.find_spec(NAME) is not None
    importlib.import_module(f"{NAME}_too")
    module: Any = importlib.import_module(NAME)
    del sys.modules[NAME], sys.modules[f"{NAME}_too"]
    assert got == [NAME]
    assert [type(loader) for loader in (module.__loader__, module.__spec__.loader)] == [zipimport.zipimporter] * 2


@pytest.mark.filterwarnings("ignore::ImportWarning")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python no longer loads with it")
def test_a_loader_of_an_older_kind_still_loads(seen: list[int]) -> None:
    class Loader:
        def load_module(self, name: str) -> ModuleType:
            return sys.modules.setdefault(name, ModuleType(name))

    class Finder:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            return ModuleSpec(name, Loader()) if name == NAME else None  # type: ignore[arg-type]

    sys.meta_path.insert(1, Finder())
    assert importlib.import_module(NAME).__name__ == NAME
    assert seen == []


def test_a_lazy_loader_calls_the_action_when_it_loads(seen: list[int]) -> None:
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    lazy: Any = importlib.util.LazyLoader(spec.loader)  # type: ignore[arg-type]
    spec.loader = lazy
    module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    lazy.exec_module(module)
    assert seen == []
    assert module.value == 7
    assert seen == [7]


def test_no_thread_sees_the_module_before_the_action(seen: list[int], tmp_path: Path) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(_: ModuleType) -> None:
        inside.set()
        assert go_on.wait(10)
        seen.append(8)

    on_import(NAME, slow)
    with ThreadPoolExecutor(2) as threads:
        imports = [threads.submit(lambda: (importlib.import_module(NAME), list(seen))[1]) for _ in range(2)]
        assert inside.wait(10)
        go_on.set()
        assert [one.result(10) for one in imports] == [[7, 8]] * 2
