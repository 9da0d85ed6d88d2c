"""Payloads: modules of one or several files, their names, their imports, and their tracebacks."""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
import pickle
import shutil
import sys
import traceback
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from skyward._core import modules
from skyward._core.messages import Source
from skyward._core.modules import Layout, PayloadError
from skyward._tasks import files as _files
from skyward._tasks import payload as _payload
from skyward._tasks.failure import failure_map
from skyward._tasks.payload import Payload

from .client import source

_numbers = itertools.count()


pytestmark = pytest.mark.usefixtures("payloads")


def make(files: dict[str, str], main: str = "", entry: str = "main", first_line: int = 1) -> Payload:
    """A payload of these files, whose texts may be indented multi-line strings."""
    texts = [(path, source(text)) for path, text in files.items()]
    return Payload(f"{next(_numbers):08x}" * 4, Source(entry, main or next(iter(files)), texts, first_line))


def run(files: dict[str, str], main: str = "", entry: str = "main") -> Any:
    return make(files, main, entry).function()()


def test_one_file_is_one_module() -> None:
    files = {
        "jobs/train_it.py": """
            import sys
            def main():
                return __name__, __file__
        """
    }
    payload = make(files)
    function = payload.function()
    name = f"payload_{payload.digest}.train_it"
    assert function() == (name, f"{_payload.FOLDER}/payload_{payload.digest}/jobs/train_it.py")
    assert function.__module__ == name


def test_a_payload_may_be_called_like_a_library() -> None:
    called_msgspec = """
        import msgspec
        def main():
            return msgspec.msgpack.encode(1)
    """
    assert run({"jobs/msgspec.py": called_msgspec}) == b"\x01"
    called_random = """
        import random
        def main():
            return random.Random(1).random() > 0
    """
    assert run({"random.py": called_random}) is True
    assert "skyward" not in sys.modules["random"].__file__  # type: ignore[operator]


PACKAGE = {
    "jobs/trainer/__init__.py": """
        from .model import Net
        from .data.load import rows
        def main():
            return Net.size, rows()
    """,
    "jobs/trainer/model.py": """
        import trainer.data.load as l
        from trainer.sizes import SIZE
        class Net:
            size = SIZE
    """,
    "jobs/trainer/sizes.py": "SIZE = 3",
    "jobs/trainer/data/load.py": """
        from .. import sizes
        def rows():
            return sizes.SIZE * 2
    """,
    "jobs/trainer/notes.txt": "not a module",
}


def test_a_package_with_relative_and_absolute_imports() -> None:
    assert run(PACKAGE) == (3, 6)


def test_files_beside_a_script_are_imported_as_scripts_do() -> None:
    files = {
        "jobs/train.py": """
            import helper, sub.deep
            from helper import one
            def main():
                return one(), sub.deep.two
        """,
        "jobs/helper.py": """
            import json
            def one():
                return json.loads('1')
        """,
        "jobs/sub/deep.py": "two = 2",
    }
    assert run(files) == (1, 2)
    assert "helper" not in sys.modules


def test_two_payloads_with_equal_names_never_meet() -> None:
    def files(number: int) -> dict[str, str]:
        return {
            "p/main.py": f"""
                import helper
                from p import helper as again
                def main():
                    return helper.N, again.N, {number}
            """,
            "p/helper.py": f"N = {number}",
        }

    first, second = make(files(1)), make(files(2))
    assert first.function()() == (1, 1, 1)
    assert second.function()() == (2, 2, 2)
    assert first.function()() == (1, 1, 1)


def test_a_package_may_be_called_like_a_library() -> None:
    files = {
        "json/__init__.py": """
            from .helper import N
            import json
            def main():
                return json.dumps(N)
        """,
        "json/helper.py": "N = 1",
    }
    assert run(files) == "1"


def test_a_file_called_like_a_library_can_use_that_library() -> None:
    files = {
        "jobs/main.py": """
            import json
            def main():
                return json.dump_it()
        """,
        "jobs/json.py": """
            import json
            def dump_it():
                return json.dumps([1])
        """,
    }
    assert run(files) == "[1]"


def test_classes_of_a_payload_can_be_pickled() -> None:
    things = """
        class Thing:
            n = 1
        def main():
            return Thing()
    """
    thing = run({"jobs/things.py": things})
    assert pickle.loads(pickle.dumps(thing)).n == 1


def test_lines_are_those_of_the_file_it_came_from() -> None:
    raises = """
        def main():
            raise ValueError('x')
    """
    payload = make({"src/main.rs": raises}, first_line=40)
    with pytest.raises(ValueError) as caught:
        payload.function()()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.lineno, last.line) == (41, "raise ValueError('x')")
    assert 'File "src/main.rs", line 41, in main' in failure_map(caught.value, payload.owns)["traceback"]


def test_payloads_of_one_rust_file_keep_their_lines() -> None:
    """Inline bodies share the file name of the Rust file that contains them."""
    functions = {}
    for first_line in (70, 50, 90):
        text = f"""
            def main():
                return {first_line}
        """
        functions[first_line] = make({"src/lib.rs": text}, first_line=first_line).function()
    for first_line, function in functions.items():
        assert inspect.getsourcelines(function) == (["def main():\n", f"    return {first_line}\n"], first_line)


def test_a_syntax_error_has_the_files_line() -> None:
    with pytest.raises(SyntaxError) as caught:
        make({"src/a.rs": "x = = 1"}, first_line=10).function()
    failure = failure_map(caught.value)
    assert 'File "src/a.rs", line 10' in failure["traceback"]
    assert failure["message"] == "invalid syntax (a.rs, line 10)"


def test_the_state_of_a_module_lasts() -> None:
    counter = """
        n = 0
        def main():
            global n
            n += 1
            return n
    """
    payload = make({"counter.py": counter})
    assert [payload.function()() for _ in range(2)] == [1, 2]


def test_a_payload_that_failed_to_load_starts_afresh() -> None:
    flaky = """
        import sys
        sys.flaky = getattr(sys, 'flaky', 0) + 1
        assert sys.flaky > 1
        def main():
            return sys.flaky
    """
    payload = make({"flaky.py": flaky})
    with pytest.raises(AssertionError):
        payload.function()
    assert payload.function()() == 2


def test_a_payload_does_not_get_the_code_of_one_that_failed_to_load() -> None:
    raises = """
        import sys
        if not hasattr(sys, 'mended'): raise OSError
        def main():
            return 'broken'
    """
    broken = make({"job.py": raises})
    with pytest.raises(OSError):
        broken.function()
    sound = """
        def main():
            return 'sound'
    """
    assert run({"job.py": sound}) == "sound"
    sys.mended = True  # type: ignore[attr-defined]
    try:
        assert broken.function()() == "broken"
    finally:
        del sys.mended  # type: ignore[attr-defined]


TWO_FUNCTIONS = """
    def train(): ...
    def test(): ...
"""


@pytest.mark.parametrize(
    ("files", "main", "entry", "message"),
    [
        (
            {"a.py": TWO_FUNCTIONS},
            "a.py",
            "main",
            "a.py has no function main; it defines test, train",
        ),
        ({"a.py": "main = 3"}, "a.py", "main", "main in a.py is a int, not a function"),
        ({"a.py": ""}, "b.py", "main", "no file b.py; it has a.py"),
    ],
)
def test_a_missing_entry_is_named(files: dict[str, str], main: str, entry: str, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        make(files, main, entry).function()


def test_an_entry_may_be_a_method() -> None:
    job = """
        class Job:
            @staticmethod
            def go():
                return 1
    """
    assert run({"m.py": job}, entry="Job.go") == 1


def test_nothing_of_a_payload_is_kept_when_it_has_lost_its_slot() -> None:
    def kept() -> list[int]:
        tables: list[Any] = [sys.modules, sys.path_importer_cache, linecache.cache, modules._roots, modules._restores]
        return [len(table) for table in tables]

    def use(number: int) -> None:
        files = {
            "trainer/main.py": """
                import inspect
                from .deep.sizes import SIZE
                def main():
                    return SIZE, len(inspect.getsource(main))
            """,
            "trainer/deep/sizes.py": f"SIZE = {number}",
        }
        payload = make(files)
        assert payload.function()()[0] == number
        payload.release()

    use(0)
    before = kept()
    for number in range(1, 4):
        use(number)
    assert kept() == before
    assert os.listdir(_payload.FOLDER) == []


def test_files_that_another_worker_removes_meanwhile_are_written_again() -> None:
    payload = make({"job.py": "def main(): ..."})
    payload.function()
    modules.forget(payload.name)
    shutil.rmtree(_payload.FOLDER)
    assert import_module(f"{payload.name}.job").main() is None


SHARED = Source("main", "a/b.py", [("a/b.py", "b"), ("a/c.py", "c")])


def use_and_remove(slot: str, folder: str, times: int) -> None:
    _files._ME = slot  # type: ignore[misc]
    layout = Layout(path for path, _ in SHARED.files)
    for _ in range(times):
        root = _files.write(folder, "ab" * 16, SHARED, layout)
        # A worker that found no user moves the folder aside, sees this user, and moves the folder back.
        deadline = monotonic() + 60
        while not os.path.exists(f"{root}/a/c.py"):
            assert monotonic() < deadline, "the files of a worker were removed while it used them"
            os.sched_yield()
        _files.release(folder, "ab" * 16)


def test_workers_that_use_and_remove_a_payload_at_the_same_time(tmp_path: Path) -> None:
    folder = str(tmp_path / "payloads")
    context = get_context("spawn")
    workers = [context.Process(target=use_and_remove, args=(f"w{n}", folder, 200)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert os.listdir(folder) == []


def test_files_are_kept_for_a_worker_that_begins_to_use_them_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, digest = str(tmp_path / "payloads"), "ab" * 16
    root = Path(_files.write(folder, digest, SHARED, Layout(path for path, _ in SHARED.files)))
    is_used = _files._is_used

    def found(path: str) -> bool:
        used = is_used(path)
        if path == str(root):
            (root / f"{_files._MARK}another").touch()
        return used

    monkeypatch.setattr(_files, "_is_used", found)
    _files.release(folder, digest)
    assert (root / "a/c.py").read_text() == "c"
    assert os.listdir(folder) == [root.name]


def test_the_file_that_cannot_be_replaced_is_named(tmp_path: Path) -> None:
    folder, digest = str(tmp_path / "payloads"), "ab" * 16
    (tmp_path / "payloads" / f"payload_{digest}").mkdir(mode=0o700, parents=True)
    (tmp_path / "payloads").chmod(0o700)
    (tmp_path / "payloads" / f"payload_{digest}" / "a").mkdir(0o700)
    (tmp_path / "payloads" / f"payload_{digest}" / "a" / "b.py").mkdir()
    with pytest.raises(PayloadError, match=r"\(.*/payload_[ab]+/a/b\.py\)"):
        _files.write(folder, digest, SHARED, Layout(path for path, _ in SHARED.files))
    assert not list(tmp_path.rglob("*.new"))
