//! The wrapper that the library puts around every provider.

mod call;
mod choice;
mod gather;
mod listing;
mod look;
mod pace;
mod provider;
mod timing;
mod wait;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::gather::{Asked, Gathers};
use self::pace::Pace;
pub(crate) use self::wait::Arriving;
use super::Provider;
use crate::error::{Error, ErrorKind};
use crate::ids::PoolId;

/// A provider wrapper that gives each call a deadline and its turn, retries temporary errors, and
/// adds what was tried to the error.
///
/// A pool wraps its provider in it, so a provider implements none of this.
#[derive(Debug, Clone)]
pub struct Checked {
    inner: Arc<dyn Provider>,
    most: Option<Duration>,
    /// The setting that `most` comes from.
    setting: Option<&'static str>,
    /// The price per hour that is assumed for an offer without a known price.
    assumed: Option<f64>,
    /// Makes the pauses of this wrapper differ from those of others.
    salt: u64,
    gathers: Arc<Gathers>,
    pace: Pace,
    on_failed_try: OnFailedTry,
}

impl Checked {
    /// Wraps a provider.
    pub fn new(inner: Arc<dyn Provider>) -> Self {
        Self {
            inner,
            most: None,
            setting: None,
            assumed: None,
            salt: rand::random(),
            gathers: Arc::default(),
            pace: Pace::default(),
            on_failed_try: OnFailedTry(Arc::new(|_| ())),
        }
    }

    /// Limits each call to this time, including retries and the pauses between them. `connect` may
    /// use all of it; without a deadline, `connect` has ten minutes.
    #[must_use]
    pub fn deadline(mut self, most: Duration) -> Self {
        self.most = Some(most);
        self
    }

    /// Assumes this price, in US dollars per hour, for offers whose price is not known.
    #[must_use]
    pub(crate) fn assuming(mut self, usd_per_hour: Option<f64>) -> Self {
        self.assumed = usd_per_hour;
        self
    }

    /// Takes the jitter of its pauses from the pool's id, so that a simulation repeats exactly.
    /// Names [`Limits::start`](crate::spec::Limits::start) as the setting that the deadline comes
    /// from.
    pub(crate) fn of_pool(mut self, pool: &PoolId) -> Self {
        self.salt = mixed(0, pool.as_str());
        self.setting = Some("Limits::start");
        self
    }

    /// The same provider, which also reports each error after which it retries a call.
    pub(crate) fn reporting(&self, report: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        Self { on_failed_try: OnFailedTry(Arc::new(report)), ..self.clone() }
    }

    fn placed(&self, error: Error, kind: &'static str, on: &str, tries: u32) -> Error {
        let error = error.with_context("provider", self.name());
        let error = if on.is_empty() { error } else { error.with_context(kind, on) };
        if tries > 1 { error.with_context("tries", tries) } else { error }
    }

    /// Whether calls about single machines at nearly the same moment are combined into one call.
    fn gathers(&self) -> bool {
        let capabilities = self.inner.capabilities();
        capabilities.batches || !capabilities.pace.is_zero()
    }

    fn asked(&self, what: &'static str) -> Asked {
        Asked { provider: Arc::clone(&self.inner), pace: self.pace.clone(), what }
    }
}

/// The error of a provider that does not keep a line of its contract.
fn broken(provider: &dyn Provider, what: &str) -> Error {
    Error::new(ErrorKind::Provider, format!("the provider {} broke its contract: {what}", provider.name()))
        .with_hint("this is a defect in the provider, not in the pool")
}

/// Gets each error after which a call is retried.
#[derive(Clone)]
struct OnFailedTry(Arc<dyn Fn(&Error) + Send + Sync>);

impl fmt::Debug for OnFailedTry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFailedTry")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that depends on all bits of both.
fn mixed(salt: u64, text: &str) -> u64 {
    text.bytes().map(u64::from).chain([0]).fold(salt, |state, byte| {
        let state = (state ^ byte).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ (state >> 31)
    })
}

#[cfg(test)]
mod tests;
