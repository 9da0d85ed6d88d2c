use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::bootstrap::Inputs;
use crate::error::ErrorStatus;
use crate::ids::{Attempt, LaunchId, MachineId, NodeIndex, PoolId};
use crate::provider::{LaunchRequest, Machine, Offer};
use crate::spec::{Image, Limits};

fn explained(name: &'static str, stderr: &str, stdout: &str) -> Error {
    let (pool, node) = (PoolId::new("p-x"), NodeIndex(0));
    let offer = Offer::new("host", "here", 1, 1);
    let request = LaunchRequest::new(LaunchId::of(&pool, node, Attempt(1)), pool, node, offer, Duration::ZERO);
    let machine = Machine::new(&request, MachineId::new("m"), "127.1.2.3", "/x");
    let image = Image::new().pip(["numpy==99.0", "keras[jax]>=3", "scikit_learn"]).requires_python(">=3.14");
    let plan = Plan::new(&image, &Inputs::default(), &machine, &[], &Limits::default());
    let step = Step {
        name,
        command: "the command".into(),
        script: String::new(),
        stdin: Arc::default(),
        secrets: BTreeMap::new(),
        deadline: Duration::from_secs(1),
    };
    explain(&step, &plan, &CommandOutput::new(1, stdout, stderr))
}

/// What tools of several versions say, and what is made of it.
#[test]
fn causes_are_told_apart() {
    let table = [
        (
            "environment",
            "error: No solution found when resolving dependencies\n  cause: Because no-such-zzz was not found in the package registry and you require no-such-zzz, we can conclude that your requirements are unsatisfiable.",
            "no index has a package `no-such-zzz`",
            ".index(",
        ),
        (
            "environment",
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no version of numpy==99.0 and you require numpy==99.0, we\n      can conclude that your requirements are unsatisfiable.",
            "there is no version `numpy==99.0`\nlook at: numpy==99.0",
            "one that exists",
        ),
        (
            "environment",
            "error: No solution found when resolving dependencies\n  cause: Because keras==3.15.1 depends on a and scikit-learn>=1 depends on b, your requirements are unsatisfiable.",
            "no versions satisfy all requirements\nlook at: keras[jax]>=3, scikit_learn",
            "loosen",
        ),
        (
            "environment",
            "error: Failed to build `numpy==99.0`\n  cause: The build backend returned an error",
            "`numpy==99.0` has no wheel for this Python and machine",
            "build-essential",
        ),
        (
            "environment",
            "error: Failed to fetch: `https://index.example/simple/numpy/`\n  cause: client error (Connect)\n  cause: dns error\n  cause: failed to lookup address information: Name or service not known",
            "index.example cannot be reached",
            "HTTPS_PROXY",
        ),
        (
            "environment",
            "error: Failed to fetch: https://127.0.0.1:9/simple/numpy/\n  cause: tcp connect error\n  cause: Connection refused (os error 111)",
            "127.0.0.1 cannot be reached",
            "UV_DEFAULT_INDEX",
        ),
        (
            "environment",
            "error: Failed to fetch: `https://pypi.example/simple/idna/`\n  cause: invalid peer certificate: UnknownIssuer",
            "the certificate of pypi.example is not trusted",
            "SSL_CERT_FILE",
        ),
        (
            "uv",
            "WARNING: Retrying after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))': /simple/uv/\nERROR: No matching distribution found for uv==0.13.8",
            "the certificate of the index is not trusted",
            "SSL_CERT_FILE",
        ),
        (
            "environment",
            "error: Failed to fetch: `https://private.example/simple/x/`\n  cause: HTTP status client error (401 Unauthorized) for url (https://private.example/simple/x/)",
            "private.example refuses access",
            ".credentials(",
        ),
        (
            "environment",
            "error: Request failed after 3 retries\n  cause: Failed to download `https://github.com/astral-sh/python-build-standalone/releases/x.tar.gz`\n  cause: dns error",
            "no Python that suits (the payload requires >=3.14), and uv cannot download one; it has: 3.11.7, 3.12.1",
            ".python(\"3.12\")",
        ),
        (
            "environment",
            "error: No interpreter found for Python >=3.14 in search path",
            "it has: 3.11.7, 3.12.1",
            "install one",
        ),
        ("environment", "error: there is no interpreter at /opt/none", "there is no interpreter at /opt/none", "auto"),
        (
            "environment",
            "error: write failed\n  cause: No space left on device (os error 28)",
            "the disk is full",
            "SKYWARD_CACHE_DIR",
        ),
        (
            "environment",
            "mkdir: cannot create directory '/x': Permission denied",
            "cannot be written to",
            "SKYWARD_CACHE_DIR",
        ),
        (
            "environment",
            "Would install 1 package\nerror: the interpreter does not have all that the image asks for",
            "used as it is",
            "pip install 'numpy==99.0' 'keras[jax]>=3'",
        ),
        ("uv", "error: there is neither uv nor python3 on this machine", "uv is missing", "python3-venv"),
        ("uv", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "another uv", "unchanged"),
        (
            "packages",
            "error: not installed: git libgl1",
            "Debian packages are missing",
            "sudo apt-get install -y git libgl1",
        ),
    ];
    for (name, stderr, message, hint) in table {
        let error =
            explained(name, stderr, "skyward-found cpython-3.12.1-linux /a\nskyward-found cpython-3.11.7-linux /b\n");
        assert_eq!(error.kind(), ErrorKind::Environment);
        assert!(error.message().contains(message), "{stderr}\n=> {error}");
        assert!(error.hint().is_some_and(|found| found.contains(hint)), "{stderr}\n=> {error}");
        // The tool's own words are there too.
        let words = stderr.lines().last().unwrap().trim();
        assert!(error.message().contains(words), "{words}\n=> {error}");
    }
}

#[test]
fn only_what_may_pass_by_itself_is_temporary() {
    assert_eq!(explained("environment", "dns error", "").status(), ErrorStatus::Temporary);
    assert_eq!(explained("environment", "unsatisfiable", "").status(), ErrorStatus::Permanent);
}

#[test]
fn of_a_long_failure_the_beginning_and_the_end_are_shown() {
    let noise: String = (0..1000).map(|line| format!("noise {line}\n")).collect();
    let error =
        explained("environment", &format!("Resolved\nerror: Failed to build `x`\n{noise}fatal: no compiler\n"), "");
    let lines: Vec<_> = error.message().lines().collect();
    assert!(lines.len() < 30, "{error}");
    assert!(error.message().contains("  error: Failed to build `x`\n  noise 0"), "{error}");
    assert!(error.message().ends_with("noise 999\n  fatal: no compiler"), "{error}");
}

#[test]
fn another_step_is_named_with_its_command() {
    let error = explained("setup", "x: not found", "");
    assert_eq!(error.kind(), ErrorKind::Bootstrap);
    assert_eq!(
        error.to_string(),
        "the step `setup` failed: it did not end well\n  x: not found (step: setup, command: the command, exit: 1)"
    );
}

#[test]
fn a_full_disk_is_told_with_the_folder_that_is_on_it() {
    let error = explained("environment", "cat: write error: No space left on device", "skyward-cache /x/cache\n");
    assert!(error.context().contains(&("cache", "/x/cache".into())), "{error}");
    assert!(!error.message().contains("skyward-cache"), "{error}");
    let other = explained("environment", "error: Failed to build `numpy==99.0`", "skyward-cache /x/cache\n");
    assert!(!other.context().iter().any(|(key, _)| *key == "cache"), "{other}");
}
