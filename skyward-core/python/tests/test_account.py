"""The account that an agent keeps of a worker."""

import os
from pathlib import Path

import pytest

from skyward._agent.account import UNKNOWN, Account


def _made(folder: Path) -> Account:
    account = Account(str(folder / "w0.account"))
    account.make()
    return account


def _write(account: Account, *numbers: int) -> None:
    with open(account.path, "r+b") as file:
        file.write(b"".join(number.to_bytes(8, "little") for number in numbers))


def test_a_recall_returns_the_last_begun_run_and_reaches_the_worker(tmp_path: Path) -> None:
    account = _made(tmp_path)
    _write(account, 3)
    assert account.recall(7) == 3
    assert account.recall(5) == 3
    assert Path(account.path).read_bytes()[8:] == (7).to_bytes(8, "little")
    account.close()
    assert account.begun() == account.recall(9) == 3


@pytest.mark.parametrize("length", [0, 8, 15])
def test_a_recall_on_a_truncated_file_reports_an_unknown_run(tmp_path: Path, length: int) -> None:
    account = _made(tmp_path)
    _write(account, 3)
    os.truncate(account.path, length)
    assert account.recall(7) == UNKNOWN
    assert os.stat(account.path).st_size == length


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1])
def test_any_number_in_the_file_is_read_unchanged(tmp_path: Path, number: int) -> None:
    account = _made(tmp_path)
    _write(account, number, number)
    assert account.recall(7) == account.begun() == number
