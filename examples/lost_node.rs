//! A node is lost while its task runs: another one takes its place, and the task is tried again.
//!
//! ```sh
//! cargo run --example lost_node
//! ```

use skyward::prelude::*;

/// Counts. On the first try, kills its node's agent, which ends all processes of the node.
#[skyward::compute]
fn count(upto: u32, marker: &str) -> u32 {
    "
    import os
    import pathlib
    import signal
    import time

    for number in range(1, upto + 1):
        print('counted to', number)
        if number == 2 and not pathlib.Path(marker).exists():
            pathlib.Path(marker).touch()
            time.sleep(0.5)
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
    return upto
    "
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let marker = std::env::temp_dir().join(format!("skyward-lost-node-{}", std::process::id()));
    let counted = Pool::builder()
        .provider(Local::default())
        .nodes(2)
        .terminal(Terminal::auto())
        .scope(async |pool| {
            let call = count(3, &marker.to_string_lossy());
            let counted = call.run_on(pool, Target::Node(NodeIndex(1))).await?;
            println!("counted to {counted}, and node 1 is there: {}", pool.status().nodes[1].ready);
            Ok(counted)
        })
        .await;
    // The payload makes the file; if it did not, there is nothing to remove.
    let _ = std::fs::remove_file(&marker);
    assert_eq!(counted?, 3);
    Ok(())
}
