//! Texts that must not be shown: tokens, passwords.

use std::collections::BTreeMap;
use std::env::VarError;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::error::{Error, ErrorKind, Result};

/// A text that appears neither in `Debug` output, messages and logs nor in the ledger. It cannot be
/// serialised.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::spec::Secret;
///
/// let token = Secret::new("hunter2");
/// assert_eq!(format!("{token:?}"), "Secret(…)");
/// assert_eq!(token.expose(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(Arc<str>);

/// The secrets of a pool's workers, by the name of the environment variable.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Secrets(Arc<BTreeMap<String, Secret>>);

impl Secret {
    /// Makes a secret of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// Makes a secret of the value of an environment variable of this process.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::{Image, Secret};
    ///
    /// # fn image() -> skyward::Result<Image> {
    /// let image = Image::new().secret("HF_TOKEN", Secret::from_env("HF_TOKEN")?);
    /// # Ok(image)
    /// # }
    /// let error = Secret::from_env("NO_SUCH_TOKEN").unwrap_err();
    /// assert!(error.to_string().contains("`NO_SUCH_TOKEN` is not set"));
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] if the variable is not set, is empty, or is not UTF-8.
    pub fn from_env(name: &str) -> Result<Self> {
        let wrong = |what: &str| {
            let message = format!("the environment variable `{name}` {what}, so it cannot be used as a secret");
            let hint = format!(
                "set it for this process: `export {name}=…`; or read the value from another place: `Secret::new(text)`"
            );
            Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint))
        };
        // On some systems, reading a variable with such a name panics.
        if name.is_empty() || name.contains(['=', '\0']) {
            return wrong("cannot exist (a name is not empty and contains neither `=` nor a zero byte)");
        }
        match std::env::var(name) {
            Ok(text) if text.is_empty() => wrong("is empty"),
            Ok(text) => Ok(Self::new(text)),
            Err(VarError::NotPresent) => wrong("is not set"),
            Err(VarError::NotUnicode(_)) => wrong("is not UTF-8"),
        }
    }

    /// The text. Pass it on only to where it is needed.
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

    /// The text with each value replaced by the name of its variable, as a worker does in what it
    /// reports of exceptions: see `_core/conceal.py`.
    pub(crate) fn conceal(&self, text: &str) -> String {
        let long = self.0.iter().filter(|(_, secret)| secret.expose().chars().count() >= SHORTEST);
        let mut values: Vec<_> = long.map(|(name, secret)| (secret.expose(), name)).collect();
        values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        let replace = |text: String, (value, name): (&str, &String)| text.replace(value, &format!("(secret {name})"));
        values.into_iter().fold(text.to_owned(), replace)
    }
}

/// Includes the values. Used only on the connection to an agent.
impl Serialize for Secrets {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, secret)| (name, secret.expose())))
    }
}

/// The fewest characters of a value that is concealed. Shorter ones also occur as parts of ordinary
/// words.
const SHORTEST: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_concealed_the_longest_first_and_short_ones_are_not() {
        let secrets = [("A", "hunter2"), ("B", "hunter2hunter2"), ("C", "on")];
        let secrets = Secrets::new(secrets.map(|(name, text)| (name.to_owned(), Secret::new(text))).into());
        assert_eq!(secrets.conceal("hunter2 on hunter2hunter2"), "(secret A) on (secret B)");
    }

    #[test]
    fn a_variable_without_a_usable_value_is_named() {
        assert_eq!(Secret::from_env("PATH").unwrap().expose(), std::env::var("PATH").unwrap());
        for (name, words) in [("SKYWARD_NOT_SET", "is not set"), ("", "cannot exist"), ("A=B", "cannot exist")] {
            let error = Secret::from_env(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert!(error.message().contains(words), "{error}");
            assert!(error.hint().is_some());
        }
    }
}
