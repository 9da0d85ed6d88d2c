//! The manifest of a commit: JSON, checked as what a node says is.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::claim::Owner;
use super::draft::{Draft, PartInfo, RankFiles};
use super::error::invalid;
use super::layout::SaveId;
use crate::error::Result;
use crate::files::{Check, MOST_ENTRIES, Part, PartKind, path_of};

/// An object of `commits`: a checkpoint, or without one a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    version: u64,
    /// The claim under which it was created: 32 hexadecimal digits.
    pub(super) claim: String,
    #[serde(flatten)]
    pub(super) owner: Owner,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) saved: Option<Saved>,
}

/// What was saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) save: SaveId,
    pub(super) step: i64,
    pub(super) attempt: String,
    pub(super) meta: String,
    #[serde(with = "listed")]
    pub(super) ranks: Vec<RankFiles>,
}

/// Why the bytes of a manifest cannot be used.
#[derive(Debug, PartialEq)]
pub(super) enum Unreadable {
    /// Another version has written it.
    Newer(u64),
    Broken(String),
}

impl Manifest {
    pub(super) fn new(claim: &str, owner: &Owner, saved: Option<Saved>) -> Self {
        Self { version: VERSION, claim: claim.to_owned(), owner: owner.clone(), saved }
    }

    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::ErrorKind::InvalidSpec) for a list of files that is too long.
    pub(super) fn encode(&self) -> Result<Bytes> {
        let json = serde_json::to_vec(self).map_err(|error| invalid(format!("the checkpoint is no JSON: {error}")))?;
        if json.len() as u64 <= LONGEST_MANIFEST {
            return Ok(json.into());
        }
        Err(invalid(format!(
            "the list of files of the checkpoint has {} bytes, and may have {LONGEST_MANIFEST}",
            json.len()
        ))
        .with_hint("save fewer files, with shorter names"))
    }

    /// The manifest, whose files are not checked yet.
    pub(super) fn decode(json: &[u8]) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        let broken = |error: serde_json::Error| Unreadable::Broken(format!("its manifest cannot be read: {error}"));
        let Versioned { version } = serde_json::from_slice(json).map_err(broken)?;
        if version != VERSION {
            return Err(Unreadable::Newer(version));
        }
        serde_json::from_slice(json).map_err(broken)
    }
}

impl From<&Draft> for Saved {
    fn from(draft: &Draft) -> Self {
        let Draft { save, step, attempt, meta, ranks, keep: _, spared: _ } = draft.clone();
        Self { save, step, attempt, meta, ranks }
    }
}

/// The version of the format.
pub(super) const VERSION: u64 = 1;
/// The most bytes of a manifest.
pub(super) const LONGEST_MANIFEST: u64 = 256 << 20;

/// The files of ranks as JSON.
mod listed {
    use serde::{Deserializer, Serializer, de};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct ListedRank {
        rank: u32,
        files: Vec<Listed>,
        parts: Vec<PartInfo>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Listed {
        File { path: Name, size: u64, sha256: String, executable: bool },
        Folder { path: Name },
        Link { path: Name, target: Name },
    }

    /// A path: text, or the bytes of one that is none.
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Name {
        Text(String),
        Bytes { hex: String },
    }

    impl Name {
        fn new(path: &Path) -> Self {
            match path.to_str() {
                Some(text) => Self::Text(text.to_owned()),
                None => Self::Bytes { hex: crate::spec::hex(path.as_os_str().as_bytes()) },
            }
        }

        fn path(self) -> Result<PathBuf, String> {
            match self {
                Self::Text(text) => Ok(text.into()),
                Self::Bytes { hex } => {
                    let bytes = base16ct::lower::decode_vec(&hex);
                    bytes.map(|bytes| path_of(&bytes)).map_err(|_| format!("`{hex}` is not hexadecimal"))
                }
            }
        }
    }

    pub(super) fn serialize<S: Serializer>(ranks: &[RankFiles], serializer: S) -> Result<S::Ok, S::Error> {
        let file = |Part { path, kind }: &Part| match kind {
            PartKind::File { size, executable, check } => {
                let sha256 = match check {
                    Check::Digest(digest) => digest.clone(),
                    Check::Identity(_) => String::new(),
                };
                Listed::File { path: Name::new(path), size: *size, sha256, executable: *executable }
            }
            PartKind::Folder => Listed::Folder { path: Name::new(path) },
            PartKind::Link(target) => Listed::Link { path: Name::new(path), target: Name::new(target) },
        };
        let rank = |RankFiles { rank, files, parts }: &RankFiles| ListedRank {
            rank: *rank,
            files: files.iter().map(file).collect(),
            parts: parts.clone(),
        };
        serializer.collect_seq(ranks.iter().map(rank))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RankFiles>, D::Error> {
        let file = |listed| {
            Ok(match listed {
                Listed::File { path, size, sha256, executable } => {
                    let kind = PartKind::File { size, executable, check: Check::Digest(sha256) };
                    Part { path: path.path()?, kind }
                }
                Listed::Folder { path } => Part { path: path.path()?, kind: PartKind::Folder },
                Listed::Link { path, target } => Part { path: path.path()?, kind: PartKind::Link(target.path()?) },
            })
        };
        let rank = |ListedRank { rank, files, parts }| {
            if files.len() > MOST_ENTRIES {
                return Err(format!("rank {rank} has {} files, and may have {MOST_ENTRIES}", files.len()));
            }
            Ok(RankFiles { rank, files: files.into_iter().map(file).collect::<Result<_, String>>()?, parts })
        };
        let listed = Vec::<ListedRank>::deserialize(deserializer)?;
        listed.into_iter().map(rank).collect::<Result<_, String>>().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::checkpoint::tests::draft;

    fn manifest(change: impl FnOnce(&mut Draft)) -> Manifest {
        let mut draft = draft(&SaveId::random(), -3, 2, None);
        change(&mut draft);
        let owner = Owner { pool: "a pool".into(), host: "a host".into() };
        Manifest::new("c", &owner, Some(Saved::from(&draft)))
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_with_any_names() {
        let written = manifest(|draft| {
            draft.ranks[0].files[3].path = OsStr::from_bytes(b"state/\xff\n\"").into();
            let kind = PartKind::Link(OsStr::from_bytes(b"state/\xff\n\"").into());
            draft.ranks[0].files.push(Part { path: "link".into(), kind });
        });
        let json = written.encode().unwrap();
        assert!(json.starts_with(b"{\"version\":1,") && std::str::from_utf8(&json).unwrap().contains("\"hex\":"));
        assert_eq!(Manifest::decode(&json).unwrap(), written);
        let claim = Manifest { saved: None, ..written };
        assert_eq!(Manifest::decode(&claim.encode().unwrap()).unwrap(), claim);
    }

    #[test]
    fn bytes_that_are_no_manifest_and_other_versions_are_refused() {
        let good = String::from_utf8(manifest(|_| {}).encode().unwrap().into()).unwrap();
        for version in ["0", "2", "99999"] {
            let other = good.replacen("\"version\":1", &format!("\"version\":{version}"), 1);
            assert_eq!(Manifest::decode(other.as_bytes()), Err(Unreadable::Newer(version.parse().unwrap())));
        }
        let broken = [
            String::new(),
            "{}".into(),
            "[]".into(),
            good[..good.len() - 1].to_owned(),
            good.replacen("\"kind\":\"folder\"", "\"kind\":\"device\"", 1),
            good.replacen("\"path\":\"shared\"", "\"path\":{\"hex\":\"xx\"}", 1),
            good.replacen("\"save\":\"", "\"save\":\"../", 1),
        ];
        for json in broken {
            assert!(matches!(Manifest::decode(json.as_bytes()), Err(Unreadable::Broken(_))), "{json}");
        }
    }
}
