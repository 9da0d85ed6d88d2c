use skyward::payload::Payload;

#[skyward::compute(payload = "Train")]
fn quoted() -> u32 {
    "return 1"
}

#[skyward::compute(payload = Build)]
fn build() -> Payload<u32> {
    Payload::python("one.py", "def one():\n    return 1\n", "one")
}

fn main() {}
