//! How FSDP divides a model among the ranks, as Accelerate reads it from the environment.

use std::collections::BTreeMap;

use skyward_core::error::{Error, ErrorKind, Result};

/// How Fully Sharded Data Parallel (FSDP, version 2) divides a model, its gradients and the
/// optimizer among the ranks.
///
/// The model is divided in units: each rank keeps its part of each unit, and gathers a whole unit
/// while it computes it.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugins::{Fsdp, StateDict, accelerate};
///
/// let layers = Fsdp::wrap("LlamaDecoderLayer").cpu_offload(true).state_dict(StateDict::Sharded);
/// let plugin = accelerate().fsdp(layers);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fsdp {
    units: Units,
    reshard_after_forward: bool,
    cpu_offload: bool,
    state_dict: StateDict,
}

/// Which modules are units, in addition to the model itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Units {
    /// Layers of these classes.
    Classes(Vec<String>),
    /// The layers that the model's own class names.
    Model,
    /// Modules with more parameters than this.
    Larger(u64),
}

/// What `save_model` and checkpoints contain of a divided model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateDict {
    /// The whole model, gathered in the host memory of rank 0. `Trainer::save_model` writes a model
    /// with this alone.
    #[default]
    Full,
    /// Each rank's part, in a file of its own: checkpoints of models that fit into no single host.
    Sharded,
}

impl Fsdp {
    /// Makes each layer of a class a unit. The class is one of the model's modules, by its name:
    /// `LlamaDecoderLayer`.
    pub fn wrap(class: impl Into<String>) -> Self {
        Self::of(Units::Classes(vec![class.into()]))
    }

    /// Makes each layer a unit that the model's class names in `_no_split_modules`, as most models
    /// of Transformers do.
    pub fn wrap_model_layers() -> Self {
        Self::of(Units::Model)
    }

    /// Makes each module with more than this number of parameters a unit.
    pub fn wrap_larger_than(parameters: u64) -> Self {
        Self::of(Units::Larger(parameters))
    }

    fn of(units: Units) -> Self {
        Self { units, reshard_after_forward: true, cpu_offload: false, state_dict: StateDict::Full }
    }

    /// Makes layers of another class units too, beside those of [`wrap`](Self::wrap); instead of
    /// those that the model names, or that are large.
    #[must_use]
    pub fn and(mut self, class: impl Into<String>) -> Self {
        match &mut self.units {
            Units::Classes(classes) => classes.push(class.into()),
            _ => self.units = Units::Classes(vec![class.into()]),
        }
        self
    }

    /// Whether a rank gives up a gathered unit after the forward pass, as it does by default, and
    /// gathers it again for the backward pass: less memory for more traffic.
    #[must_use]
    pub fn reshard_after_forward(mut self, reshard: bool) -> Self {
        self.reshard_after_forward = reshard;
        self
    }

    /// Whether parameters, gradients and the optimizer's state stay in host memory while a unit is
    /// not computed.
    #[must_use]
    pub fn cpu_offload(mut self, offload: bool) -> Self {
        self.cpu_offload = offload;
        self
    }

    /// Chooses what saved models and checkpoints contain of the model.
    #[must_use]
    pub fn state_dict(mut self, kind: StateDict) -> Self {
        self.state_dict = kind;
        self
    }

    /// The environment variables that pass all of this to Accelerate.
    pub(crate) fn variables(&self) -> BTreeMap<&'static str, String> {
        let policy = match &self.units {
            Units::Classes(_) | Units::Model => "TRANSFORMER_BASED_WRAP",
            Units::Larger(_) => "SIZE_BASED_WRAP",
        };
        let state_dict = match self.state_dict {
            StateDict::Full => "FULL_STATE_DICT",
            StateDict::Sharded => "SHARDED_STATE_DICT",
        };
        let mut variables = BTreeMap::from([
            ("ACCELERATE_USE_FSDP", "true".to_owned()),
            ("FSDP_VERSION", "2".into()),
            ("FSDP_AUTO_WRAP_POLICY", policy.into()),
            ("FSDP_RESHARD_AFTER_FORWARD", self.reshard_after_forward.to_string()),
            ("FSDP_OFFLOAD_PARAMS", self.cpu_offload.to_string()),
            ("FSDP_STATE_DICT_TYPE", state_dict.into()),
        ]);
        match &self.units {
            Units::Classes(classes) => variables.insert("FSDP_TRANSFORMER_CLS_TO_WRAP", classes.join(",")),
            Units::Larger(parameters) => variables.insert("FSDP_MIN_NUM_PARAMS", parameters.to_string()),
            Units::Model => None,
        };
        variables
    }

    /// Refuses values that Accelerate would misread.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint));
        match &self.units {
            Units::Classes(classes) => match classes.iter().find(|class| !is_name(class)) {
                Some(class) => refuse(
                    format!("{class:?} is not the name of a Python class"),
                    "name one class, without its module: `Fsdp::wrap(\"LlamaDecoderLayer\")`; others by `.and(…)`",
                ),
                None => Ok(()),
            },
            Units::Larger(0) => refuse(
                "`Fsdp::wrap_larger_than(0)` would make each module a unit, which FSDP does not support".into(),
                "give a number such as 1_000_000, or name the layers: `Fsdp::wrap(\"LlamaDecoderLayer\")`",
            ),
            _ => Ok(()),
        }
    }
}

/// Whether the text can be the name of a class in Python.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_') && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_are_those_that_accelerate_reads() {
        let common = [
            ("ACCELERATE_USE_FSDP", "true"),
            ("FSDP_VERSION", "2"),
            ("FSDP_RESHARD_AFTER_FORWARD", "true"),
            ("FSDP_OFFLOAD_PARAMS", "false"),
            ("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT"),
            ("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP"),
        ];
        for (fsdp, other) in [
            (
                Fsdp::wrap("LlamaDecoderLayer").and("Head"),
                vec![("FSDP_TRANSFORMER_CLS_TO_WRAP", "LlamaDecoderLayer,Head")],
            ),
            (Fsdp::wrap_model_layers().and("Head"), vec![("FSDP_TRANSFORMER_CLS_TO_WRAP", "Head")]),
            (Fsdp::wrap_model_layers(), vec![]),
            (
                Fsdp::wrap_larger_than(1_000_000)
                    .reshard_after_forward(false)
                    .cpu_offload(true)
                    .state_dict(StateDict::Sharded),
                vec![
                    ("FSDP_AUTO_WRAP_POLICY", "SIZE_BASED_WRAP"),
                    ("FSDP_MIN_NUM_PARAMS", "1000000"),
                    ("FSDP_RESHARD_AFTER_FORWARD", "false"),
                    ("FSDP_OFFLOAD_PARAMS", "true"),
                    ("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT"),
                ],
            ),
        ] {
            let mut expected = BTreeMap::from(common);
            expected.extend(other);
            fsdp.check().unwrap();
            let variables = fsdp.variables();
            assert_eq!(variables.iter().map(|(name, value)| (*name, &**value)).collect::<BTreeMap<_, _>>(), expected);
        }
    }

    #[test]
    fn units_that_accelerate_would_not_find_are_refused() {
        for (fsdp, message) in [
            (Fsdp::wrap(""), "\"\" is not the name of a Python class"),
            (Fsdp::wrap("models.Layer"), "\"models.Layer\" is not the name of a Python class"),
            (Fsdp::wrap("Layer").and("A,B"), "\"A,B\" is not the name of a Python class"),
            (
                Fsdp::wrap_larger_than(0),
                "`Fsdp::wrap_larger_than(0)` would make each module a unit, which FSDP does not support",
            ),
        ] {
            let error = fsdp.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert_eq!(error.message(), message);
            assert!(error.hint().is_some());
        }
    }
}
