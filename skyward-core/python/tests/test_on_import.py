"""Actions at the import of a module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from skyward._on_import import on_import

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


def test_another_module_of_the_same_loader_gets_no_action(seen: list[int], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "modules.zip", "w") as archive:
        archive.writestr(f"{NAME}.py", "value = 9\n")
        archive.writestr(f"{NAME}_too.py", "value = 10\n")
    sys.path.insert(0, str(tmp_path / "modules.zip"))
    assert importlib.util.find_spec(NAME) is not None
    importlib.import_module(f"{NAME}_too")
    assert seen == []
    module: Any = importlib.import_module(NAME)
    assert seen == [9]
    assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "zipimporter"
    sys.modules.pop(f"{NAME}_too")
