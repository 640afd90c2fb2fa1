//! A file mapped read-only into memory and made known to the SIGBUS handler.

use std::path::Path;

use memmap2::{Advice, Mmap};

use crate::Error;
use crate::regular;
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
        let file = regular::open(path).map_err(failed("open"))?;
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

    /// Asks the kernel to read these bytes, which will be wanted soon; returns before they are there. Only a hint: a
    /// refusal costs speed, and the reading itself will say what is wrong.
    pub(crate) fn will_need(&self, offset: u64, length: u64) {
        let _ = self.advise(Advice::WillNeed, offset, length);
    }

    /// Reads these bytes and puts their pages at this process's hand (Linux 5.14; before, nothing happens). Also a hint.
    pub(crate) fn populate(&self, offset: u64, length: u64) {
        let _ = self.advise(Advice::PopulateRead, offset, length);
    }

    fn advise(&self, advice: Advice, offset: u64, length: u64) -> std::io::Result<()> {
        let offset = (offset as usize).min(self.map.len());
        match (length as usize).min(self.map.len() - offset) {
            0 => Ok(()),
            length => self.map.advise_range(advice, offset, length),
        }
    }
}
