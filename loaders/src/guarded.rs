//! Runs decoders and parsers on untrusted files, and catches a panic so that only the current file fails.
//!
//! A program with a panic hook that exits must call [`will_be_caught`] first, because the hook runs before the panic unwinds.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

thread_local! {
    /// Number of calls to [`guarded`] that are active on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The source location where the last caught panic occurred.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Calls `part` and returns its result, or the panic's text and location. After a panic, values that `part` changed keep their state.
///
/// # Errors
/// Returns an error if `part` panics.
pub fn guarded<T>(part: impl FnOnce() -> T) -> Result<T, String> {
    /// Counts the active call. The destructor also runs during unwinding.
    struct Depth;
    impl Drop for Depth {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let depth = Depth;
    let result = catch_unwind(AssertUnwindSafe(part));
    drop(depth);
    result.map_err(|panic| {
        let place = PLACE.take();
        let text = panic_text(&*panic);
        if place.is_empty() { text } else { format!("{text}, at {place}") }
    })
}

/// Works like [`guarded`], for a `part` that returns a [`Result`]. `failed` converts a panic's text to an error.
///
/// # Errors
///
/// Returns the error from `part`, or from `failed` if it panics.
pub fn guarded_with<T, E>(part: impl FnOnce() -> Result<T, E>, failed: impl FnOnce(String) -> E) -> Result<T, E> {
    guarded(part).unwrap_or_else(|panic| Err(failed(panic)))
}

/// Returns true if [`guarded`] will catch this panic, and stores the panic's location. Call it from a panic hook.
pub fn will_be_caught(info: &PanicHookInfo<'_>) -> bool {
    let caught = DEPTH.get() > 0;
    if caught {
        PLACE.set(
            info.location().map_or_else(String::new, |place| format!("{}:{}", source(place.file()), place.line())),
        );
    }
    caught
}

/// Strips the registry directory from a source file's path.
fn source(file: &str) -> &str {
    file.rsplit_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/')).map_or(file, |(_, rest)| rest)
}

/// Returns the message in a panic's payload.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_errors_and_calls_are_counted() {
        assert_eq!(guarded(|| 7), Ok(7));
        let inner = || guarded(|| panic!("number {}", 5)).map(|()| 0);
        let nested = guarded(|| {
            let caught = inner();
            assert_eq!(DEPTH.get(), 1);
            caught
        });
        assert_eq!(nested, Ok(Err("number 5".to_string())));
        assert_eq!(
            guarded_with(|| if DEPTH.get() > 9 { Ok(()) } else { panic!("text") }, |text| text),
            Err("text".to_string())
        );
        assert_eq!(guarded(|| std::panic::panic_any(7)), Err::<(), _>("no message".to_string()));
        assert_eq!(DEPTH.get(), 0);
    }

    #[test]
    fn sources_of_packages_are_named_by_package() {
        assert_eq!(
            source("/root/.cargo/registry/src/index.crates.io-1949/tiff-0.11.3/src/tags.rs"),
            "tiff-0.11.3/src/tags.rs"
        );
        assert_eq!(source("loaders/src/lib.rs"), "loaders/src/lib.rs");
    }
}
