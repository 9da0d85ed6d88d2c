//! The trace that a call belongs to, as it is passed to Python.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The trace that a call belongs to: the header fields `traceparent` and `tracestate` of [W3C Trace
/// Context](https://www.w3.org/TR/trace-context/).
///
/// The payload reads it with `sky.trace_context()`. The payload and its child processes also have
/// it in the environment variables `TRACEPARENT` and `TRACESTATE`.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::payload::TraceContext;
///
/// let trace = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")?.with_state("vendor=1")?;
/// assert_eq!(trace.state(), Some("vendor=1"));
/// assert!(TraceContext::new("00-0af7-b7ad-01").is_err());
/// # Ok::<(), skyward::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TraceContext(Arc<Fields>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Fields {
    parent: String,
    /// Empty if there is no `tracestate`.
    state: String,
}

/// Returns the trace that a call belongs to, when the call is submitted.
#[derive(Clone)]
pub(crate) struct TraceSource(Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>);

impl TraceContext {
    /// The trace with this `traceparent`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] if the text is not a valid `traceparent`.
    pub fn new(traceparent: impl Into<String>) -> Result<Self> {
        let parent = traceparent.into();
        match mistake(&parent) {
            None => Ok(Self(Arc::new(Fields { parent, state: String::new() }))),
            Some(why) => Err(Error::new(ErrorKind::InvalidSpec, format!("{parent:?} is not a `traceparent`: {why}"))
                .with_hint("write it as `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`, in lower case")),
        }
    }

    /// The same trace with this `tracestate`, which replaces an earlier one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] if the text is longer than 8 KiB, or has characters other than
    /// printable ASCII.
    pub fn with_state(self, tracestate: impl Into<String>) -> Result<Self> {
        let state = tracestate.into();
        if state.len() > LONGEST_STATE || !state.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            let message = format!("a `tracestate` of {} bytes is not valid", state.len());
            return Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(format!(
                "write it as `name=value,…`, in printable ASCII and at most {LONGEST_STATE} bytes"
            )));
        }
        Ok(Self(Arc::new(Fields { parent: self.0.parent.clone(), state })))
    }

    /// The trace that a propagator has written to a carrier, such as a map of header fields. The
    /// case of the names does not matter. `None` if there is no valid `traceparent`. An invalid
    /// `tracestate` is omitted.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::payload::TraceContext;
    ///
    /// let headers = [("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("accept", "*/*")];
    /// assert!(TraceContext::from_carrier(headers).is_some());
    /// ```
    pub fn from_carrier<K: AsRef<str>, V: AsRef<str>>(fields: impl IntoIterator<Item = (K, V)>) -> Option<Self> {
        let (mut parent, mut state) = (None, None);
        for (name, value) in fields {
            match name.as_ref() {
                name if name.eq_ignore_ascii_case("traceparent") => parent = Some(value.as_ref().to_owned()),
                name if name.eq_ignore_ascii_case("tracestate") => state = Some(value.as_ref().to_owned()),
                _ => {}
            }
        }
        let trace = Self::new(parent?).ok()?;
        Some(state.and_then(|state| trace.clone().with_state(state).ok()).unwrap_or(trace))
    }

    /// The `traceparent` of the trace.
    pub fn parent(&self) -> &str {
        &self.0.parent
    }

    /// The `tracestate` of the trace, if it has one.
    pub fn state(&self) -> Option<&str> {
        Some(self.0.state.as_str()).filter(|state| !state.is_empty())
    }
}

impl TraceSource {
    pub(crate) fn new(source: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    pub(crate) fn get(&self) -> Option<TraceContext> {
        (self.0)()
    }
}

impl fmt::Debug for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSource")
    }
}

/// Why the text is not a `traceparent`, or `None` if it is one. Later versions of the standard may
/// append fields.
fn mistake(text: &str) -> Option<&'static str> {
    if text.len() > LONGEST_PARENT || !text.is_ascii() {
        return Some("it is too long or not ASCII");
    }
    let mut fields = text.split('-');
    let lengths = [2, 32, 16, 2];
    let mut parts = [""; 4];
    for (part, length) in parts.iter_mut().zip(lengths) {
        *part = fields.next().unwrap_or_default();
        if part.len() != length || !part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Some("its fields must have 2, 32, 16 and 2 hexadecimal digits in lower case");
        }
    }
    let [version, trace, span, _] = parts;
    if version == "ff" {
        Some("version ff is forbidden")
    } else if version == "00" && fields.next().is_some() {
        Some("version 00 has four fields")
    } else if [trace, span].iter().any(|id| id.bytes().all(|byte| byte == b'0')) {
        Some("an id must not consist of zeros")
    } else {
        None
    }
}

const LONGEST_PARENT: usize = 256;
const LONGEST_STATE: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_a_trace_that_the_standard_allows_is_accepted() {
        for text in [PARENT, "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more"] {
            assert_eq!(TraceContext::new(text).unwrap().parent(), text);
        }
        for text in [
            "",
            "00-0af7-b7ad-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
            "00-é",
        ] {
            let error = TraceContext::new(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{text}");
            assert!(error.hint().is_some());
        }
        for state in ["a=1\nb", "ü=1", &"a".repeat(LONGEST_STATE + 1)] {
            assert!(TraceContext::new(PARENT).unwrap().with_state(state).is_err(), "{state}");
        }
    }

    #[test]
    fn the_valid_fields_of_a_carrier_are_read() {
        let carrier = |state| TraceContext::from_carrier([("TRACEPARENT", PARENT), ("tracestate", state), ("x", "y")]);
        assert_eq!(carrier("a=1").unwrap().state(), Some("a=1"));
        assert_eq!(carrier("a=1\n").unwrap().state(), None);
        assert_eq!(TraceContext::from_carrier([("traceparent", "none")]), None);
        assert_eq!(TraceContext::from_carrier([("tracestate", "a=1")]), None);
    }
}
