//! Reader threads. They wait for storage, so that the threads that fill batches do not have to.

use crate::ring::nice;
use crate::storage::fetch::Extent;
use crate::storage::read_plan::OpenShards;
use crate::sync::Receiver;

/// A request to the reader threads.
pub(crate) enum ReadRequest {
    /// Reads a shard ahead that will be used soon.
    Shard(usize),
    /// Reads these bytes and sends them back.
    Extent(Extent),
    /// Ends the reader that receives it.
    Stop,
}

/// Serves requests until one of them is `Stop`.
pub(crate) fn run(shards: &OpenShards, nice: i32, requests: &Receiver<ReadRequest>) {
    // Ignore an error: the threads that fill batches set the same priority and report it.
    let _ = nice::lower_current_thread(nice);
    if shards.plan().whole {
        shards.prefetch_all();
    }
    while let Ok(request) = requests.recv() {
        match request {
            // If records are read individually, the shard is opened for the first read of its records, not earlier.
            ReadRequest::Shard(_) if shards.plan().fetches() => {}
            ReadRequest::Shard(number) => shards.prefetch(number),
            ReadRequest::Extent(extent) => extent.read(|number| shards.open(number)),
            ReadRequest::Stop => return,
        }
    }
}
