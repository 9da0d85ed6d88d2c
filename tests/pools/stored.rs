//! Large arrays in calls within calls: written once, and sent once to each further node.

use std::collections::BTreeMap;

use crate::common::{pool, soon};
use skyward::compute::PendingCompute;
use skyward::payload::Payload;
use skyward::prelude::plugins;
use skyward::spec::{Image, Limits};

const SOURCE: &str = include_str!("../payloads/stored.py");

/// The rank, the sum, the number of written files, and how many of them were received.
type Seen = (u32, f64, u32, u32);

fn call(entry: &'static str, size: u64) -> PendingCompute<Vec<Seen>> {
    Payload::python("stored.py", SOURCE, entry).arg("size", size).into()
}

/// Checks the sums of all calls, and that each of the two nodes has received the array once.
fn check(seen: &[Seen], size: u64) {
    let total: f64 = seen.iter().map(|seen| seen.1).sum();
    assert_eq!(total, (size * (size - 1) / 2) as f64);
    let ranks: BTreeMap<u32, (u32, u32)> = seen.iter().map(|seen| (seen.0, (seen.2, seen.3))).collect();
    assert!(ranks.keys().any(|rank| *rank < 2) && ranks.keys().any(|rank| *rank >= 2), "{seen:?}");
    let (written, received) = ranks.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(written, 2, "{seen:?}");
    assert_eq!(received, 1, "{seen:?}");
}

#[tokio::test]
async fn a_large_array_is_stored_once_on_each_node() {
    // The array is larger than a frame may be.
    let mut limits = Limits::default();
    limits.max_frame_bytes = 4 << 20;
    for entry in ["submitted", "shared", "parallel"] {
        pool(2)
            .limits(limits)
            .plugin(plugins::joblib().concurrency(2).inner_threads(1))
            .image(Image::new().pip(["numpy"]))
            .scope(async |pool| {
                check(&soon(entry, call(entry, SIZE).run(pool)).await?, SIZE);
                Ok(())
            })
            .await
            .unwrap();
    }
}

/// The number of values of 8 bytes each.
const SIZE: u64 = 2_000_000;
