//! A second name for a library: whoever opens it by that name from then on gets this file, whatever the loader's folders hold.
//!
//! cudarc opens `libcudnn.so` by name. The dynamic loader knows a loaded library by the name inside it (its soname, `libcudnn.so.9`) and
//! would look for another name in its own folders, where another version may lie. So a shared object is loaded that has the wanted name
//! inside it, no code, and one dependency: the library. Symbols are looked up in an object and in its dependencies.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

/// Bytes of the file's header, of an entry of the table of segments, of an entry of the dynamic section, and of a symbol.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const ENTRY: usize = 16;
const SYMBOL: usize = 24;

const SEGMENTS: usize = 3;
const ENTRIES: usize = 8;

/// The largest page of any Linux.
const PAGE: u64 = 64 << 10;

/// Loads an object of that name which stands for `library`, a path or a soname. Gives false where the system cannot.
pub fn alias(name: &str, library: &str) -> bool {
    let Ok(label) = CString::new(name) else { return false };
    // SAFETY: the label is a C string; the descriptor is new, and the file owns it.
    let mut file = unsafe {
        match libc::memfd_create(label.as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return false,
            descriptor => File::from_raw_fd(descriptor),
        }
    };
    if file.write_all(&object(name, library)).is_err() {
        return false;
    }
    let Ok(path) = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())) else { return false };
    // SAFETY: the path is a C string; the object has no code.
    let loaded = unsafe { !libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL).is_null() };
    // the loader also knows the object by this path, which must not be given to another
    std::mem::forget(file);
    loaded
}

/// The object in ELF's format for 64 bits: header, table of segments, dynamic section, symbols (one, empty), their hash table, names.
fn object(name: &str, library: &str) -> Vec<u8> {
    let dynamic = HEADER + SEGMENTS * SEGMENT;
    let symbols = dynamic + ENTRIES * ENTRY;
    let hashes = symbols + SYMBOL;
    let names = hashes + 16;
    let end = names + 1 + name.len() + 1 + library.len() + 1;
    let mut bytes = header();
    // loaded as one piece, writable, since the loader writes into the dynamic section
    segment(&mut bytes, [1, 6], 0, end, PAGE);
    segment(&mut bytes, [2, 6], dynamic, ENTRIES * ENTRY, 8);
    // a stack without code: an object that does not say so would need one with it
    segment(&mut bytes, [0x6474_e551, 6], 0, 0, 16);
    let (own, needed) = (1, 2 + name.len());
    // SONAME, NEEDED, HASH, STRTAB, SYMTAB, STRSZ, SYMENT, end
    let tags = [(14, own), (1, needed), (4, hashes), (5, names), (6, symbols), (10, end - names), (11, SYMBOL), (0, 0)];
    for (tag, value) in tags {
        put(&mut bytes, &[tag, value as u64]);
    }
    put(&mut bytes, &[0; SYMBOL / 8]);
    // one bucket, one chain, both empty
    bytes.extend([1u32, 1, 0, 0].into_iter().flat_map(u32::to_ne_bytes));
    for text in ["", name, library] {
        bytes.extend(text.bytes().chain([0]));
    }
    bytes
}

fn header() -> Vec<u8> {
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend([3u16, machine].into_iter().flat_map(u16::to_ne_bytes));
    bytes.extend(1u32.to_ne_bytes());
    // no entry, the table of segments, no sections
    put(&mut bytes, &[0, HEADER as u64, 0]);
    bytes.extend(0u32.to_ne_bytes());
    let sizes = [HEADER as u16, SEGMENT as u16, SEGMENTS as u16, 0, 0, 0];
    bytes.extend(sizes.into_iter().flat_map(u16::to_ne_bytes));
    bytes
}

fn segment(bytes: &mut Vec<u8>, kind_and_rights: [u32; 2], at: usize, len: usize, align: u64) {
    bytes.extend(kind_and_rights.into_iter().flat_map(u32::to_ne_bytes));
    let (at, len) = (at as u64, len as u64);
    put(bytes, &[at, at, at, len, len, align]);
}

fn put(bytes: &mut Vec<u8>, words: &[u64]) {
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &CString) -> *mut std::ffi::c_void {
        // SAFETY: the name is a C string.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }
    }

    #[test]
    fn a_library_is_found_by_its_second_name() {
        let [first, second] = ["libtrireme-first.so", "libtrireme-second.so"];
        let c_name = |name: &str| CString::new(name).unwrap();
        assert!(open(&c_name(first)).is_null(), "nothing has that name yet");
        // two, since the second must not be taken for the first
        assert!(alias(first, "libm.so.6") && alias(second, "libc.so.6"));
        for (name, symbol) in [(first, c"cosh"), (second, c"getpid")] {
            let handle = open(&c_name(name));
            assert!(!handle.is_null(), "{name}");
            // SAFETY: the handle is valid, the symbol a C string.
            assert!(unsafe { !libc::dlsym(handle, symbol.as_ptr()).is_null() }, "{name}: no {symbol:?}");
        }
        // SAFETY: as above.
        assert!(std::ptr::eq(unsafe { libc::dlsym(open(&c_name(first)), c"cosh".as_ptr()) }, libm()));
    }

    fn libm() -> *mut std::ffi::c_void {
        // SAFETY: the handle that is looked in is libm's.
        unsafe { libc::dlsym(open(&CString::new("libm.so.6").unwrap()), c"cosh".as_ptr()) }
    }

    #[test]
    fn a_library_that_is_not_there_has_no_second_name() {
        assert!(!alias("libtrireme-third.so", "/nowhere/libnothing.so"));
    }
}
