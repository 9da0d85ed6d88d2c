"""`sky.map`: a function over many items, with a limited number of calls at a time.

Short calls are sent in batches.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from .._calls.answers import Results, completed, pack_error, unpack
from .._calls.errors import CallError
from .._calls.pickles import name_of, pack_call
from .._calls.references import Unstored
from .._libraries import seeds
from .._sky.cluster import most_workers
from .awaiting import Awaiting
from .future import Future
from .outside import is_outside
from .start import current
from .waiting import for_calls

_TARGET: Final = 20_000
"""The intended duration of a batch in microseconds, much longer than its round trip."""
_GROWTH: Final = 8
"""The most times that a batch may have as many items as the largest before: the first durations
vary.
"""
_MOST_BYTES: Final = 1 << 20
"""Bytes of items, or of results, from which on a larger batch saves no time."""

Submit = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], tuple[Future, int]]


class Batch:
    """Some items of a `sky.map`, which are one call."""

    def __init__(
        self,
        function: Callable[..., Any],
        items: Sequence[tuple[Any, ...]],
        first: int,
        seed: int | None,
    ) -> None:
        """Create a batch.

        Args:
            function: the function to call.
            items: its arguments, for each item.
            first: the place of the first of them among all items.
            seed: what the seeds of the items follow from, however they are batched; None without
                one.
        """
        self._function = function
        self._items = items
        self._first = first
        self._seed = seed
        # Errors about the batch name the function by this.
        self.__qualname__ = name_of(function)

    def __call__(self) -> Results:
        """Call the function for the items, on the worker that runs the call."""
        function, values, seed = self._function, [], self._seed
        try:
            for place, item in enumerate(self._items, self._first):
                if seed is not None:
                    seeds.begin(seeds.follow(seed, place))
                values.append(completed(function(*item)))
        except Exception as error:
            return Results(values, bytes(pack_error(error)[0]))
        return Results(values, None)

    def __reduce__(self) -> Any:
        return Batch, (self._function, self._items, self._first, self._seed)


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
            submit: submits a call.
            function: the function to call.
            iterables: its arguments.
            chunksize: items per call, or "auto".
            window: the most items whose results are not there; None to choose by the number of
                workers.
            ordered: whether to keep the order of the items.
        """
        self._futures: OrderedDict[Future, int] = OrderedDict()
        """The running calls, in the order of the items, with their numbers of items."""
        if not iterables:
            raise TypeError("sky.map needs at least one iterable")
        if chunksize != "auto" and (not isinstance(chunksize, int) or chunksize < 1):
            raise ValueError(f'chunksize must be "auto" or a number of items, not {chunksize!r}')
        if window is not None and window < 1:
            raise ValueError(f"window must be a number of items, or None, not {window!r}")
        self._submit = submit
        self._function = function
        self._items = zip(*iterables, strict=False)
        self._seed = None if seeds.root is None or is_outside() else current().next_seed()
        self._place = 0
        """The place of the next item among all items."""
        self._fixed = None if isinstance(chunksize, str) else chunksize
        self._size = self._fixed or 1
        self._most_calls = 2 * most_workers() + 2
        self._window = window
        self._under_way = 0
        """The number of items whose results have not arrived."""
        self._exhausted = False
        self._again: deque[tuple[Any, ...]] = deque()
        """Items of a batch that was too large; they are sent in smaller ones."""
        self._ready: deque[Any] = deque()
        """Results that have arrived and are not consumed."""
        self._raised: BaseException | None = None
        """The exception that follows these results."""
        self._broken: BaseException | None = None
        """The exception after all running calls: from the iterables, or because an item cannot be
        sent.
        """
        self._ended = False
        # Outside a pool, calls end in their order.
        self._awaiting: Awaiting[Future] | None = None if ordered or is_outside() else Awaiting(1)
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
                    self._again.clear()
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
            raise RuntimeError("a call of sky.map raised StopIteration") from error
        except BaseException:
            self.close()
            raise
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Cancel the running calls."""
        self._ended = True
        self._ready.clear()
        while self._futures:
            self._futures.popitem()[0].cancel()

    def __del__(self) -> None:
        if self._futures:
            # A finalizer must take no locks.
            futures, self._futures = [future for future in self._futures if not future._over], OrderedDict()
            if futures:
                futures[0]._hub.drop_later(futures)

    def _fill(self) -> None:
        """Submit calls, as far as the window allows."""
        while (self._again or not self._exhausted) and self._has_room():
            size = self._size
            if self._window is not None:
                size = max(1, min(size, self._window - self._under_way))
                if self._fixed is None:
                    # Let each worker get a part of the window.
                    size = max(1, min(size, self._window // (self._most_calls // 2)))
            items = self._next(size)
            if not items:
                return
            sent = self._send(items)
            if sent is None:
                continue
            future, length = sent
            self._futures[future] = len(items)
            self._under_way += len(items)
            if self._awaiting is not None:
                future._hub.await_all(self._awaiting, (future,))
            if self._fixed is None and length * 2 > _MOST_BYTES:
                self._size = max(1, len(items) // 2)

    def _next(self, size: int) -> list[tuple[Any, ...]]:
        """Return the next items."""
        if self._again:
            return [self._again.popleft() for _ in range(min(size, len(self._again)))]
        items: list[tuple[Any, ...]] = []
        try:
            items.extend(islice(self._items, size))
        except Exception as error:
            # `extend` keeps the items before the exception.
            self._broken = error
        if len(items) < size:
            self._exhausted = True
        return items

    def _send(self, items: list[tuple[Any, ...]]) -> tuple[Future, int] | None:
        """Submit a batch, or return None: it was too large, and its items will be sent again."""
        try:
            sent = self._submit(Batch(self._function, items, self._place, self._seed), (), {})
            self._place += len(items)
            return sent
        except CallError:
            for item in items:
                pack_call(self._function, item, {}, Unstored())  # raises an error that names the item
            if self._fixed is not None or len(items) == 1:
                raise
            self._again.extendleft(reversed(items))
            self._size = len(items) // 2
            return None

    def _has_room(self) -> bool:
        if self._window is not None:
            return self._under_way < self._window
        return len(self._futures) < self._most_calls

    def _take(self) -> None:
        """Wait for the next batch, and take its results."""
        future = next(iter(self._futures))
        if self._awaiting is None:
            results, raised = future.result()
            size = self._futures.pop(future)
        else:
            for_calls(future._hub, self._awaiting, (), None)
            future = self._awaiting.done.popleft()
            size = self._futures.pop(future)
            results, raised = future.result()
        self._under_way -= size
        if self._fixed is None:
            self._learn(size, future.micros, future.answer_bytes)
        self._ready.extend(results)
        if raised is not None:
            try:
                self._raised = unpack(raised)[1]
            except CallError as error:
                self._raised = error

    def _learn(self, size: int, micros: int, answer_bytes: int) -> None:
        """Choose the size of the next batches by the duration and the results of one."""
        fitting = min(size * _TARGET // max(micros, 1), size * _MOST_BYTES // max(answer_bytes, 1))
        if fitting >= self._size:
            self._size = max(self._size, min(fitting, size * _GROWTH))
        else:
            # A slow batch may have loaded the payload first, so its duration counts half.
            self._size = max(1, (self._size + fitting) // 2)
