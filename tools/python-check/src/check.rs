//! The checks of one file, and of many at once.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use skyward_python::{Finding, Kind, Payload};

use crate::files::File;

/// The reasons to refuse a file; none: it is accepted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) reasons: Vec<Reason>,
}

/// A reason to refuse a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// What it is about, for the counts.
    pub(crate) kind: String,
    /// `path:line:column: message`, and further lines.
    pub(crate) lines: Vec<String>,
}

/// Checks all files, on as many threads as there are processors, and passes the verdicts on in the
/// order of the files.
///
/// # Errors
///
/// If `report` fails.
pub(crate) fn all(files: &[File], mut report: impl FnMut(&File, Verdict) -> io::Result<()>) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        let (sender, verdicts) = mpsc::sync_channel(AHEAD);
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            let work = move || {
                while let Some((index, file)) = take(files, next) {
                    // The other end is gone once the report has failed.
                    if sender.send((index, guarded(file))).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)?;
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut due = 0;
        for (index, verdict) in verdicts {
            early.insert(index, verdict);
            while let Some(verdict) = early.remove(&due) {
                report(&files[due], verdict)?;
                due += 1;
            }
        }
        Ok(())
    })
}

/// The next file that no thread has taken, and its index.
fn take<'f>(files: &'f [File], next: &AtomicUsize) -> Option<(usize, &'f File)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    files.get(index).map(|file| (index, file))
}

/// Checks one file. A defect of the checks that this file shows does not end the others.
fn guarded(file: &File) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| check(file))).unwrap_or_else(|_| {
        let line = format!("{}: the check panicked, which is a defect of the check", file.path.display());
        Verdict { reasons: vec![Reason { kind: "panic of the check".to_owned(), lines: vec![line] }] }
    })
}

fn check(file: &File) -> Verdict {
    let path = file.path.display().to_string();
    if let Some(why) = &file.unreadable {
        let reason = Reason { kind: Kind::File.to_string(), lines: vec![format!("{path}: {why}")] };
        return Verdict { reasons: vec![reason] };
    }
    let payload = match Payload::read_file(&file.path, &path) {
        Ok(payload) => payload,
        Err(finding) => return Verdict { reasons: vec![Reason::from(&finding)] },
    };
    let mut findings = payload.findings();
    findings.extend(payload.undefined_names());
    // In a file that does not parse, functions may only seem to be missing.
    if payload.findings().is_empty() {
        findings.extend(payload.entry_findings());
    }
    Verdict { reasons: findings.iter().map(Reason::from).collect() }
}

impl From<&Finding> for Reason {
    fn from(finding: &Finding) -> Self {
        let mut first = finding.path().to_owned();
        for number in [finding.line(), finding.column()].into_iter().flatten() {
            first.push_str(&format!(":{number}"));
        }
        first.push_str(": ");
        first.push_str(finding.message());
        let rest = [finding.excerpt(), finding.help()].into_iter().flatten().flat_map(|part| part.split('\n'));
        let lines = std::iter::once(first).chain(rest.map(str::to_owned)).collect();
        Self { kind: finding.kind().to_string(), lines }
    }
}

/// Verdicts that wait for the report, at most.
const AHEAD: usize = 1024;
/// The parser and the checks call themselves for what is nested in a file, thousands of levels deep
/// in generated ones. Only what is used of the stack takes memory.
const STACK_BYTES: usize = 256 << 20;
