"""Checkpoints outside a pool: a folder for each, below the working folder."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from .._core import artifacts, checkpoint_folders
from .._core.complaint import complain
from .checkpoint_place import Place
from .checkpoint_save import Half
from .checkpoint_values import Checkpoint, CheckpointError, Options, meta_of

_META: Final = "meta"
_DIGITS: Final = 12
"""The least digits of a folder's name, so that names sort like steps."""
_TAKEN: Final = (errno.ENOTEMPTY, errno.EEXIST)


class Folder(Place):
    """The saves of one name in the working folder."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._keep = options.keep
        self.folder = f"{os.getcwd()}/{checkpoint_folders.FOLDER}/{options.name}"

    def open(self, until: float) -> None:
        artifacts.make_folders(self.folder)
        for step in reversed(self._steps()):
            self.start = self._read(step)
            if self.start is not None:
                return

    def publish(self, half: Half, step: int, meta: str) -> None:
        half.check()
        half.write(_META, meta.encode())
        name = _name(step)
        try:
            half.publish(name)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            if self._read(step) is not None:
                raise CheckpointError(
                    f"step {step} is in {self.folder} already, and was not when this block began: another process "
                    "saves under the same name; give each of them a name of its own"
                ) from None
            # It is not whole, and was skipped when this block began.
            artifacts.remove(f"{self.folder}/{name}")
            half.publish(name)
        self._tidy()

    def check(self) -> None:
        pass  # a save that cannot be kept fails itself

    def look(self) -> None:
        pass

    def ask(self, why: str, step: int) -> None:
        pass  # there is no other rank

    def settle(self, until: float) -> None:
        pass  # nobody asks

    def wait(self, step: int, until: float) -> bool:
        return True

    def close(self, failed: bool) -> None:
        self.start = None
        self._tidy()

    def _steps(self) -> list[int]:
        """Return the steps of all checkpoints, the earliest first."""
        with suppress(FileNotFoundError):
            # Other names than those that a save gets are not touched.
            names = [name for name in os.listdir(self.folder) if name.isascii() and name.isdigit()]
            return sorted(int(name) for name in names if name == _name(int(name)))
        return []

    def _read(self, step: int) -> Checkpoint | None:
        folder = f"{self.folder}/{_name(step)}"
        content = Path(folder, checkpoint_folders.CONTENT)
        try:
            with open(f"{folder}/{_META}", encoding="utf-8") as file:
                meta = meta_of(file.read())
            if content.is_dir():
                return Checkpoint(step, content, meta)
            why = f"{content} is no folder"
        except (OSError, ValueError) as error:
            why = str(error)
        complain(f"sky.checkpoints skips {folder}, which is not whole: {why}")
        return None

    def _tidy(self) -> None:
        """Remove the oldest checkpoints, but not the one from which the block begins."""
        if self._keep is None:
            return
        for step in self._steps()[: -self._keep]:
            if self.start is None or step != self.start.step:
                self._remove(_name(step))

    def _remove(self, name: str) -> None:
        # Under its own name, one of which only a part is left would look whole.
        hidden = f"{self.folder}/{artifacts.hidden(os.urandom(16).hex())}"
        try:
            os.rename(f"{self.folder}/{name}", hidden)
            artifacts.remove(hidden)
        except FileNotFoundError:
            pass  # another process has removed it
        except OSError as error:
            if error.errno is None:
                raise  # a signal handler of the payload has raised
            complain(f"sky.checkpoints cannot remove the old checkpoint {self.folder}/{name}: {error}")


def _name(step: int) -> str:
    return f"{step:0{_DIGITS}}"
