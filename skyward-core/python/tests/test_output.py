"""Decorators that choose which workers print, and `compute`."""

from __future__ import annotations

import asyncio
import io
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky

from .test_shard import _alone, on_rank  # noqa: F401


def speak() -> str:
    """Print on both streams."""
    print("out")
    print("err", file=sys.stderr)
    return "done"


@pytest.mark.parametrize(
    ("decorate", "out", "err"),
    [
        (sky.stdout(only="head"), "", "err\n"),
        (sky.stdout(), "", "err\n"),
        (sky.stdout(only=1), "out\n", "err\n"),
        (sky.stdout(only=[0, 2]), "", "err\n"),
        (sky.stdout(only=lambda info: info.node == 1), "out\n", "err\n"),
        (sky.stderr(only="head"), "out\n", ""),
        (sky.silent, "", ""),
        (sky.silent(), "", ""),
    ],
)
def test_who_prints(decorate: Callable[..., Any], out: str, err: str, capsys: pytest.CaptureFixture[str]) -> None:
    on_rank(1, 3)
    assert decorate(speak)() == "done"
    assert capsys.readouterr() == (out, err)
    speak()
    assert capsys.readouterr() == ("out\n", "err\n")


def test_the_head_prints(capsys: pytest.CaptureFixture[str]) -> None:
    on_rank(0, 2)
    sky.stdout(only="head")(speak)()
    assert capsys.readouterr().out == "out\n"


def test_a_generator_is_silent_for_as_long_as_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    @sky.silent
    def items() -> Iterator[int]:
        print("first")
        yield 1
        print("second")
        yield 2

    assert list(items()) == [1, 2]
    assert capsys.readouterr().out == ""


def test_a_coroutine_is_silent_while_it_runs_and_others_print_while_it_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main() -> str:
        waits, goes_on = asyncio.Event(), asyncio.Event()

        @sky.silent
        async def quiet() -> str:
            print("before")
            waits.set()
            await goes_on.wait()
            print("after")
            return "done"

        task = asyncio.create_task(quiet())
        await waits.wait()
        print("other")
        goes_on.set()
        return await task

    stream = sys.stdout
    assert asyncio.run(main()) == "done"
    assert capsys.readouterr().out == "other\n"
    assert sys.stdout is stream


def test_an_asynchronous_generator_is_silent_and_can_be_closed(capsys: pytest.CaptureFixture[str]) -> None:
    @sky.silent
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(3):
                print("inside")
                await asyncio.sleep(0)
                yield number
        except ValueError:
            print("inside")
            yield 9
        finally:
            print("inside")

    async def main() -> list[int]:
        found = [number async for number in numbers()]
        for end, arguments in (("athrow", [ValueError()]), ("aclose", [])):
            items = numbers()
            found.append(await anext(items))
            print("outside")
            found.append(await getattr(items, end)(*arguments))
            await getattr(items, "aclose")()  # noqa: B009
        return found

    assert asyncio.run(main()) == [0, 1, 2, 0, 9, 0, None]
    assert capsys.readouterr().out == "outside\n" * 2


def test_between_the_items_of_a_generator_the_worker_prints(capsys: pytest.CaptureFixture[str]) -> None:
    @sky.silent
    def echo() -> Generator[Any, Any, str]:
        got = None
        while got != "stop":
            print("inside")
            got = yield got
        return "end"

    items: Any = echo()
    assert [next(items), items.send(1)] == [None, 1]
    print("outside")
    with pytest.raises(StopIteration) as end:
        items.send("stop")
    assert end.value.value == "end"
    assert capsys.readouterr().out == "outside\n"


@pytest.mark.parametrize("kind", ["function", "generator", "coroutine", "asynchronous generator"])
def test_a_logging_handler_that_is_made_inside_writes_afterwards(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    handlers = []

    def make() -> None:
        handlers.append(logging.StreamHandler(sys.stdout))
        handlers[0].emit(record)
        sys.stdout.buffer.write(b"inside")

    def generate() -> Iterator[None]:
        make()
        yield

    async def finish() -> None:
        make()

    async def stream() -> AsyncIterator[int]:
        make()
        yield 1

    async def read() -> list[int]:
        return [item async for item in sky.silent(stream)()]

    record = logging.LogRecord("n", logging.INFO, "f", 1, "text", None, None)
    if kind == "function":
        sky.silent(make)()
    elif kind == "generator":
        list(sky.silent(generate)())
    else:
        asyncio.run(sky.silent(finish)() if kind == "coroutine" else read())
    assert capsys.readouterr().out == ""
    handlers[0].emit(record)
    assert capsys.readouterr() == ("text\n", "")


def test_a_silent_function_can_use_all_of_its_streams(tmp_path: Path) -> None:
    @sky.silent
    def use() -> None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        subprocess.run(["true"], stdout=sys.stdout, check=True)
        assert not sys.stdout.isatty()
        assert sys.stdout.encoding == "utf-8"
        print("text", flush=True)

    with open(tmp_path / "out", "w", encoding="utf-8") as file, sky.redirect_output(file):
        use()
        assert file.line_buffering
    assert (tmp_path / "out").read_text() == ""


def test_a_redirection_can_be_entered_within_itself(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = sky.redirect_output()
    with quiet:
        with quiet:
            print("inner", flush=True)
        stream = sys.stdout
        print("outer", flush=True)
        assert stream.encoding
    print("after", file=stream, flush=True)
    assert capsys.readouterr().out == "after\n"


def test_the_function_keeps_its_name_and_signature() -> None:
    import inspect

    decorated = sky.stdout(only="head")(sky.silent(speak))
    assert decorated.__name__ == "speak"
    assert inspect.signature(decorated) == inspect.signature(speak)


def test_streams_come_back_after_an_error() -> None:
    before = sys.stdout

    @sky.silent
    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert sys.stdout is before


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="tail"):
        sky.stdout(only="tail")


def test_output_can_be_kept() -> None:
    kept = io.StringIO()
    with sky.redirect_output(stdout=kept):
        speak()
    assert kept.getvalue() == "out\n"


def test_compute_is_the_function_itself() -> None:
    assert sky.compute(speak) is speak
    assert sky.compute(timeout=3)(speak) is speak
    assert sky.compute()(speak) is speak
    assert sky.function(speak) is sky.function(timeout=3)(speak) is sky.function()(speak) is speak


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (sky, "shrad", "; did you mean 'shard'?"),
        (sky, "lightning", ""),
        (sky.integrations, "torhc", "; did you mean 'torch'?"),
        (sky.integrations, "elsewhere", ""),
    ],
)
def test_a_name_that_is_not_there_comes_with_the_nearest_one(module: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert str(raised.value) == f"module '{module.__name__}' has no attribute '{name}'{hint}"


def test_names_are_found_and_unknown_ones_are_not() -> None:
    for name in sky.__all__:
        assert getattr(sky, name) is not None
    assert set(sky.__all__) <= set(dir(sky))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = sky.nonsense  # type: ignore[attr-defined]
