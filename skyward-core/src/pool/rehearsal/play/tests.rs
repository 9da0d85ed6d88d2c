//! Rehearsals on fake machines with a paused clock: what a rehearsal reports, and that a dropped
//! rehearsal leaves nothing behind.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::*;
use crate::payload::{Args, RetryPolicy, Source};
use crate::plugin::plugin;
use crate::spec::Limits;
use crate::testkit::fake_provider::{FakeProvider, Faults, Turn};
use crate::testkit::fake_worker::{Fate, Work};
use crate::testkit::script::{Answer, FakeTask, Rule, Script};

type Echo = BTreeMap<String, u32>;

/// Every operation takes some time and succeeds.
#[derive(Debug)]
struct Slow;

/// A provider of such machines.
fn slow() -> FakeProvider {
    // The value of the argument `n` is the last byte of the map.
    let work = |task: &FakeTask<'_>| match (task.sent().last(), task.start()) {
        (Some(&FOR_EVER), _) => Work::UntilInterrupted,
        (Some(&RAISES_ONCE), 1 | 2) => Work::Raise(TURN),
        _ => Work::Return(TURN),
    };
    FakeProvider::new(Script::new().faults(Slow).rule(Rule::all().answer(move |task| Answer::does(work(task)))))
}

impl Fate for Slow {
    fn hooks(&self, _: u32, _: u32, _: u64) -> Option<Duration> {
        Some(TURN)
    }
}

impl Faults for Slow {
    fn launch(&self, _: u32, _: u32) -> Turn {
        Turn::Works(TURN)
    }

    fn connect(&self, _: u32, _: u32) -> Turn {
        Turn::Works(TURN)
    }

    fn command(&self, _: u32, _: u32) -> Turn {
        Turn::Works(TURN / 2)
    }

    fn terminate(&self, _: u32, _: u32) -> Turn {
        Turn::Works(TURN)
    }
}

fn call(n: u8) -> PendingCompute<Echo> {
    PendingCompute::new(Arc::new(Source::file("a.py", "def f(n): ...", "f")), Args::new().with("n", &n))
}

/// Plays a rehearsal on two nodes of the provider.
async fn played(provider: &FakeProvider, call: PendingCompute<Echo>, change: fn(&mut Limits)) -> Rehearsal<Echo> {
    let limits = RehearsalLimits { call: Duration::from_secs(30), ..RehearsalLimits::default() };
    let mut of_pool = Limits::default();
    change(&mut of_pool);
    let builder =
        Pool::builder().provider(provider.clone()).nodes(2).limits(of_pool).plugin(plugin("world").joins_world());
    Box::pin(play(Rehearsed { builder, ranks: 2, devices: 1, limits }, call, None)).await
}

async fn rehearsed(call: PendingCompute<Echo>, change: fn(&mut Limits)) -> Rehearsal<Echo> {
    let provider = slow();
    let rehearsal = played(&provider, call, change).await;
    assert!(provider.machines().is_empty() && provider.launched() == 2);
    rehearsal
}

#[track_caller]
fn only(rehearsal: &Rehearsal<Echo>) -> &Finding {
    let [finding] = &rehearsal.findings[..] else { panic!("{rehearsal}") };
    finding
}

#[tokio::test(start_paused = true)]
async fn a_call_that_returns_is_clean() {
    let rehearsal = rehearsed(call(7), |_| ()).await;
    assert!(rehearsal.is_clean() && rehearsal.findings.is_empty(), "{rehearsal}");
    assert_eq!(rehearsal.results.unwrap().iter().map(|echo| echo["n"]).collect::<Vec<_>>(), [7, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_accepted_has_no_results() {
    let rehearsal = rehearsed(call(7), |limits| limits.max_queued = 1).await;
    assert_eq!(only(&rehearsal).kind, FindingKind::Refused, "{rehearsal}");
    assert_eq!(rehearsal.results, None);
}

#[tokio::test(start_paused = true)]
async fn an_error_before_a_retry_is_a_finding() {
    let rehearsal = rehearsed(call(RAISES_ONCE).retry(RetryPolicy::never().raised(1)), |_| ()).await;
    assert_eq!(only(&rehearsal).kind, FindingKind::Raised, "{rehearsal}");
    assert!(rehearsal.results.is_some() && !rehearsal.is_clean(), "{rehearsal}");
}

#[tokio::test(start_paused = true)]
async fn the_hint_for_a_late_call_names_the_limit_that_ended_it() {
    let rehearsal = rehearsed(call(FOR_EVER), |_| ()).await;
    let own = only(&rehearsal);
    assert_eq!(own.kind, FindingKind::Deadline);
    assert_eq!(own.message.as_str(), "ranks 0, 1 had not returned after 30s");
    assert!(own.hint.contains("`RehearsalLimits::call`"), "{rehearsal}");
    let rehearsal = rehearsed(call(FOR_EVER).timeout(Duration::from_secs(10)), |_| ()).await;
    let of_call = only(&rehearsal);
    assert_eq!(of_call.kind, FindingKind::Deadline, "{rehearsal}");
    assert_eq!(of_call.ranks.len(), 2, "{rehearsal}");
    assert_eq!(
        of_call.message,
        "the task ran longer than its timeout of 10s (where: rank 0 was in `work` (fake.py:1), rank 1 was in `work` (fake.py:1))"
    );
    assert!(of_call.hint.contains("`.timeout(…)`") && !of_call.hint.contains("RehearsalLimits"), "{rehearsal}");
}

/// When a rehearsal is dropped.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// After this number of polls.
    Polls(usize),
    After(Duration),
}

/// Plays a rehearsal until it ends or is dropped, and returns whether it ended.
async fn take(provider: &FakeProvider, cut: Cut) -> bool {
    let mut rehearsal = pin!(played(provider, call(7), |_| ()));
    let (mut polls, mut end) = (0, None);
    if let Cut::After(time) = cut {
        end = Some(Box::pin(tokio::time::sleep(time)));
    }
    poll_fn(|context| {
        if cut_at(cut) == Some(polls) || end.as_mut().is_some_and(|end| end.poll_unpin(context).is_ready()) {
            return Poll::Ready(false);
        }
        polls += 1;
        let ended = rehearsal.as_mut().poll(context).map(|rehearsal| {
            assert!(rehearsal.is_clean(), "{rehearsal}");
            true
        });
        if ended.is_pending() && cut_at(cut) == Some(polls) { Poll::Ready(false) } else { ended }
    })
    .await
}

fn cut_at(cut: Cut) -> Option<usize> {
    match cut {
        Cut::Polls(most) => Some(most),
        Cut::After(_) => None,
    }
}

#[test]
fn a_rehearsal_that_is_dropped_at_any_point_leaves_nothing_behind() {
    let polls: Vec<Cut> = (0..MOST).map(Cut::Polls).collect();
    let times = (0..MOST as u32).map(|number| Cut::After(TURN / 4 * number)).collect();
    for cuts in [polls, times] {
        let mut last = 0;
        let ended = cuts.into_iter().enumerate().any(|(number, cut)| {
            last = number;
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let provider = slow();
                let ended = take(&provider, cut).await;
                // The cleanup runs in the background.
                let end = Instant::now() + Duration::from_secs(300);
                let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
                while !provider.machines().is_empty() || alive() > 0 {
                    assert!(Instant::now() < end, "left after {cut:?}: {:?}, {} tasks", provider.machines(), alive());
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                assert_eq!(provider.running(), [], "{cut:?}");
                assert_eq!(provider.witness().wrongs(), Vec::<String>::new(), "{cut:?}");
                ended
            })
        });
        assert!(ended && last > 5, "it ended at {last}");
    }
}

const FOR_EVER: u8 = 20;
const RAISES_ONCE: u8 = 21;
const TURN: Duration = Duration::from_millis(40);
/// More than the number of points at which a rehearsal can be dropped.
const MOST: usize = 1000;
