//! Reads user data as EC2 passes it on, for cloud-init. No I/O.

use std::io::Read as _;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;

/// A cloud-config. A machine of the loopback EC2 refuses all other keys.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CloudConfig {
    pub(crate) ssh_deletekeys: Option<bool>,
    pub(crate) ssh_keys: Option<HostKey>,
    pub(crate) ssh_authorized_keys: Vec<String>,
    pub(crate) disable_root: Option<bool>,
    pub(crate) ssh_pwauth: Option<bool>,
    pub(crate) package_update: Option<bool>,
    pub(crate) write_files: Vec<WriteFile>,
    pub(crate) bootcmd: Vec<Words>,
    pub(crate) runcmd: Vec<Words>,
}

/// The machine's key as an SSH server.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostKey {
    pub(crate) ed25519_private: String,
    pub(crate) ed25519_public: String,
}

/// A file to write.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    pub(crate) path: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    encoding: Option<String>,
    #[serde(default)]
    pub(crate) permissions: Option<String>,
    #[serde(default)]
    pub(crate) owner: Option<String>,
    /// Whether the file is written after the users have been made.
    #[serde(default)]
    pub(crate) defer: bool,
}

/// A command: a line for a shell, or a program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Words {
    Line(String),
    List(Vec<String>),
}

impl CloudConfig {
    /// Reads user data in the form of EC2: base64 of a text that may be compressed. Empty user data
    /// is an empty cloud-config.
    pub(crate) fn read(user_data: &str) -> Result<Self> {
        let text = decode(user_data)?;
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let (header, body) = text.split_once('\n').unwrap_or((&text, ""));
        if header.trim_end() != "#cloud-config" {
            bail!(
                "the user data begins with {header:?}; the loopback EC2 supports only what begins with \"#cloud-config\""
            );
        }
        // YAML includes JSON, and JSON is what is read here.
        serde_json::from_str(body).context("the cloud-config, which is read as JSON, is not understood")
    }
}

/// User data as text.
pub(crate) fn decode(user_data: &str) -> Result<String> {
    let mut bytes = STANDARD.decode(user_data.trim()).context("the user data is no base64")?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let reader = MultiGzDecoder::new(bytes.as_slice());
        reader.take(MOST).read_to_end(&mut unpacked).context("the user data is broken gzip")?;
        bytes = unpacked;
    }
    String::from_utf8(bytes).context("the user data is no text")
}

impl WriteFile {
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        match self.encoding.as_deref() {
            None | Some("" | "none" | "text/plain") => Ok(self.content.clone().into_bytes()),
            Some("b64" | "base64") => {
                STANDARD.decode(&self.content).with_context(|| format!("the content of {} is no base64", self.path))
            }
            Some(other) => bail!("the encoding {other:?} of {} is not understood", self.path),
        }
    }
}

/// Bytes of user data when it is unpacked; EC2 takes 16 KiB of it packed.
const MOST: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_config_is_read_plain_and_compressed() {
        let text = "#cloud-config\n{\"bootcmd\": [\"a b\", [\"c\", \"d e\"]], \"write_files\": \
            [{\"path\": \"/x\", \"content\": \"aGk=\", \"encoding\": \"b64\"}]}";
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text.as_bytes()).unwrap();
        for bytes in [text.as_bytes().to_vec(), gzip.finish().unwrap()] {
            let config = CloudConfig::read(&STANDARD.encode(bytes)).unwrap();
            assert_eq!(config.bootcmd, [Words::Line("a b".into()), Words::List(vec!["c".into(), "d e".into()])]);
            assert_eq!(config.write_files[0].bytes().unwrap(), b"hi");
        }
        assert_eq!(CloudConfig::read("").unwrap(), CloudConfig::default());
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let read = |text: &str| format!("{:#}", CloudConfig::read(&STANDARD.encode(text)).unwrap_err());
        assert!(read("#cloud-config\n{\"run_cmd\": []}").contains("run_cmd"));
        assert!(read("#!/bin/sh\ntrue").contains("#!/bin/sh"));
        assert!(read("#cloud-config\nruncmd:\n - true").contains("JSON"));
        assert!(format!("{:#}", CloudConfig::read("no base64!").unwrap_err()).contains("base64"));
    }
}
