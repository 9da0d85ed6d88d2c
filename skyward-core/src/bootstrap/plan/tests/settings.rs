//! The settings of a machine that belong to the key of its environments.

use super::Cache;

/// The key under which an environment is kept where a machine has these variables and files.
fn key(env: &[(&str, &str)], files: &[(&str, &str)]) -> String {
    let cache = Cache::new();
    let root = cache.0.to_str().unwrap();
    for (name, text) in files {
        let file = cache.0.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    // The folder of the test stands in values as ROOT.
    let values: Vec<String> = env.iter().map(|(_, value)| value.replace("ROOT", root)).collect();
    let env: Vec<_> = env.iter().zip(&values).map(|((name, _), value)| (*name, value.as_str())).collect();
    let said = cache.run_with(&env, "", "echo \"key $key\"\n");
    said.lines().find_map(|line| line.strip_prefix("key ")).unwrap().to_owned()
}

#[test]
fn a_machine_without_settings_has_the_key_of_the_image() {
    assert_eq!(key(&[], &[]), "KEY");
}

#[test]
fn what_decides_which_packages_are_installed_is_part_of_the_key() {
    let mirror = "https://mirror.example/simple";
    let keys = [
        key(&[("UV_DEFAULT_INDEX", mirror)], &[]),
        key(&[("UV_DEFAULT_INDEX", "https://other.example/simple")], &[]),
        key(&[("UV_EXCLUDE_NEWER", "2024-01-01")], &[]),
        key(&[("UV_FIND_LINKS", "/wheels")], &[]),
        key(&[("UV_TORCH_BACKEND", "cpu")], &[]),
        key(&[("PIP_INDEX_URL", mirror)], &[]),
        key(&[("PIP_CONFIG_FILE", "ROOT/pip.conf")], &[("pip.conf", "[global]\nindex-url = https://a.example\n")]),
        key(&[("PIP_CONFIG_FILE", "ROOT/pip.conf")], &[("pip.conf", "[install]\nindex_url: https://b.example\n")]),
        key(&[], &[("config/uv/uv.toml", "exclude-newer = \"2024-01-01\"\n")]),
        key(&[("UV_CONFIG_FILE", "ROOT/uv.toml")], &[("uv.toml", "no-index = true\n")]),
    ];
    for (at, key) in keys.iter().enumerate() {
        assert!(key.starts_with("KEY-") && key.len() == 16, "{key}");
        assert!(!keys[..at].contains(key), "{at}: {key}");
    }
    assert_eq!(key(&[("UV_DEFAULT_INDEX", mirror)], &[]), keys[0]);
}

#[test]
fn what_decides_how_packages_are_reached_is_not() {
    for name in [
        "UV_CACHE_DIR",
        "UV_NATIVE_TLS",
        "UV_HTTP_TIMEOUT",
        "UV_INDEX_PRIVATE_PASSWORD",
        "UV_CONCURRENT_DOWNLOADS",
        "UV_PYTHON_INSTALL_DIR",
        "SSL_CERT_FILE",
        "PIP_CERT",
        "PIP_TIMEOUT",
        "HTTPS_PROXY",
    ] {
        assert_eq!(key(&[(name, "x")], &[]), "KEY", "{name}");
    }
    let index = |password: &str| key(&[("UV_DEFAULT_INDEX", &format!("https://me:{password}@mirror.example/s"))], &[]);
    assert_eq!(index("first"), index("second"), "a password that changes");
}

#[test]
fn variables_for_one_project_are_not() {
    for name in ["UV_PROJECT", "UV_WORKING_DIR", "UV_NO_SOURCES", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_PYTHON"] {
        assert_eq!(key(&[(name, "x")], &[]), "KEY", "{name}");
    }
}

#[test]
fn files_of_pip_count_as_they_do_for_pip() {
    let conf = |text: &str| key(&[("PIP_CONFIG_FILE", "ROOT/pip.conf")], &[("pip.conf", text)]);
    let global = conf("[global]\nindex-url = https://a.example\n");
    assert_eq!(conf("[download]\nindex-url = https://b.example\n[global]\nindex-url = https://a.example\n"), global);
    assert_eq!(conf("[global]\nindex-url = https://b.example\n[install]\nindex-url = https://a.example\n"), global);
    let file = [("config/pip/pip.conf", "[global]\nindex-url = https://a.example\n")];
    assert_eq!(key(&[("PIP_CONFIG_FILE", "")], &file), global);
    assert_eq!(key(&[("PIP_CONFIG_FILE", "/dev/null")], &file), "KEY", "no file counts");
    let uv = [file[0], ("config/uv/uv.toml", "no-cache = true\n")];
    assert_eq!(key(&[("PIP_CONFIG_FILE", "")], &uv), key(&[], &uv[1..]), "uv has settings of its own");
}

#[test]
fn files_of_projects_above_are_not() {
    let files = [
        ("uv.toml", "no-index = true\n"),
        ("pyproject.toml", "[tool.uv]\nno-index = true\n"),
        ("pip.conf", "[global]\nindex-url = https://a.example\n"),
    ];
    assert_eq!(key(&[], &files), "KEY");
}
