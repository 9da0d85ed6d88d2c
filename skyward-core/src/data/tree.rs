//! A data set that is listed and whose digests are known: what nodes get.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use tokio::task::spawn_blocking;

use super::digests::{cache_of_user, check, digests_of, open};
use super::listing::Listing;
use super::packs::{Pack, packs};
use super::source::{Data, cannot_read};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Check, Identity, Part, PartKind, manifest_of};

/// The files of a data set.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    /// The list that nodes get.
    manifest: Bytes,
    /// The files by their indices in the manifest; `None` for folders and links.
    files: Vec<Option<Listed>>,
}

#[derive(Debug)]
struct Listed {
    path: PathBuf,
    identity: Identity,
}

impl Tree {
    /// Lists a folder.
    ///
    /// # Errors
    ///
    /// As [`Listing::of`].
    pub(crate) async fn check(data: &Data) -> Result<()> {
        let data = data.clone();
        blocking(move || Listing::of(&data)).await.map(drop)
    }

    /// Lists a folder and reads the files whose digests are not known.
    ///
    /// # Errors
    ///
    /// As [`Listing::of`] and [`digests_of`].
    pub(crate) async fn of(data: &Data) -> Result<Self> {
        let data = data.clone();
        blocking(move || {
            let listing = Listing::of(&data)?;
            let mut digests = digests_of(&listing, cache_of_user().as_deref())?;
            let mut files = Vec::with_capacity(listing.parts.len());
            let mut parts = listing.parts;
            for (index, Part { path, kind }) in parts.iter_mut().enumerate() {
                files.push(None);
                if let PartKind::File { check, .. } = kind
                    && let (Check::Identity(identity), Some(digest)) = (&*check, digests.remove(&index))
                {
                    files[index] = Some(Listed { path: path.clone(), identity: *identity });
                    *check = Check::Digest(digest);
                }
            }
            let manifest = manifest_of(&parts)?;
            Ok(Self { root: listing.root, manifest, files })
        })
        .await
    }

    /// The list that nodes get.
    pub(crate) fn manifest(&self) -> Bytes {
        self.manifest.clone()
    }

    /// The bytes and the number of these files.
    pub(crate) fn sizes(&self, missing: &[u32]) -> (u64, u64) {
        let sizes = missing.iter().filter_map(|index| Some(self.file(*index)?.identity.size));
        sizes.fold((0, 0), |(bytes, files), size| (bytes + size, files + 1))
    }

    /// Cuts these files into what is sent in one message each.
    pub(crate) fn packs(&self, missing: Vec<u32>) -> impl Iterator<Item = Pack> + Send + use<'_> {
        packs(missing.into_iter().filter_map(|index| Some((index, self.file(index)?.identity.size))))
    }

    /// Reads the content of a pack. The call blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if a file is not the one any more that was listed; [`ErrorKind::Io`] if
    /// it cannot be read.
    pub(crate) fn read(&self, pack: &Pack) -> Result<Bytes> {
        let mut content = BytesMut::new();
        for span in &pack.spans {
            let Some(listed) = self.file(span.index) else { continue };
            let path = self.root.join(&listed.path);
            let file = open(&path, &listed.identity)?;
            let begin = content.len();
            content.resize(begin + span.length as usize, 0);
            file.read_exact_at(&mut content[begin..], span.offset).map_err(|error| cannot_read(&path, &error))?;
            check(&path, &file, &listed.identity)?;
        }
        Ok(content.freeze())
    }

    fn file(&self, index: u32) -> Option<&Listed> {
        self.files.get(index as usize)?.as_ref()
    }
}

/// Work on this host's files, on a thread where it may take its time.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| {
        let message = "the work on the files of a data set was given up";
        Err(Error::new(ErrorKind::Io, message).with_source(io::Error::other(error)))
    })
}
