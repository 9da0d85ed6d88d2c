"""`Trainer.train` of a script that knows nothing of checkpoints: each one has a block of `sky.checkpoints`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, Final

from .._libraries.on_import import on_import
from .._sky.checkpoints import checkpoints
from .trainer_checkpoint import trainer_checkpoint

_KEPT: Final = 3
"""How many checkpoints the storage keeps if the arguments of `Trainer` do not say it."""


class _Task:
    """The checkpoints of the task that runs."""

    def __init__(self) -> None:
        self.name: str | None = None
        """None while no task runs that has checkpoints."""
        self.trainings = 0
        """How many trainings have begun in it."""


_task: Final = _Task()


def watch_trainer() -> None:
    """Change `Trainer` as soon as it is imported, so that it continues within `continuing`."""
    on_import("transformers.trainer", _change)


@contextmanager
def continuing(name: str) -> Iterator[None]:
    """Context manager: let each `Trainer.train` continue from its latest checkpoint.

    Args:
        name: that of the checkpoints of the first training of a task; the others have their number
            at the end, so that each try of the task finds those of the same training.
    """
    _task.name, _task.trainings = name, 0
    try:
        yield
    finally:
        _task.name = None


def _change(module: ModuleType) -> None:
    trainer: Any = module
    trainer.Trainer.train = _with_checkpoints(trainer.Trainer.train)


def _with_checkpoints(train: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(train)
    def run(self: Any, resume_from_checkpoint: Any = None, trial: Any = None, *args: Any, **kwargs: Any) -> Any:
        # Trials of a search begin anew in each try, with other parameters. A payload that has a block
        # of its own keeps the checkpoints there.
        name = None if trial is not None or _has_own(self) else _next_name()
        if name is None:
            return train(self, resume_from_checkpoint, trial, *args, **kwargs)
        limit = self.args.save_total_limit
        with checkpoints(name, keep=limit if limit is not None and limit > 0 else _KEPT) as ckpt:
            callback = trainer_checkpoint(ckpt)
            self.add_callback(callback)
            try:
                start = ckpt.latest()
                return train(
                    self, str(start.path) if start is not None else resume_from_checkpoint, trial, *args, **kwargs
                )
            finally:
                self.remove_callback(callback)

    return run


def _has_own(trainer: Any) -> bool:
    return any(getattr(callback, "keeps_checkpoints", False) for callback in trainer.callback_handler.callbacks)


def _next_name() -> str | None:
    """Return the name of the checkpoints of the training that begins; None without any."""
    if _task.name is None:
        return None
    _task.trainings += 1
    return _task.name if _task.trainings == 1 else f"{_task.name}.{_task.trainings}"
