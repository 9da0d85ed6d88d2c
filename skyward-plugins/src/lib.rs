//! Skyward's plugins: each installs a framework, and prepares it on every worker before a payload
//! runs.
//!
//! | plugin | installs | on more than one worker |
//! |---|---|---|
//! | [`jax()`] | JAX for the nodes' accelerators | joins the workers into one JAX world |
//! | [`keras()`] | Keras, and its backend where no other plugin does | on JAX: data parallel over all devices, after [`jax()`] |
//! | [`torch()`] | PyTorch | joins the workers into one process group; one worker per accelerator |
//! | [`accelerate()`], [`transformers()`] | PyTorch with Accelerate, or Transformers too | `Accelerator` and `Trainer` find one world; one worker per accelerator |
//! | [`joblib()`], [`sklearn()`] | joblib, scikit-learn | `n_jobs` counts workers of the pool |
//!
//! Plugins apply in the order given. For plugins of your own, use [`plugin()`] for small ones, and
//! implement [`Plugin`](skyward_core::plugin::Plugin) for others.
//!
//! ```
//! # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
//! use skyward::plugin::Plugin;
//! use skyward::plugins;
//! use skyward::spec::{ClusterInfo, Image};
//!
//! let cluster = ClusterInfo::new(2, 1);
//! let image = plugins::jax().transform(Image::new(), &cluster)?;
//! let image = plugins::keras().seed(7).transform(image, &cluster)?;
//! assert_eq!(image.pip, ["jax", "keras>=3.11"]);
//! # Ok::<(), skyward_core::Error>(())
//! ```

mod accelerate;
mod build;
mod family;
mod fsdp;
mod jax;
mod joblib;
mod keras;
mod layout;
mod requirement;
mod torch;

pub use accelerate::{Accelerate, MixedPrecision, accelerate, transformers};
pub use fsdp::{Fsdp, StateDict};
pub use jax::{Jax, jax};
pub use joblib::{Joblib, joblib, sklearn};
pub use keras::{Backend, Keras, keras};
pub use layout::{Distribution, ModelParallel};
pub use skyward_core::plugin::{CustomPlugin, plugin};
pub use torch::{Collectives, Torch, torch};
