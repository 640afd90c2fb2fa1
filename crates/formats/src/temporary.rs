//! Temporary files for tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A unique path for a file or folder. Whatever exists there is removed on drop, so also after a test has failed.
pub(crate) struct Temporary(pub PathBuf);

impl Temporary {
    /// Returns a path that ends in `name`, and creates nothing.
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("trireme-formats-{}-{number}-{name}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}
