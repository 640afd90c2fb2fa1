//! trireme.
fn main() {}
