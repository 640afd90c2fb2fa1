//! Checks that reading an input takes a limited amount of memory. All targets use this, in addition to their own
//! assertions.

use std::ffi::{c_int, c_void};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicI64, Ordering};

// These functions belong to the address sanitizer, which all targets are built with.
unsafe extern "C" {
    fn __sanitizer_install_malloc_and_free_hooks(
        malloc: extern "C" fn(*const c_void, usize),
        free: extern "C" fn(*const c_void),
    ) -> c_int;
    fn __sanitizer_get_allocated_size(memory: *const c_void) -> usize;
}

/// The constant part of the memory limit in bytes, to pass to [`read`] for functions of `data_tools::fuzzing`. These
/// functions limit themselves to 32 MiB. [`MEMORY`] is twice as much plus 1 MiB, because the address sanitizer grows a
/// buffer by copying it to new memory, and both copies exist for a moment.
pub const MEMORY: usize = 65 << 20;

/// Bytes that Rust and C code have allocated and not yet freed.
static HELD: AtomicI64 = AtomicI64::new(0);

/// The maximum of [`HELD`] since [`read`] began to read the current input.
static PEAK: AtomicI64 = AtomicI64::new(0);

extern "C" fn allocated(_: *const c_void, bytes: usize) {
    let held = HELD.fetch_add(bytes as i64, Ordering::Relaxed) + bytes as i64;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

extern "C" fn freed(memory: *const c_void) {
    // SAFETY: the sanitizer calls this with memory that it is about to free, so it still knows the size.
    let bytes = unsafe { __sanitizer_get_allocated_size(memory) };
    HELD.fetch_sub(bytes as i64, Ordering::Relaxed);
}

/// Makes the panic hook ignore panics of dependencies if the code that reads the input catches them. libFuzzer's own
/// hook ends the process at every panic. A panic in this repository's code still ends the process, because it is a bug
/// even if it is caught.
fn let_expected_panics_pass() {
    let end = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let is_foreign = info.location().is_some_and(|location| location.file().contains("/registry/src/"));
        if !(is_foreign && loaders::will_be_caught(info)) {
            end(info);
        }
    }));
}

/// Calls `read` for an input of `length` bytes, and checks how much memory it takes. `beside` is the constant part of the
/// limit, in bytes.
///
/// # Panics
///
/// Panics if reading allocates more than `4 * length + beside` bytes at any moment.
pub fn read<T>(length: usize, beside: usize, read: impl FnOnce() -> T) -> T {
    static HOOKS: Once = Once::new();
    HOOKS.call_once(|| {
        // SAFETY: both functions may be called on any thread, and neither allocates.
        let installed = unsafe { __sanitizer_install_malloc_and_free_hooks(allocated, freed) };
        assert!(installed > 0, "the address sanitizer has no free hook");
        let_expected_panics_pass();
    });
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = read();
    let (took, most) = (PEAK.load(Ordering::Relaxed) - before, (4 * length + beside) as i64);
    assert!(took <= most, "{took} bytes of memory to read {length}: expected at most {most}");
    result
}
