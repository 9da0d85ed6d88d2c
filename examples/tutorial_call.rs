//! The first step of the tutorial: one Python function, called from Rust.
//!
//! ```sh
//! cargo run --example tutorial_call
//! ```

use skyward::prelude::*;

/// The function's body contains the Python code; the arguments are in scope.
#[skyward::compute]
fn slope(xs: Vec<f64>, ys: Vec<f64>) -> f64 {
    "
    import statistics
    return statistics.linear_regression(xs, ys).slope
    "
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let slope = Pool::builder()
        .provider(Local::default())
        .scope(async |pool| slope(vec![1.0, 2.0, 3.0], vec![2.0, 4.5, 7.0]).run(pool).await)
        .await?;
    println!("slope: {slope}");
    Ok(())
}
