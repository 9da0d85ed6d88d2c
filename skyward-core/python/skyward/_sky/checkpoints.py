"""`sky.checkpoints`: the state of a training, from which the next try continues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final

from .._core import fork, state
from .arguments import checked_seconds
from .checkpoint_place import Place
from .checkpoint_values import (
    Checkpoint,
    CheckpointError,
    Options,
    checked_every,
    checked_options,
    checked_step,
    meta_text,
)
from .cluster import instance_info, node_folder
from .notices import notices

_NEW: Final = "was not entered: use it as `with sky.checkpoints(...) as ckpt`"
_LOOK: Final = 1.0
"""Seconds between two looks of `due` at the connection to the mover."""
_NAMED: Final = 5
"""The most steps that a message names."""


def checkpoints(
    name: str, keep: int | None = 3, writers: str = "all", own: bool = False, timeout: float = 600.0
) -> Checkpoints:
    """Keep the state of a training in the pool's storage, and continue from it in the next try.

    The returned object is used in a `with` block. Its `latest()` is the checkpoint from which the
    task continues, also on another machine, in another pool, and after the client was started anew:
    whoever uses the same name and the same storage. `save` gives the payload a folder to write into.
    When all ranks have saved a step, the client commits it: a checkpoint is there as a whole, or
    not at all. The training goes on meanwhile.

    The pool needs a storage: `Pool::builder().storage(Storage::folder("/data/runs"))`. Outside a
    pool, checkpoints are folders below `checkpoints/<name>` in the working folder.

    In a broadcast over a joined world, all ranks open the same name, and each of them calls `due`
    and `save` for the same steps. Elsewhere each task has its checkpoints for itself: ranks of a
    broadcast without a joined world need names of their own, such as
    `f"run-{sky.instance_info().rank}"`.

    One thread at a time may use the object, in the process that runs the payload. Leaving the block
    waits until all saves are committed, except by an exception.

    Args:
        name: 1 to 100 of the characters `A-Z a-z 0-9 . _ -`, and no `.` at the beginning.
        keep: how many checkpoints the storage keeps; None for all.
        writers: `"all"` if each rank saves files of its own, or `"head"` if only those of rank 0
            are kept. What the others save is then thrown away.
        own: give each rank only the files that it has saved itself. By default each has those of
            all ranks, as on a shared file system.
        timeout: seconds in which the latest checkpoint must be here, ranks must agree on a step, and
            saves must be committed at the end.

    Raises:
        TypeError: an argument has another type.
        ValueError: an argument has a value that it cannot have.
        CheckpointError: the pool has no storage, or this is not the process of the task; in the
            `with` statement also: the latest checkpoint cannot be brought here.

    Example:
        with sky.checkpoints("run-42") as ckpt:
            start = ckpt.latest()
            if start:
                model.load_state_dict(torch.load(start.path / "model.pt"))
            for step in range(start.step + 1 if start else 1, steps + 1):
                loss = train(step)
                if ckpt.due(step, every=100, seconds=300):
                    with ckpt.save(step, meta={"loss": loss}) as folder:
                        torch.save(model.state_dict(), folder / "model.pt")
    """
    options = checked_options(name, keep, writers, own, timeout)
    return Checkpoints(_place(options), options)


class Checkpoints:
    """The checkpoints of one name, in a `with` block; `sky.checkpoints` makes it."""

    def __init__(self, place: Place, options: Options) -> None:
        """Prepare the block.

        Args:
            place: where saves go.
            options: those of the block.
        """
        self._place = place
        self._options = options
        self._process = os.getpid()
        self._state = _NEW
        """Why the block cannot be used; empty while it can."""
        self._steps = place.steps
        self._step = 0
        """The last step that `due` was given."""
        self._saved: int | None = None
        """The last step that this rank has saved."""
        self._pending: list[int] = []
        """The steps that are saved, and not known to be committed."""
        self._look_at = 0.0
        """When `due` looks at the connection next, if other ranks may ask this one."""
        self._since = 0.0
        """When the last save ended or the block began."""
        self._noticed = 0
        """How many notices this block has answered by a save."""
        self._is_saving = False
        self._stack = ExitStack()
        self._folder: Path | None = None

    def __enter__(self) -> Checkpoints:
        self._check_process()
        if self._state is not _NEW:
            raise RuntimeError("sky.checkpoints makes an object for one `with` block; call it again for another one")
        self._state = "could not be opened"
        try:
            self._place.open(monotonic() + self._options.timeout)
        except BaseException:
            self._place.close(True)
            raise
        self._steps = self._place.steps
        self._since = monotonic()
        self._state = ""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:
            return  # its parent leaves the block
        failed = True
        try:
            if kind is None:
                self.wait()
                failed = False
        finally:
            self._state = "has ended"
            try:
                self._stack.close()
            finally:
                self._place.close(failed)

    def latest(self) -> Checkpoint | None:
        """Return the checkpoint from which this block began; None if there was none."""
        self._check()
        return self._place.start

    def due(self, step: int, *, every: int | None = None, seconds: float | None = None) -> bool:
        """Return whether to save now. Call it once in each step, on all ranks.

        It is True

        - at each multiple of `every`;
        - when `seconds` have passed since the last save, or since the block began;
        - once after each notice that a machine will end (`sky.notice`).

        Seconds and notices reach ranks at different steps. So the ranks agree: those that are
        behind go on, the others wait here, and `due` is True for all of them at the same step.

        Args:
            step: the step that the state belongs to; never smaller than before.
            every: number of steps between two saves.
            seconds: seconds between two saves.

        Raises:
            TypeError: an argument has another type.
            ValueError: the step is smaller than the last one, `every` is below 1, or `seconds` is not
                above 0.
            CheckpointError: the ranks cannot agree, or no further save can be committed.
        """
        if self._state or fork.is_child:
            self._check()
        if type(step) is not int or step < self._step:
            step = self._next_step(step)
        place, steps = self._place, self._steps
        if place.ranks > 1 and monotonic() >= self._look_at:
            self._look_at = monotonic() + _LOOK
            place.look()
        # The mover writes the ask and then reads the step; this is written first and then reads. So
        # either the mover sees this step, or this sees the ask.
        try:
            steps[0] = step
        except ValueError:
            checked_step(step)
            raise
        self._step = step
        while steps[1] > place.handled:
            place.settle(monotonic() + self._options.timeout)
        is_due = False
        if every is not None:
            if type(every) is not int or every < 1:
                every = checked_every(every)
            is_due = step % every == 0
        if seconds is not None and (type(seconds) is not float or not seconds > 0):
            seconds = checked_seconds("seconds", seconds)
        if place.targets and step >= min(place.targets):
            place.targets = [target for target in place.targets if target > step]
            is_due = True
            self._since = monotonic()  # or the time that is over would make this rank ask again
        return self._is_time(step, seconds) or is_due

    def save(self, step: int, meta: dict[str, Any] | None = None) -> AbstractContextManager[Path]:
        """Context manager: save a step by writing files into the folder that it gives.

        The folder is empty. When its block ends, what is in it is a save: it must be written and
        closed by then, and may have files, folders, and links that lead within the folder. An
        exception in the block removes it.

        Args:
            step: larger than that of the last save, and than that of `latest()`.
            meta: what `latest().meta` will be: a dict of what JSON can have, at most 64 KiB as text.

        Raises:
            TypeError: an argument has another type, or `meta` has a value that JSON has not.
            ValueError: the step is not larger, or `meta` is too large or has NaN. At the end of the
                block: it has a link that leads out of it, a device, a named pipe or a socket, or
                more than 1,000,000 entries.
            RuntimeError: another save of this block has not ended.
            CheckpointError: no further save of this try can be committed, or the mover of the node is gone.
            OSError: the disk of the node has no room.

        Example:
            with ckpt.save(step, meta={"loss": loss}) as folder:
                torch.save(model.state_dict(), folder / "model.pt")
        """
        self._check()
        step = checked_step(step)
        start = self._place.start
        if self._saved is not None and step <= self._saved:
            raise ValueError(f"step {step} cannot be saved after step {self._saved}: the steps of saves must grow")
        if start is not None and step <= start.step:
            raise ValueError(
                f"step {step} cannot be saved: this block began from step {start.step}, and the steps of saves must "
                "grow; count on from `ckpt.latest().step + 1`"
            )
        return self._saving(step, meta_text(meta))

    def folder(self) -> Path:
        """Return a folder for code that keeps its own files, filled with a copy of `latest()`.

        It is the same at each call, and is removed when the block ends. `commit` saves a copy of it.

        Raises:
            OSError: the disk of the node has no room.
        """
        self._check()
        if self._folder is None:
            from .checkpoint_save import fill, half

            with ExitStack() as stack:
                made = stack.enter_context(half(self._place.folder))
                if self._place.start is not None:
                    fill(made.content, str(self._place.start.path))
                self._stack = stack.pop_all()
            self._folder = Path(made.content)
        return self._folder

    def commit(self, step: int, meta: dict[str, Any] | None = None) -> None:
        """Save a copy of `folder()`, which takes no room where files can share it (Btrfs, XFS).

        Args:
            step: as for `save`.
            meta: as for `save`.

        Raises:
            RuntimeError: `folder` was not called, or a file was written meanwhile.
            TypeError, ValueError, CheckpointError, OSError: as `save`.
        """
        self._check()
        if self._folder is None:
            raise RuntimeError("ckpt.commit saves what is in ckpt.folder(), which was not called in this block")
        with self.save(step, meta) as folder:
            if self._place.saves:
                from .checkpoint_save import fill

                fill(str(folder), str(self._folder))

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all saves so far are committed; leaving the block does so too.

        Args:
            timeout: seconds; by default, those of the block.

        Raises:
            CheckpointError: they are not committed within that time, or cannot be; the message names
                the steps.
            KeyboardInterrupt: the task was cancelled.
        """
        self._check()
        seconds = self._options.timeout if timeout is None else checked_seconds("timeout", timeout)
        if not self._pending:
            return
        last = self._pending[-1]
        if not self._place.wait(last, monotonic() + seconds):
            raise CheckpointError(
                f'{_steps(self._pending)} of the checkpoints "{self._options.name}" {_is(self._pending)} not committed '
                f"within {seconds:g} s: look for events of the pool about its storage, or allow more time with "
                "ckpt.wait(timeout=...) or sky.checkpoints(..., timeout=...)"
            )
        self._pending = [step for step in self._pending if step > last]

    def _is_time(self, step: int, seconds: float | None) -> bool:
        """Return whether a lone rank has to save now; several ranks are asked to agree on a step."""
        place = self._place
        is_new = notices.number != self._noticed
        if is_new:
            self._noticed = notices.number
        if place.ranks == 1:
            return is_new or (seconds is not None and monotonic() - self._since >= seconds)
        if is_new:
            place.ask("notice", step)
        elif (
            seconds is not None
            and not place.is_asking
            and not place.targets
            and monotonic() - max(self._since, place.withdrawn) >= seconds
        ):
            place.ask("seconds", step)
        return False

    @contextmanager
    def _saving(self, step: int, meta: str) -> Iterator[Path]:
        from .checkpoint_save import half, of_another_process

        self._check()
        if self._is_saving:
            raise RuntimeError("a save of these checkpoints has not ended: saves cannot be nested")
        self._is_saving = True
        try:
            self._place.check()
            with half(self._place.folder) as made:
                yield Path(made.content)
                if os.getpid() != self._process:
                    raise of_another_process()
                if self._place.saves:
                    self._place.publish(made, step, meta)
            self._saved = step
            self._pending.append(step)
            self._since = monotonic()
        finally:
            self._is_saving = False

    def _next_step(self, value: Any) -> int:
        step = checked_step(value)
        if step < self._step:
            raise ValueError(
                f"ckpt.due was called for step {self._step} before, and now for {step}: steps must not shrink"
            )
        return step

    def _check(self) -> None:
        """Raise unless the block can be used here and now."""
        self._check_process()
        if self._state:
            raise RuntimeError(f"this block of sky.checkpoints {self._state}")

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            from .checkpoint_save import of_another_process

            raise of_another_process()


def _place(options: Options) -> Place:
    """Return where this process keeps checkpoints."""
    if fork.is_child or (state.cluster is None and "SKYWARD_PAYLOADS" in os.environ):
        from .checkpoint_save import of_another_process

        raise of_another_process()
    if state.cluster is None:
        from .checkpoint_folder import Folder

        return Folder(options)
    if not state.cluster.get("storage"):
        raise CheckpointError(
            "this pool has no storage for checkpoints: name one where it is built, e.g. "
            'Pool::builder().storage(Storage::folder("/data/runs"))'
        )
    from .checkpoint_pool import Pool

    home = node_folder("sky.checkpoints")
    if home is None:
        raise RuntimeError("sky.checkpoints cannot find the node's folder: SKYWARD_PAYLOADS is not set")
    return Pool(options, home, instance_info())


def _steps(pending: list[int]) -> str:
    if len(pending) == 1:
        return f"step {pending[0]}"
    named = ", ".join(map(str, pending[-_NAMED:]))
    more = len(pending) - _NAMED
    return f"steps {named}" if more <= 0 else f"steps {named} and {more} earlier ones"


def _is(pending: list[int]) -> str:
    return "was" if len(pending) == 1 else "were"
