//! Causes between the machine and an index or a mirror.

use std::time::{Duration, UNIX_EPOCH};

use super::{Cause, Evidence, between};
use crate::bootstrap::timing::TOLERATED_CLOCK_DIFFERENCE;

pub(super) fn of_network(evidence: &Evidence<'_>) -> Option<Cause> {
    let host = host(evidence.text);
    if let Some(cause) = of_clock(evidence, host) {
        return Some(cause);
    }
    if evidence.has(&UNTRUSTED) {
        let mut hint = "if the network has a certificate authority of its own, for instance to inspect encrypted traffic, add it to the image: `.certificate(\"ca.pem\")`, or set SSL_CERT_FILE on the machine to a file with it (PEM)".to_owned();
        hint.push_str(&unshared(evidence, "CERT"));
        return Some(Cause::new(format!("the certificate of {host} is not trusted"), hint));
    }
    if evidence.has(&REFUSED) && !evidence.has(&["python-build-standalone"]) {
        return Some(Cause::new(
            format!("{host} refuses access"),
            "give user and password of the index: `.credentials(\"index name\", user, password)`",
        ));
    }
    let (_, why) = UNREACHABLE.iter().find(|(sign, _)| evidence.lower.contains(sign))?;
    if evidence.step == "environment" && evidence.has(&["python-build-standalone", "cpython-3"]) {
        // Not the index: uv found no interpreter and wanted to download one.
        return None;
    }
    let hint = if evidence.is_of_apt() {
        "check the network of the machine, its mirrors in /etc/apt/sources.list*, and apt's proxy: `apt-config dump Acquire::http::Proxy`".to_owned()
    } else {
        format!(
            "check the network of the machine, HTTPS_PROXY, and the address of the index: UV_DEFAULT_INDEX, PIP_INDEX_URL or `.default_index(url)`{}",
            unshared(evidence, "INDEX")
        )
    };
    Some(Cause::passing(format!("{host} cannot be reached: {why}"), hint))
}

/// A wrong clock makes valid certificates and lists look invalid.
fn of_clock(evidence: &Evidence<'_>, host: &str) -> Option<Cause> {
    let early = evidence.has(&["notvalidyet", "not yet valid", "not valid yet", "not yet activated"]);
    let late = evidence.has(&[
        "certificate has expired",
        "certexpired",
        "invalid peer certificate: expired",
        "is expired (invalid since",
    ]);
    if !early && !late {
        return None;
    }
    let clock = evidence
        .marked("clock")
        .and_then(|clock| clock.parse().ok())
        .map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
    let off = clock.and_then(|clock| match evidence.seen.now.duration_since(clock) {
        Ok(behind) => (behind > TOLERATED_CLOCK_DIFFERENCE).then(|| format!("{} behind", rounded(behind))),
        Err(ahead) => {
            (ahead.duration() > TOLERATED_CLOCK_DIFFERENCE).then(|| format!("{} ahead of", rounded(ahead.duration())))
        }
    });
    let what = if early { "not valid yet" } else { "not valid any more" };
    match off {
        Some(off) => Some(Cause::new(
            format!(
                "the clock of the machine is off: it is {off} the client's, so that the certificate or package lists of {host} seem {what}"
            ),
            "set the clock: `sudo timedatectl set-ntp true`, or `sudo date -s '…'`",
        )),
        None => Some(Cause::new(
            format!("the certificate or package lists of {host} are {what}"),
            "compare the machine's clock with the time, `date -u`; if it is right, the certificate or the lists of the mirror are outdated",
        )),
    }
}

/// The host that the text names.
fn host(text: &str) -> &str {
    let named = |start: &str| between(text, start, ENDS);
    named("https://")
        .or_else(|| named("Could not resolve host: "))
        .or_else(|| named("unable to resolve host address ‘"))
        .or_else(|| named("Temporary failure resolving '"))
        .or_else(|| named("Could not resolve '"))
        .or_else(|| named("ould not connect to "))
        .or_else(|| named("ailed to connect to "))
        .or_else(|| named("initiate the connection to "))
        .or_else(|| named("http://"))
        // A password is not part of a host.
        .map(|host| host.rsplit('@').next().unwrap_or(host))
        .unwrap_or("the index")
}

/// The settings of the client's own tools that its machines do not have.
fn unshared(evidence: &Evidence<'_>, of: &str) -> String {
    let names: Vec<_> = evidence.seen.settings.iter().copied().filter(|name| name.contains(of)).collect();
    match names[..] {
        [] => String::new(),
        [name] => {
            format!("; this host sets {name}, but the setting does not reach the machine: declare it in the image")
        }
        _ => format!(
            "; this host sets {}, but the settings do not reach the machine: declare them in the image",
            names.join(" and ")
        ),
    }
}

fn rounded(off: Duration) -> String {
    let seconds = off.as_secs();
    match seconds {
        0..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

const UNTRUSTED: [&str; 9] = [
    "invalid peer certificate",
    "certificate_verify_failed",
    "certificate verify failed",
    "certificate verification failed",
    "unknownissuer",
    "unable to get local issuer certificate",
    "self-signed certificate",
    "cannot verify",
    "doesn't have a known issuer",
];
const REFUSED: [&str; 10] = [
    "401 unauthorized",
    "403 forbidden",
    "status code: 401",
    "status code: 403",
    "http error 401",
    "http error 403",
    "returned error: 401",
    "returned error: 403",
    "407 proxy",
    "username/password authentication failed",
];
/// The messages of tools about a host that does not answer, each with the cause.
const UNREACHABLE: [(&str, &str); 18] = [
    ("dns error", NO_NAME),
    ("failed to lookup address", NO_NAME),
    ("name or service not known", NO_NAME),
    ("temporary failure in name resolution", NO_NAME),
    ("temporary failure resolving", NO_NAME),
    ("could not resolve", NO_NAME),
    ("unable to resolve", NO_NAME),
    ("connection refused", "the connection is refused"),
    ("network is unreachable", NO_ROUTE),
    ("no route to host", NO_ROUTE),
    ("connection reset", "the connection is cut"),
    ("connection timed out", NO_ANSWER),
    ("operation timed out", NO_ANSWER),
    ("operation too slow", NO_ANSWER),
    ("timed out", NO_ANSWER),
    ("tcp connect error", NO_ANSWER),
    ("newconnectionerror", NO_ANSWER),
    ("failed to connect to", NO_ANSWER),
];
const NO_NAME: &str = "its name cannot be resolved";
const NO_ROUTE: &str = "the machine has no route to it";
const NO_ANSWER: &str = "it does not answer in time";
/// The end of a host in an address within running text.
const ENDS: &[&str] = &["/", " ", "`", ")", "'", "’", ":"];
