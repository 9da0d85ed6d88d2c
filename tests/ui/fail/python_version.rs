#[skyward::compute(python = "payloads/newer.py")]
fn train(epochs: u32) -> u32;

#[skyward::compute]
fn inline(names: Vec<String>) -> String {
    r#"
    return f"{", ".join(names)}"
    "#
}

#[skyward::compute]
fn declared(names: Vec<String>) -> String {
    r#"
    # /// script
    # requires-python = ">=3.12"
    # ///
    first, *rest = names
    try:
        return f"{", ".join(rest)}"
    except KeyError, ValueError:
        return first
    "#
}

fn main() {}
