"""A function over many items: few calls under way at a time, and tiny ones in batches."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from .. import _state
from .answers import pack_error, unpack
from .errors import CallError
from .frames import Awaiting
from .future import Future
from .pickles import pack_call

_TARGET: Final = 20_000
"""Microseconds that a batch is to take: much longer than its way to a worker and back."""
_GROWTH: Final = 8
"""A batch has at most so many times the items of the largest before: the first ones tell little."""
_MOST_BYTES: Final = 1 << 20
"""A batch of items that are larger than this in sum gains nothing from being larger."""

Submit = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], tuple[Future, int]]


def run_batch(function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> tuple[list[Any], bytes | None]:
    """Call the function for items, on the worker that runs the call; what it has returned, and what it raised then."""
    results: list[Any] = []
    try:
        for item in items:
            results.append(function(*item))
    except Exception as error:
        return results, bytes(pack_error(error)[0])
    return results, None


class Mapping(Iterator[Any]):
    """The results of one `sky.map`."""

    def __init__(
        self,
        submit: Submit,
        function: Callable[..., Any],
        iterables: Sequence[Iterable[Any]],
        chunksize: int | str,
        window: int | None,
        ordered: bool,
    ) -> None:
        """Submit the first calls.

        Args:
            submit: submits one.
            function: what to call.
            iterables: its arguments.
            chunksize: items of a call, or "auto".
            window: most items under way; None: by the number of workers.
            ordered: whether to keep the order.
        """
        self._futures: OrderedDict[Future, int] = OrderedDict()
        """What is under way, in the order of the items, and how many of them each has."""
        if not iterables:
            raise TypeError("map takes at least one iterable")
        if chunksize != "auto" and (not isinstance(chunksize, int) or chunksize < 1):
            raise ValueError(f'chunksize must be "auto" or a number of items, not {chunksize!r}')
        if window is not None and window < 1:
            raise ValueError(f"window must be a number of items, or None, not {window!r}")
        cluster = _state.cluster or {}
        workers: int = cluster.get("total_nodes", 1) * cluster.get("workers_per_node", 1)
        self._submit = submit
        self._function = function
        self._items = zip(*iterables, strict=False)
        self._fixed = None if isinstance(chunksize, str) else chunksize
        self._size = self._fixed or 1
        self._most_calls = 2 * workers + 2
        self._window = window
        self._under_way = 0
        """Items whose results have not come."""
        self._exhausted = False
        self._ready: deque[Any] = deque()
        """Results that have come and are not consumed."""
        self._raised: BaseException | None = None
        """What comes behind them."""
        self._broken: BaseException | None = None
        """What comes behind all that is under way: the iterables have raised it, or an item cannot be sent."""
        self._ended = False
        self._awaiting = None if ordered else Awaiting(1)
        self._fill()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        try:
            while not self._ready:
                if self._raised is not None:
                    raise self._raised
                try:
                    self._fill()
                except Exception as error:
                    self._exhausted, self._broken = True, error
                if self._futures:
                    self._take()
                elif self._broken is not None:
                    raise self._broken
                else:
                    break
            if self._ready:
                return self._ready.popleft()
        except StopIteration as error:
            self.close()
            raise RuntimeError("a call of map has raised StopIteration") from error
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Give up what is under way."""
        self._ended = True
        self._ready.clear()
        while self._futures:
            self._futures.popitem()[0].cancel()

    def __del__(self) -> None:
        if self._futures:
            # A finalizer must take no locks.
            futures, self._futures = self._futures, OrderedDict()
            next(iter(futures))._hub.drop_later(futures)

    def _fill(self) -> None:
        """Submit calls, as far as the window goes."""
        while not self._exhausted and self._has_room():
            size = self._size
            if self._window is not None:
                size = max(1, min(size, self._window - self._under_way))
                if self._fixed is None:
                    # So that each worker gets a part of the window.
                    size = max(1, min(size, self._window // (self._most_calls // 2)))
            items: list[tuple[Any, ...]] = []
            try:
                items.extend(islice(self._items, size))
            except Exception as error:
                # `extend` keeps what came before.
                self._broken = error
                self._exhausted = True
            if len(items) < size:
                self._exhausted = True
            if not items:
                return
            future, length = self._send(items)
            self._futures[future] = len(items)
            self._under_way += len(items)
            if self._awaiting is not None:
                future._hub.await_all(self._awaiting, (future,))
            if self._fixed is None and length * 2 > _MOST_BYTES:
                self._size = max(1, len(items) // 2)

    def _send(self, items: list[tuple[Any, ...]]) -> tuple[Future, int]:
        try:
            return self._submit(run_batch, (self._function, items), {})
        except CallError:
            for item in items:
                pack_call(self._function, item, {})  # says which one it is
            raise

    def _has_room(self) -> bool:
        if self._window is not None:
            return self._under_way < self._window
        return len(self._futures) < self._most_calls

    def _take(self) -> None:
        """Wait for the next batch."""
        future = next(iter(self._futures))
        if self._awaiting is None:
            results, raised = future.result()
            size = self._futures.pop(future)
        else:
            future._hub.wait(self._awaiting, (), None)
            future = self._awaiting.done.popleft()
            size = self._futures.pop(future)
            results, raised = future.result()
        self._under_way -= size
        if self._fixed is None:
            self._learn(size, future.micros)
        self._ready.extend(results)
        if raised is not None:
            self._raised = unpack(raised)[1]

    def _learn(self, size: int, micros: int) -> None:
        """Choose the size of the next batches by how long one took."""
        fitting = size * _TARGET // max(micros, 1)
        if fitting >= self._size:
            self._size = max(self._size, min(fitting, size * _GROWTH))
        else:
            # One that took long may have loaded the payload first: what it says counts half.
            self._size = max(1, (self._size + fitting) // 2)
