"""Type names as people know them, and advice for values that cannot be sent, by type."""

from __future__ import annotations

from typing import Final

from .._core.modules import shown

_LAZY: Final = "it yields its items only once and has no length; send `list(…)` of it"
_CODE: Final = "code cannot be sent; send its result, or a name by which the Rust side knows it"
_FILE: Final = "an open file belongs to this process; send its path, or its content with `.read()`"
_HANDLE: Final = "it belongs to this process; send the data that is needed: a path, text, numbers"

_FRAME: Final = (
    "send `{name: data[name] for name in data}`, which keeps the columns apart and has None for missing text "
    '(`.to_dict("list")` has nan); or send `.to_numpy()`'
)

_TYPES: Final = {
    "builtins.generator": "a generator must be declared as a stream on the Rust side (`-> Streaming<T>`)",
    "builtins.async_generator": "collect its items in the payload: `[item async for item in …]`",
    "builtins.coroutine": "it was never awaited; await it, or call it with `asyncio.run(…)`",
    "builtins.complex": "a single complex number cannot be sent; send `[z.real, z.imag]`, or a NumPy array",
    "builtins.map": _LAZY,
    "builtins.filter": _LAZY,
    "builtins.zip": f"{_LAZY}, or `dict(…)` of pairs with keys",
    "builtins.enumerate": _LAZY,
    "builtins.reversed": _LAZY,
    "builtins.list_iterator": _LAZY,
    "builtins.tuple_iterator": _LAZY,
    "builtins.dict_keyiterator": _LAZY,
    "builtins.dict_valueiterator": _LAZY,
    "builtins.dict_itemiterator": _LAZY,
    "builtins.slice": "send its parts: `[part.start, part.stop, part.step]`",
    "builtins.ellipsis": "`...` cannot be sent; send None, or text",
    "builtins.NotImplementedType": "`NotImplemented` cannot be sent; raise NotImplementedError instead",
    "builtins.memoryview": "its items are not bytes; send `.tolist()`, or `numpy.asarray(…)` of it",
    "builtins.function": _CODE,
    "builtins.builtin_function_or_method": _CODE,
    "builtins.method": _CODE,
    "builtins.type": _CODE,
    "builtins.module": _CODE,
    "builtins.code": _CODE,
    "builtins.property": _CODE,
    "functools.partial": _CODE,
    "builtins.BaseException": "raise it, so that the call fails with it; to send it as a value, send `str(error)`",
    "builtins.traceback": "send its text: `traceback.format_exc()`",
    "builtins.frame": _HANDLE,
    "types.SimpleNamespace": "send `vars(…)` of it, which is a dict",
    "argparse.Namespace": "send `vars(…)` of it, which is a dict",
    "configparser.RawConfigParser": "send `{name: dict(section) for name, section in config.items()}`",
    "collections.abc.Sequence": "send `list(…)` of it",
    "collections.abc.Iterator": _LAZY,
    "collections.UserList": "send its `.data`, which is a list",
    "collections.UserString": "send its `.data`, which is text",
    "fractions.Fraction": "send `[x.numerator, x.denominator]`, `float(x)`, or `str(x)`",
    "ipaddress._IPAddressBase": "send `str(…)` of it, which Rust's `IpAddr` and network types can parse",
    "re.Match": "send the parts that are needed: `.group()`, `.groupdict()`, `.span()`",
    "re.Pattern": "send its `.pattern`",
    "_io._IOBase": _FILE,
    "tempfile._TemporaryFileWrapper": _FILE,
    "socket.socket": _HANDLE,
    "subprocess.Popen": "a process cannot be sent; wait for it, and send its `.returncode` and output",
    "subprocess.CompletedProcess": "send the parts that are needed: `.returncode`, `.stdout`",
    "threading.Thread": _HANDLE,
    "threading.Event": _HANDLE,
    "threading.Condition": _HANDLE,
    "threading.Semaphore": _HANDLE,
    "_thread.lock": _HANDLE,
    "_thread.RLock": _HANDLE,
    "queue.Queue": "send its items, as a list",
    "_queue.SimpleQueue": "send its items, as a list",
    "concurrent.futures._base.Future": "send its `.result()`",
    "_asyncio.Future": "await it, and send its result",
    "contextvars.Context": _HANDLE,
    "logging.Logger": _HANDLE,
    "random.Random": "send `.getstate()` as text, or the seed",
    "sqlite3.Cursor": "send its rows: `.fetchall()`",
    "sqlite3.Connection": _HANDLE,
    "sqlite3.Row": "send `dict(row)`",
    "zoneinfo.ZoneInfo": "send its `.key`",
    "datetime.tzinfo": "send its name, or the offset in seconds",
    "decimal.Context": "send its `.prec`",
    "xml.etree.ElementTree.Element": "send its text: `xml.etree.ElementTree.tostring(…, 'unicode')`",
    "_ctypes.Array": "send `list(…)` or `bytes(…)` of it",
    "_ctypes.Structure": "send a dict of its fields, or `bytes(…)` of it",
    "pandas.core.frame.DataFrame": _FRAME,
    "pandas.DataFrame": _FRAME,
    "pandas.core.indexes.multi.MultiIndex": "send `.tolist()`",
    "pandas.MultiIndex": "send `.tolist()`",
    "polars.dataframe.frame.DataFrame": "send `.to_dict(as_series=False)`, `.to_dicts()`, or `.to_numpy()`",
    "polars.lazyframe.frame.LazyFrame": "it is not computed yet; send `.collect().to_dict(as_series=False)`",
    "pyarrow.lib.Table": "send `.to_pydict()`, which keeps the columns apart, or `.to_pylist()`",
    "pyarrow.lib.RecordBatch": "send `.to_pydict()`, which keeps the columns apart, or `.to_pylist()`",
    "pyarrow.lib.Array": "send `.to_numpy(zero_copy_only=False)`, or `.to_pylist()`, in which null is None",
    "pyarrow.lib.ChunkedArray": "send `.to_numpy()`, or `.to_pylist()`, in which null is None",
    "pyarrow.lib.Scalar": "send `.as_py()`",
    "pyarrow.lib.Buffer": "send `.to_pybytes()`",
    "torch.nn.modules.module.Module": 'a model cannot be sent; save it, `torch.save(model.state_dict(), "model.pt")`, '
    'and return `sky.artifact("model.pt")`',
    "torch.optim.optimizer.Optimizer": "send its `.state_dict()`, or save that and return it as `sky.artifact`",
    "torch.utils.data.dataset.Dataset": "send its items, or their number",
    "torch.dtype": "send its name: `str(…)`",
    "torch.device": "send its name: `str(…)`",
    "torch.Generator": "send its `.get_state()`",
    "numpy.dtype": "send its `.name`",
    "numpy.random._generator.Generator": "send its seed, or `.bit_generator.state`",
    "numpy.random.mtrand.RandomState": "send its seed",
    "numpy.random.bit_generator.BitGenerator": "send its seed, or `.state`",
}
"""Advice by the full name of the value's type, or of one of its base types."""

_PACKAGES: Final = {
    "scipy.sparse": "a sparse matrix cannot be sent; send `.toarray()`, or its parts: "
    "`{'data': m.data, 'indices': m.indices, 'indptr': m.indptr, 'shape': m.shape}` of `m = ….tocsr()`",
    "scipy.optimize": "send the parts that are needed: `.x`, `.fun`, `.success`",
    "datasets": "send `.to_dict()`, which keeps the columns apart, or `.to_list()`",
    "pandas": "convert it first, with `str(…)`, `.tolist()` or `.to_numpy()`",
    "polars": "convert it first, with `str(…)`, `.to_list()` or `.to_numpy()`",
    "pyarrow": "convert it first, with `str(…)`, `.to_pylist()` or `.as_py()`",
    "xarray": 'send `.to_dict(data="list")`, or `.values`',
    "PIL": "send `numpy.asarray(image)`, or its file as bytes",
    "sklearn": "a model cannot be sent; send its parameters (`.get_params()`, `.coef_`), or return "
    "`sky.artifact(pickle.dumps(…))`",
    "xgboost": "a model cannot be sent; return `sky.artifact(….save_raw())`",
    "lightgbm": "a model cannot be sent; send `.model_to_string()`",
    "keras": 'a model cannot be sent; save it, `model.save("model.keras")`, and return `sky.artifact("model.keras")`',
    "tensorflow": "convert it first, with `.numpy()`",
    "matplotlib": "write the figure into `io.BytesIO()`, and send its `.getvalue()`",
    "networkx": "send its edges: `list(graph.edges)`",
    "sympy": "send `str(…)` of it, or `float(…)`",
    "shapely": "send its `.wkt` or `.wkb`",
    "pint": "its unit would be lost; send `.magnitude`, in the unit that Rust expects",
}
"""Advice by package, for types that `_TYPES` does not name."""


def type_name(kind: type) -> str:
    """Return the name of a type, with its module unless the type is built in."""
    return kind.__qualname__ if kind.__module__ == "builtins" else shown(f"{kind.__module__}.{kind.__qualname__}")


def advice(value: object) -> str:
    """Return advice for a value whose type cannot be sent; empty if there is none."""
    kind = type(value)
    names = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
    for name in names:
        if name in _TYPES:
            return _TYPES[name]
    for name in names:
        package = name
        while "." in package:
            package = package.rpartition(".")[0]
            if package in _PACKAGES:
                return _PACKAGES[package]
    return _LAZY if hasattr(kind, "__next__") else ""
