//! Pointers that the driver hands out for what it owns.

/// A context, stream, event, module or function of the driver's. The owner destroys it.
#[derive(PartialEq, Eq)]
pub struct Raw<T>(pub *mut T);

// SAFETY: the driver's objects may be used from any thread that has bound their context, and the driver locks them; their owners bind
// the context before each call.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}
