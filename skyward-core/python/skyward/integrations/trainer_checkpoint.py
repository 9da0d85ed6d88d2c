"""`sky.integrations.trainer_checkpoint`: checkpoints of the `Trainer` of Transformers."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from .._sky.checkpoints import Checkpoints
from ._trainer_files import bring_best, keep, keep_best, names_in


def trainer_checkpoint(ckpt: Checkpoints, /) -> Any:
    """Return a callback for `Trainer` that keeps its checkpoints in the pool's storage.

    `Trainer` saves as its arguments say (`save_steps`, `save_strategy`), and once more when the pool
    asks for a save, because the machine will be taken back. Each of its folders `checkpoint-N` becomes
    a checkpoint of step N, with all that `Trainer` continues from: weights, optimizer, scheduler,
    random states, the place in the data, and the best model for `load_best_model_at_end`.

    On several ranks, the first rank of each node keeps what the ranks of the node have written.

    Args:
        ckpt: the open block of `sky.checkpoints`.

    Raises:
        ModuleNotFoundError: Transformers is not installed.

    Example:
        with sky.checkpoints("run-42") as ckpt:
            trainer = Trainer(model, arguments, callbacks=[sky.integrations.trainer_checkpoint(ckpt)])
            start = ckpt.latest()
            trainer.train(resume_from_checkpoint=str(start.path) if start else None)
    """
    transformers: Any = import_module("transformers")

    class TrainerCheckpoint(transformers.TrainerCallback):  # type: ignore[misc]
        """Keeps what `Trainer` saves."""

        keeps_checkpoints = True
        _idle = IdleStep()
        _end: tuple[int, float] | None = None
        """The step and the epoch at which the training had ended before; None if it had not."""
        _kept = -1
        """The last step that was kept: `Trainer` may save a step twice."""
        _asked = -1
        """The last step for which `due` was called: `auto_find_batch_size` begins anew with fewer samples."""
        _is_due = False
        """Whether the pool waits for a save at the end of this epoch."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Check that the training can be continued, and that it is continued from the latest checkpoint."""
            if args.save_only_model:
                raise ValueError(
                    "a training with TrainingArguments(save_only_model=True) cannot be continued, because Trainer "
                    "saves no state of the optimizer: leave it out, or train without checkpoints of Skyward"
                )
            start = ckpt.latest()
            if start is None:
                return
            self._kept = start.step
            if state.global_step != start.step:
                raise RuntimeError(
                    f"Trainer begins from step {state.global_step}, and the latest checkpoint has step {start.step}: "
                    "pass its path, trainer.train(resume_from_checkpoint=str(ckpt.latest().path))"
                )
            if args.load_best_model_at_end and state.best_model_checkpoint is None:
                # `Trainer` forgets a folder that this machine does not have.
                saved = json.loads((start.path / "trainer_state.json").read_text(encoding="utf-8"))
                best = saved.get("best_model_checkpoint")
                if best is not None:
                    state.best_model_checkpoint = bring_best(start, Path(best), Path(args.output_dir))
            if state.global_step >= state.max_steps:
                self._end = state.global_step, state.epoch

        def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            """Let a step change nothing that comes after the last one: see `IdleStep`."""
            if self._end is not None:
                self._idle.begin(parts["model"], parts["optimizer"], parts["lr_scheduler"])

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """Let `Trainer` save when the pool asks for it."""
            if self._end is not None:
                self._idle.end()
                state.global_step, state.epoch = self._end
                self._end = None
                control.should_training_stop = True
                control.should_log = control.should_evaluate = control.should_save = False
                return control
            if state.global_step <= self._asked:
                return control
            self._asked = state.global_step
            if ckpt.due(state.global_step) and not control.should_save:
                # At the end of an epoch it may evaluate, and then save the step itself.
                self._is_due = float(state.epoch).is_integer()
                control.should_save = not self._is_due
            return control

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """Let `Trainer` save after the evaluation of an epoch, whose result then belongs to the checkpoint."""
            if self._is_due:
                self._is_due = False
                control.should_save = True
            elif control.should_save and state.global_step == self._kept:
                # It writes the same files once more, and those that are kept share their content.
                ckpt.wait()
            return control

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Keep what `Trainer` has just saved."""
            step: int = state.global_step
            if step <= self._kept:
                return
            source = Path(args.output_dir) / f"checkpoint-{step}"
            # What rank 0 has is kept by rank 0 alone: with `save_on_each_node`, files of one name differ.
            others = _names_of_head(names_in(source))
            with ckpt.save(step) as folder:
                # A task alone has a world of one rank, whose local index is that of its accelerator.
                if state.is_world_process_zero or args.local_process_index == 0:
                    keep(source, folder, frozenset() if state.is_world_process_zero else others)
                if state.is_world_process_zero and args.load_best_model_at_end and state.best_model_checkpoint:
                    keep_best(Path(state.best_model_checkpoint), source, folder)
            self._kept = step

    return TrainerCheckpoint()


class IdleStep:
    """A step of `Trainer` that changes nothing.

    A training that has ended within an epoch, by `max_steps` or a fraction of an epoch, and is continued,
    makes one step more: `Trainer` looks for the end after each step only.
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._buffers: list[tuple[Any, Any]] = []

    def begin(self, model: Any, optimizer: Any, scheduler: Any) -> None:
        """Keep optimizer and scheduler from making a step, and remember what a forward pass may change."""
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
        self._parts = [part for part in (optimizer, scheduler) if part is not None]
        for part in self._parts:
            part.step = lambda *_, **__: None

    def end(self) -> None:
        """Let them make steps again."""
        for part in self._parts:
            del part.step
        for buffer, before in self._buffers:
            buffer.copy_(before)
        self._parts, self._buffers = [], []


def _names_of_head(names: list[str]) -> frozenset[str]:
    """Wait until all ranks have written their files; return the names of those of rank 0."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_initialized() or dist.get_world_size() == 1:
        return frozenset(names)
    of_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, names)
    return frozenset(of_ranks[0])
