//! How often this thread has brought the threads of its pool together.

use std::cell::Cell;

use crate::Regions;

thread_local! {
    static SO_FAR: Cell<Regions> = const { Cell::new(Regions { own: 0, library: 0 }) };
}

fn add(more: Regions) {
    SO_FAR.with(|so_far| {
        let mut sum = so_far.get();
        sum += more;
        so_far.set(sum);
    });
}

/// Counts a loop of our own.
pub fn count_own() {
    add(Regions { own: 1, library: 0 });
}

/// Counts a primitive of oneDNN.
pub fn count_library() {
    add(Regions { own: 0, library: 1 });
}

/// All that were counted.
pub fn so_far() -> Regions {
    SO_FAR.get()
}
