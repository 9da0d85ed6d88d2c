use skyward::prelude::*;

struct Train;

fn main() {
    let _ = Pool::builder().payload::<Train>();
    let _ = Pool::builder().plugin("jax");
}
