#[skyward::compute]
fn no_payload(epochs: u32) -> u32 {
    epochs + 1
}

#[skyward::compute]
fn wrapped(epochs: u32) -> PendingCompute<u32> {
    "return epochs"
}

#[skyward::compute]
fn python(epochs: u32) -> Payload<u32> {
    "return epochs"
}

#[skyward::compute(unchecked)]
fn unchecked(epochs: u32) -> Payload<u32> {
    Payload::python("a.py", "def f(epochs): return epochs", "f").arg("epochs", epochs)
}

fn main() {}
