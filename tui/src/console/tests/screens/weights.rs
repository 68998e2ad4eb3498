//! The tree of weights.
use super::check_screen;

#[test]
fn the_weights_screen() {
    check_screen("weights", '4');
}
