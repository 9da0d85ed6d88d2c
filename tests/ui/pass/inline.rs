//! A function body in Python.

use indoc::indoc;

#[skyward::compute]
fn add(a: i64, b: i64) -> i64 {
    "return a + b"
}

#[skyward::compute]
fn report(samples: usize, r#type: Option<&str>) -> String {
    r#"
    import json

    # What is inside of strings stays as it is.
    text = """
      indented
    """
    return json.dumps({"samples": samples, "type": type, "text": text})
    "#
}

#[skyward::compute]
fn forget() {
    r"print('nothing comes back')"
}

#[skyward::compute]
fn nothing() {
    ""
}

type Nothing = ();
type Perhaps = Option<u8>;

#[skyward::compute]
fn aliased(a: i64) -> Nothing {
    "a + 1"
}

#[skyward::compute]
fn aliased_and_empty() -> Nothing {
    ""
}

#[skyward::compute]
fn perhaps() -> Perhaps {
    "pass"
}

#[skyward::compute]
fn injected(a: i64) -> String {
    "
    import sympy
    sympy.var('x')
    return str(x + a)
    "
}

#[skyward::compute(unchecked)]
fn unseen(a: i64) -> i64 {
    "
    from helpers import define
    define('size')
    return a + size
    "
}

#[test]
fn is_accepted() {
    let text = add(1, 2).source().main_text().to_owned();
    assert_eq!(
        text,
        indoc! {"
            def add(a, b):
                return a + b
        "}
    );
    assert_eq!(add(1, 2).source().main(), "tests/ui/pass/inline.rs");
    assert_eq!(add(1, 2).source().first_line(), 6, "the line before that of the body");

    let report = report(3, Some("x"));
    assert!(report.source().main_text().starts_with(indoc! {"
        def report(samples, type):
            import json

    "}));
    assert!(report.source().main_text().contains("    text = \"\"\"\n  indented\n\"\"\"\n    return"));
    assert_eq!(report.source().first_line(), 12);
    assert!(forget().source().main_text().ends_with("    print('nothing comes back')\n"));
    assert!(nothing().source().main_text().ends_with("    pass\n"));
    for call in [aliased(1), aliased_and_empty()] {
        assert!(call.into_task().is_ok());
    }
    assert!(perhaps().into_task().is_ok());
    assert!(injected(1).source().main_text().contains("x + a"));
    assert!(unseen(1).source().main_text().contains("a + size"));
}
