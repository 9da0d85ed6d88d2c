//! One Python function, called from Rust: on one node, on every node, and in parallel.
//!
//! ```sh
//! cargo run --example hello
//! cargo run --example hello -- --plan   # shows what would be launched, and launches nothing
//! ```

use skyward::prelude::*;

/// The function's body contains the Python code; the arguments are in scope.
#[skyward::compute]
fn greet(name: String) -> String {
    r#"
    import skyward as sky

    info = sky.instance_info()
    return f"hello {name}, from rank {info.global_worker_index} of {info.total_workers}"
    "#
}

#[skyward::compute]
fn square(x: i64) -> i64 {
    "return x * x"
}

#[tokio::main]
async fn main() -> skyward::Result<()> {
    let builder = Pool::builder().nodes(2).terminal(Terminal::auto());
    if std::env::args().any(|word| word == "--plan") {
        println!("{}", builder.plan().await?);
        return Ok(());
    }
    builder
        .scope(async |pool| {
            let one = greet("you".into()).run_on(pool, Target::Head).await?;
            assert_eq!(one, "hello you, from rank 0 of 2");

            let all = greet("all".into()).broadcast(pool).await?;
            assert_eq!(all[1], "hello all, from rank 1 of 2");

            let (three, four) = (square(3) & square(4)).run(pool).await?;
            assert_eq!(three, 9);
            assert_eq!(four, 16);

            let squares = pool.map((0..100).map(square)).await?;
            assert_eq!(squares.iter().sum::<i64>(), 328_350);

            println!("{one}\n{}\n3² + 4² = {}", all.join("\n"), three + four);
            Ok(())
        })
        .await
}
