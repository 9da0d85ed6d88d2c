//! Connections to bastions, shared by all hosts behind them.

use std::sync::{Arc, LazyLock, Mutex, Weak};

use tokio::runtime::{Handle, Id};

use super::target::Target;
use super::{Host, lock};

/// The nearest bastion of a target, connected to through those before it; none where the target is
/// reached directly.
///
/// Hosts share a bastion if all of its settings are the same, including its keys and the trusted
/// host keys. It is closed with the last host that uses it.
pub(super) fn nearest(target: &Target) -> Option<Arc<Host>> {
    target.way().into_iter().fold(None, |near, hop| Some(shared(near, hop)))
}

/// A bastion in use.
struct Bastion {
    host: Weak<Host>,
    /// The runtime that its connection lives in. A blocked runtime delays only its own tasks.
    runtime: Option<Id>,
}

fn shared(near: Option<Arc<Host>>, hop: Target) -> Arc<Host> {
    let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
    let mut all = lock(&BASTIONS);
    all.retain(|bastion| bastion.host.strong_count() > 0);
    let is_same = |host: &Arc<Host>| {
        let there = host.near.get().and_then(Option::as_ref).map(Arc::as_ptr);
        host.target == hop && there == near.as_ref().map(Arc::as_ptr)
    };
    let mut here = all.iter().filter(|bastion| bastion.runtime == runtime).filter_map(|one| one.host.upgrade());
    if let Some(host) = here.find(is_same) {
        return host;
    }
    let host = Arc::new(Host::new(hop));
    // Set before others can see the host.
    let _ = host.near.set(near);
    all.push(Bastion { host: Arc::downgrade(&host), runtime });
    host
}

static BASTIONS: LazyLock<Mutex<Vec<Bastion>>> = LazyLock::new(Mutex::default);
