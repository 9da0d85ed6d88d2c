"""A mover is killed at each of its steps; the next one makes the trees right. A program, because it forks."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from skyward._core import artifacts
from skyward._mover import data_record
from skyward._mover.data_sets import DataSets

from .data_client import Listed, tree_of

STEPS = ("chmod", "fchmod", "link", "mkdir", "open", "pwrite", "rename", "rmdir", "symlink", "unlink", "utime")


def random_set(random: random.Random, before: Listed | None = None) -> Listed:
    """Return a data set, which has some of the files of another one."""
    data, folders = Listed(), [b""]
    known = list(before.contents.values()) if before else []
    for number in range(random.randint(3, 9)):
        path = random.choice(folders) + b"%d\xff" % number
        kind = random.choice(("file", "file", "file", "folder", "link"))
        if kind == "folder":
            data.folder(path)
            folders.append(path + b"/")
        elif kind == "link":
            data.link(path, b"%d" % random.randint(0, 9))
        else:
            content = (
                random.choice(known)
                if known and random.random() < 0.5
                else random.randbytes(random.choice((0, 9, 3000)))
            )
            data.file(path, content, random.random() < 0.3)
    return data


def bring(sets: DataSets, data: Listed, most: int = 0) -> str:
    """Bring a data set, its files in two parts each."""
    _, path, missing = sets.attach(memoryview(data.body), most)
    for index in missing:
        content = data.contents[index]
        half = len(content) // 2
        for offset, part in ((0, content[:half]), (half, content[half:])):
            sets.fill(data.id, [(index, offset, len(part))], memoryview(part))
    if missing:
        sets.publish(data.id)
    return os.fsdecode(path)


def damage(random: random.Random, path: str) -> None:
    """Change a tree as a payload may."""
    for base, names, files in os.walk(path):
        for name in [*names, *files]:
            whole = f"{base}/{name}"
            how = random.randrange(8)
            if how == 0:
                artifacts.remove_any(whole)
            elif how == 1 and not os.path.islink(whole) and os.path.isfile(whole):
                os.chmod(whole, 0o600)
                Path(whole).write_bytes(b"changed")
            elif how == 2:
                artifacts.remove_any(whole)
                os.symlink("x", whole)
            elif how == 3 and os.path.isdir(whole):
                (Path(whole) / "added").mkdir(exist_ok=True)


def forked(act: Callable[[], None]) -> int:
    """Run this in a process of its own, whose locks end with it; return its status."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def kill_at(step: int) -> None:
    """End this process before the step of this number."""
    left = step

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **more)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    data_record.open = counted(open)  # type: ignore[attr-defined]


class Round:
    """Three data sets, and what one mover does with them until it is killed."""

    def __init__(self, seed: int, home: str) -> None:
        chance = random.Random(seed)
        self.unused = random_set(chance)
        self.old = random_set(chance, self.unused)
        self.new = random_set(chance, self.old)
        self.chance = chance
        self.home = home
        os.environ["SKYWARD_CACHE_DIR"] = home

    def prepare(self) -> None:
        sets = DataSets(self.home)
        for each in (self.unused, self.old):
            bring(sets, each)
        damage(self.chance, f"{self.home}/data/{self.old.id}/files")

    def act(self, step: int) -> None:
        sets = DataSets(self.home)
        kill_at(step)
        bring(sets, self.old)
        bring(sets, self.new, most=1)

    def check(self) -> None:
        sets = DataSets(self.home)
        every = (self.new, self.old, self.unused)
        for each in every:
            path = bring(sets, each)
            assert tree_of(path) == each.tree, (tree_of(path), each.tree)
            assert sorted(os.listdir(os.path.dirname(path))) == ["files", "record"]
        assert set(os.listdir(f"{self.home}/data")) == {".locks", *(each.id for each in every)}


def play(seed: int, folder: str, first: int, every: int) -> int:
    """Kill a mover at each of these steps; return how many there were."""
    for step in count(first, every):
        played = Round(seed, f"{folder}/{step}")
        assert forked(played.prepare) == 0
        status = forked(lambda played=played, step=step: played.act(step))  # type: ignore[misc]
        assert status in (0, signal.SIGKILL), status
        assert forked(played.check) == 0, f"seed {seed}, step {step}"
        artifacts.remove(played.home)
        if status == 0:
            return (step - first) // every
    raise AssertionError


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(play(int(sys.argv[1]), name, int(sys.argv[2]), int(sys.argv[3])))
