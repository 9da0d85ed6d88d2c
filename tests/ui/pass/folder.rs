//! A folder is a Python package; the entry may be imported from one of its files.

#[skyward::compute(python = "tests/ui/payloads/trainer")]
fn train(epochs: u32) -> u32;

#[skyward::compute(python = "tests/ui/payloads/trainer", main = "data/__init__.py")]
fn digits() -> Vec<u8>;

#[skyward::compute(python = "tests/ui/payloads/no_init", main = "second.py")]
fn second() -> u8;

#[test]
fn is_accepted() {
    let source = train(3).source().clone();
    let paths: Vec<_> = source.files().iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["trainer/__init__.py", "trainer/data/__init__.py", "trainer/fit.py"]);
    assert_eq!(source.main(), "trainer/__init__.py");
    assert_eq!(digits().source().main(), "trainer/data/__init__.py");
    assert_eq!(second().source().main(), "no_init/second.py");
}
