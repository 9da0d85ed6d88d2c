#[skyward::compute]
fn square(x: i64) -> i64 {
    "return x * x"
}

async fn alone() -> skyward::Result<i64> {
    square(3).await
}

async fn together() -> skyward::Result<(i64, i64)> {
    (square(1) & square(2)).await
}

fn main() {}
