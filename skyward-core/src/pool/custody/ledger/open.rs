//! The ledger file of a pool, as its owner writes it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::lock::Locked;
use super::owner::Owner;
use super::parts::PartRecord;
use super::record::{Head, Intent, Record, VERSION, now};
use super::{Ledger, NEW, cannot};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, MachineId, MachineNumber, PoolId};
use crate::provider::{Machine, Provider};

/// The records that a client writes about a pool that it owns. Clones share one file, whose lock is
/// released when the last clone is dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolLedger(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    New,
    Open(Open),
    /// The whole pool is gone: nothing is recorded any more.
    Forgotten,
}

#[derive(Debug)]
pub(super) struct Open {
    path: PathBuf,
    pub(super) file: Locked,
    /// Whether the last record may be incomplete.
    torn: bool,
}

impl PoolLedger {
    /// Puts the pool on record, before anything is requested from the provider for it. When this
    /// has returned, every later client of this user can find the pool.
    ///
    /// # Cancel safety
    ///
    /// If [`forget`](Self::forget) comes first, no file is created. Otherwise the file is created
    /// nevertheless, and `forget` removes it.
    pub(crate) async fn open(&self, ledger: Ledger, pool: &PoolId, provider: &dyn Provider) -> Result<()> {
        let parts = PartRecord::all_of(provider).await;
        let identity = if parts.is_empty() { Some(provider.identity().await?) } else { None };
        let head = Head {
            version: VERSION,
            pool: pool.clone(),
            provider: provider.name().to_owned(),
            identity,
            parts,
            owner: Owner::this(),
            at: now(),
        };
        self.blocking(move |state| match state {
            State::New => {
                *state = State::Open(Open::create(&ledger, head)?);
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Closed, "the pool ended before it was started")),
        })
        .await
    }

    /// Records machines that are about to be requested.
    ///
    /// # Cancel safety
    ///
    /// The machines are recorded nevertheless.
    pub(crate) async fn intend(&self, launches: Vec<(LaunchId, MachineNumber)>) -> Result<()> {
        let at = now();
        let records =
            launches.into_iter().map(|(launch, number)| Record::Intent(Intent { launch, number, at })).collect();
        self.append(records, true).await
    }

    /// Records a machine that the provider has returned.
    ///
    /// # Cancel safety
    ///
    /// The machine is recorded nevertheless.
    pub(crate) async fn fact(&self, machine: Machine) -> Result<()> {
        // There is no need to wait for the disk: the death of the client does not lose what was
        // written, and after the death of the host the provider lists what was intended.
        self.append(vec![Record::Fact { machine, at: now() }], false).await
    }

    /// Records that machines are confirmed gone while the pool lives on.
    ///
    /// # Cancel safety
    ///
    /// The machines are recorded nevertheless.
    pub(crate) async fn gone(&self, machines: Vec<MachineId>) -> Result<()> {
        if machines.is_empty() {
            return Ok(());
        }
        let at = now();
        self.append(machines.into_iter().map(|machine| Record::Gone { machine, at }).collect(), false).await
    }

    /// Removes the pool from the ledger, because the whole pool is confirmed gone. An error is only
    /// logged, because nothing is left to be ended.
    pub(crate) async fn forget(&self) {
        let forgotten = self.blocking(|state| match std::mem::replace(state, State::Forgotten) {
            State::Open(open) => match std::fs::remove_file(&open.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot("remove", &open.path, error)),
                _ => Ok(()),
            },
            _ => Ok(()),
        });
        if let Err(error) = forgotten.await {
            tracing::warn!(error = error.summary(), "a pool that is gone stays in the ledger until the next `reap`");
        }
    }

    async fn append(&self, records: Vec<Record>, durable: bool) -> Result<()> {
        self.blocking(move |state| match state {
            State::Open(open) => open.append(records, durable).map_err(|error| cannot("write to", &open.path, error)),
            _ => Err(Error::new(ErrorKind::Closed, "the pool is not in the ledger any more")),
        })
        .await
    }

    async fn blocking(&self, work: impl FnOnce(&mut State) -> Result<()> + Send + 'static) -> Result<()> {
        let state = Arc::clone(&self.0);
        super::blocking(move || work(&mut state.lock().unwrap_or_else(PoisonError::into_inner))).await
    }
}

impl Open {
    /// Creates the file under a temporary name, locks it, and renames it, so that no process sees
    /// the file without its lock and its first record.
    pub(super) fn create(ledger: &Ledger, head: Head) -> Result<Self> {
        ledger.make()?;
        let path = ledger.path(&head.pool);
        let new = path.with_extension(NEW);
        let file = File::options().append(true).create_new(true).mode(0o600).open(&new);
        let file = file.map_err(|error| cannot("write to", &path, error))?;
        let make = || {
            let mut open = Self { path: path.clone(), file: Locked::wait(file)?, torn: false };
            open.append(vec![Record::Pool(head)], true)?;
            std::fs::rename(&new, &path)?;
            File::open(&ledger.folder)?.sync_all()?;
            Ok(open)
        };
        make().map_err(|error| {
            for path in [&new, &path] {
                // If a file stays, nothing was started for its pool.
                let _ = std::fs::remove_file(path);
            }
            cannot("write to", &path, error)
        })
    }

    pub(super) fn append(&mut self, records: Vec<Record>, durable: bool) -> io::Result<()> {
        // An incomplete record must not spoil the records after it.
        let mut lines = if self.torn { vec![b'\n'] } else { Vec::new() };
        for record in records {
            record.write_line(&mut lines)?;
        }
        self.torn = true;
        (&*self.file).write_all(&lines)?;
        self.torn = false;
        if durable { self.file.sync_data() } else { Ok(()) }
    }
}
