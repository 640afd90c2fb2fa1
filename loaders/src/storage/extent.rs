//! One read of a reader thread: a run of bytes of a shard.

use std::sync::Arc;

use crossbeam_channel::Sender;

use crate::error::Error;
use crate::guarded::guarded_with;
use crate::storage::shard::Shard;

/// Bytes of a shard, on the way to a reader thread or back.
pub(crate) struct Extent {
    /// Its index in its batch.
    pub number: usize,
    pub shard: usize,
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub result: Result<(), Error>,
    /// Where it goes after the read.
    pub back: Sender<Extent>,
}

impl Extent {
    /// Reads the bytes and sends the extent back.
    pub(crate) fn read(mut self, open: impl FnOnce(usize) -> Result<Arc<Shard>, Error>) {
        let length = self.bytes.len();
        let bytes = &mut self.bytes;
        let read = || open(self.shard).and_then(|shard| shard.read_at(bytes, length, self.offset));
        let panicked =
            |message| Error::Panic { thread: self.number, message: format!("{message}, while reading ahead") };
        self.result = guarded_with(read, panicked);
        let back = self.back.clone();
        // a failure means that the loader has ended
        let _ = back.send(self);
    }
}
