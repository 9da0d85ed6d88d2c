use super::*;

#[test]
fn the_first_labels_are_the_causes() {
    for cause in Cause::ALL {
        assert_eq!(FAILURES[cause.index()], cause.to_string().replace(' ', "_"));
    }
}
