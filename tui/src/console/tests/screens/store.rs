//! The store screen.
use super::check_screen;

#[test]
fn the_store_screen() {
    check_screen("store", '5');
}
