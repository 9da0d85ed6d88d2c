"""What a node knows about a module that an import did not find.

The client makes the hint: it also knows the payload's files, what lies beside them, and the image.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from .._core.modules import shown
from .._core.package_names import is_root

PACKAGES: Final = {
    **{
        name: name
        for name in (
            *("accelerate", "aiohttp", "attrs", "boto3", "cloudpickle", "dask", "datasets", "deepspeed"),
            *("diffusers", "einops", "equinox", "evaluate", "fastapi", "flax", "fsspec", "gymnasium", "h5py", "httpx"),
            *("jax", "jaxlib", "joblib", "keras", "lightgbm", "lightning", "matplotlib", "msgspec", "networkx"),
            *("nltk", "numba", "numpy", "optax", "pandas", "peft", "polars", "psutil", "pyarrow", "pydantic"),
            *("pytest", "ray", "requests", "rich", "s3fs", "safetensors", "scipy", "seaborn", "sentencepiece", "six"),
            *("spacy", "sqlalchemy", "statsmodels", "sympy", "tensorboard", "tensorflow", "tiktoken", "timm"),
            *("tokenizers", "torch", "torchaudio", "torchvision", "tqdm", "transformers", "triton", "trl", "vllm"),
            *("wandb", "xarray", "xgboost", "zarr"),
        )
    },
    "PIL": "pillow",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyOpenSSL",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "google.protobuf": "protobuf",
    "huggingface_hub": "huggingface-hub",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "ml_dtypes": "ml-dtypes",
    "orbax": "orbax-checkpoint",
    "psycopg2": "psycopg2-binary",
    "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "threadpoolctl": "threadpoolctl",
    "typing_extensions": "typing-extensions",
    "yaml": "PyYAML",
}
"""Packages of the index, by the modules that they contain. Only what is in this table is ever
recommended: a name that nobody has checked may belong to no package, or to somebody else's.
"""

_MOST_FOLDERS: Final = 256


def missing(error: ImportError) -> dict[str, Any]:
    """Return the entry `missing` of a failure map; no entry if no module is missing.

    The entry has the name of the `module`, and where they apply: `package`, the package of the index
    that contains it; `there`, where its outermost package is; `lies`, its path below the working
    folder; `installed`, a package of its name that does not contain it; `standard`, if it belongs to
    Python's own library.
    """
    name = error.name or ""
    top = name.partition(".")[0]
    if not top or not isinstance(error, ModuleNotFoundError):
        return {}
    if is_root(top):
        # A module of the payload's own.
        return {"missing": {"module": shown(f"{name}.")[:-1]}}
    found = {"module": name}
    if there := _place(top):
        found["there"] = there
        package = PACKAGES.get(name)
    else:
        package = PACKAGES.get(name) or PACKAGES.get(top)
        found["lies"] = _in_working_folder(top)
        found["installed"] = _installed(package or top)
        found["standard"] = "yes" if top in sys.stdlib_module_names else ""
    found["package"] = package or ""
    return {"missing": {key: value for key, value in found.items() if value}}


def _place(top: str) -> str:
    """Return where an import finds a module; empty if it finds none."""
    from importlib.util import find_spec

    try:
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return ""
    if spec is None:
        return ""
    folders = list(spec.submodule_search_locations or ())
    return folders[0] if folders else spec.origin or ""


def _in_working_folder(top: str) -> str:
    """Return the path of a file or folder of this name that lies one folder too deep for an import."""
    try:
        with os.scandir() as entries:
            folders = [entry.name for entry, _ in zip(entries, range(_MOST_FOLDERS), strict=False) if entry.is_dir()]
    except OSError:
        return ""
    for folder in sorted(folders):
        for path in (f"{folder}/{top}.py", f"{folder}/{top}"):
            if os.path.isdir(path) or (path.endswith(".py") and os.path.isfile(path)):
                return path
    return ""


def _installed(package: str) -> str:
    """Return the name and version of an installed package; empty if it is not installed."""
    from importlib.metadata import version

    try:
        return f"{package} {version(package)}"
    except Exception:  # Metadata of other people's packages can be broken in any way.
        return ""
