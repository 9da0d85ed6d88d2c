"""Unpacks the worker package, a JSON map of path to text on standard input, and compiles it."""

import compileall
import json
import pathlib
import py_compile
import shutil
import sys
import tempfile

target = pathlib.Path(sys.argv[1])
files = json.load(sys.stdin)
if not (target / "skyward").is_dir():
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
        # Another process may have been first; that is as good.
        if not (target / "skyward").is_dir():
            raise
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
if not compileall.compile_dir(str(target / "skyward"), quiet=1, invalidation_mode=unchecked):
    sys.exit("error: the worker package does not compile with this Python")
