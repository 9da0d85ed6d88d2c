use super::*;

#[test]
fn the_labels_of_failures_begin_with_the_causes_in_order() {
    for cause in Cause::ALL {
        assert_eq!(FAILURES[cause.index()], format!("{cause:#}").replace(' ', "_"));
    }
}
