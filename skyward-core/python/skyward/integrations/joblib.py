"""joblib and scikit-learn: `n_jobs` counts workers of the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from functools import cache, wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload

from .._core.steps import step, step_awaited
from ._joblib_error import BackendError

if TYPE_CHECKING:
    from .._nested.options import Retry

P = ParamSpec("P")
R = TypeVar("R")

_OLDEST: Final = (1, 4)


class _Within(AbstractContextManager[None]):
    """joblib's configuration of the moment, for the thread that enters it, one time after another."""

    def __init__(self) -> None:
        from joblib.parallel import _backend  # type: ignore[import-untyped,import-not-found,unused-ignore]

        self._thread = _backend
        self._own = _backend.config
        self._outer: Any = None

    def __enter__(self) -> None:
        self._outer = getattr(self._thread, "config", None)
        self._thread.config = self._own

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._own = self._thread.config
        if self._outer is None:
            del self._thread.config
        else:
            self._thread.config = self._outer


class _Everywhere(AbstractContextManager[None]):
    """Uses a backend on this thread, and on all threads that have no configuration of their own.

    A class and no generator, because every call of a payload is within it.
    """

    def __init__(self, config: AbstractContextManager[dict[str, Any]]) -> None:
        from ._joblib_shared import Shared

        self._config = config
        self._shared = Shared(config.__enter__())

    def __enter__(self) -> None:
        self._shared.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._shared.__exit__(kind, error, traceback)
        finally:
            self._config.__exit__(kind, error, traceback)


class Backend(ContextDecorator):
    """The result of `joblib_backend`: a context manager, and a decorator."""

    def __init__(self, n_jobs: int | None = None, **options: Any) -> None:
        """Store the options; they apply from `__enter__` on."""
        self._n_jobs = n_jobs
        self._options = options
        self._entered: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        scope = self._make()
        scope.__enter__()
        self._entered.append(scope)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered.pop().__exit__(kind, error, traceback)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:  # type: ignore[override, unused-ignore]
        """Decorate a function, so that it runs within the backend.

        Raises:
            TypeError: the function is an asynchronous generator.
        """
        if isasyncgenfunction(function):
            raise TypeError(
                f"joblib_backend cannot decorate {function.__qualname__}, an asynchronous generator, which runs where "
                "it is iterated: enter the backend inside it, `with sky.integrations.joblib_backend():`, without a "
                "`yield` or an `await` in the block"
            )

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._make():
                return function(*args, **kwargs)

        @wraps(function)
        def iterate(*args: Any, **kwargs: Any) -> Any:
            with self._around_steps() as scope:
                return (yield from step(scope, function(*args, **kwargs)))

        @wraps(function)
        async def finish(*args: Any, **kwargs: Any) -> Any:
            with self._around_steps() as scope:
                return await step_awaited(scope, function(*args, **kwargs))  # type: ignore[arg-type, unused-ignore]

        if iscoroutinefunction(function):
            return finish  # type: ignore[return-value, unused-ignore]
        return iterate if isgeneratorfunction(function) else call

    @contextmanager
    def _around_steps(self) -> Iterator[AbstractContextManager[None]]:
        """Return a scope in which the backend is used, for code that waits outside of it between its steps.

        Meanwhile its thread runs other code: the caller of a generator, or other coroutines.
        """
        with self._configure() as config:
            from ._joblib_shared import Shared

            scope = _Within()
        with Shared(config):
            yield scope

    def _make(self) -> AbstractContextManager[None]:
        return _Everywhere(self._configure())

    def _configure(self) -> AbstractContextManager[dict[str, Any]]:
        """Return joblib's context manager for this thread, which applies from its creation on."""
        backend = register()(**self._options)
        from joblib import parallel_config

        jobs = {} if self._n_jobs is None else {"n_jobs": self._n_jobs}
        config: AbstractContextManager[dict[str, Any]] = parallel_config(backend, **jobs)
        return config


@cache
def register() -> Any:
    """Register the backend with joblib by its name; return its class.

    Raises:
        BackendError: joblib is not installed, or is too old.
    """
    try:
        import joblib  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise BackendError(
            "joblib is not installed on this node: add it to the image with `plugins::joblib()`, `plugins::sklearn()` "
            'or `.pip(["joblib>=1.4"])`'
        ) from error
    version = tuple(int(part) for part in joblib.__version__.split(".")[:2])
    if version < _OLDEST:
        raise BackendError(
            f"the pool's backend needs joblib 1.4 or later, but joblib {joblib.__version__} is installed on this node: "
            'request `joblib>=1.4` in the image, `.pip(["joblib>=1.4"])`, as `plugins::joblib()` does'
        )
    from ._joblib_backend import SkywardBackend

    return SkywardBackend


@overload
def joblib_backend(function: Callable[P, R], /) -> Callable[P, R]: ...  # type: ignore[overload-overlap]
@overload
def joblib_backend(
    pool: object = None,
    /,
    *,
    n_jobs: int | None = None,
    inner_max_num_threads: int | None = None,
    caller_helps: bool = True,
    retry: Retry | None = None,
) -> Backend: ...


def joblib_backend(
    pool: Any = None,
    /,
    *,
    n_jobs: int | None = None,
    inner_max_num_threads: int | None = None,
    caller_helps: bool = True,
    retry: Retry | None = None,
) -> Any:
    """Run joblib's `Parallel`, and all packages that use it, on the workers of the pool.

    The result is a context manager, and a decorator with or without arguments::

        with sky.integrations.joblib_backend():
            results = Parallel(n_jobs=-1)(delayed(process)(x) for x in range(100))

    `n_jobs=-1` uses all workers of the pool. Where no calls can be submitted (outside a task, and
    in a gang) everything runs sequentially. With `plugins::joblib()` or `plugins::sklearn()`, every
    task is inside the backend already. Threads that the payload starts use the backend too, unless
    they have a configuration of their own.

    Args:
        pool: the decorated function. Another value is accepted and ignored, because a payload has
            only the pool in which it runs.
        n_jobs: the default of `n_jobs`; None for joblib's own default, 1.
        inner_max_num_threads: the most threads of each numeric library in a worker while it runs a
            batch; None for the limit of the backend around this one, or no limit.
        caller_helps: whether the caller's worker runs some of the calls while it waits for them.
        retry: attempts after the loss of a worker; None for those of the backend around this one, or
            the default of calls.

    Raises:
        BackendError: joblib is not installed, or is too old. A decorated function raises it when it
            is called.
    """
    backend = Backend(n_jobs, inner_max_num_threads=inner_max_num_threads, caller_helps=caller_helps, retry=retry)
    return backend(pool) if callable(pool) and not hasattr(pool, "__enter__") else backend


sklearn_backend = joblib_backend
"""The same as `joblib_backend`, because scikit-learn's `n_jobs` is joblib's."""


class JoblibPool(Backend):
    """A replacement for scripts that create a pool for joblib; all arguments are ignored.

    A payload uses the pool in which it runs::

        with sky.integrations.JoblibPool(nodes=4, concurrency=4):
            results = Parallel(n_jobs=-1)(delayed(process)(x) for x in range(100))
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept and ignore the description of a pool."""
        super().__init__()


class ScikitLearnPool(JoblibPool):
    """The same as `JoblibPool`, for scikit-learn."""
