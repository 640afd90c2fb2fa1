//! Collects all warnings of libjpeg-turbo while it reads an image. TurboJPEG only returns the first, which may be
//! harmless.
//!
//! libjpeg calls a function of its error manager for each warning. A TurboJPEG instance that can also transform begins
//! with the pointer to that manager. [`listen`] replaces the function by [`on_message`], which also calls the original.
//! The manager's layout is part of libjpeg's interface and has not changed since version 6.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long};
use std::sync::OnceLock;

use turbojpeg::raw::tjhandle;

/// Buffer size that libjpeg requires for a message.
const LENGTH: usize = 200;
/// An upper bound on the size in bytes of a TurboJPEG instance, including the error manager.
const INSTANCE: usize = 1 << 14;

/// Warnings that do not affect the pixels: stray bytes between segments, unusual header fields.
const HARMLESS: [&str; 4] = [
    "extraneous bytes before marker",
    "Invalid SOS parameters for sequential",
    "unknown JFIF revision",
    "Unknown Adobe color transform",
];

#[derive(Clone, Copy)]
pub(super) struct Warnings {
    /// True if there was any warning.
    any: bool,
    first: Message,
    /// How often data ended too early.
    premature: u32,
    /// How often data was wrong in another way.
    damaged: u32,
    /// The first warning that is not harmless. An early end has precedence.
    worst: Option<Message>,
}

/// A formatted message that ends with 0.
type Message = [u8; LENGTH];

/// The beginning of libjpeg's `jpeg_error_mgr`.
#[repr(C)]
struct ErrorManager {
    error_exit: Option<unsafe extern "C" fn(*mut Common)>,
    emit_message: Option<EmitMessage>,
    output_message: Option<unsafe extern "C" fn(*mut Common)>,
    format_message: Option<unsafe extern "C" fn(*mut Common, *mut c_char)>,
    reset_error_mgr: Option<unsafe extern "C" fn(*mut Common)>,
    msg_code: c_int,
    msg_parm: [u8; 80],
    trace_level: c_int,
    num_warnings: c_long,
}

/// The beginning of libjpeg's compression and decompression structures.
#[repr(C)]
struct Common {
    err: *mut ErrorManager,
}

type EmitMessage = unsafe extern "C" fn(*mut Common, c_int);

/// TurboJPEG's own `emit_message` function. It is the same for all decompressors.
static ORIGINAL: OnceLock<EmitMessage> = OnceLock::new();

thread_local! {
    static WARNINGS: Cell<Warnings> = const { Cell::new(NONE) };
}

const NONE: Warnings = Warnings { any: false, first: [0; LENGTH], premature: 0, damaged: 0, worst: None };

/// Starts counting the warnings of `handle`, which must be a new instance from `tj3Init(TJINIT_TRANSFORM)`. Returns
/// false if its memory layout is different.
///
/// # Safety
///
/// `handle` must be alive, and a decompressor of the TurboJPEG that the `turbojpeg` crate bundles.
pub(super) unsafe fn listen(handle: tjhandle) -> bool {
    let start = handle.addr();
    // SAFETY: the instance is larger than a pointer and begins with libjpeg's compressor, whose first field is the
    // error manager.
    let manager = unsafe { (*handle.cast::<Common>()).err };
    // The manager is inside the instance itself, so this check detects any other layout.
    if !(start..start + INSTANCE).contains(&manager.addr()) || !manager.is_aligned() {
        return false;
    }
    // SAFETY: the check above shows that the pointer points into the instance, where TurboJPEG keeps the manager.
    let manager = unsafe { &mut *manager };
    let as_new = manager.trace_level == 0 && manager.num_warnings == 0 && manager.format_message.is_some();
    match manager.emit_message {
        Some(theirs) if as_new && *ORIGINAL.get_or_init(|| theirs) as usize == theirs as usize => {
            manager.emit_message = Some(on_message);
            true
        }
        _ => false,
    }
}

/// Returns the warnings of this thread and clears them.
pub(super) fn take() -> Warnings {
    WARNINGS.replace(NONE)
}

/// libjpeg calls this instead of TurboJPEG's `emit_message`. A level below 0 is a warning.
unsafe extern "C" fn on_message(common: *mut Common, level: c_int) {
    if level < 0 {
        let mut text: Message = [0; LENGTH];
        // SAFETY: libjpeg passes the structure that it works on. Its manager is alive and `listen` checked that it has
        // this function. The function writes at most `LENGTH` bytes, and the last one is 0.
        unsafe {
            if let Some(format) = (*(*common).err).format_message {
                format(common, text.as_mut_ptr().cast());
            }
        }
        let mut warnings = WARNINGS.get();
        warnings.add(text);
        WARNINGS.set(warnings);
    }
    if let Some(theirs) = ORIGINAL.get() {
        // SAFETY: these are the arguments that the function expects. It does not use longjmp, because
        // TJPARAM_STOPONWARNING is off.
        unsafe { theirs(common, level) }
    }
}

impl Warnings {
    fn add(&mut self, text: Message) {
        if !self.any {
            (self.any, self.first) = (true, text);
        }
        let words = words(&text);
        if words.to_ascii_lowercase().contains("premature end") {
            if self.premature == 0 {
                self.worst = Some(text);
            }
            self.premature += 1;
        } else if !HARMLESS.iter().any(|harmless| words.contains(harmless)) {
            self.damaged += 1;
            self.worst.get_or_insert(text);
        }
    }

    /// Returns true if `text`, the library's last message, is a warning. Otherwise it is an error.
    pub fn explain(&self, text: &str) -> bool {
        self.any && words(&self.first) == text
    }

    /// Returns the reason why the image is unusable, if there is one: an early end, otherwise the first other fault.
    pub fn verdict(&self) -> Result<(), String> {
        match &self.worst {
            None => Ok(()),
            Some(worst) => match self.premature + self.damaged {
                1 => Err(words(worst).to_owned()),
                n => Err(format!("{} (and {} more warnings)", words(worst), n - 1)),
            },
        }
    }
}

fn words(text: &Message) -> &str {
    CStr::from_bytes_until_nul(text).ok().and_then(|text| text.to_str().ok()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(of: &[&str]) -> Result<(), String> {
        let mut warnings = NONE;
        for text in of {
            let mut message = [0; LENGTH];
            message[..text.len()].copy_from_slice(text.as_bytes());
            warnings.add(message);
        }
        warnings.verdict()
    }

    #[test]
    fn verdict_prefers_premature_end_over_other_warnings() {
        let stray = "Corrupt JPEG data: 3 extraneous bytes before marker 0xda";
        let (bad, early) = ("Corrupt JPEG data: bad Huffman code", "Premature end of JPEG file");
        assert_eq!(verdict(&[]), Ok(()));
        assert_eq!(verdict(&[stray, "Warning: unknown JFIF revision number 3.00"]), Ok(()));
        assert_eq!(verdict(&[stray, bad]), Err(bad.into()));
        assert_eq!(verdict(&[stray, bad, bad, early]), Err(format!("{early} (and 2 more warnings)")));
    }
}
