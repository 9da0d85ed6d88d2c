struct Trainer {
    epochs: u32,
}

impl Trainer {
    #[skyward::compute]
    fn method(&self) -> u32 {
        "return self.epochs"
    }

    #[skyward::compute(payload = Train)]
    fn with_a_type(epochs: u32) -> u32 {
        "return epochs"
    }
}

fn main() {}
