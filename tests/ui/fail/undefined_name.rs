#[skyward::compute]
fn misspelt(epochs: u32, rate: f64) -> f64 {
    "
    loss = 1.0
    for epoch in range(epoch_count):
        loss *= 1 - raet
    return los
    "
}

#[skyward::compute]
fn not_imported(values: Vec<f64>) -> f64 {
    "return float(np.mean(values))"
}

#[skyward::compute]
fn nested(values: Vec<f64>) -> Vec<f64> {
    "
    class Scale:
        factor = 2.0

        def apply(self, value):
            return value * factor

    return [Scale().apply(value) for value in values if value < limit]
    "
}

fn main() {}
