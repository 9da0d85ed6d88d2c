struct Report;

#[skyward::compute]
fn train(epochs: u32) -> Report {
    "return epochs"
}

fn main() {}
