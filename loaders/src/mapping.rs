//! A file mapped read-only into memory and made known to the SIGBUS handler.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::Error;
use crate::sigbus::Registration;

/// A whole file, mapped. Fields drop in order: the handler forgets the range before it is unmapped.
#[derive(Debug)]
pub(crate) struct Mapping {
    _registration: Registration,
    map: Mmap,
}

impl Mapping {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |action| {
            let path = path.to_owned();
            move |source| Error::Io { action, path, source }
        };
        let file = File::open(path).map_err(failed("open"))?;
        // SAFETY: the bytes are only ever read. Should another process write the file meanwhile, each
        // read still yields some bytes, which the checksums judge; should it be cut short, the read
        // ends in SIGBUS, which `sigbus` turns into a message and an exit.
        let map = unsafe { Mmap::map(&file) }.map_err(failed("map"))?;
        let registration = Registration::new(&map, path)?;
        Ok(Self { _registration: registration, map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }
}
