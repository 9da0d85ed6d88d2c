"""The calls of one `Parallel`: limit how many run at a time, and report their ends to joblib."""

from __future__ import annotations

import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future as PlainFuture
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from joblib.parallel import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    TASK_ERROR,
    BatchCompletionCallBack,
)

from .._calls.errors import CallError
from .._calls.pickles import pack_call
from .._calls.references import Unstored
from .._core import state
from .._core.complaint import complain
from .._nested.arrays import _MOST as MOST_STORED
from .._nested.arrays import Seen
from .._nested.awaiting import Awaiting
from .._nested.future import Future
from .._nested.options import Options
from .._nested.waiting import for_calls
from ._joblib_batch import Batch
from ._joblib_shared import threads as configured

if TYPE_CHECKING:
    from .._nested.hub import Hub

_MOST_BYTES: Final = 16 << 20
"""The most bytes that an automatic batch should have. A batch must fit into a frame; much fewer
bytes would send objects that its items share more often than needed.
"""

Callback = Callable[[Any], object]
"""joblib's callback: takes the future of a batch, and may dispatch the next batch."""


class _Finished(Awaiting[Any]):
    """What a `Parallel` waits for: all of its calls, or the first error."""

    def __init__(self) -> None:
        super().__init__(1)
        self.over = False

    @property
    def ready(self) -> bool:
        """Whether the wait has ended."""
        return self.over

    def end(self) -> None:
        """End the wait."""
        self.over = True
        self.wake()


class Calls:
    """The batches that a `Parallel` has submitted.

    A separate thread reports the ends of batches to joblib. On it, joblib unpickles results and
    takes the next items from the user's iterator, which may take long, or wait for another
    `Parallel`. The thread that serves this process's calls must not be blocked by that. The
    separate thread lives while batches are running. On it, the user's iterator sees the context
    variables and joblib's configuration of the place where the `Parallel` was called.
    """

    def __init__(self, options: Options, room: int, learn: Callable[[int, float], None], parallel: Any) -> None:
        """Start without batches.

        Args:
            options: the options of the calls.
            room: the most calls at a time; further batches wait here.
            learn: called with the number of items of a batch, and the seconds that it ran.
            parallel: the `Parallel` that was called.
        """
        self._options = options
        self._room = room
        self._learn = learn
        self._parallel = parallel
        self._call_id = parallel._call_id
        """Identifies the call of the `Parallel`: remains of this call must not end a later one."""
        self._seen = Seen()
        """Like joblib, look at a large array only once per call of the `Parallel`."""
        self._lock = threading.Lock()
        self._held: deque[tuple[Batch, Callback]] = deque()
        self._under_way: set[Future] = set()
        self._sending = 0
        """The number of batches that have room but are no calls yet."""
        self._is_cancelled = False
        self._most_sent: int | None = None
        """The most items that the next batch should have by its own size; None for no limit."""
        self._most_returned: int | None = None
        """The most items that the next batch should have by the size of its results."""
        self._open = 0
        """The number of batches whose end was not reported to joblib yet."""
        self._ended: SimpleQueue[tuple[Any, int, Callback] | None] = SimpleQueue()
        self._is_served = False
        self._awaiting: _Finished | None = None

    @property
    def most_items(self) -> int | None:
        """The most items that the next batch should have; None for no limit."""
        return min((most for most in (self._most_sent, self._most_returned) if most is not None), default=None)

    def submit(self, batch: Batch, callback: Callback) -> None:
        """Submit a batch, or hold it until there is room. Errors are reported like any end."""
        with self._lock:
            if self._is_cancelled:
                return
            if not self._is_served:
                config = getattr(configured, "config", None)
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
        """Wait until all is over or something has failed; run calls on this thread meanwhile."""
        hub: Hub | None = state.worker.hub
        with self._lock:
            if hub is None or self._open == 0 or self._parallel._aborting:
                return
            self._awaiting = awaiting = _Finished()
        for_calls(hub, awaiting, (), None)

    def cancel(self) -> None:
        """Cancel the running calls, and drop the waiting batches."""
        with self._lock:
            self._is_cancelled = True
            self._held.clear()
            left = [*self._under_way]
        for future in left:
            future.cancel()
        # An interrupt may have lost a batch while it was being sent, so do not wait for the last
        # one.
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
            future, length = self._options._submit(batch, (), {}, self._seen)
            self._limit(size, length, len(future._holds))
            with self._lock:
                self._under_way.add(future)
                too_late = self._is_cancelled
            if too_late:
                # Cancelled while the batch was being pickled.
                future.cancel()
        except BaseException as error:
            future = PlainFuture()
            future.set_exception(_explain(batch, error))
            self._ended.put((future, size, callback))
            if isinstance(error, Exception):
                return
            # An interrupt also concerns the code that submits.
            raise
        finally:
            with self._lock:
                self._sending -= 1
        future.add_done_callback(lambda ended: self._ended.put((ended, size, callback)))

    def _limit(self, size: int, length: int, stored: int) -> None:
        """Limit the next batch by the bytes and the arrays in the store of the last one."""
        most = [size * most // found for found, most in ((length, _MOST_BYTES), (stored, MOST_STORED)) if found]
        self._most_sent = max(1, min(most, default=size))

    def _serve(self, config: Any) -> None:
        """Report batches that have ended to joblib, with this configuration of joblib."""
        if config is not None:
            configured.config = config
        while True:
            ended = self._ended.get()
            if ended is None:
                return
            self._tell(*ended)
            aborting = self._parallel._aborting
            with self._lock:
                self._open -= 1
                done = self._open == 0
                if self._awaiting is not None and (done or aborting):
                    self._awaiting.end()
                if done:
                    self._is_served = False
                    return
            if aborting:
                # joblib would do so only when its thread has ended the call that it helps with.
                self.cancel()

    def _tell(self, future: Any, size: int, callback: Callback) -> None:
        me = get_ident()
        threads: dict[int, Any] = {}
        try:
            if isinstance(future, Future):
                # Calls that the callback submits belong to the frame that submitted this one.
                threads = future._hub.threads
                threads[me] = future._frame
                if future.answer_bytes:
                    self._most_returned = max(1, size * _MOST_BYTES // future.answer_bytes)
                if future.micros:
                    self._learn(size, future.micros / 1e6)
                self._send_held(future)
            callback(future)
            self._dispatch_another()
        except BaseException as error:
            complain(f"joblib raised an exception when a result was reported to it: {error!r}")
            self._fail(error)
        finally:
            threads.pop(me, None)

    def _dispatch_another(self) -> None:
        """Let joblib dispatch one more batch, if `pre_dispatch` allows more than are open.

        joblib dispatches as many items at first as `pre_dispatch` allows batches. Batches of several
        items are therefore too few: none waits for the next free worker.
        """
        parallel = self._parallel
        with parallel._lock:
            # The batch that has just ended is still counted as open.
            if (
                parallel._call_id == self._call_id
                and not self._is_cancelled
                and not parallel._aborting
                and parallel._original_iterator is not None
                and self._open <= parallel._pre_dispatch_amount
            ):
                parallel.dispatch_next()

    def _fail(self, error: BaseException) -> None:
        """Make the `Parallel` raise this error, in joblib's way: as the error of a batch."""
        parallel = self._parallel
        with parallel._lock:
            if parallel._aborting or parallel._call_id != self._call_id:
                return
            tracker = BatchCompletionCallBack(0, 0, parallel)
            # Do not use `_register_outcome`: a `Parallel` that has all results would drop the
            # error.
            tracker.status = TASK_ERROR
            tracker._result = error
            # Count it as a batch that never completes, so that the `Parallel` looks for its error.
            parallel.n_dispatched_tasks += 1
            parallel._jobs.append(tracker)
            if not parallel.return_ordered and hasattr(parallel, "_jobs_set"):
                parallel._jobs_set.add(tracker)
            parallel._aborting = True

    def _send_held(self, ended: Future) -> None:
        """Send the next held batch in the place of one that has ended."""
        with self._lock:
            self._under_way.discard(ended)
            held = self._held.popleft() if self._held and self._take_room() else None
        if held is not None:
            self._send(*held)


def _explain(batch: Batch, error: BaseException) -> BaseException:
    """Return the error of the item that cannot be sent; if there is none, the given error."""
    if isinstance(error, CallError):
        for function, args, kwargs in batch.calls.items:
            try:
                pack_call(function, args, kwargs, Unstored())
            except CallError as found:
                return found
    return error
