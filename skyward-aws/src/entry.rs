//! Lets this client in to the machines of a pool, also when its address changes: behind a provider's
//! shared address, with a VPN, or on a laptop that moves.

use std::fmt;

use ipnet::IpNet;
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::MachineId;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::address;
use crate::client::Clients;
use crate::network;
use crate::options::{Addressing, Options};
use crate::pool::Pool;
use crate::timing::{ADDRESS_AGAIN, ADDRESS_KEPT};

/// The address of this client that the security group of a pool allows.
#[derive(Debug, Default)]
pub(crate) struct Entry(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// None where the group allows something else, which the client does not change.
    allowed: Option<IpNet>,
    /// When the address was last looked up, and what came of it.
    looked: Option<(Instant, Result<Option<Change>>)>,
}

/// A change of the client's address, which the security group has followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    from: IpNet,
    to: IpNet,
}

impl Entry {
    /// Records the address of this client that the group allows now; none if its changes are not
    /// followed.
    pub(crate) async fn set(&self, clients: &Clients, options: &Options, group: &str, allowed: Option<IpNet>) {
        let mut state = self.0.lock().await;
        if let (Some(before), Some(now)) = (state.allowed, allowed) {
            leave(clients, options, group, before, now).await;
        }
        state.looked = allowed.map(|_| (Instant::now(), Ok(None)));
        state.allowed = allowed;
    }

    /// Looks up this client's address, and if it has changed, makes the security group allow the new
    /// one and no more the old one. The answer of a moment ago counts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`], temporary, when the address is not known or the group cannot be
    /// changed.
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    pub(crate) async fn look(&self, clients: &Clients, options: &Options, pool: &Pool) -> Result<Option<Change>> {
        let mut state = self.0.lock().await;
        let (Some(from), Some(shared)) = (state.allowed, pool.shared()) else { return Ok(None) };
        if let Some((looked, last)) = &state.looked
            && looked.elapsed() < if last.is_ok() { ADDRESS_KEPT } else { ADDRESS_AGAIN }
        {
            return last.clone();
        }
        let found = follow(clients, options, &shared.group, from).await;
        if let Ok(Some(change)) = &found {
            tracing::warn!(pool = %pool.id, group = shared.group, "{change}");
            state.allowed = Some(change.to);
        }
        state.looked = Some((Instant::now(), found.clone()));
        found
    }

    /// Refuses a launch where this client would not reach the machine.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`], temporary, when no machine that was reached before answers, and
    ///
    /// - machines of the pool are still there, or
    /// - the client's own address cannot be looked up or let in.
    pub(crate) async fn before_launch(&self, clients: &Clients, options: &Options, pool: &Pool) -> Result<()> {
        let Some(there) = pool.cut_off() else { return Ok(()) };
        let refused = |why: String| {
            Error::new(ErrorKind::Provider, format!("no machine is launched: this client reaches none of those {why}"))
                .temporary()
        };
        match self.look(clients, options, pool).await {
            Err(error) => Err(refused("that it had reached, and does not know its own address".to_owned())
                .with_source(error)
                .with_hint(
                    "check this host's network. Without the address service, name the networks that may log in: `.ssh_from([…])`",
                )),
            Ok(_) if there.is_empty() => Ok(()),
            Ok(_) => {
                let there: Vec<&str> = there.iter().map(MachineId::as_str).collect();
                Err(refused(format!("that the pool has: {}", there.join(", "))).with_hint(hint(options)))
            }
        }
    }
}

/// Makes the group allow the address that the client has now, in place of `from`.
async fn follow(clients: &Clients, options: &Options, group: &str, from: IpNet) -> Result<Option<Change>> {
    let to = address::of_client(&options.address_service).await?;
    if to == from {
        return Ok(None);
    }
    network::let_in(clients, group, options.ssh_port, &[to]).await.map_err(Error::temporary)?;
    leave(clients, options, group, from, to).await;
    Ok(Some(Change { from, to }))
}

/// Makes the group no longer allow the address that this client had before.
async fn leave(clients: &Clients, options: &Options, group: &str, before: IpNet, now: IpNet) {
    // A client with both families has two addresses at once.
    if before == now || before.addr().is_ipv4() != now.addr().is_ipv4() {
        return;
    }
    if let Err(error) = network::shut_out(clients, group, options.ssh_port, before).await {
        tracing::warn!(group, address = %before, %error, "the former address of this client may still log in");
    }
}

/// Adds to the error of a machine that does not answer what came of the look-up of the client's address,
/// and what to do.
pub(crate) fn explain(error: Error, looked: Result<Option<Change>>, options: &Options) -> Error {
    let error = match looked {
        Ok(None) => error,
        Ok(Some(change)) => error.with_context("address", change),
        Err(unknown) => error.with_context("address", unknown.message()),
    };
    error.with_hint(hint(options))
}

/// What to do about machines that do not answer.
fn hint(options: &Options) -> String {
    let port = options.ssh_port;
    let who = if options.bastion.is_some() {
        "check that the bastion is up, and that the machines let it in".to_owned()
    } else if let Some(group) = &options.security_group {
        format!("the security group {group} must allow port {port} from this client; the provider does not change it")
    } else if !options.ssh_from.is_empty() {
        let from = options.ssh_from.join(", ");
        format!("only {from} may log in; if this client's address is another one, name its network in `.ssh_from([…])`")
    } else if options.addressing == Addressing::Private {
        "this client must be in the network of the machines, by a VPN or peering, or use a bastion: `.bastion(…)`"
            .to_owned()
    } else {
        "the security group of the pool allows this client's address, and follows its changes. If machines are \
         reached from another address than that, name the networks that may log in: `.ssh_from([…])`"
            .to_owned()
    };
    format!("{who}. If a firewall or proxy blocks port {port}, use another one: `.ssh_port(…)`")
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.addr(), self.to.addr());
        write!(f, "this client's address changed from {from} to {to}; the security group now allows {to}")
    }
}

#[cfg(test)]
mod tests {
    use skyward_core::remote::ssh::Target;

    use super::*;

    #[test]
    fn the_hint_names_what_decides_who_may_log_in() {
        let with = |change: &dyn Fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            hint(&options)
        };
        let public = with(&|_| {});
        assert!(public.contains("follows its changes") && public.contains(".ssh_port("), "{public}");
        let named = with(&|options| options.ssh_from = vec!["10.0.0.0/8".to_owned()]);
        assert!(named.contains("10.0.0.0/8") && named.contains(".ssh_from("), "{named}");
        let group = with(&|options| options.security_group = Some("sg-1".to_owned()));
        assert!(group.contains("sg-1") && group.contains("port 22"), "{group}");
        let private = with(&|options| options.addressing = Addressing::Private);
        assert!(private.contains("VPN") && private.contains(".bastion("), "{private}");
        let bastion = with(&|options| options.bastion = Some(Target::new("gate")));
        assert!(bastion.contains("the bastion is up"), "{bastion}");
    }
}
