"""joblib's backend `"skyward"`: the batches of a `Parallel` become calls on other workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

from .._core import fork, state
from .._nested.options import Options, Retry
from .._sky.cluster import is_in_gang, most_workers
from ._joblib_batch import Batch
from ._joblib_calls import Calls
from ._joblib_error import BackendError
from ._joblib_shared import threads

_NAME: Final = "skyward"
"""The name of the backend in joblib."""

_DEEPEST: Final = 3
"""The nesting level of `Parallel` from which on everything is sequential; three levels fill any
pool.
"""


_HINTS: Final = ("max_nbytes", "mmap_mode", "temp_folder", "verbose", "context")
"""Options of joblib's own processes that change no result here. Workers are processes already, and large
arrays are stored once on each node.
"""
_OWN: Final = ("n_jobs", "return_as", "timeout", "pre_dispatch", "batch_size", "prefer", "require")
_WRITING: Final = ("r+", "w+")
"""Values of `mmap_mode` with which calls write into the caller's arrays."""


class SkywardBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc, unused-ignore]
    """Runs batches as nested calls."""

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    supports_sharedmem = False
    # Seconds, half of those of joblib's own processes. A batch costs about a millisecond of all
    # processes together, and the last batches of a `Parallel` do not end at the same time.
    MIN_IDEAL_BATCH_DURATION = 0.1
    MAX_IDEAL_BATCH_DURATION = 1.0

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        caller_helps: bool | None = None,
        retry: Retry | None = None,
    ) -> None:
        """Create a backend, which serves any number of `Parallel`.

        What is None comes from the backend in use, so code that names the backend keeps its options.

        Args:
            nesting_level: the number of `Parallel` around it.
            inner_max_num_threads: the most threads of each numeric library in a worker; by default as
                many as it has.
            caller_helps: whether the caller's worker runs some of the calls while it waits for
                them, which is the default.
            retry: attempts after the loss of a worker; by default those of calls.
        """
        used = getattr(threads, "config", {}).get("backend")
        if isinstance(used, SkywardBackend):
            if inner_max_num_threads is None:
                inner_max_num_threads = used.inner_max_num_threads
            if caller_helps is None:
                caller_helps = used.caller_helps
            retry = retry or used.retry
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self.caller_helps: bool = caller_helps is not False
        self.retry: Retry | None = retry
        self.parallel: Any = None
        """The `Parallel` that this backend serves; None in a configuration."""
        self._n_jobs = 1
        self._calls: Calls | None = None

    def __reduce__(self) -> Any:
        return _exactly, (self.nesting_level, self.inner_max_num_threads, self.caller_helps, self.retry)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many batches run at a time.

        Args:
            n_jobs: the user's value; -1 for all workers, -2 for all but one.
        """
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None or not can_call() or (self.nesting_level or 0) >= _DEEPEST:
            return 1
        workers = most_workers()
        return max(workers + 1 + n_jobs, 1) if n_jobs < 0 else min(n_jobs, workers)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        **options: Any,
    ) -> int:
        """Prepare for a `Parallel`.

        Raises:
            FallbackToBackend: another backend must serve it, or another instance of this class.
            BackendError: an option is not served, or a package that it needs is not installed.
        """
        _check(options)
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
            # Otherwise two `Parallel` in one configuration would abort each other's calls.
            own = self._at(level)
            own.parallel = parallel
            raise FallbackToBackend(own)
        return self._n_jobs

    def start_call(self) -> None:
        """Begin a call of the `Parallel`."""
        workers = most_workers()
        # If all workers are used, some calls are sent ahead; a smaller `n_jobs` is a strict limit.
        room = self._n_jobs if self._n_jobs < workers else 2 * workers + 2
        options = Options() if self.retry is None else Options(retry=self.retry)
        learn: Callable[[int, float], None] = super().batch_completed
        # A managed `Parallel` keeps batches of a failed call that were not sent; drop them.
        self.parallel._ready_batches = type(self.parallel._ready_batches)()
        self._calls = Calls(options, room, learn, self.parallel)

    def submit(self, func: Any, callback: Any = None) -> None:
        """Submit a batch. joblib learns of its end only by the callback."""
        assert self._calls is not None
        self._calls.submit(Batch(func, self.inner_max_num_threads), callback)

    def apply_async(self, func: Any, callback: Any = None) -> None:
        """Submit a batch; the name of `submit` in joblib 1.4."""
        self.submit(func, callback)

    def retrieve_result_callback(self, out: Any) -> Any:
        """Return the results of a batch that has ended, or raise its exception."""
        return out.result()

    def compute_batch_size(self) -> int:
        """Return the number of items of the next automatic batch."""
        size: int = super().compute_batch_size()
        most = None if self._calls is None else self._calls.most_items
        if most is not None and most < size:
            self._effective_batch_size = size = most
        return size

    def batch_completed(self, batch_size: int, duration: float) -> None:
        """Ignore joblib's duration, which includes the wait for a worker: see `Calls`."""

    @contextmanager
    def retrieval_context(self) -> Iterator[None]:
        """Wait before joblib does, and run calls on this worker meanwhile.

        If results are wanted one by one or with a timeout, joblib must wait itself to see them in
        time. It sleeps between its checks, and calls that no other worker can run are run by other
        threads of this worker.
        """
        parallel = self.parallel
        if self.caller_helps and self._calls and parallel.timeout is None and not parallel.return_generator:
            self._calls.wait()
        yield

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel all calls."""
        if self._calls is not None:
            self._calls.cancel()

    def terminate(self) -> None:
        """Forget how long batches took."""
        self.reset_batch_stats()

    def get_nested_backend(self) -> tuple[Any, None]:
        """Return the backend for a `Parallel` within a batch."""
        level = (self.nesting_level or 0) + 1
        return (self._at(level) if level < _DEEPEST else SequentialBackend(nesting_level=level)), None

    def _at(self, level: int) -> SkywardBackend:
        return _exactly(level, self.inner_max_num_threads, self.caller_helps, self.retry)


def _exactly(level: int, threads: int | None, caller_helps: bool, retry: Retry | None) -> SkywardBackend:
    """Create a backend with these options, whatever backend is in use."""
    backend = SkywardBackend(level)
    backend.inner_max_num_threads, backend.caller_helps, backend.retry = threads, caller_helps, retry
    return backend


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options of other backends that would have an effect there.

    Raises:
        BackendError: an option is not served.
    """
    unknown = [f"`{name}`" for name, value in options.items() if name not in _HINTS and value is not None]
    if unknown:
        served = ", ".join([*_OWN, *_HINTS])
        raise BackendError(
            f"the workers of the pool do not serve {', '.join(unknown)} of `Parallel`; leave it out, and do what it "
            "does in the function itself or at the top level of its file, which each worker runs once. Served are "
            f"{served}"
        )
    if options.get("mmap_mode") in _WRITING:
        raise BackendError(
            f"mmap_mode={options['mmap_mode']!r} lets calls write into the caller's arrays, which workers on other "
            'nodes do not share; return what the calls write, or use `require="sharedmem"`'
        )


def can_call() -> bool:
    """Return whether calls can be submitted: inside a task that is not part of a gang."""
    worker = state.worker
    return worker is not None and not is_in_gang() and not fork.is_child and worker.session.running is not None


# Register here, because a worker that receives a batch imports only this module, and the batch may
# name the backend.
register_parallel_backend(_NAME, SkywardBackend)
