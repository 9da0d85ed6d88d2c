"""What an agent reports of the environment of its node."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from skyward._agent.installed import installed

from .client import AgentClient
from .conftest import Node

INSTALLERS = ("pip", "setuptools", "uv", "wheel")


def named(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def package(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)


def test_the_packages_of_an_environment_are_those_that_python_finds() -> None:
    found = installed()
    assert found.pop("python") == f"{sys.version_info[0]}.{sys.version_info[1]}{sys.abiflags}"
    wanted: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        wanted.setdefault(named(distribution.metadata["Name"]), distribution.version)
    for installer in INSTALLERS:
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


def test_two_versions_in_one_folder_are_named_whatever_the_order_of_its_entries(tmp_path: Path) -> None:
    for name in "two-2.0.dist-info", "two-1.0.dist-info":
        package(tmp_path, name)
    assert installed([str(tmp_path)])["two"] == "1.0 and 2.0"


def test_a_name_that_is_no_text_can_be_sent(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9-1.0.dist-info")
    assert msgspec.msgpack.encode(installed([str(tmp_path)]))


def test_the_list_has_what_workers_can_import(make_node: Callable[..., Node], folder: Path) -> None:
    besides, work = folder.with_name(f"{folder.name}-besides"), folder / "work"
    for place, name in (
        (besides, "besides-1.0"),
        # In the environment too; the folder besides comes first.
        (besides, "pytest-0.0.1"),
        (work / "libs", "relative-2.0"),
        (work, "working-3.0"),
        (work / "here", "unseen-4.0"),
        (folder, "unseen-5.0"),
    ):
        about = place / f"{name}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Name: {}\nVersion: {}\n".format(*name.split("-")))
    path = f"{besides}::libs"
    node = make_node(path=path)
    worker = node.ready(
        """
        import importlib.metadata
        def main():
            found = {}
            for distribution in importlib.metadata.distributions():
                found.setdefault(distribution.metadata["Name"], distribution.version)
            return found
        """,
        env={"PYTHONPATH": path},
        cwd=str(work),
    )
    imported = {named(name): version for name, version in worker.call(1).items()}
    shutil.rmtree(besides)
    wanted = {name: version for name, version in imported.items() if name not in INSTALLERS}
    assert (wanted["besides"], wanted["pytest"], wanted["relative"], wanted["working"]) == (
        "1.0",
        "0.0.1",
        "2.0",
        "3.0",
    )
    assert {name: version for name, version in node.agent.installed.items() if name != "python"} == wanted


def test_each_client_gets_the_list_with_the_hello(make_node: Callable[..., Node]) -> None:
    node = make_node()
    assert node.agent.installed == installed() | {"python": node.agent.installed["python"]}
    assert AgentClient(node.folder).installed == node.agent.installed
