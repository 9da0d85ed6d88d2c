//! Rehearses a call on two ranks of this host before its pool costs anything: first with a
//! mistake, then without.
//!
//! ```sh
//! cargo run --example rehearse
//! ```

use skyward::pool::FindingKind;
use skyward::prelude::*;

/// The mean of each rank's part of the values.
#[skyward::compute]
fn mean(values: Vec<f64>) -> f64 {
    "
    import skyward as sky

    part = list(sky.shard(values))
    return sum(part) / len(part)
    "
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    // The pool for the call. A rehearsal does not ask for its machines.
    let builder =
        Pool::builder().nodes(16).accelerator(Accelerator::new("H100", 8)).budget(Budget::usd_per_hour(400.0));

    // One value for two ranks: the second rank divides by zero.
    let rehearsal = builder.rehearse(mean(vec![1.0]), 2, 1).await?;
    println!("{rehearsal}\n");
    assert!(!rehearsal.is_clean());
    assert_eq!(rehearsal.findings[0].kind, FindingKind::Raised);
    assert_eq!(&rehearsal.findings[0].ranks[..], &[Rank(1)][..]);

    let rehearsal = builder.rehearse(mean(vec![1.0, 3.0]), 2, 1).await?;
    println!("{rehearsal}");
    assert!(rehearsal.is_clean());
    assert_eq!(rehearsal.results, Some(vec![1.0, 3.0]));
    Ok(())
}
