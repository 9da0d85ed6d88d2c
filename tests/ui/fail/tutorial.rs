#[skyward::compute]
fn slope(xs: Vec<f64>, ys: Vec<f64>) -> f64 {
    "
    import statistics
    return statistics.linear_regression(xs, y).slope
    "
}

fn main() {}
