"""Bytecode on a full disk: no partly written file is kept."""

from __future__ import annotations

import json
import marshal
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from .client import source

UNPACK = Path(__file__).parents[2] / "src/bootstrap/scripts/unpack.py"
FUNCTION = source("""
    def f0():
        return 0
""")
LINES = "".join(FUNCTION.replace("0", str(n)) for n in range(200))


def unpack(target: Path, largest: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    """Unpack a package of one module; no file may have more bytes than `largest`."""

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


def test_truncated_bytecode_is_an_error_and_is_compiled_again(tmp_path: Path) -> None:
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
def test_no_bytecode_is_written_on_a_nearly_full_disk(free: int, kept: bool, tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text("")
    code = source(f"""
        import os
        os.statvfs = lambda _: os.statvfs_result((1, 1, 0, 0, {free}, 0, 0, 0, 0, 0))
        from skyward._core import startup
        startup.restore()
        import imported
    """)
    package = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": f"{package}:{tmp_path}"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("PYTHONPYCACHEPREFIX", None)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert (tmp_path / "__pycache__").exists() is kept
