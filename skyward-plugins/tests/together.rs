//! The plugins as a pool sees them: their order, what they make of an image, and that they are
//! pure.

use std::sync::Arc;

use skyward_core::error::ErrorKind;
use skyward_core::plugin::{HookKind, Plugin, PluginSet};
use skyward_core::spec::{Accelerator, ClusterInfo, Image};
use skyward_plugins::{Backend, Distribution, ModelParallel, accelerate, jax, keras, sklearn, torch, transformers};

type List = Vec<Arc<dyn Plugin>>;

macro_rules! list {
    ($($plugin:expr),*) => {{ let list: List = vec![$(Arc::new($plugin)),*]; list }};
}

fn set(list: List) -> PluginSet {
    let mut set = PluginSet::default();
    list.into_iter().for_each(|plugin| set.push(plugin));
    set
}

fn keras_torch() -> skyward_plugins::Keras {
    keras().backend(Backend::Torch)
}

#[test]
fn lists_that_fit() {
    let one = ClusterInfo::new(1, 1);
    let two = ClusterInfo::new(2, 1);
    let lists: Vec<(List, &ClusterInfo)> = vec![
        (list![], &two),
        (list![jax(), keras()], &two),
        (list![torch(), keras_torch()], &two),
        (list![keras()], &one),
        (list![keras_torch()], &one),
        (list![keras(), jax()], &one),
        (list![jax(), torch(), keras()], &one),
        (list![keras().distribution(Distribution::None)], &two),
        (list![torch(), keras().distribution(Distribution::None)], &two),
        (list![keras().backend(Backend::Tensorflow)], &two),
        (list![transformers()], &two),
        (list![accelerate(), sklearn()], &two),
        (list![transformers(), keras_torch().distribution(Distribution::None)], &two),
        (list![jax(), accelerate()], &one),
    ];
    for (list, cluster) in lists {
        let names = format!("{list:?}");
        set(list).check(cluster).unwrap_or_else(|error| panic!("{names} on {cluster:?}: {error}"));
    }
    let elastic = ClusterInfo::new(1, 1).elastic(true);
    set(list![keras().distribution(Distribution::None)]).check(&elastic).unwrap();
}

const NEEDS_JAX: &str = "`keras` needs `jax` before it, because it joins the workers into the world whose devices keras trains on (for a model in each worker alone: \
     `plugins::keras().distribution(Distribution::None)`); `jax`";
const NEEDS_TORCH: &str = "`keras` needs `torch` before it, because it makes the process group over which the payload averages gradients (for a model in each worker alone: \
     `plugins::keras().backend(Backend::Torch).distribution(Distribution::None)`); `torch`";
const TORCH_BESIDE_KERAS: &str = "`keras` cannot be used with `torch`, because keras trains in the world of jax, and the plugin torch would replace that world";
const TWO_WORLDS: &str = "`torch` cannot be used with `jax`, because each joins all workers into one world, and a pool has one rendezvous; \
     a framework that you need only as a library goes into the image: `.pip([\"torch\"])`";
const ONE_IS_ENOUGH: &str = "`transformers` cannot be used with `accelerate`, because `transformers` is `accelerate` with Transformers, and one of them is enough";
const JAX_KERAS: &[&str] = &["plugins::jax()", "plugins::keras()"];
const TORCH_KERAS: &[&str] = &["plugins::torch()", "plugins::keras().backend(Backend::Torch)"];

/// Checks that a list is refused for all of these problems, with the lines of the corrected list.
fn assert_refused(list: List, problems: &[&str], fixed: &[&str]) {
    let message = match problems {
        [one] => (*one).to_owned(),
        many => format!("the plugins do not fit together:\n- {}", many.join("\n- ")),
    };
    let lines: Vec<_> = fixed.iter().map(|line| format!("    .plugin({line})")).collect();
    for cluster in [ClusterInfo::new(2, 1), ClusterInfo::new(1, 2)] {
        let refused = set(list.clone()).check(&cluster).err();
        let found = refused.as_ref().map(|error| (error.kind(), error.message(), error.hint()));
        let hint = format!("the corrected list:\n{}", lines.join("\n"));
        assert_eq!(found, Some((ErrorKind::Plugins, &*message, Some(&*hint))), "{list:?}");
    }
}

#[test]
fn a_plugin_that_is_required_before_another_is_named() {
    let missing = |needs: &str| format!("{needs} is not in the list");
    let late = format!("{NEEDS_JAX} comes after it");
    assert_refused(list![keras()], &[&missing(NEEDS_JAX)], JAX_KERAS);
    assert_refused(list![keras(), jax()], &[&late], JAX_KERAS);
    assert_refused(
        list![keras().seed(7), jax().cuda("13")],
        &[&late],
        &["plugins::jax().cuda(\"13\")", "plugins::keras().seed(7)"],
    );
    assert_refused(list![keras_torch()], &[&missing(NEEDS_TORCH)], TORCH_KERAS);
    assert_refused(list![transformers(), keras_torch()], &[&missing(NEEDS_TORCH)], TORCH_KERAS);
    assert_refused(list![torch(), keras()], &[&missing(NEEDS_JAX), TORCH_BESIDE_KERAS], JAX_KERAS);
}

#[test]
fn a_plugin_that_is_listed_twice_is_refused() {
    let twice = |name: &str, places: &str| {
        format!("`{name}` is listed twice (places {places}), and each worker would enter it twice")
    };
    assert_refused(list![jax(), jax(), keras()], &[&twice("jax", "1, 2")], JAX_KERAS);
    assert_refused(
        list![keras(), keras(), jax(), jax()],
        &[&twice("keras", "1, 2"), &twice("jax", "3, 4"), &format!("{NEEDS_JAX} comes after it")],
        JAX_KERAS,
    );
}

#[test]
fn plugins_that_exclude_each_other_are_refused() {
    let transformers_after_jax =
        TWO_WORLDS.replace("`torch`", "`transformers`").replace("[\"torch\"]", "[\"transformers\"]");
    let jax_after_torch = TWO_WORLDS
        .replace("`torch` cannot be used with `jax`", "`jax` cannot be used with `torch`")
        .replace("[\"torch\"]", "[\"jax\"]");
    let beside_torch = |name: &str, who: &str| {
        format!(
            "`{name}` cannot be used with `torch`, because it installs PyTorch itself, and `{who}` makes the process group that `torch` would make"
        )
    };
    assert_refused(list![jax(), torch()], &[TWO_WORLDS], &["plugins::jax()"]);
    assert_refused(list![jax(), transformers()], &[&transformers_after_jax], &["plugins::jax()"]);
    assert_refused(list![torch(), jax(), keras()], &[TORCH_BESIDE_KERAS, &jax_after_torch], JAX_KERAS);
    assert_refused(list![transformers(), accelerate()], &[ONE_IS_ENOUGH], &["plugins::transformers()"]);
    assert_refused(
        list![transformers(), torch()],
        &[&beside_torch("transformers", "Trainer")],
        &["plugins::transformers()"],
    );
    assert_refused(
        list![torch().cuda("12.6"), accelerate()],
        &[&beside_torch("accelerate", "Accelerator")],
        &["plugins::accelerate()"],
    );
}

#[test]
fn a_world_needs_a_fixed_number_of_nodes() {
    let elastic = ClusterInfo::new(2, 1).elastic(true);
    let fixed_size = |name: &str| {
        format!(
            "`{name}` joins all workers into one world of fixed size, and the number of nodes of this pool may change"
        )
    };
    for (list, name) in
        [(list![jax(), keras()], "jax"), (list![torch()], "torch"), (list![transformers()], "transformers")]
    {
        let error = set(list).check(&elastic).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Plugins);
        assert_eq!(error.message(), fixed_size(name));
        assert_eq!(error.hint(), Some("give the pool a fixed number of nodes: `.nodes(2)`"));
    }
}

/// What a whole list makes of an image, in full.
#[test]
fn images() {
    let cpus = ClusterInfo::new(2, 1);
    let gpus = ClusterInfo::new(2, 1).accelerator(Accelerator::new("A100", 8));
    let ranks = ClusterInfo::new(2, 8).accelerator(Accelerator::new("A100", 8));
    let image = || Image::new().pip(["numpy"]).env("A", "B");
    let cases = [
        (list![jax(), keras()], &cpus, image().pip(["jax", "keras>=3.11"]).env("KERAS_BACKEND", "jax")),
        (
            list![jax().cuda("cu130"), keras().version("3.15.1")],
            &gpus,
            image().pip(["jax[cuda13]", "keras==3.15.1"]).env("KERAS_BACKEND", "jax"),
        ),
        (list![torch(), keras_torch()], &cpus, image().pip(["torch", "keras>=3.11"]).env("KERAS_BACKEND", "torch")),
        (
            list![torch().cuda("12.6").version("2.9.1")],
            &ranks,
            image().pip(["torch==2.9.1"]).index(
                skyward_core::spec::PackageIndex::new("pytorch", "https://download.pytorch.org/whl/cu126").only([
                    "torch",
                    "torchvision",
                    "torchaudio",
                    "pytorch-triton",
                    "pytorch-triton-rocm",
                    "pytorch-triton-xpu",
                ]),
            ),
        ),
    ];
    for (list, cluster, expected) in cases {
        let set = set(list);
        set.check(cluster).unwrap();
        assert_eq!(set.transform(image(), cluster).unwrap(), expected);
        // Pure: again the same, and nothing of the user's is lost.
        assert_eq!(set.transform(image(), cluster).unwrap(), expected);
        assert_eq!(set.hooks(cluster), set.hooks(cluster));
    }
}

#[test]
fn hooks_are_entered_in_the_order_of_the_list() {
    let mesh = ModelParallel::new([("data", 1), ("model", 2)]);
    let set = set(list![jax(), keras().distribution(Distribution::ModelParallel(mesh))]);
    let hooks = set.hooks(&ClusterInfo::new(2, 1));
    let order: Vec<_> = hooks.iter().map(|(plugin, hook)| (&**plugin, hook.kind, &*hook.factory)).collect();
    assert_eq!(
        order,
        [
            ("jax", HookKind::App, "around_app"),
            ("keras", HookKind::App, "around_app"),
            ("keras", HookKind::Task, "around_task")
        ]
    );
}
