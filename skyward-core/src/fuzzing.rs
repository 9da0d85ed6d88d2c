//! Checks of all decoders that must hold for any bytes: no decoder panics, and a value that was
//! read, written and read again is the same.
//!
//! The fuzz targets in `fuzz/` call these functions. They are built with `--cfg fuzzing`, without
//! which this module is not part of the library. Ordinary tests run the checks too, over the corpus
//! in `fuzz/corpus` and over random changes to it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a fuzz target reports a failed check by a panic")]

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::payload::metadata::Metadata;
use crate::payload::{Tensor, value};
use crate::pool::LedgerPage;
use crate::spec::Image;
use crate::worker::calls::FromCaller;
use crate::worker::codec::{Decoder, Frame};
use crate::worker::message::{FromAgent, FromWorker};

/// A check of one decoder.
pub type Check = fn(&[u8]);

/// All checks, with the name of their fuzz target and corpus.
pub const ALL: [(&str, Check); 5] =
    [("frames", frames), ("messages", messages), ("values", values), ("records", records), ("metadata", metadata)];

/// Frames: the decoder finds the same frames in whatever pieces the bytes arrive, and a frame is
/// written as it was read. The first byte sets the size of the pieces.
pub fn frames(data: &[u8]) {
    let Some((piece, stream)) = data.split_first() else { return };
    let whole = cut(stream, stream.len().max(1));
    assert_eq!(whole, cut(stream, usize::from(*piece) + 1), "the size of the pieces changes the frames");
    let mut written = Vec::new();
    for frame in &whole.0 {
        written.extend_from_slice(&Frame::prefix(&frame.head, frame.body.len()).unwrap());
        written.extend_from_slice(&frame.body);
    }
    assert!(stream.starts_with(&written), "frames are not written as they were read");
}

/// The frames of a stream, and whether decoding ended with an error.
fn cut(stream: &[u8], piece: usize) -> (Vec<Frame>, bool) {
    let mut decoder = Decoder::new(MOST);
    let mut frames = Vec::new();
    for piece in stream.chunks(piece) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

/// Messages of agents and workers: further elements after those of a message change nothing. The
/// first byte is the length of the head, in units of four bytes.
pub fn messages(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let (head, body) = rest.split_at(rest.len().min(usize::from(*length) * 4));
    let frame = |more: &[u8]| Frame { head: [head, more].concat().into(), body: Bytes::copy_from_slice(body) };
    if let Ok(message) = FromAgent::decode(frame(b"")) {
        let again = FromAgent::decode(frame(b"\x01\xc0")).unwrap();
        // Compared as text, because NaN, which a grace may be, is not equal to itself.
        assert_eq!(format!("{message:?}"), format!("{again:?}"));
    }
    if let Ok(message) = FromWorker::decode(frame(b"")) {
        let again = FromWorker::decode(frame(b"\x01\xc0")).unwrap();
        assert_eq!(format!("{message:?}"), format!("{again:?}"));
        // Errors show this name.
        if let FromWorker::Failure { failure, .. } = &message {
            let _ = failure.qualified_type();
        }
    }
    if let Ok(message) = FromCaller::decode(frame(b"")) {
        let again = FromCaller::decode(frame(b"\x01\xc0")).unwrap();
        assert_eq!(format!("{message:?}"), format!("{again:?}"));
    }
}

/// Values: a value that can be read as a type is the same after it was written and read again.
pub fn values(data: &[u8]) {
    let wire = Bytes::copy_from_slice(data);
    round::<serde_json::Value>(&wire);
    round::<Vec<u8>>(&wire);
    round::<Bytes>(&wire);
    round::<Tensor>(&wire);
    round::<Vec<f32>>(&wire);
    round::<Vec<Vec<f64>>>(&wire);
    round::<[i64; 3]>(&wire);
    round::<f64>(&wire);
    round::<String>(&wire);
    round::<Option<Vec<bool>>>(&wire);
    round::<(u8, char, ())>(&wire);
    round::<BTreeMap<String, u64>>(&wire);
    round::<BTreeMap<i64, Vec<u16>>>(&wire);
    round::<Report>(&wire);
    #[cfg(feature = "ndarray")]
    round::<value::Array<f32, ndarray::Ix2>>(&wire);
}

fn round<T: Serialize + DeserializeOwned + 'static>(wire: &Bytes) {
    let Ok(read) = value::decode::<T>(wire) else { return };
    let written = write(&read);
    let again: T = value::decode(&written).unwrap();
    assert_eq!(written, write(&again), "{} is not written as it was read", std::any::type_name::<T>());
}

fn write<T: Serialize>(value: &T) -> Bytes {
    let mut buffer = Vec::new();
    value::encode_into(&mut buffer, value).unwrap();
    buffer.into()
}

/// A result as a payload might return it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
struct Report {
    name: String,
    loss: Vec<f64>,
    best: Option<Box<Report>>,
    outcome: Outcome,
    weights: Option<Tensor>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
enum Outcome {
    #[default]
    Finished,
    Stopped(u32),
    Diverged {
        epoch: i32,
    },
}

impl Default for Report {
    fn default() -> Self {
        Self { name: String::new(), loss: Vec::new(), best: None, outcome: Outcome::Finished, weights: None }
    }
}

/// Lines of the ledger, both unchanged and with corrected checksums.
pub fn records(data: &[u8]) {
    LedgerPage::check(data);
}

/// A payload's metadata: a new block that is written from the metadata reads as the same metadata.
pub fn metadata(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(read) = Metadata::read(&text) else { return };
    let _ = read.merge_into(Image::new());
    let mut lines =
        vec![format!("dependencies = [{}]", read.dependencies.iter().map(|one| quoted(one)).collect::<String>())];
    lines.extend(
        read.requires_python.iter().map(|bound| format!("requires-python = {}", quoted(bound).trim_end_matches(", "))),
    );
    if !read.uv.is_empty() {
        let tool = toml::Table::from_iter([("uv".to_owned(), read.uv.table().clone().into())]);
        let tool = toml::Table::from_iter([("tool".to_owned(), tool.into())]).to_string();
        lines.extend(tool.lines().map(str::to_owned));
    }
    let block = format!("# /// script\n# {}\n# ///\n", lines.join("\n# "));
    assert_eq!(Metadata::read(&block).unwrap(), read, "{block}");
}

/// The text as a TOML string, with a comma.
fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\", ")
}

/// The largest body of a frame.
const MOST: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;

    /// The committed corpus of this check.
    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
    }

    #[test]
    fn every_check_holds_for_its_corpus() {
        for (name, check) in ALL {
            let corpus = corpus(name);
            assert!(corpus.len() > 3, "{name}");
            corpus.iter().for_each(|data| check(data));
        }
    }

    /// A seed with some bytes replaced, and possibly truncated.
    fn changed(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
        let change = (any::<Index>(), prop_oneof![any::<u8>(), select(vec![0, 1, 0x7f, 0x80, 0xc7, 0xdd, 0xdf, 0xff])]);
        (select(seeds), prop::collection::vec(change, 0..8), any::<Index>(), any::<bool>()).prop_map(
            |(mut data, changes, end, whole)| {
                for (at, byte) in changes {
                    if !data.is_empty() {
                        let at = at.index(data.len());
                        data[at] = byte;
                    }
                }
                if !whole {
                    data.truncate(end.index(data.len() + 1));
                }
                data
            },
        )
    }

    #[test]
    fn every_check_holds_for_changed_seeds_and_random_bytes() {
        for (name, check) in ALL {
            let bytes = prop_oneof![4 => changed(corpus(name)), 1 => prop::collection::vec(any::<u8>(), 0..200)];
            let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
            runner
                .run(&bytes, |data| {
                    check(&data);
                    Ok(())
                })
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
