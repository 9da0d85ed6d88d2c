//! Keys to log in with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, decode_secret_key};

use crate::error::{Error, ErrorKind, Result};
use crate::spec::Secret;

/// A key to log in with: from a file, from memory, or all keys of an SSH agent.
///
/// Files and memory may contain Ed25519 and ECDSA keys. An agent may hold others, such as RSA keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Key(pub(super) Source);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    File { path: PathBuf, passphrase: Option<Secret> },
    Memory { pem: Secret, passphrase: Option<Secret> },
    Agent { socket: Option<PathBuf> },
}

impl Key {
    /// The private key in this file, as `ssh-keygen` writes it. A leading `~` stands for the
    /// client's home folder.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File { path: path.into(), passphrase: None })
    }

    /// The private key in this text, which has the format of a private key's file.
    pub fn memory(pem: impl Into<Secret>) -> Self {
        Self(Source::Memory { pem: pem.into(), passphrase: None })
    }

    /// All keys of the agent that `SSH_AUTH_SOCK` names.
    pub fn agent() -> Self {
        Self(Source::Agent { socket: None })
    }

    /// All keys of the agent that listens on this socket.
    pub fn agent_at(socket: impl Into<PathBuf>) -> Self {
        Self(Source::Agent { socket: Some(socket.into()) })
    }

    /// Sets the passphrase that decrypts the key. An agent needs none.
    #[must_use]
    pub fn passphrase(mut self, secret: impl Into<Secret>) -> Self {
        match &mut self.0 {
            Source::File { passphrase, .. } | Source::Memory { passphrase, .. } => *passphrase = Some(secret.into()),
            Source::Agent { .. } => {}
        }
        self
    }

    /// The keys to try by default: those of the agent, and the usual files that exist.
    pub(super) fn usual() -> Vec<Self> {
        let agent = std::env::var_os("SSH_AUTH_SOCK").map(|_| Self::agent());
        let files = ["~/.ssh/id_ed25519", "~/.ssh/id_ecdsa"].into_iter().filter(|path| home(Path::new(path)).is_file());
        agent.into_iter().chain(files.map(Self::file)).collect()
    }
}

/// A new Ed25519 key pair, for the login of a client or as the host key of a host.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::remote::ssh::{HostKeys, Key, KeyPair};
///
/// let client = KeyPair::generate()?;
/// let key = Key::memory(client.private().clone());
/// assert!(client.public().starts_with("ssh-ed25519 "));
/// let trusted = HostKeys::pinned(KeyPair::generate()?.public());
/// # let _ = (key, trusted);
/// # Ok::<(), skyward_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct KeyPair {
    private: Secret,
    public: String,
}

impl KeyPair {
    /// Generates a key pair from the system's random numbers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] when the system has no random numbers.
    pub fn generate() -> Result<Self> {
        let failed = |why: String| Error::new(ErrorKind::Io, format!("cannot generate an Ed25519 key: {why}"));
        let mut seed = [0_u8; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| failed("the system has no random numbers".to_owned()))?;
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
        let private = key.to_openssh(LineEnding::LF).map_err(|error| failed(error.to_string()))?;
        let public = key.public_key().to_openssh().map_err(|error| failed(error.to_string()))?;
        Ok(Self { private: private.as_str().into(), public })
    }

    /// The text of the private key's file.
    pub fn private(&self) -> &Secret {
        &self.private
    }

    /// The public key in one line, `ssh-ed25519 AAAA…`.
    pub fn public(&self) -> &str {
        &self.public
    }
}

/// Reads and decrypts the key in a file.
pub(super) async fn read_file(path: &Path, passphrase: Option<&Secret>) -> Result<Arc<PrivateKey>> {
    let path = home(path);
    let name = path.display().to_string();
    let pem = tokio::fs::read_to_string(&path)
        .await
        .map_err(|error| Error::new(ErrorKind::InvalidSpec, format!("cannot read the key {name}: {error}")))?;
    decode(pem.into(), passphrase.cloned(), name).await
}

/// Decrypts a key; `name` is its name in messages. Decryption takes a tenth of a second by design,
/// so it runs in a thread of its own.
pub(super) async fn decode(pem: Secret, passphrase: Option<Secret>, name: String) -> Result<Arc<PrivateKey>> {
    let decode = move || decode_now(&pem, passphrase.as_ref(), &name).map(Arc::new);
    tokio::task::spawn_blocking(decode).await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::InvalidSpec, "reading a key was interrupted").with_source(error))
    })
}

/// The path with the client's home folder in place of a leading `~`.
pub(super) fn home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_path_buf(),
    }
}

fn decode_now(pem: &Secret, passphrase: Option<&Secret>, name: &str) -> Result<PrivateKey> {
    let failed = |why: &str, hint: &str| {
        Error::new(ErrorKind::InvalidSpec, format!("cannot use the key {name}: {why}")).with_hint(hint)
    };
    if pem.expose().trim_start().starts_with("ssh-") {
        return Err(failed("it is a public key", "name the private one: the file without `.pub`"));
    }
    let decoded = decode_secret_key(pem.expose(), passphrase.map(Secret::expose));
    let new = "generate one: `ssh-keygen -t ed25519`";
    // Errors of the decoder are not passed on: they may quote the key.
    let key = match decoded {
        Ok(key) if key.is_encrypted() => Err(failed("it is encrypted", "give its passphrase: `.passphrase(…)`")),
        Ok(key) => Ok(key),
        Err(russh::keys::Error::KeyIsEncrypted) => {
            Err(failed("it is encrypted", "give its passphrase: `.passphrase(…)`, or add it to an agent: `ssh-add`"))
        }
        Err(russh::keys::Error::UnsupportedKeyType { key_type_string, .. }) => {
            Err(failed(&format!("keys of type {key_type_string} are not supported"), new))
        }
        Err(_) if passphrase.is_some() => Err(failed("the passphrase does not decrypt it", "check the passphrase")),
        Err(_) => Err(failed("it is not a readable private key", new)),
    }?;
    if key.algorithm().is_rsa() {
        return Err(failed(
            "RSA keys can only be used through an agent",
            "generate an Ed25519 key: `ssh-keygen -t ed25519`; or add the key to an agent: `ssh-add`",
        ));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_of_an_unusable_key_says_why_and_quotes_nothing_of_the_key() {
        let public = decode("ssh-ed25519 AAAA me".into(), None, "key".into()).await.unwrap_err();
        assert!(public.message().contains("it is a public key"), "{public}");
        let text = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----\n";
        let broken = decode(text.into(), None, "key".into()).await.unwrap_err();
        assert!(!format!("{broken:?}").contains("c2VjcmV0"), "{broken:?}");
        let gone = read_file(Path::new("/no/such/key"), None).await.unwrap_err();
        assert!(gone.message().contains("/no/such/key"), "{gone}");
    }

    #[tokio::test]
    async fn a_generated_key_is_usable_unique_and_not_shown() {
        let pair = KeyPair::generate().unwrap();
        let read = decode(pair.private().clone(), None, "new".into()).await.unwrap();
        assert_eq!(read.public_key().to_openssh().unwrap(), pair.public());
        assert_ne!(KeyPair::generate().unwrap().public(), pair.public());
        assert!(!format!("{pair:?}").contains("PRIVATE KEY"), "{pair:?}");
    }

    #[test]
    fn keys_and_passphrases_are_not_shown() {
        let key = Key::memory("PRIVATE").passphrase("hunter2");
        assert!(!format!("{key:?}").contains("PRIVATE") && !format!("{key:?}").contains("hunter2"));
    }
}
