//! Every plugin holds the plugin contract.

use std::time::Duration;

use skyward_core::payload::RetryPolicy;
use skyward_core::testkit::plugin_suite;
use skyward_plugins::{
    Backend, Distribution, Fsdp, MixedPrecision, accelerate, jax, joblib, keras, sklearn, torch, transformers,
};

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

#[test]
fn accelerate_and_transformers_hold_the_contract() {
    for plugin in [accelerate(), transformers()] {
        plugin_suite::all(&plugin).unwrap();
        let options = plugin.mixed_precision(MixedPrecision::Bf16).fsdp(Fsdp::wrap_model_layers());
        plugin_suite::all(&options.clone().checkpoints("run-42")).unwrap();
        plugin_suite::all(&options.version("1.15.0").timeout(Duration::from_secs(30))).unwrap();
    }
}

#[test]
fn joblib_holds_the_contract() {
    for plugin in [joblib(), sklearn()] {
        plugin_suite::all(&plugin).unwrap();
        plugin_suite::all(&plugin.inner_threads(1).retry(RetryPolicy::for_calls()).caller_helps(false)).unwrap();
    }
}
