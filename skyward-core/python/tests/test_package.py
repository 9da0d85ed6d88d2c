"""The package that authors of payloads install from its folder, for their editors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent

PAYLOAD = """
import skyward as sky


def double(x: int) -> int:
    return 2 * x


@sky.integrations.torch(backend="gloo")
def main(xs: list[int]) -> float:
    reveal_type(sky.shard(xs, shuffle=True))
    reveal_type(sky.instance_info().rank)
    sky.report({"sum": sum(sky.map(double, xs))})
    return float(sky.submit(double, 1).result())


main("text")
sky.shrad(1)
sky.integrations.jaxx
"""


def tool(name: str, *args: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / name), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which the package of the folder is installed, built without any network."""
    folder = tmp_path_factory.mktemp("installed")
    python = folder / "env" / "bin" / "python"
    for args in (
        ("venv", "--offline", "--python", sys.executable, folder / "env"),
        ("build", "--offline", "--wheel", "--out-dir", folder, FOLDER),
    ):
        done = tool("uv", *args)
        assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")
    done = tool("uv", "pip", "install", "--offline", "--no-deps", "--python", python, wheel)
    assert done.returncode == 0, done.stderr
    return folder / "env"


def test_the_installed_package_is_the_one_of_the_nodes(environment: Path) -> None:
    [site] = environment.glob("lib/python*/site-packages")
    files = {path.relative_to(FOLDER) for kind in ("*.py", "py.typed") for path in (FOLDER / "skyward").rglob(kind)}
    installed = {path.relative_to(site) for kind in ("*.py", "py.typed") for path in (site / "skyward").rglob(kind)}
    assert installed == files
    assert not (site / "tests").exists()
    assert not (site / "bench").exists()


def test_an_editor_has_the_types(environment: Path, tmp_path: Path) -> None:
    payload = tmp_path / "payload.py"
    payload.write_text(PAYLOAD)
    python = environment / "bin" / "python"
    found = tool("mypy", "--strict", "--cache-dir", tmp_path / "cache", "--python-executable", python, payload).stdout
    for text in (
        'Revealed type is "list[int]"',
        'Revealed type is "int"',
        'Argument 1 to "main" has incompatible type "str"',
        'Module has no attribute "shrad"',
        'has no attribute "jaxx"',
    ):
        assert text in found.replace("builtins.", ""), found
    assert "Found 3 errors" in found, found
