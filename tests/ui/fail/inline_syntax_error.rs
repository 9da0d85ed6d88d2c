#[skyward::compute]
fn train(epochs: u32) -> u32 {
    r#"
    for epoch in range(epochs):
        print(epoch
    return epochs
    "#
}

#[skyward::compute]
fn outside(epochs: u32) -> u32 {
    r#"
    if epochs:
        break
    return epochs
    "#
}

#[skyward::compute]
fn escaped(epochs: u32) -> u32 {
    "x = 1\nreturn x +\n"
}

fn main() {}
