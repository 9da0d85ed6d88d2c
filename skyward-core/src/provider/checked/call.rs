//! One call of the provider: its deadline, its retries, and the pauses between them.

use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::gather::{NO_RESULT, miscounted};
use super::timing::{LONGEST_TRY_PAUSE, THROTTLED_PAUSE, TRY_PAUSE};
use super::{Checked, broken, lock, mixed};
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::provider::Provider;
use crate::spec::Limits;

/// A call of the provider: its name in messages, and its limits.
pub(super) struct Call {
    pub(super) what: &'static str,
    /// The kind of thing that the call is about, as the error's context names it.
    kind: &'static str,
    pub(super) limit: Duration,
    /// Whether the call waits for its turn by the provider's pace.
    pub(super) is_paced: bool,
    /// Whether the call is combined with those of others, and waits for its turn together with
    /// them.
    pub(super) is_gathered: bool,
    /// Whether the last try has had its turn.
    pub(super) had_turn: AtomicBool,
    pub(super) tries: u32,
    pub(super) longest_pause: Duration,
    /// The last error after which the call was retried.
    pub(super) last: Mutex<Option<Error>>,
}

impl Call {
    /// Sets whether the call is combined with those of others.
    pub(super) fn gathered(self, is_gathered: bool) -> Self {
        Self { is_gathered, ..self }
    }
}

impl Checked {
    pub(super) async fn call<T, F: Future<Output = Result<T>>>(
        &self,
        call: &Call,
        on: &str,
        attempt: impl Fn() -> F,
    ) -> Result<T> {
        let attempt = &attempt;
        let mut done = self.call_each(call, &[on], |_| async move { vec![attempt().await] }).await;
        done.pop().unwrap_or_else(|| Err(broken(&*self.inner, NO_RESULT)))
    }

    /// One call for many items: `on` names each, and `attempt` gets the indices of those to try.
    /// Items with a temporary error are tried again.
    pub(super) async fn call_each<T, F: Future<Output = Vec<Result<T>>>>(
        &self,
        call: &Call,
        on: &[&str],
        attempt: impl Fn(Vec<usize>) -> F,
    ) -> Vec<Result<T>> {
        let deadline = Instant::now() + call.limit.min(Limits::LONGEST);
        let mut pause = TRY_PAUSE;
        let mut done: Vec<Option<Result<T>>> = on.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..on.len()).collect();
        for tries in 1_u32.. {
            let Some(first) = left.first().map(|one| on[*one]) else { break };
            call.had_turn.store(!call.is_paced && !call.is_gathered, Ordering::Relaxed);
            let asked = timeout_at(deadline, async {
                if call.is_paced && !call.is_gathered {
                    if let Err(error) = self.pace.turn(&*self.inner, call.what).await {
                        return left.iter().map(|_| Err(error.clone())).collect();
                    }
                    call.had_turn.store(true, Ordering::Relaxed);
                }
                attempt(left.clone()).await
            });
            let answered = asked.await;
            let answers: Vec<Result<T>> = match answered {
                Ok(answers) if answers.len() == left.len() => answers,
                Ok(answers) => {
                    let error = miscounted(&*self.inner, call.what, left.len(), answers.len());
                    left.iter().map(|_| Err(error.clone())).collect()
                }
                Err(_) => {
                    let late = self.late(call);
                    for one in left {
                        done[one] = Some(Err(self.placed(late.clone(), call.kind, on[one], tries)));
                    }
                    break;
                }
            };
            let is_last = tries >= call.tries;
            let asked = answers.iter().filter_map(|answer| throttle(answer.as_ref().err()?)).max();
            // Calls that are combined pause together, so that they are combined again.
            let salted = mixed(self.salt.wrapping_add(tries.into()), if call.is_gathered { "" } else { first });
            let jittered = jittered(pause, salted);
            let next = Instant::now() + asked.map_or(jittered, |pause| pause.min(Limits::LONGEST) + jittered);
            let mut trouble = None;
            for (one, answer) in std::mem::take(&mut left).into_iter().zip(answers) {
                let placed = |error: Error| self.placed(error, call.kind, on[one], tries);
                done[one] = Some(match answer {
                    Err(error) if is_for_now(&error) && (!is_last || throttle(&error).is_some()) && next < deadline => {
                        trouble.get_or_insert_with(|| error.clone());
                        left.push(one);
                        Err(error)
                    }
                    Err(error) if is_for_now(&error) && !is_last => {
                        let error = error.with_context("given up after", format!("{:?}", call.limit));
                        Err(placed(self.of_limit(error, call)))
                    }
                    answer => answer.map_err(placed),
                });
            }
            let Some(error) = trouble else { break };
            tracing::debug!(provider = self.name(), what = call.what, on = first, tries, %error, "trying again");
            (self.on_failed_try.0)(&error);
            *lock(&call.last) = Some(error);
            sleep_until(next).await;
            pause = (pause * 2).min(call.longest_pause);
        }
        done.into_iter().map(|done| done.unwrap_or_else(|| Err(broken(&*self.inner, NO_RESULT)))).collect()
    }

    /// The error of a call that did not return in time, or did not have its turn. Its source is the
    /// last error before the timeout, which gives the reason.
    fn late(&self, call: &Call) -> Error {
        let (name, Call { what, limit, .. }) = (self.name(), call);
        let message = match call.had_turn.load(Ordering::Relaxed) {
            true => format!("{name} did not {what} within {limit:?}"),
            false => format!(
                "{name} was not asked to {what} within {limit:?}: its calls of one kind are {:?} apart, and others came first",
                self.capabilities().pace
            ),
        };
        let error = Error::new(ErrorKind::Timeout, message).caused_by(lock(&call.last).take());
        self.of_limit(error.temporary(), call)
    }

    /// Adds the setting that gives the call more time.
    fn of_limit(&self, error: Error, call: &Call) -> Error {
        let Some(setting) = self.setting.filter(|_| self.most == Some(call.limit)) else { return error };
        error.with_further_hint(&format!("`{setting}` gives more time"))
    }

    /// A call with this limit, or with the deadline of all calls where that is shorter.
    pub(super) fn within(&self, limit: Duration, what: &'static str, kind: &'static str) -> Call {
        let limit = self.most.map_or(limit, |most| limit.min(most));
        Call {
            what,
            kind,
            limit,
            is_paced: true,
            is_gathered: false,
            had_turn: AtomicBool::new(false),
            tries: TRIES,
            longest_pause: LONGEST_TRY_PAUSE,
            last: Mutex::default(),
        }
    }
}

/// Whether the same call may succeed later. A refusal is final, unless it is throttling.
fn is_for_now(error: &Error) -> bool {
    let refused = error.refusal().is_some_and(|refusal| !matches!(refusal, Refusal::Throttled(_)));
    error.is_temporary() && !refused
}

/// The pause that the provider asked for; none where the error is no throttling.
fn throttle(error: &Error) -> Option<Duration> {
    match error.refusal() {
        Some(Refusal::Throttled(pause)) => Some(pause.unwrap_or(THROTTLED_PAUSE)),
        _ => None,
    }
}

/// Between half and all of the pause, so that many callers do not return at the same moment.
pub(super) fn jittered(pause: Duration, salt: u64) -> Duration {
    let share = (salt >> 11) as f64 / (1_u64 << 53) as f64;
    pause.mul_f64(0.5 + share / 2.0)
}

pub(super) const TRIES: u32 = 8;
