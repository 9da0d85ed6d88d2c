"""`sky.integrations.keras_checkpoint`: checkpoints of Keras's `fit`."""

from __future__ import annotations

from importlib import import_module
from math import isfinite
from typing import Any

from .._sky.checkpoints import Checkpoints
from .._sky.cluster import instance_info, is_in_broadcast
from . import _random_states


def keras_checkpoint(ckpt: Checkpoints, /, *, every: int = 1) -> Any:
    """Return a callback for `fit` that saves at the ends of epochs, and continues from the last checkpoint.

    A save has the model's weights, the state of its optimizer, the number of the epoch, and the states
    of the random generators: those of the layers, and those of Python, NumPy and torch. The step of a
    checkpoint is the number of epochs that are done. A training that is interrupted within an epoch
    trains that epoch again.

    The model is compiled as before, and `fit` gets the same data, `epochs` and callbacks. Other
    callbacks with a state of their own, such as `EarlyStopping`, begin anew.

    Args:
        ckpt: the open block of `sky.checkpoints`.
        every: how many epochs lie between two saves. The pool may ask for a save after another epoch,
            when the machine will be taken back.

    Raises:
        ModuleNotFoundError: Keras is not installed.

    Example:
        with sky.checkpoints("run-42") as ckpt:
            model.fit(x, y, epochs=100, callbacks=[sky.integrations.keras_checkpoint(ckpt)])
    """
    keras: Any = import_module("keras")
    info = instance_info()
    # Ranks of a world save files of names of their own: `fit` may leave them with other states of
    # generators.
    rank = info.rank if info.joined and is_in_broadcast() else 0

    class KerasCheckpoint(keras.callbacks.Callback):  # type: ignore[misc]
        """Saves at the ends of epochs."""

        def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
            """Restore the latest checkpoint, before the first epoch begins."""
            start = ckpt.latest()
            if start is None:
                return
            model: Any = self.model
            if model.optimizer is not None and not model.optimizer.built:
                # Otherwise its state has no place to go.
                model.optimizer.build(model.trainable_variables)
            of_rank = rank if (start.path / _weights(rank)).exists() else 0
            model.load_weights(start.path / _weights(of_rank))
            seeds = _random_states.restore(start.path / _states(of_rank))
            for variable, seed in zip(_seeds(model), seeds, strict=True):
                variable.assign(seed)
            # As `BackupAndRestore` of Keras does it: `fit` reads it after this call.
            model._initial_epoch = start.step

        def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
            """Save, if it is due."""
            step = epoch + 1
            if not ckpt.due(step, every=every):
                return
            with ckpt.save(step, meta=_numbers(logs or {})) as folder:
                self.model.save_weights(folder / _weights(rank))
                _random_states.save(folder / _states(rank), map(keras.ops.convert_to_numpy, _seeds(self.model)))

    return KerasCheckpoint()


def _seeds(model: Any) -> list[Any]:
    """Return the states of the generators of layers such as `Dropout`, which Keras saves with no weights."""
    return [variable for variable in model.variables if variable.name == "seed_generator_state"]


def _numbers(logs: dict[str, Any]) -> dict[str, float]:
    """Return what `fit` reports of an epoch, without what JSON has not, such as the loss of a diverged model."""
    numbers = {name: float(value) for name, value in logs.items()}
    return {name: number for name, number in numbers.items() if isfinite(number)}


def _weights(rank: int) -> str:
    # Keras knows the format by the end of the name.
    return f"rank{rank}.weights.h5"


def _states(rank: int) -> str:
    return f"rank{rank}.random.npz"
