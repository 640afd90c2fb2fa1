//! Runs decoders and parsers of other people's files, so that one that panics fails for its file alone.
//!
//! A program whose panic hook ends it must ask [`will_be_caught`] first: the hook runs before the panic unwinds.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

thread_local! {
    /// How many calls of [`guarded`] this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where the latest panic that will be caught has happened.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What `part` returns, or the text and the place of its panic. Values that `part` changed are as the panic left them.
///
/// # Errors
/// If `part` panics.
pub fn guarded<T>(part: impl FnOnce() -> T) -> Result<T, String> {
    /// Counts the call, also while it unwinds.
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

/// [`guarded`] for a `part` that can fail; `failed` makes an error of a panic.
///
/// # Errors
/// The error of `part`, or that of its panic.
pub fn guarded_with<T, E>(part: impl FnOnce() -> Result<T, E>, failed: impl FnOnce(String) -> E) -> Result<T, E> {
    guarded(part).unwrap_or_else(|panic| Err(failed(panic)))
}

/// For a panic hook: whether a call of [`guarded`] on this thread will catch this panic. Notes its place.
pub fn will_be_caught(info: &PanicHookInfo<'_>) -> bool {
    let caught = DEPTH.get() > 0;
    if caught {
        PLACE.set(
            info.location().map_or_else(String::new, |place| format!("{}:{}", source(place.file()), place.line())),
        );
    }
    caught
}

/// A source file without the folders before its package's.
fn source(file: &str) -> &str {
    file.rsplit_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/')).map_or(file, |(_, rest)| rest)
}

/// The text that a panic carries.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".into())
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
        assert_eq!(guarded(|| std::panic::panic_any(7)), Err::<(), _>("no text".to_string()));
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
