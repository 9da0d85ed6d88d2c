//! Arguments that a `macro_rules!` passes on mean the same as those written directly.

use indoc::indoc;

macro_rules! payload {
    ($name:ident($($argument:ident: $ty:ty),*) -> $result:ty, $body:literal) => {
        #[skyward::compute]
        fn $name($($argument: $ty),*) -> $result {
            $body
        }
    };
    ($name:ident in $file:literal -> $result:ty) => {
        #[skyward::compute(python = $file)]
        fn $name(epochs: u32) -> $result;
    };
}

macro_rules! written {
    ($name:ident, $body:expr) => {
        #[skyward::compute]
        fn $name() -> u32 {
            $body
        }
    };
}

payload!(add(a: i64, b: Option<i64>) -> i64, "return a + (b or 0)");
payload!(losses in "tests/ui/payloads/train.py" -> skyward::payload::Streaming<f64>);
written!(one, "return 1");

#[test]
fn is_accepted() {
    assert_eq!(
        add(1, None).source().main_text(),
        indoc! {"
            def add(a, b):
                return a + (b or 0)
        "}
    );
    assert!(losses(1).into_task().unwrap().streaming);
    assert_eq!(one().source().entry(), "one");
}
