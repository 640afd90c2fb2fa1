//! Reader threads: they wait for the storage, so that the threads that fill batches need not.

use crate::ring::nice;
use crate::storage::fetch::Extent;
use crate::storage::read_plan::OpenShards;
use crate::sync::Receiver;

/// A request to the reader threads.
pub(crate) enum ReadRequest {
    /// Read a shard ahead that will be used soon.
    Shard(usize),
    /// Read these bytes and send them back.
    Extent(Extent),
    /// One reader is to end.
    Stop,
}

/// Serves requests until one says to stop.
pub(crate) fn run(shards: &OpenShards, nice: i32, requests: &Receiver<ReadRequest>) {
    // an error is reported by the other threads, which set the same priority
    let _ = nice::lower_current_thread(nice);
    if shards.plan().whole {
        shards.prefetch_all();
    }
    while let Ok(request) = requests.recv() {
        match request {
            // single records are read by extents: their shard is opened then
            ReadRequest::Shard(_) if shards.plan().fetches() => {}
            ReadRequest::Shard(number) => shards.prefetch(number),
            ReadRequest::Extent(extent) => extent.read(|number| shards.open(number)),
            ReadRequest::Stop => return,
        }
    }
}
