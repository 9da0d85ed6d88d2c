//! Whether a host is the expected one: compares its known keys with what it presents.

use std::time::{SystemTime, UNIX_EPOCH};

use russh::keys::{Algorithm, Certificate, EcdsaCurve, HashAlg, PublicKey, PublicKeyOrCertificate};

use super::host_keys::{HostKeys, Source};
use super::key::home;
use super::known_hosts::{self, Role};
use super::target::Target;
use crate::error::{Error, ErrorKind, Result};

/// What is known of a host's keys.
#[derive(Debug, Clone)]
pub(super) struct Trust {
    /// The host, for messages.
    host: String,
    /// Its name alone, as in a certificate.
    address: String,
    known: Vec<Known>,
    /// The files and other sources of known keys.
    sources: Vec<String>,
}

#[derive(Debug, Clone)]
struct Known {
    role: Role,
    key: Identity,
    origin: String,
}

#[derive(Debug, Clone)]
enum Identity {
    Key(PublicKey),
    Fingerprint(String),
}

/// What a host presents is not what is expected.
#[derive(Debug)]
pub(super) struct Refused {
    /// [`ErrorKind::HostKey`].
    pub(super) error: Error,
    /// The presented key, where another key of the host may be the expected one.
    pub(super) other: Option<Box<PublicKey>>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, other: None }
    }
}

impl Trust {
    /// Reads what is known of a host.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for an invalid pinned key or a file that cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Only reads.
    pub(super) async fn of(target: &Target) -> Result<Self> {
        let HostKeys { sources } = &target.host_keys;
        let mut trust = Self {
            host: target.to_string(),
            address: target.address.to_lowercase(),
            known: Vec::new(),
            sources: Vec::new(),
        };
        for source in sources {
            match source {
                Source::Pinned(text) => {
                    trust.known.push(Known { role: Role::Own, key: pinned(text)?, origin: "pinned".into() });
                    trust.sources.push("a pinned key".into());
                }
                Source::File(path, required) => {
                    let path = home(path);
                    match tokio::fs::read(&path).await {
                        // Comments may be in any encoding.
                        Ok(text) => {
                            trust.add_file(&path.display().to_string(), &String::from_utf8_lossy(&text), target)
                        }
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !required => {}
                        Err(error) => {
                            let message = format!("cannot read the known hosts {}: {error}", path.display());
                            return Err(Error::new(ErrorKind::InvalidSpec, message));
                        }
                    }
                    trust.sources.push(path.display().to_string());
                }
            }
        }
        Ok(trust)
    }

    /// The algorithms to request: first those of the known keys, so that the host presents a key
    /// that can be compared; then the others, so that an error can name an unknown key. Algorithms
    /// of keys that the host has presented already are left out.
    pub(super) fn algorithms(&self, shown: &[PublicKey]) -> Vec<Algorithm> {
        let own = self.known.iter().filter(|known| known.role == Role::Own);
        let known: Vec<_> = own.filter_map(|known| known.key.algorithm()).collect();
        let (mut algorithms, others): (Vec<_>, Vec<_>) =
            usable().into_iter().partition(|usable| known.iter().any(|known| is_of(usable, known)));
        algorithms.extend(others);
        algorithms.retain(|usable| !shown.iter().any(|shown| is_of(usable, &shown.algorithm())));
        algorithms
    }

    /// Whether another key of the host may be the expected one, although this one is not: the type
    /// of a fingerprint's key is unknown.
    fn wants_another(&self) -> bool {
        self.with_role(Role::Own).any(|known| known.key.algorithm().is_none())
    }

    /// The algorithms of certificates; none where no authority is known.
    pub(super) fn certificate_algorithms(&self) -> Vec<Algorithm> {
        if self.known.iter().any(|known| known.role == Role::Authority) { usable().to_vec() } else { Vec::new() }
    }

    /// Whether the host presents what is expected.
    ///
    /// # Errors
    ///
    /// With both fingerprints and the source of the expected one.
    pub(super) fn check(&self, presented: &PublicKeyOrCertificate) -> Result<(), Refused> {
        match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => self.check_key(key),
            PublicKeyOrCertificate::Certificate(certificate) => Ok(self.check_certificate(certificate)?),
        }
    }

    fn check_key(&self, key: &PublicKey) -> Result<(), Refused> {
        self.check_revoked(key)?;
        let own: Vec<_> = self.with_role(Role::Own).collect();
        if own.iter().any(|known| known.key.is(key)) {
            return Ok(());
        }
        if own.is_empty() {
            return Err(self.unknown(key).into());
        }
        let error = self.mismatch(key, &own);
        Err(Refused { error, other: self.wants_another().then(|| Box::new(key.clone())) })
    }

    fn check_certificate(&self, certificate: &Certificate) -> Result<()> {
        let key = PublicKey::from(certificate.public_key().clone());
        let authority = PublicKey::from(certificate.signature_key().clone());
        self.check_revoked(&key)?;
        self.check_revoked(&authority)?;
        let authorities: Vec<_> = self.with_role(Role::Authority).collect();
        if !authorities.iter().any(|known| known.key.is(&authority)) {
            let message = format!(
                "{} presents a certificate of the authority {}, which is not trusted: expected {}",
                self.host,
                shown(&authority),
                list(&authorities)
            );
            return Err(Error::new(ErrorKind::HostKey, message).with_hint(COMPARE));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let principals = certificate.valid_principals();
        let why = if !certificate.cert_type().is_host() {
            "it is not a host certificate".to_owned()
        } else if principals.is_empty() {
            "it names no host".to_owned()
        } else if !principals.iter().any(|name| name.to_lowercase() == self.address) {
            format!("it is for {}", principals.join(", "))
        } else if certificate.critical_options().iter().next().is_some() {
            "it has critical options, which a host certificate may not have".to_owned()
        } else if certificate.validate_at(now, [&authority.fingerprint(HashAlg::Sha256)]).is_err()
            || is_weak(certificate)
        {
            "it is not valid now, or its signature is wrong".to_owned()
        } else {
            return Ok(());
        };
        let message =
            format!("the certificate that {} presents, of key {}, cannot be used: {why}", self.host, shown(&key));
        Err(Error::new(ErrorKind::HostKey, message)
            .with_hint("have the authority sign the host's key again, for the host's name"))
    }

    fn check_revoked(&self, key: &PublicKey) -> Result<()> {
        match self.with_role(Role::Revoked).find(|known| known.key.is(key)) {
            None => Ok(()),
            Some(known) => {
                let message =
                    format!("{} presents the key {}, which is revoked ({})", self.host, shown(key), known.origin);
                Err(Error::new(ErrorKind::HostKey, message)
                    .with_hint("somebody may impersonate the host; its administrator has to give it a new key"))
            }
        }
    }

    fn mismatch(&self, key: &PublicKey, own: &[&Known]) -> Error {
        let message =
            format!("{} is not the expected host: it presents {}, expected {}", self.host, shown(key), list(own));
        Error::new(ErrorKind::HostKey, message).with_hint(COMPARE)
    }

    fn unknown(&self, key: &PublicKey) -> Error {
        let sources = if self.sources.is_empty() { "nothing".into() } else { self.sources.join(", ") };
        let message = format!("{} is not known: it presents {}, and no key of it is trusted", self.host, shown(key));
        let authorities = self.with_role(Role::Authority).count();
        let error = Error::new(ErrorKind::HostKey, message).with_context("looked in", sources);
        if authorities > 0 {
            return error.with_hint(
                "its name has a certificate authority, but the host presents no certificate of that authority",
            );
        }
        error.with_hint("compare the fingerprint with the host's own, `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there; then pin the key, `HostKeys::pinned(…)`, or add it to known_hosts")
    }

    fn with_role(&self, role: Role) -> impl Iterator<Item = &Known> {
        self.known.iter().filter(move |known| known.role == role)
    }

    fn add_file(&mut self, path: &str, text: &str, target: &Target) {
        for line in known_hosts::lines(text, &known_hosts::name(&target.address, target.port)) {
            let origin = format!("{path} line {}", line.number);
            self.known.push(Known { role: line.role, key: Identity::Key(line.key), origin });
        }
    }
}

impl Identity {
    fn is(&self, key: &PublicKey) -> bool {
        match self {
            Self::Key(own) => own.key_data() == key.key_data(),
            Self::Fingerprint(own) => *own == key.fingerprint(HashAlg::Sha256).to_string(),
        }
    }

    fn algorithm(&self) -> Option<Algorithm> {
        match self {
            Self::Key(key) => Some(key.algorithm()),
            Self::Fingerprint(_) => None,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Key(key) => shown(key),
            Self::Fingerprint(text) => text.clone(),
        }
    }
}

/// The type and fingerprint of a key.
pub(super) fn shown(key: &PublicKey) -> String {
    format!("{} ({})", key.fingerprint(HashAlg::Sha256), key.algorithm())
}

fn list(known: &[&Known]) -> String {
    let shown: Vec<_> = known.iter().map(|known| format!("{} [{}]", known.key.shown(), known.origin)).collect();
    shown.join(" or ")
}

fn pinned(text: &str) -> Result<Identity> {
    let text = text.trim();
    let wrong = || {
        Error::new(ErrorKind::InvalidSpec, format!("`{}` is not a host key that can be pinned", text.chars().take(60).collect::<String>()))
            .with_hint("give the line of the host's /etc/ssh/ssh_host_ed25519_key.pub, `ssh-ed25519 AAAA…`, or its fingerprint, `SHA256:…`")
    };
    if let Some(digest) = text.strip_prefix("SHA256:") {
        let digest = digest.trim_end_matches('=');
        let is_one =
            digest.len() == 43 && digest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte));
        return if is_one { Ok(Identity::Fingerprint(format!("SHA256:{digest}"))) } else { Err(wrong()) };
    }
    PublicKey::from_openssh(text).map(Identity::Key).map_err(|_| wrong())
}

/// The algorithms that can be verified, the best first. RSA keys never sign with SHA-1.
fn usable() -> [Algorithm; 6] {
    let ecdsa = |curve| Algorithm::Ecdsa { curve };
    let rsa = |hash| Algorithm::Rsa { hash: Some(hash) };
    [
        Algorithm::Ed25519,
        ecdsa(EcdsaCurve::NistP256),
        ecdsa(EcdsaCurve::NistP384),
        ecdsa(EcdsaCurve::NistP521),
        rsa(HashAlg::Sha512),
        rsa(HashAlg::Sha256),
    ]
}

/// Whether a key of this type signs with this algorithm.
fn is_of(algorithm: &Algorithm, key: &Algorithm) -> bool {
    algorithm == key || matches!((algorithm, key), (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }))
}

/// Whether its authority has signed it with SHA-1.
fn is_weak(certificate: &Certificate) -> bool {
    certificate.signature().algorithm() == Algorithm::Rsa { hash: None }
}

const COMPARE: &str = "either the host was reinstalled, or somebody impersonates it: ask its administrator for its fingerprint, and change the expected key only when they agree";
