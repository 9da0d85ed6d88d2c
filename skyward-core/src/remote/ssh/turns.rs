//! Limits how many connections to one address are opened at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::lock;
use super::target::Target;

/// The address of a host, behind those of its bastions: the same private address behind another
/// bastion is another host.
type Route = Vec<(String, u16)>;

/// Waits until this process opens fewer than [`AT_ONCE`] connections to the host; none at the
/// deadline.
pub(super) async fn turn(target: &Target, deadline: Instant) -> Option<OwnedSemaphorePermit> {
    let turns = {
        let mut all = lock(&TURNS);
        let route: Route =
            target.way().iter().chain([target]).map(|hop| (hop.address.to_lowercase(), hop.port)).collect();
        match all.get(&route).and_then(Weak::upgrade) {
            Some(turns) => turns,
            None => {
                let turns = Arc::new(Semaphore::new(AT_ONCE));
                all.retain(|_, turns| turns.strong_count() > 0);
                all.insert(route, Arc::downgrade(&turns));
                turns
            }
        }
    };
    // The semaphore is never closed.
    timeout_at(deadline, turns.acquire_owned()).await.ok()?.ok()
}

static TURNS: LazyLock<Mutex<BTreeMap<Route, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);
/// OpenSSH refuses some connections as soon as 10 have not logged in yet (`MaxStartups 10:30:100`),
/// including those of other clients.
const AT_ONCE: usize = 8;
