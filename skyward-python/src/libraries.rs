//! Names of modules that are no file of a payload's author, whatever lies beside the payload.

use ruff_python_ast::PythonVersion;
use ruff_python_stdlib::sys::is_known_standard_library;

use super::version::OLDEST;

/// Whether an import of this name means Python's own library in any version that may run a payload, or
/// may well mean an installed package.
pub(super) fn is_library(name: &str) -> bool {
    let mut versions = OLDEST.minor..=PythonVersion::latest_preview().minor;
    versions.any(|minor| is_known_standard_library(minor, name)) || PACKAGES.contains(&name)
}

/// Packages that payloads import under the names by which authors also call their files, such as
/// `jax.py`.
const PACKAGES: [&str; 76] = [
    "PIL",
    "accelerate",
    "aiohttp",
    "attr",
    "attrs",
    "cloudpickle",
    "cupy",
    "cv2",
    "dask",
    "datasets",
    "deepspeed",
    "diffusers",
    "equinox",
    "evaluate",
    "fire",
    "flax",
    "fsspec",
    "gymnasium",
    "httpx",
    "huggingface_hub",
    "jax",
    "jaxlib",
    "joblib",
    "keras",
    "lightgbm",
    "lightning",
    "matplotlib",
    "ml_dtypes",
    "mlflow",
    "msgspec",
    "nltk",
    "numba",
    "numpy",
    "nvidia",
    "optax",
    "orbax",
    "pandas",
    "peft",
    "polars",
    "psutil",
    "pyarrow",
    "pydantic",
    "pytest",
    "pytorch_lightning",
    "ray",
    "requests",
    "rich",
    "safetensors",
    "scipy",
    "seaborn",
    "sentencepiece",
    "six",
    "skimage",
    "sklearn",
    "skyward",
    "spacy",
    "statsmodels",
    "sympy",
    "tensorboard",
    "tensorflow",
    "tiktoken",
    "timm",
    "tokenizers",
    "torch",
    "torchaudio",
    "torchvision",
    "tqdm",
    "transformers",
    "triton",
    "trl",
    "typing_extensions",
    "vllm",
    "wandb",
    "xarray",
    "xgboost",
    "yaml",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_python_and_of_frameworks_are_libraries() {
        assert!(["abc", "distutils", "random", "zoneinfo"].iter().all(|name| is_library(name)));
        assert!(["jax", "numpy", "skyward"].iter().all(|name| is_library(name)));
        assert!(["helpers", "model", "utils"].iter().all(|name| !is_library(name)));
    }
}
