//! The cores decide what they did before: the first block of each world. `cargo run -p forebay-sim -- digest` compares all.

use forebay_sim::blocks::{differences, digests_of, expected, share};

#[test]
fn the_cores_decide_what_they_did_before() {
    let found = digests_of(&share()).unwrap_or_else(|failure| panic!("{}: {}", failure.run, failure.message));
    let expected = expected().unwrap_or_else(|wrong| panic!("{wrong}"));
    let differences = differences(&found, &expected);
    assert!(
        differences.is_empty(),
        "{differences:#?}\nall of it: cargo run -p forebay-sim -- digest; where that is meant, in a commit of its own: digest --write"
    );
}
