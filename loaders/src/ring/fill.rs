//! Filling a slot: the records of a job, decoded and transformed into its images.

use std::time::Instant;

use crate::error::Error;
use crate::format::record::OVERHEAD;
use crate::ring::pixel_format::PixelFormat;
use crate::ring::reader::ReadRequest;
use crate::ring::shared::Shared;
use crate::ring::slot::Slot;
use crate::ring::totals::{SAMPLED, Tally};
use crate::storage::fetch::Fetch;
use crate::storage::open_shards::HeldShards;
use crate::transform::{Pipeline, Scratch};

/// A job and the slot to fill with it.
pub(crate) struct Task {
    pub slot: Slot,
    /// The job's number in the order.
    pub number: u64,
    /// Its records, if reader threads fetch them.
    pub fetch: Option<Fetch>,
}

/// What a thread keeps from batch to batch.
#[derive(Default)]
pub(crate) struct ThreadState {
    scratch: Scratch,
    /// The record at work, if its shard is mapped.
    record: Vec<u8>,
    held: HeldShards,
    tally: Tally,
    /// For reuse.
    pub fetches: Vec<Fetch>,
}

/// How filling ended, if not with an error.
pub(crate) enum Outcome {
    Filled,
    /// The loader stops.
    Stopped,
}

/// Where an image goes.
enum ImageOut<'a> {
    Values(&'a mut [f32]),
    Bytes(&'a mut [u8]),
}

/// A sample: its place in the job and what keys its random draws.
#[derive(Clone, Copy)]
struct SampleKey {
    index: usize,
    id: u64,
    /// Keys its draws, with the epoch.
    key: u64,
    epoch: u32,
}

/// What making a sample gives, beside its image.
struct Made {
    label: u32,
    /// All classes, where there may be several.
    classes: Option<Vec<u32>>,
    /// Bytes of its record, framing included.
    bytes: u64,
}

/// Requests the records of a task from the reader threads, if these fetch them.
pub(crate) fn request(shared: &Shared, task: &mut Task, state: &mut ThreadState) -> Result<(), Error> {
    if shared.reads() && shared.shards.plan().fetches() && task.fetch.is_none() {
        let fetch = task.fetch.insert(state.fetches.pop().unwrap_or_else(Fetch::new));
        fetch.begin(&shared.shards, &task.slot.job.ids, |extent| shared.request(ReadRequest::Extent(extent)))?;
    }
    Ok(())
}

/// Requests the records of a task that will be filled later, or tells the kernel of them.
pub(crate) fn request_ahead(shared: &Shared, task: &mut Task, state: &mut ThreadState) -> Result<(), Error> {
    if shared.reads() && shared.shards.plan().advise {
        for &id in &task.slot.job.ids {
            let (number, record) = shared.shards.split().locate(id)?;
            shared.shards.shard(number, &mut state.held)?.will_need(record);
        }
    }
    request(shared, task, state)
}

/// Fills a task's slot.
pub(crate) fn fill(shared: &Shared, task: &mut Task, state: &mut ThreadState) -> Result<Outcome, Error> {
    task.slot.multi_label = shared.shards.split().multi_label();
    if let PixelFormat::CropRects { labels, label_sets, spec } = &shared.format {
        let Slot { job, labels: own, label_sets: sets, crop_rects, skipped, bytes, .. } = &mut task.slot;
        *own = job.ids.iter().map(|&id| labels[id as usize]).collect();
        sets.clear();
        if let Some(all) = label_sets {
            job.ids.iter().for_each(|&id| sets.push(all.get(id as usize).iter().copied()));
        }
        *crop_rects =
            (0..job.ids.len()).map(|index| shared.pipeline.crop_rect(*spec, job.key(index), job.epoch)).collect();
        *bytes = 0;
        skipped.clear();
        mix(shared, &mut task.slot);
        return Ok(Outcome::Filled);
    }
    request(shared, task, state)?;
    let as_bytes = matches!(shared.format, PixelFormat::Bytes);
    let values = shared.pipeline.output().values();
    task.slot.prepare(task.slot.job.ids.len() * values, as_bytes);
    if let Some(fetch) = &mut task.fetch {
        let start = Instant::now();
        fetch.finish();
        state.tally.waited += start.elapsed();
    }
    let outcome = fill_images(shared, task, state, as_bytes)?;
    state.held.clear();
    shared.totals.add(&mut state.tally);
    Ok(outcome)
}

/// Makes the images of a task one after another; those that are left out leave no gap.
fn fill_images(shared: &Shared, task: &mut Task, state: &mut ThreadState, as_bytes: bool) -> Result<Outcome, Error> {
    let values = shared.pipeline.output().values();
    let Task { slot, fetch, .. } = task;
    for index in 0..slot.job.ids.len() {
        if shared.stops() {
            return Ok(Outcome::Stopped);
        }
        let (id, key, kept) = (slot.job.ids[index], slot.job.key(index), slot.labels.len());
        let out = if as_bytes {
            ImageOut::Bytes(&mut slot.pixels[kept * values..][..values])
        } else {
            slot.populate((kept + 1) * values);
            ImageOut::Values(&mut slot.images[kept * values..][..values])
        };
        match make(shared, SampleKey { index, id, key, epoch: slot.job.epoch }, fetch.as_mut(), state, out) {
            Ok(Made { label, classes, bytes }) => {
                slot.labels.push(label);
                classes.into_iter().for_each(|classes| slot.label_sets.push(classes));
                slot.bytes += bytes;
                slot.job.ids[kept] = id;
            }
            Err(error @ Error::Record { .. }) if shared.skip => slot.skipped.push(error),
            Err(error) => return Err(error),
        }
    }
    slot.job.ids.truncate(slot.labels.len());
    mix(shared, slot);
    Ok(Outcome::Filled)
}

/// Mixes the images of a batch with each other: floats here, all else where the consumer makes floats of it.
fn mix(shared: &Shared, slot: &mut Slot) {
    let (job, rows) = (&slot.job, slot.labels.len());
    slot.mix = shared.pipeline.mix(job.epoch, job.step, job.worker, rows);
    if let (Some(mix), PixelFormat::Values) = (slot.mix, &shared.format) {
        let spec = shared.pipeline.output();
        mix.apply(&mut slot.images[..rows * spec.values()], spec);
    }
}

/// Makes one sample's image.
fn make(
    shared: &Shared,
    sample: SampleKey,
    fetch: Option<&mut Fetch>,
    state: &mut ThreadState,
    out: ImageOut<'_>,
) -> Result<Made, Error> {
    let ThreadState { scratch, record: copy, held, tally, .. } = state;
    let start = tally.images.is_multiple_of(SAMPLED).then(Instant::now);
    tally.images += 1;
    let (number, record) = shared.shards.split().locate(sample.id)?;
    let shard = shared.shards.shard(number, held)?;
    let payload = match fetch {
        Some(fetch) => shard.payload(record, fetch.record(sample.index)?)?,
        None => shard.record(record, copy)?,
    };
    let (example, label) = shared.shards.split().read(shard, record, payload)?;
    let split = shared.shards.split();
    let classes = split.multi_label().then(|| split.classes_of(&example)).transpose();
    let classes = classes.map_err(|fault| shard.fault(record, fault))?;
    let read = start.map(|_| Instant::now());
    scratch.time_decoding(start.is_some());
    let SampleKey { key, epoch, .. } = sample;
    let pipeline: &Pipeline = &shared.pipeline;
    let made = match out {
        ImageOut::Values(values) => pipeline.run(&example, key, epoch, scratch, values),
        ImageOut::Bytes(bytes) => pipeline.run_bytes(&example, key, epoch, scratch, bytes),
    };
    made.map_err(|fault| shard.fault(record, fault))?;
    if let (Some(start), Some(read)) = (start, read) {
        let end = Instant::now();
        let decoded = scratch.decoded().unwrap_or(read);
        tally.add(read - start, decoded - read, end - decoded);
    }
    Ok(Made { label, classes, bytes: payload.len() as u64 + OVERHEAD })
}
