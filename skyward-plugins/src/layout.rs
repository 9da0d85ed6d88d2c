//! How Keras spreads a model and its data over devices.

use std::collections::BTreeSet;

use serde_json::json;
use skyward_core::error::{Error, ErrorKind, Result};

/// How Keras spreads a model and its data over the devices of all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distribution {
    /// Not at all: each worker trains a model of its own.
    None,
    /// Every device has the whole model and a part of each batch; gradients are averaged.
    DataParallel,
    /// Weights are divided among the devices too.
    ModelParallel(ModelParallel),
}

/// A mesh of devices, and which weights are divided along which of its axes.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugins::{Distribution, ModelParallel, keras};
///
/// let eight_devices = ModelParallel::new([("data", 2), ("model", 4)])
///     .layout(".*dense.*kernel", [None, Some("model")])
///     .layout(".*dense.*bias", [Some("model")]);
/// let plugin = keras().distribution(Distribution::ModelParallel(eight_devices));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelParallel {
    mesh: Vec<(String, u32)>,
    layouts: Vec<(String, Vec<Option<String>>)>,
    batch_axis: Option<String>,
}

impl ModelParallel {
    /// A mesh of devices with these axes and sizes, whose product is the number of devices of all
    /// workers. The first axis divides the batch, unless another is named.
    pub fn new<S: Into<String>>(mesh: impl IntoIterator<Item = (S, u32)>) -> Self {
        Self {
            mesh: mesh.into_iter().map(|(name, size)| (name.into(), size)).collect(),
            layouts: Vec::new(),
            batch_axis: None,
        }
    }

    /// Divides the weights whose path matches the pattern (a Python regular expression): for each
    /// dimension the mesh axis, or none where it stays whole. Weights that match no pattern are on
    /// every device. From Keras 3.14 on the pattern must match the whole path.
    #[must_use]
    pub fn layout<'a>(mut self, pattern: impl Into<String>, axes: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        self.layouts.push((pattern.into(), axes.into_iter().map(|axis| axis.map(str::to_owned)).collect()));
        self
    }

    /// Names the axis that divides the batch.
    #[must_use]
    pub fn batch_axis(mut self, axis: impl Into<String>) -> Self {
        self.batch_axis = Some(axis.into());
        self
    }

    /// Checks the mesh against the number of devices of all workers, and the number of workers.
    pub(crate) fn validate(&self, devices: u64, workers: u64) -> Result<()> {
        let refuse = |message: String, hint: String| Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint));
        let axes: Vec<_> = self.mesh.iter().map(|(name, _)| name.as_str()).collect();
        let known = format!("the mesh has the axes: {}", axes.join(", "));
        if axes.is_empty() || axes.iter().enumerate().any(|(at, axis)| axis.is_empty() || axes[..at].contains(axis)) {
            return refuse(
                format!("each axis of a mesh needs its own name; these are {axes:?}"),
                "for example `ModelParallel::new([(\"data\", 2), (\"model\", 4)])`".into(),
            );
        }
        for (at, (pattern, dimensions)) in self.layouts.iter().enumerate() {
            if self.layouts[..at].iter().any(|(other, _)| other == pattern) {
                return refuse(format!("the pattern {pattern:?} has two layouts"), "keep one of them".into());
            }
            if let Some(axis) = dimensions.iter().flatten().find(|axis| !axes.contains(&axis.as_str())) {
                return refuse(
                    format!("the layout of {pattern:?} names the axis {axis:?}, which the mesh does not have"),
                    known,
                );
            }
        }
        if let Some(axis) = self.batch_axis.as_ref().filter(|axis| !axes.contains(&axis.as_str())) {
            return refuse(format!("the batch axis {axis:?} is not an axis of the mesh"), known);
        }
        let places: u64 = self.mesh.iter().map(|(_, size)| u64::from(*size)).product();
        if places != devices {
            let sizes: Vec<_> = self.mesh.iter().map(|(name, size)| format!("{name} {size}")).collect();
            return refuse(
                format!("the mesh has {places} places ({}), and the workers have {devices} devices", sizes.join(" × ")),
                "the sizes of its axes, multiplied, are the number of devices".into(),
            );
        }
        self.check_rows(devices / workers.max(1)).map_or(Ok(()), |message| {
            let hint = "put the axis of the batch first; the sizes of the other axes, multiplied, must be the number of devices \
                        of a worker, or a divisor or a multiple of that number";
            refuse(message, hint.into())
        })
    }

    /// What is wrong with the rows of the batch that the devices of each worker compute on, by
    /// their place in the mesh: two workers must compute on the same rows or on none in common, or
    /// the data could not be divided among them.
    fn check_rows(&self, each: u64) -> Option<String> {
        let axis =
            self.batch_axis.as_ref().map_or(Some(0), |axis| self.mesh.iter().position(|(name, _)| name == axis))?;
        let behind: u64 = self.mesh[axis + 1..].iter().map(|(_, size)| u64::from(*size)).product();
        let rows = |worker: u64| -> BTreeSet<u64> {
            let size = u64::from(self.mesh[axis].1);
            (worker * each..(worker + 1) * each).map(|device| device / behind % size).collect()
        };
        let devices: u64 = self.mesh.iter().map(|(_, size)| u64::from(*size)).product();
        let mut seen: Vec<(u64, BTreeSet<u64>)> = Vec::new();
        for worker in 0..devices / each.max(1) {
            let own = rows(worker);
            match seen.iter().find(|(_, other)| !other.is_disjoint(&own)) {
                Some((_, same)) if *same == own => {}
                Some((other, _)) => {
                    return Some(format!(
                        "the devices of the workers {other} and {worker} share some rows of each batch and not all of them, so \
                         the data cannot be divided among the workers"
                    ));
                }
                None => seen.push((worker, own)),
            }
        }
        None
    }
}

impl Distribution {
    /// The hook's argument.
    pub(crate) fn config(&self) -> serde_json::Value {
        match self {
            Self::None => json!({"kind": "none"}),
            Self::DataParallel => json!({"kind": "data_parallel"}),
            Self::ModelParallel(ModelParallel { mesh, layouts, batch_axis }) => {
                json!({"kind": "model_parallel", "mesh": mesh, "layouts": layouts, "batch_dim": batch_axis})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_meshes_are_refused() {
        let two = || ModelParallel::new([("data", 2), ("model", 2)]);
        two().layout("a", [None, Some("model")]).batch_axis("data").validate(4, 2).unwrap();
        let cases: [(ModelParallel, &str); 7] = [
            (ModelParallel::new::<&str>([]), "each axis of a mesh needs its own name; these are []"),
            (
                ModelParallel::new([("a", 2), ("a", 2)]),
                "each axis of a mesh needs its own name; these are [\"a\", \"a\"]",
            ),
            (ModelParallel::new([("", 4)]), "each axis of a mesh needs its own name; these are [\"\"]"),
            (
                two().layout("k", [Some("modle")]),
                "the layout of \"k\" names the axis \"modle\", which the mesh does not have",
            ),
            (two().layout("k", [None]).layout("k", [None]), "the pattern \"k\" has two layouts"),
            (two().batch_axis("x"), "the batch axis \"x\" is not an axis of the mesh"),
            (
                ModelParallel::new([("data", 2), ("model", 4)]),
                "the mesh has 8 places (data 2 × model 4), and the workers have 4 devices",
            ),
        ];
        for (mesh, message) in cases {
            let error = mesh.validate(4, 2).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert_eq!(error.message(), message);
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn rows_that_overlap_between_workers_are_refused() {
        let mesh = |data, model| ModelParallel::new([("data", data), ("model", model)]);
        for (data, model, workers) in [(1, 8, 2), (2, 4, 2), (4, 2, 2), (8, 1, 2), (2, 4, 8), (2, 4, 4), (3, 2, 3)] {
            mesh(data, model).validate(u64::from(data * model), workers).unwrap();
        }
        for (data, model, workers) in [(3, 2, 2), (2, 3, 3)] {
            let error = mesh(data, model).validate(6, workers).unwrap_err();
            assert!(error.message().contains("share some rows of each batch and not all of them"), "{error}");
        }
        // With the batch's axis last all workers compute on all rows.
        mesh(4, 2).batch_axis("model").validate(8, 2).unwrap();
    }

    #[test]
    fn the_hook_gets_pairs() {
        let mesh = ModelParallel::new([("data", 1), ("model", 2)]).layout(".*kernel", [None, Some("model")]);
        assert_eq!(
            Distribution::ModelParallel(mesh).config(),
            json!({
                "kind": "model_parallel",
                "mesh": [["data", 1], ["model", 2]],
                "layouts": [[".*kernel", [null, "model"]]],
                "batch_dim": null,
            })
        );
    }
}
