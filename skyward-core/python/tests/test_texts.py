"""The texts of payloads are real files: for `inspect`, for lines, and for other processes."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from .client import WorkerClient
from .conftest import Node


@pytest.fixture
def worker(node: Node) -> WorkerClient:
    """A worker without a payload."""
    client = node.worker()
    client.hello()
    return client


SOURCE = """
    import inspect
    def main():
        # {n}
        return inspect.getsource(main)
"""


@pytest.mark.parametrize("first_line", [1, 7])
def test_each_payload_sees_its_own_text(worker: WorkerClient, first_line: int) -> None:
    for n in (1, 2):
        worker.load(n, SOURCE.format(n=n), main="src/job.py", first_line=first_line)
        worker.call(n)
    for n in (1, 2):
        assert f"# {n}\n" in worker.call(n)


def test_the_cache_of_a_decorator_is_that_of_its_payload(worker: WorkerClient) -> None:
    """As in `joblib.Memory`, whose keys are a function's module, name and source."""
    keys = """
        import inspect
        def main():
            # {n}
            return [main.__module__, main.__qualname__, inspect.getsourcelines(main)[1]]
    """
    for n in (1, 2):
        worker.load(n, keys.format(n=n))
    assert worker.call(1) != worker.call(2)


TEXTS = {
    "form feed": "x = 1\n\x0c\ny = '\x0b \x1c \u2028'\ndef main():\n    raise ValueError('here')\n",
    "crlf": "x = 1\r\n\r\ny = 2\r\ndef main():\r\n    raise ValueError('here')\r\n",
    "cr": "x = 1\r\ry = 2\rdef main():\r    raise ValueError('here')\r",
    "byte order mark": "\ufeff# é\n\n\ndef main():\n    raise ValueError('here')\n",
    "cookie": "# -*- coding: utf-8 -*-\n\n\ndef main():\n    raise ValueError('here')\n",
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("first_line", [1, 100])
def test_lines_are_counted_as_python_does(worker: WorkerClient, kind: str, first_line: int) -> None:
    worker.load(1, TEXTS[kind], main="src/job.rs", first_line=first_line)
    expected = f"File \"src/job.rs\", line {first_line + 4}, in main\n    raise ValueError('here')"
    assert expected in worker.failure(1)["traceback"]


@pytest.mark.parametrize(
    "top",
    [
        "# -*- coding: latin-1 -*-",
        "#!/usr/bin/python\n# vim: set fileencoding=klingon :",
        "\r\n  # coding=ascii",
        "# coding: latin-1\n# coding: klingon",
        "\ufeff# coding: latin-1",
        "import sys\n# coding: klingon",
    ],
)
@pytest.mark.parametrize("first_line", [1, 5])
def test_a_text_is_read_as_it_is_whatever_encoding_it_names(worker: WorkerClient, top: str, first_line: int) -> None:
    text = f"{top}\ndef main():\n    import inspect\n    return 'é', inspect.getsource(main)\n"
    worker.load(1, text, first_line=first_line)
    value, source = worker.call(1)
    assert value == "é"
    assert "return 'é'" in source


def test_a_name_may_be_as_long_as_a_file_system_allows(worker: WorkerClient) -> None:
    name = "x" * 252
    worker.load(
        1,
        {f"{name}.py": "VALUE = 3", "main.py": f"def main():\n    import {name}\n    return {name}.VALUE"},
        main="main.py",
    )
    assert worker.call(1) == 3


FOLDER = {
    "jobs/trainer/__init__.py": "",
    "jobs/trainer/main.py": """
        import subprocess, sys
        from pathlib import Path
        from trainer.deep import VALUE
        def main(what):
            if what == "data":
                return (Path(__file__).parent / "data" / "notes.txt").read_text()
            if what == "resources":
                from importlib.resources import files
                return (files(__package__) / "data" / "notes.txt").read_text()
            if what == "later":
                from . import later
                return later.VALUE
            code = f"import importlib; print(importlib.import_module({__name__!r}).VALUE)"
            arguments = [__file__] if what == "script" else ["-c", code]
            return subprocess.run([sys.executable, *arguments], capture_output=True, text=True).stdout
        if __name__ == "__main__":
            print("a script")
    """,
    "jobs/trainer/deep.py": "VALUE = 3",
    "jobs/trainer/later.py": "VALUE = 4",
    "jobs/trainer/data/notes.txt": "notes",
}


def load(worker: WorkerClient, **changed: Any) -> WorkerClient:
    worker.load(1, FOLDER | changed, main="jobs/trainer/main.py")
    return worker


def test_a_folder_has_its_files(worker: WorkerClient) -> None:
    load(worker)
    assert [worker.call(1, what=what) for what in ("data", "resources")] == ["notes", "notes"]


def test_other_processes_import_modules_by_name(worker: WorkerClient) -> None:
    assert load(worker).call(1, what="import") == "3\n"


def test_a_file_is_a_script_for_another_process(worker: WorkerClient) -> None:
    script = """
        import subprocess, sys
        def main():
            return subprocess.run([sys.executable, __file__], capture_output=True, text=True).stdout
        if __name__ == "__main__":
            print("a script")
    """
    worker.load(1, script)
    assert worker.call(1) == "a script\n"


def test_files_that_are_gone_are_written_again(node: Node, worker: WorkerClient) -> None:
    load(worker).call(1, what="data")
    shutil.rmtree(node.folder / "payloads")
    assert worker.call(1, what="later") == 4
    assert worker.call(1, what="data") == "notes"


def test_a_single_file_that_is_gone_is_written_again(node: Node, worker: WorkerClient) -> None:
    load(worker).call(1, what="data")
    [path] = node.folder.glob("payloads/payload_*/jobs/trainer/later.py")
    path.unlink()
    assert worker.call(1, what="later") == 4


def test_a_worker_that_is_stopped_keeps_no_other_from_loading(node: Node, worker: WorkerClient) -> None:
    load(worker).call(1, what="data")
    folder = os.open(node.folder / "payloads", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        worker.load(2, SOURCE.format(n=1))
        assert "# 1" in worker.call(2)
    finally:
        os.close(folder)


def test_a_file_that_was_changed_is_written_again(node: Node, worker: WorkerClient) -> None:
    worker.load(1, SOURCE.format(n=1), main="job.py")
    worker.call(1)
    [path] = node.folder.glob("payloads/payload_*/job.py")
    path.write_text("changed")
    # The number of a released payload is loaded anew.
    worker.load(1, "def main(): ...", main="other.py")
    worker.call(1)
    worker.load(1, SOURCE.format(n=1), main="job.py")
    assert "# 1" in worker.call(1)


def test_only_the_user_can_change_the_files(node: Node, worker: WorkerClient) -> None:
    worker.load(1, SOURCE.format(n=1))
    worker.call(1)
    for path in [node.folder / "payloads", *node.folder.glob("payloads/**/*")]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


@pytest.mark.parametrize("kind", ["writable", "link"])
def test_a_folder_that_others_can_write_is_refused(node: Node, worker: WorkerClient, kind: str, tmp_path: Path) -> None:
    folder = node.folder / "payloads"
    if kind == "link":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    worker.load(1, SOURCE.format(n=1))
    message = worker.failure(1)["message"]
    assert f"payloads are not written into {folder}: other users could change them there" in message
    assert not list(tmp_path.glob("payload_*"))


def test_files_that_cannot_be_written_are_named(node: Node, worker: WorkerClient) -> None:
    (node.folder / "payloads").mkdir(0o700)
    worker.load(1, SOURCE.format(n=1), main=f"{'x' * 300}.py")
    message = worker.failure(1)["message"]
    assert "cannot write the files of the payload" in message
    assert os.strerror(36) in message
    assert "give it a shorter name" in message


@pytest.mark.parametrize("path", ["../up.py", "/absolute/job.py", "./a//b.py", "__init__.py", "my-job.v1.py"])
def test_no_path_leads_out_of_the_folder(node: Node, worker: WorkerClient, path: str) -> None:
    worker.load(1, SOURCE.format(n=1), main=path)
    assert "# 1" in worker.call(1)
    worker.load(2, {path: SOURCE.format(n=2), "../../a.txt": "", "b/c.txt": ""}, main=path)
    if "v1" not in path:
        assert "# 2" in worker.call(2)
    assert {entry.name for entry in node.folder.parent.iterdir()} == {node.folder.name}
