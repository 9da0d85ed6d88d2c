//! A Rust body builds the payload.

use indoc::{formatdoc, indoc};
use skyward::compute::PendingCompute;
use skyward::payload::{Payload, Streaming};

#[skyward::compute]
fn power(exponent: u32, x: f64) -> Payload<f64> {
    if exponent == 0 {
        return Payload::python(
            "one.py",
            indoc! {"
                def one():
                    return 1.0
            "},
            "one",
        );
    }
    let text = formatdoc! {"
        def power(x):
            return x ** {exponent}
    "};
    Payload::python("power.py", text, "power").arg("x", x)
}

#[skyward::compute]
fn count((from, to): (u32, u32)) -> skyward::payload::Payload<Streaming<u32>> {
    Payload::python(
        "count.py",
        indoc! {"
            def count(a, b):
                yield from range(a, b)
        "},
        "count",
    )
    .arg("a", from)
    .arg("b", to)
}

#[test]
fn is_accepted() {
    let pending: PendingCompute<f64> = power(2, 3.0);
    assert_eq!(
        pending.source().main_text(),
        indoc! {"
            def power(x):
                return x ** 2
        "}
    );
    assert_eq!(power(0, 3.0).source().entry(), "one");
    let counted: PendingCompute<Streaming<u32>> = count((1, 3));
    assert!(counted.into_task().unwrap().streaming);
}
