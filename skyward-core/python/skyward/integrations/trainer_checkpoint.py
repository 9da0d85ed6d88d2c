"""`sky.integrations.trainer_checkpoint`: checkpoints of the `Trainer` of Transformers."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from .._sky.checkpoints import Checkpoints


def trainer_checkpoint(ckpt: Checkpoints, /) -> Any:
    """Return a callback for `Trainer` that keeps its checkpoints in the pool's storage.

    `Trainer` saves as its arguments say (`save_steps`, `save_strategy`), and once more when the pool
    asks for a save, because the machine will be taken back. Each of its folders `checkpoint-N` becomes
    a checkpoint of step N, with all that `Trainer` continues from: weights, optimizer, scheduler,
    random states, and the place in the data.

    On several ranks, rank 0 keeps what is the same for all, and each rank its own random states.

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

        _kept = -1
        """The last step that was kept: `Trainer` may save a step twice."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            """Let `Trainer` save when the pool asks for it."""
            if ckpt.due(state.global_step):
                control.should_save = True
            return control

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Keep what `Trainer` has just saved."""
            step: int = state.global_step
            if step == self._kept:
                return
            source = Path(args.output_dir) / f"checkpoint-{step}"
            with ckpt.save(step) as folder:
                if state.is_world_process_zero:
                    _link(source, folder)
                else:
                    name = f"rng_state_{args.process_index}.pth"
                    if (source / name).exists():
                        _link_file(str(source / name), str(folder / name))
            self._kept = step

    return TrainerCheckpoint()


def _link(source: Path, target: Path) -> None:
    """Bring a folder that `Trainer` has written to another place; it never changes the files later."""
    shutil.copytree(source, target, copy_function=_link_file, dirs_exist_ok=True)


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(source, target)
