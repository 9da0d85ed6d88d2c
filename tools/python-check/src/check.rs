//! The checks of one file, and of many at once.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Context as _, Result};
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
/// If no thread starts, or `report` fails.
pub(crate) fn all(files: &[File], report: impl FnMut(&File, Verdict) -> io::Result<()>) -> Result<()> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    in_order(files, threads, guarded, report)
}

fn in_order<V: Send>(
    files: &[File],
    threads: usize,
    check: impl Fn(&File) -> V + Sync,
    mut report: impl FnMut(&File, V) -> io::Result<()>,
) -> Result<()> {
    thread::scope(|scope| {
        let (order, orders) = mpsc::channel();
        let (sender, verdicts) = mpsc::channel();
        let orders = Arc::new(Mutex::new(orders));
        for started in 0..threads {
            let (sender, orders, check) = (sender.clone(), Arc::clone(&orders), &check);
            let work = move || {
                while let Some(index) = next(&orders) {
                    // The other end is gone once the report has failed.
                    if sender.send((index, check(&files[index]))).is_err() {
                        return;
                    }
                }
            };
            match thread::Builder::new().spawn_scoped(scope, work) {
                Err(error) if started == 0 => return Err(error).context("cannot start a thread for the checks"),
                // Those that have started do the work.
                Err(_) => break,
                Ok(_) => {}
            }
        }
        drop((sender, orders));
        // A file is ordered when another is reported, so no more than these wait for one that takes long.
        let mut ordered = 0;
        let mut early = BTreeMap::new();
        for due in 0..files.len() {
            while ordered < files.len().min(due + AHEAD) {
                order.send(ordered).context("the threads of the checks have ended")?;
                ordered += 1;
            }
            let verdict = loop {
                if let Some(verdict) = early.remove(&due) {
                    break verdict;
                }
                let (index, verdict) = verdicts.recv().context("the threads of the checks have ended")?;
                early.insert(index, verdict);
            };
            report(&files[due], verdict).context("cannot write the report")?;
        }
        Ok(())
    })
}

/// The index of the next file to check; none when all are checked, or the report has failed.
fn next(orders: &Mutex<mpsc::Receiver<usize>>) -> Option<usize> {
    orders.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
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

/// Files that are checked before the one that is reported next, and wait for it, at most.
const AHEAD: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn files(count: usize) -> Vec<File> {
        (0..count).map(|number| File { path: format!("{number}.py").into(), unreadable: None }).collect()
    }

    #[test]
    fn no_more_than_the_bound_wait_for_a_file_that_takes_long() {
        let files = files(3 * AHEAD);
        let checked = AtomicUsize::new(0);
        let check = |file: &File| {
            // The first one takes until the others are done that may be, and longer.
            if file.path == files[0].path {
                while checked.load(Ordering::Relaxed) < AHEAD - 1 {
                    thread::yield_now();
                }
                (0..10_000).for_each(|_| thread::yield_now());
            }
            checked.fetch_add(1, Ordering::Relaxed) + 1
        };
        let mut reported = Vec::new();
        in_order(&files, 4, check, |file, before| {
            assert!(before <= reported.len() + AHEAD, "{before} are checked, {} reported", reported.len());
            reported.push(file.path.clone());
            Ok(())
        })
        .unwrap();
        assert_eq!(reported, files.iter().map(|file| file.path.clone()).collect::<Vec<_>>());
    }

    #[test]
    fn a_report_that_fails_ends_the_checks() {
        let files = files(100 * AHEAD);
        let checked = AtomicUsize::new(0);
        let check = |_: &File| checked.fetch_add(1, Ordering::Relaxed);
        let error = in_order(&files, 4, check, |_, _| Err(io::Error::other("the disk is full"))).unwrap_err();
        assert_eq!(format!("{error:#}"), "cannot write the report: the disk is full");
        assert!(checked.load(Ordering::Relaxed) <= AHEAD);
    }

    #[test]
    fn without_files_there_is_nothing_to_report() {
        in_order(&[], 4, |_| (), |_, ()| Err(io::Error::other("nothing is due"))).unwrap();
    }
}
