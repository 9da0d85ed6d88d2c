//! Python context managers that plugins put around the app or a task.

use serde::{Deserialize, Serialize};

/// A Python context manager: the source of a module, the name of a function in it that makes the context manager, and the one argument of that function.
///
/// ```
/// use skyward_core::plugin::{Hook, HookKind};
///
/// let hook = Hook::new(HookKind::App, "greeting.py", "
/// from contextlib import contextmanager
///
/// @contextmanager
/// def around_app(config):
///     print('hello', config['name'])
///     yield
/// ", "around_app").with_config(serde_json::json!({"name": "you"}));
/// assert_eq!(hook.factory, "around_app");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hook {
    /// Around the app or around each task.
    pub kind: HookKind,
    /// The module's source.
    pub source: String,
    /// The file name shown in tracebacks.
    pub filename: String,
    /// The function that is called with `config` and returns a context manager.
    pub factory: String,
    /// The function's argument; the worker sees it as a dict.
    pub config: serde_json::Value,
}

/// What a hook is put around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookKind {
    /// The worker's life: entered before the first task, left at the end.
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

    /// The same with this argument.
    #[must_use]
    pub fn with_config(mut self, config: serde_json::Value) -> Self {
        self.config = config;
        self
    }
}
