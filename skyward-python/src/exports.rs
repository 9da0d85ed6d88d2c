//! What a payload can name of `skyward`, the Python package on a node.

/// What stands behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Export {
    /// A module of which all names are known.
    Module(&'static Exports),
    /// A function, and the keywords that it takes.
    Function(&'static [&'static str]),
    /// Anything of which no more is known: a class, a value, a function that takes any keyword, an
    /// inner module.
    Opaque,
}

/// A module and its names, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exports {
    pub(super) module: &'static str,
    pub(super) names: &'static [(&'static str, Export)],
    /// Modules inside of it that no payload needs, and may import.
    pub(super) inner: &'static [&'static str],
}

impl Exports {
    /// None where it has no such name. Private names are nobody's business here.
    pub(super) fn find(&self, name: &str) -> Option<Export> {
        if name.starts_with('_') || self.inner.contains(&name) {
            return Some(Export::Opaque);
        }
        self.names.iter().find(|(known, _)| *known == name).map(|(_, export)| *export)
    }
}

/// A test holds it against `__all__` and the signatures in skyward-core/python/skyward.
pub(super) static SKYWARD: Exports = Exports {
    module: "skyward",
    names: &[
        ("Accelerator", Export::Opaque),
        ("Artifact", Export::Opaque),
        ("CallError", Export::Opaque),
        ("Checkpoint", Export::Opaque),
        ("CheckpointError", Export::Opaque),
        ("Checkpoints", Export::Opaque),
        ("DataError", Export::Opaque),
        ("Future", Export::Opaque),
        ("InstanceInfo", Export::Opaque),
        ("Network", Export::Opaque),
        ("Peer", Export::Opaque),
        ("PlanError", Export::Opaque),
        ("Ref", Export::Opaque),
        ("RemoteError", Export::Opaque),
        ("Retry", Export::Opaque),
        ("StoreFull", Export::Opaque),
        ("WorkerLost", Export::Opaque),
        ("artifact", Export::Function(&["source", "name", "move"])),
        ("as_completed", Export::Function(&["futures", "timeout"])),
        ("checkpoints", Export::Function(&["name", "keep", "writers", "own", "timeout"])),
        ("compute", Export::Opaque),
        ("data", Export::Function(&["name", "timeout"])),
        ("function", Export::Opaque),
        ("hook_value", Export::Function(&["plugin"])),
        ("instance_info", Export::Function(&[])),
        ("integrations", Export::Module(&INTEGRATIONS)),
        ("is_head", Export::Opaque),
        ("map", Export::Function(&["chunksize", "window", "ordered"])),
        ("notice", Export::Function(&[])),
        ("on_notice", Export::Function(&["function"])),
        ("options", Export::Function(&["retry", "timeout", "queue_timeout", "help"])),
        ("progress", Export::Function(&[])),
        ("put", Export::Function(&["value"])),
        ("redirect_output", Export::Function(&["stdout", "stderr"])),
        ("report", Export::Function(&["value"])),
        ("same_plan", Export::Opaque),
        ("shard", Export::Function(&["shuffle", "seed", "drop_last"])),
        ("silent", Export::Function(&[])),
        ("stderr", Export::Function(&["only"])),
        ("stdout", Export::Function(&["only"])),
        ("submit", Export::Opaque),
        ("trace_context", Export::Function(&[])),
        ("wait", Export::Function(&["futures", "timeout", "return_when"])),
    ],
    inner: &["agent", "mover", "worker"],
};

static INTEGRATIONS: Exports = Exports {
    module: "skyward.integrations",
    names: &[
        ("BackendError", Export::Opaque),
        ("JoblibPool", Export::Opaque),
        ("ScikitLearnPool", Export::Opaque),
        ("jax", Export::Function(&[])),
        ("joblib_backend", Export::Function(JOBLIB)),
        ("keras", Export::Function(&["backend", "seed"])),
        ("keras_checkpoint", Export::Function(&["every"])),
        ("sklearn_backend", Export::Function(JOBLIB)),
        ("torch", Export::Function(&["backend"])),
        ("trainer_checkpoint", Export::Function(&[])),
        ("transformers", Export::Function(&["backend"])),
    ],
    inner: &["joblib"],
};

const JOBLIB: &[&str] = &["n_jobs", "inner_max_num_threads", "caller_helps", "retry"];

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use ruff_python_ast::{Expr, Stmt};

    use super::super::function::Function;
    use super::super::module::{Lines, Module};
    use super::super::version::Target;
    use super::*;

    fn package() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../skyward-core/python/skyward")
    }

    fn module(path: &Path) -> Module {
        Module::parse(path.display().to_string(), std::fs::read_to_string(path).unwrap(), Lines::Own, Target::oldest())
    }

    fn assigned<'a>(module: &'a Module, name: &str) -> Option<&'a Expr> {
        module.statements().iter().find_map(|statement| match statement {
            Stmt::Assign(assign) => {
                let named =
                    assign.targets.iter().any(|target| matches!(target, Expr::Name(it) if it.id.as_str() == name));
                named.then_some(&*assign.value)
            }
            _ => None,
        })
    }

    fn strings<'a>(expressions: impl IntoIterator<Item = &'a Expr>) -> Vec<String> {
        let text = |expression: &Expr| match expression {
            Expr::StringLiteral(literal) => literal.value.to_str().to_owned(),
            other => panic!("{other:?}"),
        };
        expressions.into_iter().map(text).collect()
    }

    /// What the last definition of this name is.
    fn found(module: &Module, name: &str) -> Export {
        if let Some(Expr::Name(other)) = assigned(module, name) {
            return found(module, other.id.as_str());
        }
        let mut functions = module.statements().iter().rev().filter_map(|statement| match statement {
            Stmt::FunctionDef(function) if function.name.as_str() == name => {
                Some(Function::read(&module.bindings(), function))
            }
            _ => None,
        });
        match functions.next() {
            Some(function) if !function.takes_any => {
                let named = function.parameters.iter().filter(|parameter| !parameter.positional_only);
                let names: Vec<&'static str> = named.map(|it| &*it.name.clone().leak()).collect();
                Export::Function(names.leak())
            }
            _ => Export::Opaque,
        }
    }

    #[test]
    fn the_table_is_what_the_package_exports() {
        let init = module(&package().join("__init__.py"));
        let Some(Expr::List(all)) = assigned(&init, "__all__") else { panic!("no __all__") };
        let names: Vec<&str> = SKYWARD.names.iter().map(|(name, _)| *name).collect();
        assert_eq!(strings(&all.elts), names);
        let Some(Expr::Dict(homes)) = assigned(&init, "_HOMES") else { panic!("no _HOMES") };
        let keys = strings(homes.items.iter().filter_map(|item| item.key.as_ref()));
        let homes = strings(homes.items.iter().map(|item| &item.value));
        for (name, export) in SKYWARD.names {
            match keys.iter().position(|key| key == name) {
                Some(at) => {
                    let home = module(&package().join(format!("{}.py", homes[at].replace('.', "/"))));
                    assert_eq!(found(&home, name), *export, "skyward.{name}");
                }
                None => assert_eq!(*name, "integrations"),
            }
        }
    }

    #[test]
    fn the_table_is_what_the_integrations_are() {
        let init = module(&package().join("integrations/__init__.py"));
        let Some(Expr::List(all)) = assigned(&init, "__all__") else { panic!("no __all__") };
        let names: Vec<&str> = INTEGRATIONS.names.iter().map(|(name, _)| *name).collect();
        assert_eq!(strings(&all.elts), names);
        for (name, export) in INTEGRATIONS.names {
            let own = package().join(format!("integrations/{name}.py"));
            let home = module(&if own.exists() { own } else { package().join("integrations/joblib.py") });
            assert_eq!(found(&home, name), *export, "skyward.integrations.{name}");
        }
    }

    #[test]
    fn inner_modules_are_those_that_are_there() {
        let entries = std::fs::read_dir(package()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut inner: Vec<String> = entries
            .filter_map(|name| Some(name.to_str()?.strip_suffix(".py")?.to_owned()))
            .filter(|name| !name.starts_with('_'))
            .collect();
        inner.sort();
        assert_eq!(inner, SKYWARD.inner);
    }
}
