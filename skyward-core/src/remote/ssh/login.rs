//! Logging in with keys.

use std::path::Path;
use std::sync::Arc;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::{AgentClient, AgentStream};
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{AgentAuthError, MethodSet};
use tokio::net::UnixStream;

use super::connection::{Client, Lost};
use super::key::{self, Key, Source};
use super::target::Target;
use super::trust::shown;
use crate::error::{Error, ErrorKind, Result};

/// Tries the keys of a target, one after another.
///
/// # Errors
///
/// [`ErrorKind::Login`] with what was tried and what the server accepts. It is temporary only where
/// the connection was lost before the server had refused a key. [`ErrorKind::InvalidSpec`] for a
/// key that cannot be used at all.
///
/// # Cancel safety
///
/// The session cannot be used afterwards.
pub(super) async fn log_in(handle: &mut Handle<Client>, target: &Target, lost: &Lost, at: &mut String) -> Result<()> {
    let user = target.login()?;
    let usual = target.keys.is_empty();
    let keys = if usual { Key::usual() } else { target.keys.clone() };
    let lost = lost.clone();
    let mut attempt =
        Attempt { handle, target, lost, at, user, tried: Vec::new(), refused: false, accepted: None, partial: false };
    for Key(source) in &keys {
        let done = match source {
            Source::Agent { socket } => attempt.agent(socket.as_deref(), usual).await?,
            Source::File { path, passphrase } => match key::read_file(path, passphrase.as_ref()).await {
                Ok(key) => attempt.key(key, &path.display().to_string()).await?,
                // A usual key that nobody named may be unusable.
                Err(error) if usual => attempt.unusable(error.message()),
                Err(error) => return Err(error),
            },
            Source::Memory { pem, passphrase } => {
                let key = key::decode(pem.clone(), passphrase.clone(), "of memory".into()).await?;
                attempt.key(key, "memory").await?
            }
        };
        if done {
            return Ok(());
        }
    }
    Err(attempt.failed())
}

struct Attempt<'a> {
    handle: &'a mut Handle<Client>,
    target: &'a Target,
    lost: Lost,
    /// The current step, for the error of a timeout.
    at: &'a mut String,
    user: String,
    tried: Vec<String>,
    /// Whether the server has refused a key.
    refused: bool,
    /// The methods that the server accepts.
    accepted: Option<MethodSet>,
    partial: bool,
}

impl Attempt<'_> {
    async fn key(&mut self, key: Arc<PrivateKey>, name: &str) -> Result<bool> {
        self.tried.push(format!("{} of {name}", shown(key.public_key())));
        let result = self.handle.authenticate_publickey(self.user.clone(), PrivateKeyWithHashAlg::new(key, None)).await;
        self.answered(result.ok()).await
    }

    async fn agent(&mut self, socket: Option<&Path>, usual: bool) -> Result<bool> {
        let path = socket.map(Into::into).or_else(|| std::env::var_os("SSH_AUTH_SOCK")).unwrap_or_default();
        let name = format!("the agent at {}", Path::new(&path).display());
        let step = std::mem::replace(self.at, format!("asking {name} for its keys"));
        let keys = async {
            let stream = UnixStream::connect(&path).await?;
            let mut agent = AgentClient::connect(stream);
            // An agent may bind keys to hosts. One that does not know this request has no bound
            // keys.
            if let Some(binding) = self.handle.agent_session_binding() {
                let _ = agent.bind_session(binding, false).await;
            }
            let identities = agent.request_identities().await?;
            Ok::<_, russh::keys::Error>((agent, identities))
        };
        let keys = keys.await;
        *self.at = step;
        let (mut agent, identities) = match keys {
            Ok(found) => found,
            Err(error) if usual => return Ok(self.unusable(&format!("{name} did not return its keys: {error}"))),
            Err(error) => {
                let message = format!("{name} did not return its keys: {error}");
                return Err(Error::new(ErrorKind::InvalidSpec, message)
                    .with_hint("start one, `eval $(ssh-agent)`, and add a key to it, `ssh-add`; SSH_AUTH_SOCK has to name its socket"));
            }
        };
        if identities.is_empty() {
            return Ok(self.unusable(&format!("{name} has no keys: `ssh-add`")));
        }
        for identity in &identities {
            if self.identity(&mut agent, identity, &name).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn identity<S: AgentStream + Send + Unpin>(
        &mut self,
        agent: &mut AgentClient<S>,
        identity: &AgentIdentity,
        name: &str,
    ) -> Result<bool> {
        let user = self.user.clone();
        let result = match identity {
            AgentIdentity::PublicKey { key, .. } => {
                self.tried.push(format!("{} of {name}", shown(key)));
                let hash = self.hash(key).await;
                self.handle.authenticate_publickey_with(user, key.clone(), hash, agent).await
            }
            AgentIdentity::Certificate { certificate, .. } => {
                let key = PublicKey::from(certificate.public_key().clone());
                self.tried.push(format!("the certificate of {} of {name}", shown(&key)));
                let hash = self.hash(&key).await;
                self.handle.authenticate_certificate_with(user, certificate.clone(), hash, agent).await
            }
        };
        match result {
            // An agent may hold a key that it does not use without its user's consent.
            Err(AgentAuthError::Key(error)) => {
                if let Some(last) = self.tried.last_mut() {
                    last.push_str(&format!(" (the agent does not sign: {error})"));
                }
                Ok(false)
            }
            result => self.answered(result.ok()).await,
        }
    }

    /// The digest that an RSA key signs with; the server reports which ones it accepts.
    async fn hash(&self, key: &PublicKey) -> Option<HashAlg> {
        if !key.algorithm().is_rsa() {
            return None;
        }
        self.handle.best_supported_rsa_hash().await.ok().flatten().unwrap_or(Some(HashAlg::Sha512))
    }

    fn unusable(&mut self, why: &str) -> bool {
        self.tried.push(why.to_owned());
        false
    }

    /// Notes the answer to a key; none means that the session has ended.
    async fn answered(&mut self, result: Option<AuthResult>) -> Result<bool> {
        match result {
            Some(AuthResult::Success) => Ok(true),
            Some(AuthResult::Failure { remaining_methods, partial_success }) => {
                // The end of the session looks like a refusal after which no method is accepted.
                self.refused |= !remaining_methods.is_empty();
                if self.handle.is_closed() {
                    return Err(self.ended().await);
                }
                self.accepted = Some(remaining_methods);
                self.partial |= partial_success;
                Ok(false)
            }
            None => Err(self.ended().await),
        }
    }

    /// The error when the server has ended the connection. A server that has refused a key, or that
    /// names the login as its reason, would answer the same next time, and may ban a client that
    /// returns.
    async fn ended(&mut self) -> Error {
        // The reason is sent, or its sender is dropped, as soon as the session has ended.
        let loss = self.lost.wait_for(Option::is_some).await.ok().and_then(|loss| loss.clone());
        let dismissed = self.refused || loss.as_ref().is_some_and(|loss| loss.dismissed);
        let message = format!("{} ended the connection while {} logged in", self.target, self.user);
        let mut error = Error::new(ErrorKind::Login, message).with_context("tried", self.all_tried());
        if let Some(loss) = loss {
            error = error.with_context("cause", loss.why);
        }
        if dismissed {
            error.with_hint("a server ends the connection after some refused keys, often 6, or 1 with `MaxAuthTries 1` in its sshd_config: name the right one alone, `.key(Key::file(…))`, and check the user's name")
        } else {
            error.temporary()
        }
    }

    fn failed(&self) -> Error {
        let methods: Vec<&str> = self.accepted.iter().flat_map(|methods| methods.iter().map(Into::into)).collect();
        let message = format!("{} does not let {} in", self.target, self.user);
        let error = Error::new(ErrorKind::Login, message).with_context("tried", self.all_tried()).with_context(
            "accepted methods",
            if methods.is_empty() { "none reported".into() } else { methods.join(", ") },
        );
        if self.partial {
            error.with_hint("the server accepted the key but requires something more, such as a one-time password; name a user who may log in with a key alone")
        } else if !methods.is_empty() && !methods.contains(&"publickey") {
            error.with_hint("the server does not accept keys for this user: allow them in its sshd_config, `PubkeyAuthentication yes`, or name another user")
        } else if self.tried.is_empty() {
            error.with_hint(
                "there is no key to log in with: name one, `.key(Key::file(…))`, or add one to an agent, `ssh-add`",
            )
        } else {
            error
                .with_hint("check the user's name, and that one of these keys is in ~/.ssh/authorized_keys on the host")
        }
    }

    fn all_tried(&self) -> String {
        if self.tried.is_empty() { "no key".into() } else { self.tried.join("; ") }
    }
}
