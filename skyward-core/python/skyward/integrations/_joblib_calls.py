"""The calls of one `Parallel`: how many of them are under way, and who tells it of their ends."""

from __future__ import annotations

import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future as PlainFuture
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from joblib.parallel import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    TASK_ERROR,
    BatchCompletionCallBack,
    _backend,
)

from .. import _state
from .._calls.arrays import Seen
from .._calls.errors import CallError
from .._calls.frames import Awaiting
from .._calls.future import Future
from .._calls.options import Options
from .._calls.pickles import pack_call
from .._complaint import complain
from ._joblib_batch import Batch

if TYPE_CHECKING:
    from .._calls.hub import Hub

Callback = Callable[[Any], object]
"""joblib's: takes the future of a batch, and may dispatch the next one."""


class _Finished(Awaiting):
    """What a `Parallel` waits for: all its calls, or the first error."""

    def __init__(self) -> None:
        super().__init__(1)
        self.over = False

    @property
    def ready(self) -> bool:
        """Whether the wait is over."""
        return self.over

    def end(self) -> None:
        """End the wait."""
        self.over = True
        self.wake()


class Calls:
    """What a `Parallel` has submitted.

    joblib is told of the end of a batch on a thread of its own: it unpickles the results there, and takes the next
    items from the user's iterator, which may take long, or wait for another `Parallel`. The thread that serves the
    calls of the process must do neither. The thread lives as long as something is under way. The user's iterator finds
    there what holds where the `Parallel` was called: the context variables, and joblib's configuration.
    """

    def __init__(self, options: Options, room: int, learn: Callable[[int, float], None], parallel: Any) -> None:
        """Begin.

        Args:
            options: those of the calls.
            room: most calls under way; further ones wait here.
            learn: is told how many items a batch had, and how many seconds it ran.
            parallel: the `Parallel`, which has been called.
        """
        self._options = options
        self._room = room
        self._learn = learn
        self._parallel = parallel
        self._call_id = parallel._call_id
        """A `Parallel` may be called again, and what is left of this call must not end that one."""
        self._seen = Seen()
        """As joblib does it: a large array is not looked at again within one call."""
        self._lock = threading.Lock()
        self._held: deque[tuple[Batch, Callback]] = deque()
        self._under_way: set[Future] = set()
        self._sending = 0
        """Batches that have room and are no calls yet."""
        self._open = 0
        """Batches of whose end joblib has not been told."""
        self._ended: SimpleQueue[tuple[Any, int, Callback] | None] = SimpleQueue()
        self._is_served = False
        self._awaiting: _Finished | None = None

    def submit(self, batch: Batch, callback: Callback) -> None:
        """Submit a batch, or have it wait for room. What goes wrong is told to joblib as any end is."""
        with self._lock:
            if not self._is_served:
                config = getattr(_backend, "config", None)
                threading.Thread(
                    target=copy_context().run, args=(self._serve, config), name="skyward joblib", daemon=True
                ).start()
                self._is_served = True
            self._open += 1
            if not self._take_room():
                self._held.append((batch, callback))
                return
        self._send(batch, callback)

    def wait(self) -> None:
        """Wait until all is over or something has failed; the main thread helps with the calls meanwhile."""
        hub: Hub | None = _state.worker.hub
        with self._lock:
            if hub is None or self._open == 0 or self._parallel._aborting:
                return
            self._awaiting = awaiting = _Finished()
        hub.wait(awaiting, (), None)

    def cancel(self) -> None:
        """Give up what is under way."""
        with self._lock:
            self._held.clear()
            left = [*self._under_way]
        for future in left:
            future.cancel()
        # An interrupt may have lost a batch on its way: nobody waits for the last one any more.
        self._ended.put(None)

    def _take_room(self) -> bool:
        if len(self._under_way) + self._sending >= self._room:
            return False
        self._sending += 1
        return True

    def _send(self, batch: Batch, callback: Callback) -> None:
        size = len(batch.calls)
        future: Any
        try:
            future, _ = self._options._submit(batch, (), {}, self._seen)
            with self._lock:
                self._under_way.add(future)
        except BaseException as error:
            future = PlainFuture()
            future.set_exception(_explain(batch, error))
            self._ended.put((future, size, callback))
            if isinstance(error, Exception):
                return
            # An interrupt is for whoever submits, too.
            raise
        finally:
            with self._lock:
                self._sending -= 1
        future.add_done_callback(lambda ended: self._ended.put((ended, size, callback)))

    def _serve(self, config: Any) -> None:
        """Tell joblib of what has ended, with this configuration of joblib."""
        if config is not None:
            _backend.config = config
        while True:
            ended = self._ended.get()
            if ended is None:
                return
            self._tell(*ended)
            with self._lock:
                self._open -= 1
                done = self._open == 0
                if self._awaiting is not None and (done or self._parallel._aborting):
                    self._awaiting.end()
                if done:
                    self._is_served = False
                    return

    def _tell(self, future: Any, size: int, callback: Callback) -> None:
        me = get_ident()
        threads: dict[int, Any] = {}
        try:
            if isinstance(future, Future):
                # What is submitted here belongs to whoever has submitted this.
                threads = future._hub.threads
                threads[me] = future._frame
                if future.micros:
                    self._learn(size, future.micros / 1e6)
                self._send_held(future)
            callback(future)
        except BaseException as error:
            complain(f"joblib has raised {error!r} when it was told of a result")
            self._fail(error)
        finally:
            threads.pop(me, None)

    def _fail(self, error: BaseException) -> None:
        """Have the `Parallel` raise this, as joblib does with an error of the items: as that of a batch."""
        parallel = self._parallel
        with parallel._lock:
            if parallel._aborting or parallel._call_id != self._call_id:
                return
            tracker = BatchCompletionCallBack(0, 0, parallel)
            # Not by `_register_outcome`: a `Parallel` that has all results would drop them, and raise nothing.
            tracker.status = TASK_ERROR
            tracker._result = error
            # It is one that never completes, so that the `Parallel` looks for its error.
            parallel.n_dispatched_tasks += 1
            parallel._jobs.append(tracker)
            if not parallel.return_ordered and hasattr(parallel, "_jobs_set"):
                parallel._jobs_set.add(tracker)
            parallel._aborting = True

    def _send_held(self, ended: Future) -> None:
        """Give the room of one that has ended to the next."""
        with self._lock:
            self._under_way.discard(ended)
            held = self._held.popleft() if self._held and self._take_room() else None
        if held is not None:
            self._send(*held)


def _explain(batch: Batch, error: BaseException) -> BaseException:
    """The error of the item that cannot be sent, where there is one."""
    if isinstance(error, CallError):
        for function, args, kwargs in batch.calls.items:
            try:
                pack_call(function, args, kwargs)
            except CallError as found:
                return found
    return error
