"""joblib's backend `"skyward"`: what a `Parallel` has to do becomes calls of other workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

from joblib.parallel import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
    ThreadingBackend,
    register_parallel_backend,
)

from .. import _fork, _state
from .._calls.options import Options, Retry
from ._joblib_batch import Batch
from ._joblib_calls import Calls
from .joblib import NAME, BackendError

_DEEPEST: Final = 3
"""From this level of `Parallel` within `Parallel` on, all is sequential: three levels are enough for any pool."""


class SkywardBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc, unused-ignore]
    """Runs batches as calls within calls."""

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    supports_sharedmem = False
    # A call takes a fraction of a millisecond to reach a worker, and batches that are short spread evenly.
    MIN_IDEAL_BATCH_DURATION = 0.05
    MAX_IDEAL_BATCH_DURATION = 1.0

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        caller_helps: bool = True,
        retry: Retry | None = None,
    ) -> None:
        """Make a backend, which serves any number of `Parallel`.

        Args:
            nesting_level: how many `Parallel` are around it.
            inner_max_num_threads: most threads of a numeric library in each worker.
            caller_helps: whether the worker of the caller runs some of the calls while it waits for them.
            retry: tries after the loss of a worker; None: as for any call.
        """
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self.caller_helps = caller_helps
        self.retry = retry
        self.parallel: Any = None
        """What this one belongs to; None for one that is in a configuration."""
        self._n_jobs = 1
        self._calls: Calls | None = None

    def __reduce__(self) -> Any:
        return type(self), (self.nesting_level, self.inner_max_num_threads, self.caller_helps, self.retry)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches run at a time.

        Args:
            n_jobs: as the user says; -1 stands for all workers, -2 for all but one.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or not can_call() or (self.nesting_level or 0) >= _DEEPEST:
            return 1
        workers = count_workers()
        return max(workers + 1 + n_jobs, 1) if n_jobs < 0 else min(n_jobs, workers)

    def configure(
        self, n_jobs: int = 1, parallel: Any = None, prefer: str | None = None, require: str | None = None, **_: Any
    ) -> int:
        """Serve a `Parallel`.

        Raises:
            FallbackToBackend: another backend does, or another one of this kind.
            BackendError: what it takes is not installed.
        """
        level = self.nesting_level or 0
        self._n_jobs = self.effective_n_jobs(n_jobs)
        if self._n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=level))
        if prefer == "threads" and level > 0:
            raise FallbackToBackend(ThreadingBackend(nesting_level=level))
        if self.inner_max_num_threads is not None and find_spec("threadpoolctl") is None:
            raise BackendError(
                "inner_max_num_threads needs the package threadpoolctl, which is not installed: add it to the image, "
                '`.pip(["threadpoolctl"])`, or use `plugins::joblib()`'
            )
        if self.parallel is not parallel:
            # Two `Parallel` in one configuration would otherwise abort each other's calls.
            own = self._at(level)
            own.parallel = parallel
            raise FallbackToBackend(own)
        return self._n_jobs

    def start_call(self) -> None:
        """A `Parallel` is called."""
        workers = count_workers()
        # For all workers some calls are sent ahead; fewer jobs are a limit.
        room = self._n_jobs if self._n_jobs < workers else 2 * workers + 2
        options = Options() if self.retry is None else Options(retry=self.retry)
        learn: Callable[[int, float], None] = super().batch_completed
        # A managed `Parallel` keeps the batches that a failed call has not sent.
        self.parallel._ready_batches = type(self.parallel._ready_batches)()
        self._calls = Calls(options, room, learn, self.parallel)

    def submit(self, func: Any, callback: Any = None) -> None:
        """Have a batch run. joblib is told of its end by the callback alone."""
        assert self._calls is not None
        self._calls.submit(Batch(func, self.inner_max_num_threads), callback)

    def apply_async(self, func: Any, callback: Any = None) -> None:
        """The same, for joblib 1.4."""
        self.submit(func, callback)

    def retrieve_result_callback(self, out: Any) -> Any:
        """The results of a batch that has ended, or what it has raised."""
        return out.result()

    def batch_completed(self, batch_size: int, duration: float) -> None:
        """Nothing: this duration has the wait for a worker in it. How long a batch ran is known better."""

    @contextmanager
    def retrieval_context(self) -> Iterator[None]:
        """Around joblib's wait for the results: wait before it, and run calls meanwhile.

        Where results are wanted one by one, or in time, joblib's own wait has to see them as they come: it sleeps
        between its looks, and calls that nobody else can run come to other threads of this worker.
        """
        parallel = self.parallel
        if self.caller_helps and self._calls and parallel.timeout is None and not parallel.return_generator:
            self._calls.wait()
        yield

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel what is under way."""
        if self._calls is not None:
            self._calls.cancel()

    def terminate(self) -> None:
        """Forget how long batches took."""
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[Any, None]:
        """What a `Parallel` within a batch uses."""
        level = (self.nesting_level or 0) + 1
        return (self._at(level) if level < _DEEPEST else SequentialBackend(nesting_level=level)), None

    def _at(self, level: int) -> SkywardBackend:
        return type(self)(level, self.inner_max_num_threads, self.caller_helps, self.retry)


def can_call() -> bool:
    """Whether calls can be submitted here: inside of a task that other workers do not run at the same time."""
    worker = _state.worker
    return worker is not None and not _state.gang and not _fork.is_child and worker.session.running is not None


def count_workers() -> int:
    """The workers of the pool."""
    cluster = _state.cluster or {}
    workers: int = cluster.get("total_nodes", 1) * cluster.get("workers_per_node", 1)
    return workers


# Here, as a batch that reaches a worker imports this module alone, and may name the backend.
register_parallel_backend(NAME, SkywardBackend)
