#[skyward::compute]
fn train(lambda: f64, is: bool) -> f64 {
    "return lambda"
}

fn main() {}
