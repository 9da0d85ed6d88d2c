//! A Keras model whose weights are divided over two nodes with two devices each, and which trains
//! as on one device.
//!
//! ```sh
//! cargo run --release --example model_parallel                        # two nodes on this host, two CPU devices on each
//! cargo run --release --example model_parallel -- --json              # the last line is JSON
//! cargo run --release --example model_parallel -- --provider docker   # two containers
//! cargo run --release --example model_parallel -- --plan              # shows what would be launched, and launches nothing
//! ```

mod machines;

use std::collections::BTreeMap;

use machines::{Machines, read_words};

use serde::{Deserialize, Serialize};
use skyward::payload::Tensor;
use skyward::prelude::*;

/// The report of each node.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    /// The number of devices with a part of the model.
    devices: u32,
    /// For each weight, the shapes of its parts on this node's devices.
    shards: BTreeMap<String, Vec<Vec<u32>>>,
    /// Mean loss of each epoch.
    loss: Vec<f64>,
    /// The loss after training.
    evaluated: f64,
    /// The divided weights, put together.
    #[serde(skip_serializing)]
    kernel: Tensor,
}

/// Trains on a mesh with these numbers of devices along `data` and `model`; without a mesh, on one
/// device.
#[skyward::compute(python = "examples/payloads/model_parallel.py", payload = Train)]
fn train(epochs: u32, mesh: Option<[u32; 2]>) -> Report;

struct Options {
    machines: Machines,
    epochs: u32,
    json: bool,
    plan: bool,
}

const NODES: u32 = 2;
const DEVICES_PER_NODE: u32 = 2;
/// Both kinds of parallelism together, the data alone, and the model alone. Only the mesh differs.
const MESHES: [[u32; 2]; 3] = [[2, 2], [4, 1], [1, 4]];
/// The weights of the layer `d1`.
const KERNEL: [u32; 2] = [784, 200];

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let Options { machines, epochs, json, plan } = options();
    let builder = Pool::builder()
        .shared_provider(machines.provider())
        .nodes(NODES)
        .image(Image::new().env("JAX_NUM_CPU_DEVICES", DEVICES_PER_NODE.to_string()))
        .payload::<Train>()
        .plugin(plugins::jax())
        .plugin(plugins::keras().backend(Backend::Jax).seed(7))
        .terminal(Terminal::auto().output(!json));
    if plan {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    let (alone, meshes) = builder
        .scope(async |pool| {
            let alone = train(epochs, None).run_on(pool, Target::Head).await?;
            let mut meshes = Vec::new();
            for mesh in MESHES {
                meshes.push((mesh, train(epochs, Some(mesh)).broadcast(pool).await?));
            }
            Ok((alone, meshes))
        })
        .await?;
    assert_eq!(alone.devices, 1);
    assert!(alone.loss.is_sorted_by(|before, after| before > after), "the loss falls: {:?}", alone.loss);
    for (mesh, reports) in &meshes {
        check(*mesh, reports, &alone)?;
    }
    if json {
        let runs: Vec<_> =
            meshes.iter().map(|(mesh, reports)| serde_json::json!({ "mesh": mesh, "reports": reports })).collect();
        println!("{}", serde_json::json!({ "nodes": NODES, "one_device": alone, "runs": runs }));
    } else {
        println!("data × model  shards of {KERNEL:?} on node 0  last loss");
        for (mesh, reports) in std::iter::once(([1, 1], std::slice::from_ref(&alone)))
            .chain(meshes.iter().map(|(mesh, reports)| (*mesh, reports.as_slice())))
        {
            let (first, [data, model]) = (&reports[0], mesh);
            println!(
                "{data:>4} × {model:<5}  {:<32}  {:.6}",
                format!("{:?}", first.shards["d1/kernel"]),
                first.loss.last().unwrap_or(&f64::NAN)
            );
        }
    }
    Ok(())
}

/// Checks what the example claims about the training on one mesh.
fn check(mesh: [u32; 2], reports: &[Report], alone: &Report) -> skyward::Result<()> {
    let [_, model] = mesh;
    assert_eq!(reports.len(), NODES as usize, "one report per node");
    for report in reports {
        assert_eq!(report.devices, NODES * DEVICES_PER_NODE, "the model is on all devices");
        let shards = |weight: &str| &report.shards[weight];
        let each = DEVICES_PER_NODE as usize;
        assert_eq!(*shards("d1/kernel"), vec![vec![KERNEL[0], KERNEL[1] / model]; each], "divided along `model`");
        assert_eq!(*shards("d1/bias"), vec![vec![KERNEL[1] / model]; each], "divided along `model`");
        assert_eq!(*shards("d2/kernel"), vec![vec![KERNEL[1], 10]; each], "whole on each device");
        let losses = (&report.loss, report.evaluated);
        assert_eq!(losses, (&reports[0].loss, reports[0].evaluated), "all nodes see the same losses");
        assert_eq!(report.kernel, reports[0].kernel, "all nodes gather the same weights");

        let all = |report: &Report| [report.loss.as_slice(), &[report.evaluated]].concat();
        assert!(close(&all(report), &all(alone)), "the losses of one device on {mesh:?}: {report:?}, {alone:?}");
        let [divided, whole] = [report, alone].map(|report| report.kernel.to_vec::<f32>());
        let [divided, whole] = [divided?, whole?].map(|it| it.into_iter().map(f64::from).collect::<Vec<_>>());
        assert!(close(&divided, &whole), "the weights of one device on {mesh:?}");
    }
    Ok(())
}

/// Whether the numbers are equal except for rounding, which depends on the order of sums.
fn close(these: &[f64], those: &[f64]) -> bool {
    these.len() == those.len() && these.iter().zip(those).all(|(a, b)| (a - b).abs() <= 1e-4 + 1e-4 * b.abs())
}

fn options() -> Options {
    let mut options = Options { machines: Machines::default(), epochs: 3, json: false, plan: false };
    read_words("model_parallel [--epochs N] [--json] [--plan]", |word, words| {
        match word {
            "--epochs" => options.epochs = words.next()?.parse().ok()?,
            "--json" => options.json = true,
            "--plan" => options.plan = true,
            other => options.machines.read(other, words)?,
        }
        Some(())
    });
    options
}
