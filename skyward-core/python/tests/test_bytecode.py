"""Bytecode on a disk that is full: nothing is kept of which only the beginning was written."""

from __future__ import annotations

import json
import marshal
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

UNPACK = Path(__file__).parents[2] / "src/bootstrap/scripts/unpack.py"
LINES = "".join(f"def f{n}():\n    return {n}\n" for n in range(200))


def unpack(target: Path, largest: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    """Unpack a package of one module; no file can have more bytes than this."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))

    return subprocess.run(
        [sys.executable, "-c", UNPACK.read_text(), target],
        check=False,
        input=json.dumps({"skyward/__init__.py": LINES}),
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )


def compiled(target: Path) -> list[Path]:
    return list((target / "skyward/__pycache__").glob("*.pyc"))


def test_a_module_whose_bytecode_was_cut_off_is_no_success_and_is_made_anew(tmp_path: Path) -> None:
    target = tmp_path / "worker"
    assert unpack(target).returncode == 0
    for path in compiled(target):
        path.unlink()
    failed = unpack(target, largest=4096)
    assert failed.returncode == 1
    assert f"error: cannot write {target}" in failed.stderr or "cannot be compiled" in failed.stderr
    assert compiled(target) == []
    assert unpack(target).returncode == 0
    (path,) = compiled(target)
    marshal.loads(path.read_bytes()[16:])


def test_where_the_package_cannot_be_written_its_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = unpack(tmp_path / "file/worker")
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"error: cannot write {tmp_path}/file/worker: ")


@pytest.mark.parametrize(("free", "kept"), [(1 << 20, False), (1 << 30, True)])
def test_nothing_is_compiled_for_later_on_a_disk_that_is_nearly_full(free: int, kept: bool, tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text("")
    code = (
        "import os\n"
        f"os.statvfs = lambda _: os.statvfs_result((1, 1, 0, 0, {free}, 0, 0, 0, 0, 0))\n"
        "from skyward import _bytecode\n"
        "_bytecode.restore()\n"
        "import imported\n"
    )
    package = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": f"{package}:{tmp_path}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("PYTHONPYCACHEPREFIX", None)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert (tmp_path / "__pycache__").exists() is kept
