//! Every plugin holds the plugin contract.

use std::time::Duration;

use skyward_core::testkit::plugin_suite;
use skyward_plugins::{Backend, Distribution, jax, keras, torch};

#[test]
fn jax_holds_the_contract() {
    plugin_suite::all(&jax()).unwrap();
    plugin_suite::all(&jax().cuda("13").version("0.10.2").timeout(Duration::from_secs(30))).unwrap();
}

#[test]
fn keras_holds_the_contract() {
    for backend in [Backend::Jax, Backend::Torch, Backend::Tensorflow] {
        plugin_suite::all(&keras().backend(backend)).unwrap();
    }
    plugin_suite::all(&keras().seed(1).distribution(Distribution::DataParallel)).unwrap();
}

#[test]
fn torch_holds_the_contract() {
    plugin_suite::all(&torch()).unwrap();
}
