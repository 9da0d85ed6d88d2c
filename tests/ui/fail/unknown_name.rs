#[skyward::compute(python = "payloads/misspelt.py")]
fn train(samples: Vec<i64>) -> Vec<i64>;

#[skyward::compute]
fn rank() -> u32 {
    "
    from skyward import instance_inof

    return instance_inof().rank
    "
}

#[skyward::compute]
fn mine(samples: Vec<i64>) -> Vec<i64> {
    "
    import skyward

    return skyward.split(samples)
    "
}

fn main() {}
