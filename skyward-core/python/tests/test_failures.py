"""All kinds of failures of a task."""

from __future__ import annotations

import os
import signal
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import msgspec
import pytest

from skyward._core import wire
from skyward._tasks.missing import PACKAGES

from .client import Frames, WorkerClient
from .conftest import Node

ONE = """
    def main():
        return 1
"""


def missing_in(node: Node, *modules: str, cwd: Path | None = None) -> list[dict[str, str]]:
    worker = node.ready(cwd=cwd and str(cwd))
    found = []
    for number, module in enumerate(modules):
        worker.load(number, f"def main():\n    import {module}\n")
        failure = worker.failure(number)
        assert (failure["kind"], failure["type"]) == ("import", "ModuleNotFoundError")
        assert "package" not in failure
        found.append(failure["missing"])
    return found


def test_only_a_package_of_the_table_is_named(node: Node) -> None:
    assert missing_in(node, "cv2", "cv2.dnn", "sklearn_not_here.x", "no_such_thing") == [
        {"module": "cv2", "package": "opencv-python-headless"},
        {"module": "cv2", "package": "opencv-python-headless"},
        {"module": "sklearn_not_here"},
        {"module": "no_such_thing"},
    ]


def test_a_module_that_is_missing_in_an_installed_package_names_no_package(node: Node) -> None:
    numpy, json = missing_in(node, "numpy.nothere", "json.nothere")
    assert numpy["module"] == "numpy.nothere"
    assert numpy["there"].endswith("/numpy")
    assert json["there"].endswith("/json")
    assert {"package", "installed", "standard"}.isdisjoint({*numpy, *json})


def test_what_lies_deeper_in_the_working_folder_is_found(node: Node, tmp_path: Path) -> None:
    for path in ("src/helper.py", "lib/tools/a.py", "deep/er/below.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("")
    assert missing_in(node, "helper", "tools", "below", cwd=tmp_path) == [
        {"module": "helper", "lies": "src/helper.py"},
        {"module": "tools", "lies": "lib/tools"},
        {"module": "below"},
    ]


def test_an_installed_package_without_the_module_of_its_name_is_told(node: Node) -> None:
    [found] = missing_in(node, "pytest_xdist")
    assert found == {"module": "pytest_xdist", "installed": f"pytest_xdist {version('pytest-xdist')}"}


@pytest.mark.parametrize("environment", ["tools", pytest.param("frameworks", marks=pytest.mark.frameworks)])
def test_the_table_agrees_with_what_is_installed(environment: str) -> None:
    homes = packages_distributions()
    known = {module: homes[module] for module in PACKAGES if module in homes}
    assert known, environment
    for module, packages in known.items():
        assert normal(PACKAGES[module]) in map(normal, packages), module


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def test_a_module_of_the_library_that_this_python_lacks_is_told(node: Node) -> None:
    assert missing_in(node, "winreg") == [{"module": "winreg", "standard": "yes"}]


def test_a_module_that_is_missing_at_the_top_of_a_file_has_its_line(node: Node) -> None:
    worker = node.worker()
    worker.hello()
    worker.load(9, "import no_such_thing\ndef main(): ...\n", main="top.py")
    failure = worker.failure(9)
    assert (failure["kind"], failure["missing"]) == ("import", {"module": "no_such_thing"})
    assert 'File "top.py", line 1' in failure["traceback"]


def test_a_missing_name_in_a_module_names_no_package(node: Node) -> None:
    worker = node.ready("""
        def main():
            from json import nothing
    """)
    failure = worker.failure(1)
    assert failure["kind"] == "import"
    assert "missing" not in failure


def test_arguments_that_do_not_fit(node: Node) -> None:
    worker = node.ready("""
        def main(a, *, b=1):
            if a == 'raise': raise TypeError('mine')
            return a
    """)
    failure = worker.failure(1, a=1, c=2)
    assert (failure["kind"], failure["path"]) == ("arguments", ".c")
    assert "the function takes (a, *, b=1)" in failure["message"]
    assert worker.failure(1)["path"] == ".a"
    assert worker.failure(1, a="raise")["kind"] == "exception"


def test_arguments_that_cannot_be_decoded(node: Node) -> None:
    worker = node.ready("""
        def main(a):
            return a
    """)
    for task, body in enumerate(
        [b"\x81\xa1a", b"\x01", b"\xc1", msgspec.msgpack.encode({"a": msgspec.msgpack.Ext(77, b"")})], 50
    ):
        worker.send([wire.RUN, task, 1, 0, 0, None], body)
        assert worker.outcome(task)[1]["kind"] == "arguments"
        worker.task = task
    assert worker.call(1, a=1) == 1


def test_a_result_that_cannot_be_encoded(node: Node) -> None:
    worker = node.ready("""
        class Net: ...
        def main():
            return {'loss': [1.0, {'x': Net()}]}
    """)
    failure = worker.failure(1)
    assert (failure["kind"], failure["path"], failure["value_type"]) == ("encode", ".loss[1].x", "job.Net")


def test_a_generator_that_was_not_called_as_a_stream(node: Node) -> None:
    worker = node.ready("""
        def main():
            yield 1
    """)
    failure = worker.failure(1)
    assert (failure["kind"], failure["value_type"]) == ("encode", "generator")
    assert "stream" in failure["message"]


def test_a_stream_that_is_no_generator(node: Node) -> None:
    worker = node.ready("""
        def main():
            return [1]
    """)
    assert worker.outcome(worker.start(1, 5))[1]["kind"] == "encode"


def test_a_generator_that_raises_half_way(node: Node) -> None:
    worker = node.ready("""
        def main():
            yield 1
            yield 2
            raise ValueError('half')
    """)
    task = worker.start(1, 10)
    head, failure = worker.outcome(task)
    assert [head for head, _ in worker.seen] == [[wire.ITEM, task, 0], [wire.ITEM, task, 1]]
    assert (head[0], failure["kind"], failure["message"]) == (wire.FAILURE, "exception", "half")


def test_an_item_that_cannot_be_encoded(node: Node) -> None:
    worker = node.ready("""
        def main():
            yield 1
            yield [object()]
    """)
    _, failure = worker.outcome(worker.start(1, 10))
    assert (failure["kind"], failure["path"]) == ("encode", "[0]")


@pytest.mark.parametrize(("call", "message"), [("sys.exit()", ""), ("sys.exit(3)", "3"), ("sys.exit('bye')", "bye")])
def test_sys_exit_ends_the_task_and_not_the_worker(node: Node, call: str, message: str) -> None:
    worker = node.ready(f"""
        import sys
        def main():
            {call}
    """)
    failure = worker.failure(1)
    assert (failure["kind"], failure["message"]) == ("exit", message)
    worker.load(
        2,
        """
        def main():
            return 2
        """,
    )
    assert worker.call(2) == 2


def test_a_result_larger_than_a_frame(node: Node) -> None:
    worker = node.ready(
        """
        def main(n):
            return bytes(n)
        """,
        max_frame_bytes=100_000,
    )
    failure = worker.failure(1, n=100_001)
    assert failure["kind"] == "too_large"
    assert "100000" in failure["message"]
    worker.load(
        2,
        """
        def main(n):
            yield bytes(n)
        """,
    )
    assert worker.outcome(worker.start(2, 3, n=100_001))[1]["kind"] == "too_large"
    assert len(worker.call(1, n=90_000)) == 90_000


def test_an_interrupt_that_nobody_asked_for_is_an_exception(node: Node) -> None:
    worker = node.ready("""
        def main():
            raise KeyboardInterrupt('own')
    """)
    failure = worker.failure(1)
    assert (failure["kind"], failure["type"]) == ("exception", "KeyboardInterrupt")


def test_exceptions_whose_text_cannot_be_formatted(node: Node) -> None:
    worker = node.ready(r"""
        class Bad(Exception):
            def __str__(self):
                raise RuntimeError
        def main(n):
            if n == 0: raise Bad
            if n == 1: raise ValueError('\ud800')
            raise ValueError('x' * 10_000_000)
    """)
    assert "Bad" in worker.failure(1, n=0)["message"]
    assert worker.failure(1, n=1)["message"] == "\\ud800"
    failure = worker.failure(1, n=2)
    assert "left out" in failure["message"]
    assert len(failure["message"]) < 300_000


def test_a_cause_is_in_the_traceback(node: Node) -> None:
    worker = node.ready("""
        def main():
            try:
                1 / 0
            except ZeroDivisionError as e:
                raise ValueError('outer') from e
    """)
    trace = worker.failure(1)["traceback"]
    assert "ZeroDivisionError" in trace
    assert "direct cause" in trace
    assert "runner.py" not in trace


def test_recursion_without_end_is_a_short_traceback(node: Node) -> None:
    worker = node.ready("""
        def main():
            return main()
    """)
    failure = worker.failure(1)
    assert failure["type"] == "RecursionError"
    assert len(failure["traceback"]) < 5000


def test_a_payload_that_was_never_loaded(node: Node) -> None:
    assert node.ready().failure(77)["kind"] == "unknown"


def test_a_coroutine_is_awaited(node: Node) -> None:
    worker = node.ready("""
        import asyncio
        async def main(x):
            await asyncio.sleep(0)
            return x
    """)
    assert worker.call(1, x=4) == 4


def test_changes_of_a_payload_to_its_process_do_not_stop_the_worker(node: Node) -> None:
    worker = node.ready("""
        import os, sys, signal, threading
        def main(what):
            if what == 'close': os.close(1); os.close(2)
            if what == 'stdout': sys.stdout = None; sys.stderr = object()
            if what == 'signals': signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if what == 'thread': threading.Thread(target=threading.Event().wait).start()
            if what == 'chdir': os.chdir('/')
            return what
    """)
    for what in ("close", "stdout", "signals", "thread", "chdir"):
        assert worker.call(1, what=what) == what
    node.agent.send([wire.STOP, 1, 1, [0], 20.0])
    head, _ = node.agent.expect(wire.EXITED)
    assert head[4:6] == [0, None]


def test_a_worker_whose_descriptors_were_closed_says_so_and_ends(node: Node) -> None:
    worker = node.ready("""
        import os
        def main():
            os.closerange(3, 1 << 16)
    """)
    worker.start(1)
    head, _ = node.agent.expect(wire.EXITED)
    assert head[4:7] == [4, None, False]
    assert b"closed descriptors" in (node.folder / "g1" / "w0.err").read_bytes()


def test_garbage_ends_the_connection_and_not_the_worker(node: Node) -> None:
    worker = node.ready(ONE)
    path = node.started[0][2]
    for garbage in (
        b"\xff" * 64,
        wire.HEADER.pack(3, 0) + b"\xc1\xc1\xc1",
        wire.frame([wire.RUN, 1]),
        wire.frame([250]),
        wire.frame(["x"]),
        wire.frame([wire.LOAD, 1, "d"], b"\x01"),
        wire.frame([wire.CREDIT, [], {}]),
    ):
        worker.socket.sendall(garbage)
        head, _ = worker.expect(wire.ERROR)
        assert head[2]
        assert worker.at_end()
        worker = WorkerClient(path)
        worker.hello()
    worker.load(1, ONE)
    assert worker.call(1) == 1


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ([wire.ATTACH, 2, 1, 0, []], "version 3"),
        ([wire.ATTACH, 3, 7, 0, []], "generation 1"),
        ([wire.BYE], "Hello"),
    ],
)
def test_a_wrong_greeting_is_refused(node: Node, first: list[object], text: str) -> None:
    node.ready()
    worker = WorkerClient(node.started[0][2])
    worker.hello()
    worker.close()
    stranger = Frames(node.started[0][2])
    stranger.send(first)
    assert text in stranger.expect(wire.ERROR)[0][2]


def test_stacks_of_all_threads_are_sent_on_request(node: Node) -> None:
    worker = node.ready("""
        import threading, time
        def waits_here():
            time.sleep(60)
        def beside():
            time.sleep(60)
        def main():
            threading.Thread(target=beside, daemon=True).start()
            print('began')
            waits_here()
    """)
    worker.start(1)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    node.agent.expect(wire.LOG)
    for _ in range(2):
        node.agent.send([wire.SIGNAL, 1, 0, "stacks"])
        head, data = node.agent.expect(wire.STACKS)
        assert head == [wire.STACKS, 1, 0]
        *_, beside, main = data.decode().split("hread 0x")
        assert 'File "job.py", line 5 in beside' in beside, "each request gets the stacks once"
        assert 'File "job.py", line 3 in waits_here' in main, "the main thread comes last"
        assert data.count(b"waits_here") == 1
    assert not (node.folder / "g1" / "w0.err").read_bytes(), "they are no output of the task"


def test_a_process_that_cannot_answer_has_no_stacks(node: Node) -> None:
    node.ready()
    os.kill(node.pid, signal.SIGSTOP)
    node.agent.send([wire.SIGNAL, 1, 0, "stacks"])
    assert node.agent.expect(wire.STACKS) == ([wire.STACKS, 1, 0], b"")
    os.kill(node.pid, signal.SIGCONT)


@pytest.mark.parametrize("takes", ["lambda *_: None", "signal.SIG_DFL", "signal.SIG_IGN"])
def test_a_payload_that_takes_the_signal_of_stacks_lives_and_the_next_task_has_stacks(node: Node, takes: str) -> None:
    worker = node.ready(f"""
        import os, signal, time
        def main(until):
            if until:
                signal.signal(signal.SIGUSR1, {takes})
            print('began')
            while not until or not os.path.exists(until):
                time.sleep(0.01)
    """)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    until = node.folder / "until"
    first = worker.start(1, until=str(until))
    node.agent.expect(wire.LOG)
    node.agent.send([wire.SIGNAL, 1, 0, "stacks"])
    assert node.agent.expect(wire.STACKS)[1] == b""
    until.touch()
    worker.outcome(first)
    worker.start(1, until="")
    node.agent.expect(wire.LOG)
    node.agent.send([wire.SIGNAL, 1, 0, "stacks"])
    assert b" in main" in node.agent.expect(wire.STACKS)[1]


def test_stacks_are_bounded(node: Node) -> None:
    source = """
        import threading, time
        all_deep = threading.Barrier(41)
        def deep(n):
            if n:
                deep(n - 1)
            else:
                all_deep.wait()
                time.sleep(60)
        def main():
            for _ in range(40):
                threading.Thread(target=deep, args=(90,), daemon=True).start()
            all_deep.wait()
            print('began')
            last_of_all()
        def last_of_all():
            time.sleep(60)
    """
    worker = node.ready(source)
    worker.start(1)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    node.agent.expect(wire.LOG)
    node.agent.send([wire.SIGNAL, 1, 0, "stacks"])
    _, data = node.agent.expect(wire.STACKS)
    assert len(data) == 64 << 10
    assert b"last_of_all" in data


def test_progress_is_reported(node: Node) -> None:
    worker = node.ready("""
        import os, skyward as sky
        def main(descriptors):
            sky.progress()
            sky.progress()
            if descriptors:
                os.closerange(3, 1024)
                sky.progress()
            return True
    """)
    node.agent.send([wire.LOGS, 1, 0, 0, 0])
    worker.start(1, descriptors=False)
    assert node.agent.expect(wire.PROGRESS)[0] == [wire.PROGRESS, 1, 0]
    assert node.agent.quiet(0.3), "said twice at once is said once"
    # A worker that loses its descriptors ends, but not with an error of this call.
    worker.start(1, descriptors=True)
    assert node.agent.expect(wire.EXITED)[0][4:7] == [4, None, False]


def test_progress_outside_of_a_worker_does_nothing() -> None:
    import skyward as sky

    sky.progress()


def test_a_crash_leaves_its_stack_in_the_output(node: Node) -> None:
    worker = node.ready("""
        import ctypes
        def main():
            ctypes.string_at(0)
    """)
    worker.start(1)
    head, _ = node.agent.expect(wire.EXITED)
    assert head[4:7] == [None, signal.SIGSEGV, False]
    assert b"Segmentation fault" in (node.folder / "g1" / "w0.err").read_bytes()


def test_the_environment_and_folder_of_the_start_spec_hold(node: Node) -> None:
    source = """
        import os, sys
        def main():
            return [os.environ['COLOUR'], os.getcwd(), os.environ['SKYWARD_RANK'], sys.flags.dev_mode]
    """
    worker = node.ready(source, env={"COLOUR": "red", "PYTHONDEVMODE": "1"}, cwd="/")
    assert worker.call(1) == ["red", "/", "0", True]


def test_files_in_the_folder_can_be_imported_and_hide_nothing(node: Node, tmp_path: Path) -> None:
    (tmp_path / "included.py").write_text("N = 1\n")
    (tmp_path / "colorsys.py").write_text("N = 1\n")
    source = """
        import colorsys, included
        def main():
            return included.N, hasattr(colorsys, 'rgb_to_hsv')
    """
    assert node.ready(source, cwd=str(tmp_path)).call(1) == [1, True]


def test_a_launcher_goes_before_the_interpreter(node: Node) -> None:
    worker = node.ready(
        """
        import os
        def main():
            return os.environ['VIA']
        """,
        launcher=["/usr/bin/env", "VIA=launcher"],
    )
    assert worker.call(1) == "launcher"


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="needs /proc")
def test_payload_sees_instance_info(node: Node) -> None:
    worker = node.ready("""
        import skyward as sky
        def main():
            return sky.instance_info()
    """)
    info = worker.call(1)
    assert (info["node"], info["job_id"], info["peers"]) == (0, "pool", [{"node": 0, "addr": "127.0.0.1"}])
    assert sys.version_info >= (3, 10)
