//! Visibility, documentation and other attributes are kept; the type of the payload knows the
//! source.
#![deny(warnings, missing_docs, missing_debug_implementations, unreachable_pub, clippy::all)]

use indoc::indoc;

mod payloads {
    /// Documented.
    #[skyward::compute]
    #[deprecated = "only to see that it stays"]
    pub(super) fn old(a: u8) -> u8 {
        "return a"
    }

    #[cfg(not(any()))]
    #[skyward::compute(python = "tests/ui/payloads/train.py", payload = Options)]
    pub(crate) fn options(name: String) -> usize;

    #[skyward::compute(payload = Absent)]
    #[cfg(any())]
    pub(crate) fn absent() -> Missing {
        "return 1"
    }
}

fn source_of<F: skyward::payload::ComputeFn>() -> String {
    F::source().main_text().to_owned()
}

#[test]
fn is_accepted() {
    #[skyward::compute(payload = Local)]
    fn local(a: u8) -> u8 {
        "return a"
    }

    mod facade {
        pub(crate) use ::skyward as sky;
    }

    #[skyward::compute(crate = facade::sky)]
    fn elsewhere() -> Unnamed {
        "return 1"
    }
    type Unnamed = u8;

    assert!(source_of::<payloads::Options>().contains("# /// script"));
    assert_eq!(
        source_of::<Local>(),
        indoc! {"
            def local(a):
                return a
        "}
    );
    assert_eq!(local(1).source().entry(), "local");
    assert_eq!(elsewhere().source().entry(), "elsewhere");
    #[allow(deprecated)]
    let old = payloads::old(1);
    assert_eq!(old.source().entry(), "old");
}
