"""Changes the environment in which it runs, in ten ways, and finds what was changed."""

import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

ENVIRONMENT = Path(sys.prefix)
PACKAGES = Path(sysconfig.get_paths()["purelib"])
PARSE = PACKAGES / "iniconfig/_parse.py"


def rewrite_with_the_same_size_and_times() -> None:
    """Replace a letter, and set the times back."""
    before = PARSE.stat()
    PARSE.write_bytes(PARSE.read_bytes().replace(b"import", b"IMPORT", 1))
    os.utime(PARSE, ns=(before.st_atime_ns, before.st_mtime_ns))


def install() -> None:
    """Do what an installer does."""
    for name in ("other/__init__.py", "other-1.0.dist-info/METADATA"):
        path = PACKAGES / name
        path.parent.mkdir()
        path.write_text("Name: other\nVersion: 1.0\n")


def append(path: Path, text: str) -> None:
    """Append a line to a file, or make the file."""
    with path.open("a") as file:
        file.write(text)


WAYS: dict[str, tuple[Callable[[], object], Callable[[], bool]]] = {
    "append": (
        lambda: append(PACKAGES / "iniconfig/__init__.py", "CHANGED = True\n"),
        lambda: "CHANGED" in (PACKAGES / "iniconfig/__init__.py").read_text(),
    ),
    "rewrite": (rewrite_with_the_same_size_and_times, lambda: b"IMPORT" in PARSE.read_bytes()),
    "remove": (
        lambda: (PACKAGES / "iniconfig/py.typed").unlink(),
        lambda: not (PACKAGES / "iniconfig/py.typed").exists(),
    ),
    "install": (install, lambda: (PACKAGES / "other-1.0.dist-info").exists()),
    "module": (lambda: append(PACKAGES / "stray.py", "x = 1\n"), lambda: (PACKAGES / "stray.py").exists()),
    "path": (lambda: append(PACKAGES / "stray.pth", "/tmp\n"), lambda: (PACKAGES / "stray.pth").exists()),
    "site": (
        lambda: append(PACKAGES / "sitecustomize.py", "import os\n"),
        lambda: (PACKAGES / "sitecustomize.py").exists(),
    ),
    "settings": (
        lambda: append(ENVIRONMENT / "pyvenv.cfg", "changed = true\n"),
        lambda: "changed" in (ENVIRONMENT / "pyvenv.cfg").read_text(),
    ),
    "program": (
        lambda: append(ENVIRONMENT / "bin/stray", "#!/bin/sh\n"),
        lambda: (ENVIRONMENT / "bin/stray").exists(),
    ),
    "link": (
        lambda: (ENVIRONMENT / "bin/python-stray").symlink_to("/bin/false"),
        lambda: (ENVIRONMENT / "bin/python-stray").is_symlink(),
    ),
}


def change() -> list[str]:
    """Change the environment in each way; return the names of those that succeeded."""
    done = []
    for name, (do, _) in WAYS.items():
        try:
            do()
            done.append(name)
        except OSError as error:
            print(f"{name}: {error}")
    return done


def seen() -> list[str]:
    """Return the names of the ways in which the environment was changed."""
    return [name for name, (_, is_seen) in WAYS.items() if is_seen()]
