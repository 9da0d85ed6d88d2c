"""Unpack the worker package, a JSON map of path to text on standard input, and compile it."""

import compileall
import contextlib
import json
import marshal
import pathlib
import py_compile
import shutil
import sys
import tempfile

target = pathlib.Path(sys.argv[1])
files = json.load(sys.stdin)


def unpack() -> None:
    """Unpack beside the target, so that nobody sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new = pathlib.Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        for name, text in files.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        new.rename(target)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        # Another process may have been first, which is sufficient.
        if not (target / "skyward").is_dir():
            raise


if not (target / "skyward").is_dir():
    try:
        unpack()
    except OSError as error:
        sys.exit(f"error: cannot write {target}: {error.strerror}")
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
# The output of the compiler is the reason of a failure.
with contextlib.redirect_stdout(sys.stderr):
    compiled = compileall.compile_dir(str(target / "skyward"), quiet=1, invalidation_mode=unchecked)
if not compiled:
    sys.exit(f"error: {target} cannot be compiled")
# Some versions of Python report success for a file that a full disk has truncated.
for path in (target / "skyward").rglob(f"*.{sys.implementation.cache_tag}.pyc"):
    try:
        marshal.loads(path.read_bytes()[16:])
    except (EOFError, ValueError, TypeError):
        path.unlink()
        sys.exit(f"error: cannot write {path}: no space left on device")
