//! The environment variables of the client that processes on its own host get.

use std::ffi::OsString;

/// Names of variables by their purpose; a `*` at the end stands for any rest. docs/pools.md has the
/// same table.
pub(super) const INHERITED: &[(&str, &[&str])] = &[
    ("locale", &["LANG", "LANGUAGE", "LC_*", "LOCPATH", "LOCALE_ARCHIVE", "TZ", "TZDIR"]),
    ("programs and libraries", &["PATH", "LD_LIBRARY_PATH", "PYENV_ROOT", "PYENV_VERSION"]),
    ("home", &["HOME", "USER", "LOGNAME", "SHELL", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"]),
    ("temporary files", &["TMPDIR", "TMP", "TEMP"]),
    (
        "proxy",
        &["http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"],
    ),
    ("certificates", &["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]),
    ("uv and pip", &["UV_*", "PIP_*", "NETRC"]),
    (
        "accelerators",
        &[
            "CUDA_*",
            "NVIDIA_*",
            "NCCL_*",
            "GLOO_SOCKET_IFNAME",
            "HIP_*",
            "ROCR_*",
            "ROCM_*",
            "HSA_*",
            "XLA_*",
            "JAX_PLATFORMS",
            "TPU_*",
        ],
    ),
    ("threads", &["OMP_*", "MKL_*", "OPENBLAS_NUM_THREADS"]),
    ("skyward", &["SKYWARD_*"]),
];

/// Passwords and tokens for uploads, which no node needs.
const EXCEPT: &str = "UV_PUBLISH_*";

/// The client's variables that match the table or one of these names.
pub(super) fn inherited(named: &[String]) -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| passes(name, named)))
}

fn passes(name: &str, named: &[String]) -> bool {
    let in_table = || INHERITED.iter().flat_map(|(_, names)| *names).any(|pattern| fits(name, pattern));
    named.iter().any(|pattern| fits(name, pattern)) || (in_table() && !fits(name, EXCEPT))
}

fn fits(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_in_the_table_or_named_by_the_caller_pass() {
        let named = ["MLFLOW_TRACKING_URI".to_owned(), "WANDB_*".to_owned()];
        for name in [
            "PATH",
            "HOME",
            "LC_ALL",
            "https_proxy",
            "SSL_CERT_FILE",
            "UV_DEFAULT_INDEX",
            "PIP_INDEX_URL",
            "CUDA_VISIBLE_DEVICES",
            "TMPDIR",
        ] {
            assert!(passes(name, &[]), "{name}");
        }
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "AWS_PROFILE",
            "HF_TOKEN",
            "DATABASE_URL",
            "SSH_AUTH_SOCK",
            "PYTHONPATH",
            "LD_PRELOAD",
            "PATH_TO_KEY",
            "UV_PUBLISH_TOKEN",
            "MLFLOW_TRACKING_URI",
            "WANDB_API_KEY",
        ] {
            assert!(!passes(name, &[]), "{name}");
        }
        assert!(passes("MLFLOW_TRACKING_URI", &named) && passes("WANDB_API_KEY", &named));
        assert!(!passes("MLFLOW_TRACKING_TOKEN", &named) && !passes("WANDB", &named));
    }

    #[test]
    fn the_guide_shows_the_table() {
        let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pools.md")).unwrap();
        let rows = INHERITED.iter().map(|(what, names)| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("| {what} | {} |\n", names.join(", "))
        });
        let table: String = rows.collect();
        assert!(guide.contains(&table), "docs/pools.md does not contain this table:\n{table}");
    }
}
