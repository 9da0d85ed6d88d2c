use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;

use super::*;
use crate::bootstrap::Inputs;
use crate::provider::Place;
use crate::spec::{Image, Limits};

fn explained(name: &'static str, stderr: &str, stdout: &str) -> Error {
    ended(1, name, stderr, stdout)
}

fn ended(status: i32, name: &'static str, stderr: &str, stdout: &str) -> Error {
    let image = Image::new().pip(["numpy==99.0", "keras[jax]>=3", "scikit_learn"]).requires_python(">=3.14");
    let plan = Plan::new(&image, &Inputs::default(), &Place::new("127.1.2.3", "/x"), &[], &Limits::default());
    let step = Step {
        name,
        command: "the command".into(),
        script: String::new(),
        stdin: Bytes::new(),
        secrets: BTreeMap::new(),
        deadline: Duration::from_secs(1),
    };
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let seen = Seen { now, settings: vec!["PIP_INDEX_URL", "SSL_CERT_FILE"] };
    explain(&step, &plan, &CommandOutput::new(status, stdout, stderr), &seen)
}

/// For each cause: the step, the output of a version of its tool, and words of the message and of
/// the hint that are concluded.
const CAUSES: &[(&str, &str, &str, &str)] = &[
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
        "a version that exists",
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
        "install a suitable version",
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
        "lacks packages that the image requires",
        "pip install 'numpy==99.0' 'keras[jax]>=3'",
    ),
    ("uv", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "another uv", "unchanged"),
    (
        "packages",
        "error: not installed: git libgl1; the user sky is not root, and sudo wants a password",
        "Debian packages are missing, and the user sky is not root, and sudo wants a password",
        "sudo apt-get install -y git libgl1",
    ),
    (
        "packages",
        "error: not installed: git; this machine has no apt-get",
        "Debian packages are missing, and this machine has no apt-get",
        "Debian or Ubuntu",
    ),
    (
        "python",
        "W: Failed to fetch http://deb.example/debian/dists/bookworm/InRelease  Temporary failure resolving 'deb.example'\nW: Some index files failed to download.\nE: Unable to locate package python3",
        "deb.example cannot be reached: its name cannot be resolved",
        "sources.list",
    ),
    (
        "packages",
        "E: Failed to fetch http://deb.example/debian/pool/p.deb  Could not connect to deb.example:80 (192.0.2.1), connection timed out",
        "deb.example cannot be reached: it does not answer in time",
        "Acquire::http::Proxy",
    ),
    (
        "packages",
        "E: Unable to locate package skyward-none",
        "the machine's mirrors have no Debian package skyward-none",
        "apt-cache policy",
    ),
    (
        "python",
        "E: Could not get lock /var/lib/dpkg/lock-frontend.\nerror: apt is locked by process 812 (unattended-upgr), and was for 300s",
        "apt is locked by process 812 (unattended-upgr)",
        "updates",
    ),
    (
        "packages",
        "E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the problem.",
        "cut short",
        "sudo dpkg --configure -a",
    ),
    (
        "packages",
        "E: Unmet dependencies. Try 'apt --fix-broken install' with no packages (or specify a solution).",
        "contradict",
        "--fix-broken",
    ),
    ("packages", "E: You don't have enough free space in /var/cache/apt/archives/.", "the disk is full", "df -h /var"),
    (
        "python",
        "E: Release file for http://deb.example/debian/dists/bookworm/InRelease is not valid yet (invalid for another 20d 3h). Updates for this repository will not be applied.",
        "the clock of the machine is off: it is 20 days behind the client's, so that the certificate or package lists of deb.example seem not valid yet",
        "timedatectl",
    ),
    (
        "environment",
        "error: Failed to fetch: `https://index.example/simple/numpy/`\n  cause: invalid peer certificate: NotValidYet",
        "the clock of the machine is off: it is 20 days behind the client's, so that the certificate or package lists of index.example seem not valid yet",
        "timedatectl",
    ),
    (
        "uv",
        "curl: (6) Could not resolve host: index.example",
        "index.example cannot be reached: its name cannot be resolved",
        "this host sets PIP_INDEX_URL, but the setting does not reach the machine",
    ),
    (
        "uv",
        "wget: unable to resolve host address ‘index.example’",
        "index.example cannot be reached: its name cannot be resolved",
        ".default_index(",
    ),
    (
        "uv",
        "curl: (7) Failed to connect to index.example port 443: No route to host",
        "index.example cannot be reached: the machine has no route to it",
        "network",
    ),
    (
        "uv",
        "curl: (60) SSL certificate problem: unable to get local issuer certificate",
        "the certificate of the index is not trusted",
        "this host sets SSL_CERT_FILE, but the setting does not reach the machine",
    ),
    ("uv", "error: uv's wheel does not match the hashes of the pinned one: hash mismatch", "another uv", "unchanged"),
    ("uv", "error: the index has no uv 0.13.8 for s390x", "the package index has no uv", "PyPI"),
    (
        "uv",
        "error: programs cannot be run from /home/sky/.cache/skyward: its file system is mounted noexec",
        "no program may be run from /home/sky/.cache/skyward",
        "SKYWARD_CACHE_DIR",
    ),
    (
        "worker",
        "ImportError: /x/msgspec/_core.so: failed to map segment from shared object: Operation not permitted",
        "mounted noexec",
        "SKYWARD_CACHE_DIR",
    ),
    ("uv", "sh: 40: flock: not found", "no `flock`", "util-linux"),
    (
        "environment",
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /x/_core.so)",
        "glibc) is too old",
        "newer Debian",
    ),
    (
        "environment",
        "error: No solution found\n  cause: Because numpy==99.0 has no wheels with a matching platform tag (e.g., `musllinux_1_2_x86_64`), it cannot be used.",
        "musl, as in Alpine\nlook at: numpy==99.0",
        "Debian or Ubuntu",
    ),
];

#[test]
fn causes_are_distinguished() {
    for &(name, stderr, message, hint) in CAUSES {
        // 20 days ago.
        let stdout =
            "skyward-found cpython-3.12.1-linux /a\nskyward-found cpython-3.11.7-linux /b\nskyward-clock 1798272000\n";
        let error = explained(name, stderr, stdout);
        assert_eq!(error.kind(), if name == "worker" { ErrorKind::Bootstrap } else { ErrorKind::Environment });
        assert!(error.message().contains(message), "{stderr}\n=> {error}");
        assert!(error.hint().is_some_and(|found| found.contains(hint)), "{stderr}\n=> {error}");
        // The message also has the tool's own words.
        let words = stderr.lines().last().unwrap().trim();
        assert!(error.message().contains(words), "{words}\n=> {error}");
    }
}

#[test]
fn the_exit_status_shows_causes_that_the_text_does_not() {
    let noexec = ended(126, "uv", "sh: 418: /x/uv/bin/uv: Permission denied", "");
    assert!(noexec.message().contains("its file system is mounted noexec"), "{noexec}");
    let memory = ended(137, "environment", "", "Resolved 40 packages in 1s");
    assert!(memory.message().contains("the step was killed: the machine ran out of memory, or its lease"), "{memory}");
}

#[test]
fn only_a_cause_that_may_pass_by_itself_is_temporary() {
    assert!(explained("environment", "dns error", "").is_temporary());
    assert!(!explained("environment", "unsatisfiable", "").is_temporary());
}

#[test]
fn long_output_is_shown_by_its_beginning_and_its_end() {
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
        format!("{error:#}"),
        "the step `setup` failed: its command failed\n  x: not found (step: setup, command: the command, exit: 1)"
    );
}

#[test]
fn the_error_of_a_full_disk_names_the_folder_on_it() {
    let error = explained("environment", "cat: write error: No space left on device", "skyward-cache /x/cache\n");
    assert!(error.context().contains(&("cache", "/x/cache".into())), "{error}");
    assert!(!error.message().contains("skyward-cache"), "{error}");
    let other = explained("environment", "error: Failed to build `numpy==99.0`", "skyward-cache /x/cache\n");
    assert!(!other.context().iter().any(|(key, _)| *key == "cache"), "{other}");
}

#[test]
fn the_error_of_a_machine_without_python_says_what_to_install_and_why_it_was_not() {
    let stderr = "error: No interpreter found for Python >=3.14 in search path";
    let error = explained(
        "environment",
        stderr,
        "skyward-no-apt the user sky is not root, and there is no sudo\nskyward-system debian\n",
    );
    assert!(error.message().contains("the machine has no working Python"), "{error}");
    assert!(error.message().contains("because the user sky is not root, and there is no sudo"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("`sudo apt-get install -y python3`")), "{error}");
    let alpine =
        explained("environment", stderr, "skyward-no-apt this machine has no apt-get\nskyward-system alpine\n");
    assert!(alpine.hint().is_some_and(|hint| hint.contains("`sudo apk add python3`")), "{alpine}");
    let old = explained("environment", stderr, "skyward-found cpython-3.9.2-linux-x86_64-gnu /usr/bin/python3\n");
    assert!(old.message().contains("too old: it has 3.9.2, the worker needs 3.10"), "{old}");
}

#[test]
fn a_right_clock_is_not_blamed_for_an_expired_certificate() {
    let stderr = "error: Failed to fetch: `https://index.example/simple/`\n  cause: invalid peer certificate: Expired";
    let error = explained("environment", stderr, "skyward-clock 1799999990\n");
    assert!(
        error.message().contains("the certificate or package lists of index.example are not valid any more"),
        "{error}"
    );
    assert!(!error.message().contains("clock"), "{error}");
}
