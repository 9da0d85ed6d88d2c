use super::*;
use crate::StateDict;

fn cpus() -> ClusterInfo {
    ClusterInfo::new(2, 1)
}

fn gpus(kind: &str) -> ClusterInfo {
    ClusterInfo::new(2, 4).accelerator(Accelerator::new(kind, 4))
}

fn layers() -> Fsdp {
    Fsdp::wrap("LlamaDecoderLayer")
}

#[test]
fn packages_are_added_to_those_that_are_there() {
    for (plugin, packages) in [
        (accelerate(), vec!["datasets", "torch", "numpy", "accelerate>=1.6"]),
        (transformers(), vec!["datasets", "torch", "numpy", "accelerate>=1.6", "transformers"]),
        (
            accelerate().version("1.15.0").torch_version("2.2.2"),
            vec!["datasets", "torch==2.2.2", "numpy<2", "accelerate==1.15.0"],
        ),
        (
            transformers().version(">=5,<6").torch_version(">=2.8"),
            vec!["datasets", "torch>=2.8", "numpy", "accelerate>=1.6", "transformers>=5,<6"],
        ),
    ] {
        let image = plugin.transform(Image::new().pip(["datasets"]), &cpus()).unwrap();
        assert_eq!(image.pip, packages);
        assert!(image.env.is_empty() && image.indexes.is_empty());
    }
}

#[test]
fn torch_is_installed_as_the_torch_plugin_installs_it() {
    for (accelerate, torch, cluster) in [
        (transformers().cuda("cu126"), crate::torch().cuda("cu126"), gpus("H100")),
        (transformers().cuda("cu126"), crate::torch().cuda("cu126"), cpus()),
        (accelerate().cuda("rocm6.4"), crate::torch().cuda("rocm6.4"), gpus("MI300X")),
        (
            accelerate().index("https://mirror.example/torch"),
            crate::torch().index("https://mirror.example/torch"),
            gpus("v5e"),
        ),
    ] {
        let (found, expected) =
            (accelerate.transform(Image::new(), &cluster).unwrap(), torch.transform(Image::new(), &cluster).unwrap());
        assert_eq!(found.indexes, expected.indexes);
        assert_eq!(&found.pip[..2], &expected.pip[..]);
        assert_eq!(
            accelerate.workers_per_node(cluster.accelerator.as_ref()),
            torch.workers_per_node(cluster.accelerator.as_ref())
        );
    }
    let error = transformers().transform(Image::new(), &gpus("v5e")).unwrap_err();
    assert_eq!(
        error.message(),
        "the plugin `transformers` cannot serve v5e, which is of the family Google TPU: it installs no build of PyTorch for it"
    );
    assert_eq!(
        error.hint(),
        Some("choose an index that has one by `plugins::transformers().index(…)`, or ask for an accelerator of NVIDIA")
    );
    let error = accelerate().transform(Image::new(), &gpus("MI300X")).unwrap_err();
    assert!(error.hint().unwrap().contains("by `plugins::accelerate().cuda(…)`"), "{error:?}");
}

#[test]
fn what_accelerate_would_leave_out_is_refused() {
    let one = ClusterInfo::new(1, 1).accelerator(Accelerator::new("H100", 1));
    let mirror = || accelerate().index("https://mirror.example/torch");
    let fp16 = MixedPrecision::Fp16;
    for (plugin, cluster, message, hint) in [
        (
            transformers().fsdp(layers()),
            cpus(),
            "the plugin `transformers` cannot divide a model by FSDP on nodes without an accelerator: Accelerate would train \
             a whole model on each",
            "ask for accelerators: `.accelerator(…)`, or leave `.fsdp(…)` out",
        ),
        (
            accelerate().fsdp(layers()),
            one,
            "the plugin `accelerate` cannot divide a model by FSDP in a pool of one worker: Accelerate would train the whole \
             model",
            "ask for more nodes or accelerators, or leave `.fsdp(…)` out",
        ),
        (
            mirror().fsdp(layers()),
            gpus("v5e"),
            "the plugin `accelerate` cannot divide a model by FSDP on Google TPU: Accelerate reads its variables on other \
             accelerators only",
            "leave `.fsdp(…)` out, and divide the model in the payload: `TrainingArguments(fsdp_config={\"xla\": True, …})`",
        ),
        (
            accelerate().fsdp(Fsdp::wrap("a b")),
            gpus("H100"),
            "\"a b\" is not the name of a Python class",
            "name one class, without its module: `Fsdp::wrap(\"LlamaDecoderLayer\")`; others by `.and(…)`",
        ),
        (
            accelerate().mixed_precision(fp16),
            cpus(),
            "the plugin `accelerate` cannot compute in fp16 on nodes without an accelerator: Accelerate would compute in fp32",
            "ask for accelerators: `.accelerator(…)`, or choose `MixedPrecision::Bf16`",
        ),
        (
            mirror().mixed_precision(fp16),
            gpus("Trn1"),
            "the plugin `accelerate` cannot compute in fp16 on accelerators of AWS Neuron",
            "choose `MixedPrecision::Bf16`",
        ),
    ] {
        let error = plugin.transform(Image::new(), &cluster).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert_eq!(error.message(), message);
        assert_eq!(error.hint(), Some(hint));
    }
    let crowded = ClusterInfo::new(1, 5).accelerator(Accelerator::new("H100", 4));
    let error = accelerate().transform(Image::new(), &crowded).unwrap_err();
    assert_eq!(error.message(), "a node has 5 workers and 4× H100");
}

#[test]
fn precision_holds_for_every_task_and_fsdp_where_all_run_together() {
    for (precision, name, cluster) in [
        (MixedPrecision::Bf16, "bf16", cpus()),
        (MixedPrecision::Bf16, "bf16", gpus("H100")),
        (MixedPrecision::Fp16, "fp16", gpus("H100")),
    ] {
        let image = accelerate().mixed_precision(precision).transform(Image::new(), &cluster).unwrap();
        assert_eq!(image.env.into_iter().collect::<Vec<_>>(), [(PRECISION.to_owned(), name.to_owned())]);
    }
    let plugin = transformers().fsdp(layers().state_dict(StateDict::Sharded)).timeout(Duration::from_secs(9));
    assert!(plugin.transform(Image::new(), &gpus("H100")).unwrap().env.is_empty());
    let app = plugin.around_app(&gpus("H100")).unwrap();
    let variables = json!({
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_RESHARD_AFTER_FORWARD": "true",
        "FSDP_OFFLOAD_PARAMS": "false",
        "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer",
    });
    assert_eq!(app.config, json!({"timeout": 9.0, "cuda": true, "fsdp": variables, "checkpoints": null}));
}

#[test]
fn an_image_that_sets_a_variable_otherwise_is_refused() {
    let plugin = transformers().mixed_precision(MixedPrecision::Bf16).fsdp(layers());
    for (name, value, ours) in [(PRECISION, "fp16", "bf16"), ("FSDP_VERSION", "1", "2")] {
        let error = plugin.transform(Image::new().env(name, value), &gpus("H100")).unwrap_err();
        let message = format!("the plugin `transformers` sets {name} to {ours:?}, and the image to {value:?}");
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert_eq!(error.message(), &*message);
        plugin.transform(Image::new().env(name, ours), &gpus("H100")).unwrap();
    }
}

#[test]
fn hooks_are_there_where_they_matter() {
    let one = |workers| ClusterInfo::new(1, workers).accelerator(Accelerator::new("H100", workers));
    for (cluster, joins, cuda) in [
        (ClusterInfo::new(1, 1), false, false),
        (one(1), false, true),
        (one(8), true, true),
        (cpus(), true, false),
        (ClusterInfo::new(1, 2), true, false),
        (gpus("MI300X"), true, true),
        (gpus("v5e"), true, false),
        (gpus("X9"), true, true),
        (ClusterInfo::new(2, 1).accelerator(Accelerator::new("H100", 8)), true, true),
    ] {
        for plugin in [accelerate(), transformers()] {
            assert_eq!(plugin.joins_world(&cluster), joins);
            assert_eq!(plugin.world(), "torch");
            let app = plugin.around_app(&cluster);
            assert_eq!(app.as_ref().is_some_and(|hook| hook.config["cuda"] == cuda), joins, "{cluster:?}");
            assert_eq!(plugin.around_task(&cluster).is_some(), joins, "{cluster:?}");
        }
    }
}

#[test]
fn checkpoints_have_hooks_on_one_worker_too() {
    let plugin = transformers().checkpoints("run-42");
    for cluster in [ClusterInfo::new(1, 1), cpus()] {
        let cluster = cluster.storage(true);
        assert_eq!(plugin.joins_world(&cluster), cluster.nodes == 2);
        plugin.transform(Image::new(), &cluster).unwrap();
        for hook in [plugin.around_app(&cluster), plugin.around_task(&cluster)] {
            assert_eq!(hook.unwrap().config["checkpoints"], "run-42");
        }
    }
}

#[test]
fn checkpoints_that_nothing_could_keep_are_refused() {
    let stored = ClusterInfo::new(1, 1).storage(true);
    for (plugin, cluster, message, hint) in [
        (
            transformers().checkpoints("run-42"),
            ClusterInfo::new(1, 1),
            "the plugin `transformers` keeps the checkpoints \"run-42\", and the pool has no storage for them",
            "name one where the pool is built: `.storage(Storage::folder(\"/data/runs\"))`",
        ),
        (
            accelerate().checkpoints("run-42"),
            stored.clone(),
            "the plugin `accelerate` keeps no checkpoints: only the `Trainer` of Transformers says when it saves",
            "use `plugins::transformers().checkpoints(…)`, or `sky.checkpoints` in the payload",
        ),
        (
            transformers().checkpoints("run/42"),
            stored,
            "`run/42` is no name of checkpoints",
            "use 1 to 100 letters from A to Z, digits, `.`, `_` and `-`, with no `.` at the beginning: `run-42`",
        ),
    ] {
        let error = plugin.transform(Image::new(), &cluster).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert_eq!((error.message(), error.hint()), (message, Some(hint)));
    }
}

#[test]
fn it_is_written_as_it_was_made() {
    for (plugin, written) in [
        (accelerate(), "plugins::accelerate()"),
        (
            transformers().cuda("12.6").torch_version("2.9.1").version("5.23.0"),
            "plugins::transformers().cuda(\"12.6\").torch_version(\"2.9.1\").version(\"5.23.0\")",
        ),
        (
            accelerate().mixed_precision(MixedPrecision::Bf16).fsdp(layers()),
            "plugins::accelerate().mixed_precision(MixedPrecision::Bf16).fsdp(…)",
        ),
        (transformers().checkpoints("run-42"), "plugins::transformers().checkpoints(\"run-42\")"),
    ] {
        assert_eq!(plugin.constructor(), written);
    }
}
