//! What keeps a function from being an entry, however it is declared.

use super::finding::{Finding, Kind};
use super::function::{Function, Parameter};

impl Function {
    /// What keeps it from being an entry, however it is declared: a worker does not run it, or no
    /// call can pass what it requires.
    ///
    /// ```
    /// use skyward_python::{Entry, Payload};
    ///
    /// let payload = Payload::from_text("a.py", "def train(epochs, /): pass\n");
    /// let Ok(Entry::Function { function, .. }) = payload.entry("train", false) else { panic!() };
    /// assert!(function.obstacles()[0].message().contains("positional-only"));
    /// ```
    pub fn obstacles(&self) -> Vec<Finding> {
        let required = self.parameters.iter().filter(|parameter| !parameter.has_default);
        let not_passed = required.filter_map(|parameter| self.not_passed(parameter));
        self.asynchronous_generator().into_iter().chain(not_passed).collect()
    }

    /// The problem of an `async def` that yields: a worker awaits an `async def`, and streams plain
    /// generators.
    pub fn asynchronous_generator(&self) -> Option<Finding> {
        let at = self.first_yield.as_ref().filter(|_| self.is_async)?;
        let message = format!(
            "`{}` is an `async def` with a `yield` ({at}), an asynchronous generator, which a worker does not run",
            self.name
        );
        let help = "make it a `def` that yields, or an `async def` that returns its items as a list";
        Some(Finding::new(Kind::Entry, self.location.clone(), message).naming_its_location().with_help(help))
    }

    /// The problem of a required parameter that no call can pass.
    fn not_passed(&self, parameter: &Parameter) -> Option<Finding> {
        let Parameter { name, positional_only: true, .. } = parameter else { return None };
        let message = format!(
            "`{}` requires `{name}`, which is positional-only (before `/`), but Skyward passes arguments by name",
            self.name
        );
        let found = Finding::new(Kind::Entry, self.location.clone(), message);
        Some(found.with_help("remove the `/`, or give the parameter a default"))
    }
}

#[cfg(test)]
mod tests {
    use crate::Payload;

    fn messages(text: &str) -> Vec<String> {
        let payload = Payload::from_text("a.py", text);
        assert_eq!(payload.findings(), []);
        payload.entry_findings().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn functions_that_a_declaration_can_name_have_no_obstacles() {
        for text in [
            "",
            "x = 1\n",
            "def f(): yield 1\n",
            "async def f(a, *args, type, **kw): return a\n",
            "def f(a=1, /, self=None): pass\n",
            "def f(self, _): pass\n",
            "if __name__ == '__main__':\n    def f(a, /): pass\n",
            "class C:\n    def f(a, /): pass\n",
            // The macro accepts each of these with `unchecked`.
            "from numba import jit\ndef f(a, /): pass\nf = jit(f)\n",
            "def f(a, /): pass\nfrom numpy import f\n",
            "def f(a, /): pass\nimport f\n",
            "def f(a, /): pass\nclass f: pass\n",
        ] {
            assert_eq!(messages(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn what_no_declaration_gets_around_is_found() {
        for (text, expected) in [
            (
                "async def f(): yield 1\n",
                "`f` is an `async def` with a `yield` (a.py:1:16), an asynchronous generator, which a worker does not run\n\
                 make it a `def` that yields, or an `async def` that returns its items as a list",
            ),
            (
                "def f(a, /): pass\n",
                "a.py:1:5: `f` requires `a`, which is positional-only (before `/`), but Skyward passes arguments by name\n\
                 remove the `/`, or give the parameter a default",
            ),
        ] {
            assert_eq!(messages(text), [expected], "{text}");
        }
    }
}
