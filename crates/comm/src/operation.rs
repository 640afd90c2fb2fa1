//! The operation that a thread is in the middle of: errors name it, and no other may begin inside it.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Name of this thread's operation.
pub fn current() -> Option<&'static str> {
    CURRENT.get()
}

/// Does `work` as the operation `name`.
pub fn within<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let outer = CURRENT.replace(Some(name));
    let result = work();
    CURRENT.set(outer);
    result
}
