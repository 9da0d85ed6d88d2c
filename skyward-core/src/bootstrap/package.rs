//! The Python worker package that is embedded in this crate.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::spec::hex;

include!(concat!(env!("OUT_DIR"), "/worker_package.rs"));

/// The packages that the worker needs in addition to the standard library.
pub(super) const NEEDS: &[&str] = &["msgspec>=0.19,<1"];

/// The package's files by their paths, as JSON, and the digest of that JSON.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) digest: String,
    /// Shared by all machines that it is put on.
    pub(super) json: Bytes,
}

impl Package {
    /// The package that is embedded in this crate.
    pub(super) fn embedded() -> &'static Self {
        static PACKAGE: OnceLock<Package> = OnceLock::new();
        PACKAGE.get_or_init(|| Self::new(FILES))
    }

    /// A package of these files.
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let files: BTreeMap<_, _> = files.iter().copied().collect();
        // A map of texts always has a JSON form.
        let json = serde_json::to_vec(&files).unwrap_or_default();
        Self { digest: hex(&Sha256::digest(&json)[..10]), json: json.into() }
    }
}
