"""What an agent reports of the environment of its node."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path

from skyward._agent.installed import installed

from .client import AgentClient
from .conftest import Node


def package(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)


def test_the_packages_of_an_environment_are_those_that_python_finds() -> None:
    found = installed()
    assert found.pop("python") == f"{sys.version_info[0]}.{sys.version_info[1]}{sys.abiflags}"
    wanted: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"].lower().replace("_", "-").replace(".", "-")
        wanted.setdefault(name, distribution.version)
    for installer in ("pip", "setuptools", "uv", "wheel"):
        wanted.pop(installer, None)
    assert "msgspec" in found
    assert found == wanted
    assert list(found) == sorted(found)


def test_the_first_of_two_versions_counts_whatever_its_name_looks_like(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, name in [
        (first, "Some_Package-1.0.dist-info"),
        (first, "zope.interface-7.0.dist-info"),
        (first, "old_one-2.1-py3.11.egg-info"),
        (first, "developed.egg-info"),
        (first, "pip-24.0.dist-info"),
        (first, "some_package"),
        (second, "some_package-2.0.dist-info"),
        (second, "other-3.0.post1+cpu.dist-info"),
    ]:
        package(folder, name)
    found = installed([str(first), str(tmp_path / "missing"), str(second)])
    del found["python"]
    assert found == {
        "developed": "",
        "old-one": "2.1",
        "other": "3.0.post1+cpu",
        "some-package": "1.0",
        "zope-interface": "7.0",
    }


def test_each_client_gets_the_list_with_the_hello(make_node: Callable[..., Node]) -> None:
    node = make_node()
    assert node.agent.installed == installed() | {"python": node.agent.installed["python"]}
    assert AgentClient(node.folder).installed == node.agent.installed
