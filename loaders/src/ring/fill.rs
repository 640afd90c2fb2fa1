//! Fills a piece of a batch: reads its records, decodes them and transforms the images.

use std::time::Instant;

use crate::error::Error;
use crate::format::record::OVERHEAD;
use crate::ring::batch::PixelFormat;
use crate::ring::piece::Piece;
use crate::ring::reader::ReadRequest;
use crate::ring::shared::Shared;
use crate::ring::slot::Slot;
use crate::ring::stats::Tally;
use crate::storage::fetch::Fetch;
use crate::storage::read_plan::HeldShards;
use crate::transform::Scratch;

/// A thread's state between pieces.
#[derive(Default)]
pub(crate) struct ThreadState {
    scratch: Scratch,
    /// Buffer for a copy of the current record, which is needed if the shard is mapped.
    record: Vec<u8>,
    held: HeldShards,
    tally: Tally,
    /// Empty fetches, kept to reuse their memory.
    pub fetches: Vec<Fetch>,
    /// Empty pieces, kept to reuse their memory.
    pub pieces: Vec<Piece>,
}

/// How filling ended, if there was no error.
pub(crate) enum Outcome {
    Filled,
    Stopped,
}

/// A sample: its index in the piece, and what its random draws depend on.
#[derive(Clone, Copy)]
struct SampleKey {
    index: usize,
    id: u64,
    /// The key of the random draws. The draws also depend on `epoch`.
    key: u64,
    epoch: u32,
}

/// The result of making a sample, apart from its image.
struct SampleInfo {
    label: u32,
    /// All classes, if the data set is multi-label.
    classes: Option<Vec<u32>>,
    /// A number for each target. Empty if the labels are classes.
    targets: Vec<f32>,
    /// Size of the record in bytes, including framing.
    bytes: u64,
}

/// Requests the records of a piece from the reader threads, if the plan uses them.
pub(crate) fn request(shared: &Shared, piece: &mut Piece, state: &mut ThreadState) -> Result<(), Error> {
    if shared.reads() && shared.shards.plan().fetches() && piece.fetch.is_none() {
        let mut fetch = state.fetches.pop().unwrap_or_else(Fetch::new);
        fetch.begin(&shared.shards, &piece.job.ids, |extent| shared.request(ReadRequest::Extent(extent)))?;
        piece.fetch = Some(fetch);
    }
    Ok(())
}

/// Requests the records of a piece that will be filled later, or advises the kernel to read them.
pub(crate) fn request_ahead(shared: &Shared, piece: &mut Piece, state: &mut ThreadState) -> Result<(), Error> {
    if shared.reads() && shared.shards.plan().advise {
        for &id in &piece.job.ids {
            let (number, record) = shared.shards.split().locate(id)?;
            shared.shards.shard(number, &mut state.held)?.will_need(record);
        }
    }
    request(shared, piece, state)
}

pub(crate) fn fill(shared: &Shared, piece: &mut Piece, state: &mut ThreadState) -> Result<Outcome, Error> {
    if let PixelFormat::CropRects { labels, label_sets, targets, spec } = &shared.format {
        let Piece { job, samples, .. } = piece;
        samples.ids.extend_from_slice(&job.ids);
        samples.keys.extend((0..job.ids.len()).map(|index| job.key(index)));
        samples.labels.extend(job.ids.iter().map(|&id| labels[id as usize]));
        if let Some(all) = label_sets {
            job.ids.iter().for_each(|&id| samples.label_sets.push(all.get(id as usize).iter().copied()));
        }
        let width = targets.len() / labels.len().max(1);
        job.ids.iter().for_each(|&id| samples.targets.extend_from_slice(&targets[id as usize * width..][..width]));
        let rect = |(index, &id)| shared.pipeline.crop_rect(*spec, id as u32, job.key(index), job.epoch);
        samples.crop_rects.extend(job.ids.iter().enumerate().map(rect));
        return Ok(Outcome::Filled);
    }
    request(shared, piece, state)?;
    if let Some(fetch) = &mut piece.fetch {
        let start = Instant::now();
        fetch.finish();
        state.tally.waited += start.elapsed();
    }
    let outcome = fill_images(shared, piece, state)?;
    state.held.clear();
    shared.totals.add(&mut state.tally);
    Ok(outcome)
}

/// Makes the images of a piece in order. Samples that are left out leave no gap.
fn fill_images(shared: &Shared, piece: &mut Piece, state: &mut ThreadState) -> Result<Outcome, Error> {
    for index in 0..piece.job.ids.len() {
        if shared.stops() {
            return Ok(Outcome::Stopped);
        }
        let (id, key, epoch) = (piece.job.ids[index], piece.job.key(index), piece.job.epoch);
        match make_sample(shared, SampleKey { index, id, key, epoch }, piece, state) {
            Ok(SampleInfo { label, classes, targets, bytes }) => {
                piece.samples.labels.push(label);
                piece.samples.targets.extend(targets);
                classes.into_iter().for_each(|classes| piece.samples.label_sets.push(classes));
                piece.samples.bytes += bytes;
                piece.samples.ids.push(id);
                piece.samples.keys.push(key);
            }
            Err(error @ Error::Record { .. }) if shared.skip => piece.samples.skipped.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome::Filled)
}

/// Completes a batch after all its pieces are filled. The images are mixed with each other here if they are floats. For
/// other formats, the consumer mixes them when it converts them to floats.
pub(crate) fn finish(shared: &Shared, slot: &mut Slot) {
    slot.label_kind = shared.shards.split().label_kind();
    let (job, rows) = (&slot.job, slot.samples.len());
    slot.mix = shared.pipeline.mix(job.epoch, job.step, job.worker, rows);
    if let (Some(mix), PixelFormat::Values) = (slot.mix, &shared.format) {
        let spec = shared.pipeline.output();
        mix.apply(&mut slot.images[..rows * spec.values()], spec);
    }
}

/// Makes the image of a sample and stores it after the images that the piece already has. Returns the sample's labels
/// and the size of its record.
fn make_sample(
    shared: &Shared,
    sample: SampleKey,
    piece: &mut Piece,
    state: &mut ThreadState,
) -> Result<SampleInfo, Error> {
    let ThreadState { scratch, record: copy, held, tally, .. } = state;
    let Piece { memory, fetch, samples, .. } = piece;
    memory.populate(samples.len());
    let start = tally.begin().then(Instant::now);
    let split = shared.shards.split();
    let (number, record) = split.locate(sample.id)?;
    let shard = shared.shards.shard(number, held)?;
    let payload = match fetch {
        Some(fetch) => shard.payload(record, fetch.record(sample.index)?)?,
        None => shard.record(record, copy)?,
    };
    let (example, label) = split.read(shard, record, payload)?;
    let classes = split.multi_label().then(|| split.classes_of(&example)).transpose();
    let classes = classes.map_err(|fault| shard.fault(record, fault))?;
    let targets = split.targets_of(&example).map_err(|fault| shard.fault(record, fault))?;
    let read = start.map(|_| Instant::now());
    scratch.time_decoding(start.is_some());
    let SampleKey { key, epoch, .. } = sample;
    let pipeline = &shared.pipeline;
    let made = match shared.format {
        PixelFormat::Bytes(_) => pipeline.run_bytes(&example, key, epoch, scratch, memory.bytes(samples.len())),
        _ => pipeline.run(&example, key, epoch, scratch, memory.values(samples.len())),
    };
    made.map_err(|fault| shard.fault(record, fault))?;
    if let (Some(start), Some(read)) = (start, read) {
        let end = Instant::now();
        let decoded = scratch.decoded().unwrap_or(read);
        tally.add(read - start, decoded - read, end - decoded);
    }
    Ok(SampleInfo { label, classes, targets, bytes: payload.len() as u64 + OVERHEAD })
}
