#[skyward::compute(python = "payloads/metadata.py")]
fn train();

#[skyward::compute]
fn inline() {
    r#"
    # /// script
    # dependencies = "numpy"
    # ///
    import numpy
    "#
}

fn main() {}
