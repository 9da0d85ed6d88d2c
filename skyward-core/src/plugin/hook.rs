//! Python context managers that plugins put around the app or a task.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// A Python context manager: the source of a module, the name of the function in it that makes the
/// context manager, and the argument of that function.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::plugin::{Hook, HookKind};
///
/// let hook = Hook::new(HookKind::App, "greeting.py", "
/// from contextlib import contextmanager
///
/// @contextmanager
/// def around_app(config):
///     print('hello', config['name'])
///     yield
/// ", "around_app").config(serde_json::json!({"name": "you"}));
/// assert_eq!(hook.factory, "around_app");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hook {
    /// Whether the hook is around the app or around each task.
    pub kind: HookKind,
    /// The module's source.
    pub source: String,
    /// The file name that tracebacks show.
    pub filename: String,
    /// The name of the function that is called with `config`: a generator function that yields
    /// once, or a function that returns a context manager.
    pub factory: String,
    /// The function's argument; the worker sees it as a dict.
    pub config: serde_json::Value,
}

/// What a hook wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookKind {
    /// The worker's life: the worker enters the hook before its first task and exits it at its end.
    App,
    /// Each task.
    Task,
}

impl Hook {
    /// A hook with an empty configuration.
    pub fn new(
        kind: HookKind,
        filename: impl Into<String>,
        source: impl Into<String>,
        factory: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            source: source.into(),
            filename: filename.into(),
            factory: factory.into(),
            config: serde_json::Value::Object(serde_json::Map::new()),
        }
    }

    /// The same hook with this argument.
    #[must_use]
    pub fn config(mut self, config: serde_json::Value) -> Self {
        self.config = config;
        self
    }

    /// Checks, without running Python, that the source defines the factory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Plugins`] if the source defines nothing of this name, or a coroutine. The hint
    /// lists the functions that the source defines.
    pub fn validate(&self) -> Result<()> {
        let (name, file) = (&self.factory, &self.filename);
        let refuse = |message: String, hint: String| Err(Error::new(ErrorKind::Plugins, message).with_hint(hint));
        if self.source.lines().any(|line| line.strip_prefix("async def ").and_then(word) == Some(name)) {
            return refuse(
                format!("the hook `{name}` in {file} is a coroutine, and workers enter hooks without an event loop"),
                format!("write `def {name}(config):` with one `yield`"),
            );
        }
        if self.source.lines().any(|line| binds(line, name)) {
            return Ok(());
        }
        let found: Vec<_> = self.source.lines().filter_map(|line| line.strip_prefix("def ").and_then(word)).collect();
        let found = if found.is_empty() { "no function".to_owned() } else { format!("`{}`", found.join("`, `")) };
        refuse(
            format!("the hook's source {file} does not define `{name}`"),
            format!("it defines {found}; write `def {name}(config):` with one `yield`"),
        )
    }
}

/// The identifier that a text begins with.
fn word(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

/// Whether a line of Python binds this name, as far as one line shows.
fn binds(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("def ").or_else(|| line.strip_prefix("class ")) {
        return word(rest.trim_start()) == Some(name);
    }
    if line.starts_with("from ") || line.starts_with("import ") {
        return line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == name);
    }
    let assigned = word(line) == Some(name) && line[name.len()..].trim_start().starts_with(['=', ':']);
    assigned && !line[name.len()..].trim_start().starts_with("==")
}

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::*;

    fn hook(source: &str) -> Hook {
        Hook::new(HookKind::App, "mine.py", source, "around_app")
    }

    #[test]
    fn every_way_of_defining_the_factory_is_accepted() {
        for source in [
            indoc! {"
                def around_app(config):
                    yield
            "},
            indoc! {"
                @contextmanager
                def around_app (config):
                    yield
            "},
            indoc! {"
                try:
                    import x
                except ImportError:
                    def around_app(config): yield
            "},
            indoc! {"
                class around_app:
                    pass
            "},
            "around_app = Manager",
            "around_app: Factory = Manager",
            "from elsewhere import hook as around_app",
        ] {
            hook(source).validate().unwrap();
        }
    }

    #[test]
    fn a_missing_factory_is_refused_with_the_functions_that_exist() {
        for (source, hint) in [
            ("", "no function"),
            (
                indoc! {"
                    def around_task(config):
                        yield
                    def other(): ...
                "},
                "`around_task`, `other`",
            ),
            (
                indoc! {"
                    around_app == 3
                    x = around_app"},
                "no function",
            ),
            ("def around_apps(config): yield", "`around_apps`"),
        ] {
            let error = hook(source).validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Plugins);
            assert_eq!(error.message(), "the hook's source mine.py does not define `around_app`");
            assert_eq!(
                error.hint(),
                Some(&*format!("it defines {hint}; write `def around_app(config):` with one `yield`"))
            );
        }
    }

    #[test]
    fn a_coroutine_is_refused() {
        let error = hook(indoc! {"
            async def around_app(config):
                yield
        "})
        .validate()
        .unwrap_err();
        assert!(error.message().contains("is a coroutine"), "{error}");
    }
}
