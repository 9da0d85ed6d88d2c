struct Model;

#[skyward::compute]
fn train(model: Model, epochs: u32) -> u32 {
    "return epochs"
}

fn main() {}
