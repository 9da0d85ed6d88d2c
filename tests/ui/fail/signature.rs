#[skyward::compute]
async fn asynchronous() -> u8 {
    "return 1"
}

#[skyward::compute]
fn generic<T, const N: usize>((a, b): (u8, u8), mut c: u8) -> impl Copy {
    "return c"
}

struct Trainer;

impl Trainer {
    #[skyward::compute]
    fn method(&self) -> u8 {
        "return 1"
    }
}

#[skyward::compute]
struct NoFunction;

fn main() {}
