//! A text that is shown nowhere.

use std::collections::BTreeMap;
use std::env::VarError;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::error::{Error, ErrorKind, Result};

/// A text that is shown nowhere: not in `Debug`, messages, logs or the ledger. It cannot be serialised.
///
/// ```
/// use skyward_core::spec::Secret;
///
/// let token = Secret::new("hunter2");
/// assert_eq!(format!("{token:?}"), "Secret(…)");
/// assert_eq!(token.expose(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(Arc<str>);

/// The secrets of a pool's workers, by the variable that holds each.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Secrets(Arc<BTreeMap<String, Secret>>);

impl Secret {
    /// Takes the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// Takes the value of an environment variable of this program.
    ///
    /// ```
    /// use skyward_core::spec::{Image, Secret};
    ///
    /// # fn image() -> skyward_core::Result<Image> {
    /// let image = Image::new().secret("HF_TOKEN", Secret::from_env("HF_TOKEN")?);
    /// # Ok(image)
    /// # }
    /// let error = Secret::from_env("NO_SUCH_TOKEN").unwrap_err();
    /// assert!(error.to_string().contains("`NO_SUCH_TOKEN` is not set"));
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] when it is not set, is empty, or is no text.
    pub fn from_env(name: &str) -> Result<Self> {
        let wrong = |what: &str| {
            let message = format!("the environment variable `{name}` {what}, and a secret is to have its value");
            let hint = format!(
                "set it for this program: `export {name}=…`; or take the value from elsewhere: `Secret::new(text)`"
            );
            Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint))
        };
        // Asking for such a name is a panic on some systems.
        if name.is_empty() || name.contains(['=', '\0']) {
            return wrong("cannot be: no variable has such a name");
        }
        match std::env::var(name) {
            Ok(text) if text.is_empty() => wrong("is empty"),
            Ok(text) => Ok(Self::new(text)),
            Err(VarError::NotPresent) => wrong("is not set"),
            Err(VarError::NotUnicode(_)) => wrong("is not UTF-8"),
        }
    }

    /// The text, for the one who hands it to its destination.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl Secrets {
    pub(crate) fn new(secrets: BTreeMap<String, Secret>) -> Self {
        Self(Arc::new(secrets))
    }
}

/// With the values: for the connection to an agent and for nothing else.
impl Serialize for Secrets {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, secret)| (name, secret.expose())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_gives_no_secret_is_named() {
        assert_eq!(Secret::from_env("PATH").unwrap().expose(), std::env::var("PATH").unwrap());
        for (name, words) in [("SKYWARD_NOT_SET", "is not set"), ("", "cannot be"), ("A=B", "cannot be")] {
            let error = Secret::from_env(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert!(error.message().contains(words), "{error}");
            assert!(error.hint().is_some());
        }
    }
}
