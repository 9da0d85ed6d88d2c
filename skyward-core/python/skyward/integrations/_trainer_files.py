"""The files of a checkpoint of Transformers' `Trainer`: what a save has of them, and what a training needs back."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from .._core import state
from .._sky.checkpoint_values import Checkpoint

_BEST: Final = "best-model"
"""Where a save has the best model, two folders deep: `Trainer` takes a folder with a model for a part of its own."""
_NOT_OF_MODELS: Final = ("optimizer*", "scheduler.pt", "scaler.pt", "rng_state*")


def names_in(folder: Path) -> list[str]:
    """Return the files below a folder, relative to it."""
    return [os.path.relpath(os.path.join(above, name), folder) for above, _, names in os.walk(folder) for name in names]


def keep(source: Path, target: Path, others: frozenset[str]) -> None:
    """Bring a folder that `Trainer` has written into a save.

    Args:
        source: the folder.
        target: the folder of the save.
        others: files that another rank keeps.
    """

    def leave_out(above: str, names: list[str]) -> list[str]:
        return [name for name in names if os.path.relpath(os.path.join(above, name), source) in others]

    shutil.copytree(source, target, ignore=leave_out, copy_function=_keeping(), dirs_exist_ok=True)


def keep_best(best: Path, source: Path, target: Path) -> None:
    """Bring the best model so far into a save, unless it is what is saved.

    Args:
        best: its folder.
        source: the folder that is saved.
        target: the folder of the save.
    """
    if best.name != source.name and best.is_dir():
        ignore = shutil.ignore_patterns(*_NOT_OF_MODELS)
        shutil.copytree(best, target / _BEST / best.name, ignore=ignore, copy_function=_keeping())


def bring_best(start: Checkpoint, best: Path, output: Path) -> str | None:
    """Bring the best model back to where `Trainer` looks for it at the end.

    Args:
        start: the checkpoint from which the training continues.
        best: the folder of the best model when the checkpoint was saved.
        output: the folder in which `Trainer` keeps its checkpoints.

    Returns:
        the folder of the best model; None if the checkpoint does not have it.
    """
    target = output / best.name
    kept = start.path if best.name == f"checkpoint-{start.step}" else start.path / _BEST / best.name
    if not target.is_dir() and kept.is_dir():
        output.mkdir(parents=True, exist_ok=True)
        # Other ranks of the node do the same.
        with tempfile.TemporaryDirectory(prefix=".best-model-", dir=output) as folder:
            half = Path(folder) / best.name
            shutil.copytree(kept, half, ignore=shutil.ignore_patterns(_BEST), copy_function=shutil.copyfile)
            with suppress(OSError):
                half.rename(target)
    return str(target) if target.is_dir() else None


def _keeping() -> Callable[[str, str], object]:
    """Return the function that brings a file into a save.

    In a pool it is a link: `Trainer` never changes a file of an earlier step, and the save is brought
    to the storage before another training may write into the same folder. Outside a pool the save
    stays where it is, so it has content of its own.
    """
    return shutil.copyfile if state.cluster is None else _link


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(source, target)
