//! Where a loader's time goes, and what would make it faster.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One image in so many is timed: reading the clock for each would cost more than some transforms.
pub(crate) const SAMPLED: u64 = 16;

/// Time of all loader threads together, by what they did; of the first three an estimate, from every 16th image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// Finding, reading and checking records.
    pub read: Duration,
    /// Decoding.
    pub decode: Duration,
    /// Transforms.
    pub transform: Duration,
    /// Waiting for a free slot: the consumer was slower.
    pub slots: Duration,
}

/// What has passed through a loader so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoaderStats {
    /// How long the consumer waited for batches.
    pub wait: Duration,
    /// Images handed out.
    pub images: u64,
    /// Bytes of their records, framing included.
    pub bytes: u64,
    /// Samples left out because they cannot be used.
    pub skipped: u64,
    /// Batches handed out.
    pub batches: u64,
    /// Sum over these of the batches that stood ready when each was asked for.
    pub queue: u64,
    /// What the threads did.
    pub stages: Stages,
}

impl Sub for LoaderStats {
    type Output = Self;

    /// What has passed since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        let (a, b) = (self.stages, earlier.stages);
        let stages = Stages {
            read: a.read.saturating_sub(b.read),
            decode: a.decode.saturating_sub(b.decode),
            transform: a.transform.saturating_sub(b.transform),
            slots: a.slots.saturating_sub(b.slots),
        };
        Self {
            wait: self.wait.saturating_sub(earlier.wait),
            images: self.images - earlier.images,
            bytes: self.bytes - earlier.bytes,
            skipped: self.skipped - earlier.skipped,
            batches: self.batches - earlier.batches,
            queue: self.queue - earlier.queue,
            stages,
        }
    }
}

/// Less of the time than this spent waiting is nothing to advise on.
const NEGLIGIBLE: f64 = 0.02;
/// A consumer that waits for more of the time than this does nothing else.
const IDLE: f64 = 0.95;
/// Bytes per second and thread that no disk delivers.
const MEMORY: f64 = 1e9;

impl LoaderStats {
    /// Batches that stood ready, on average.
    pub fn depth(&self) -> f64 {
        self.queue as f64 / self.batches.max(1) as f64
    }

    /// One line: whether the loader with so many threads kept up over `time`, what held it up, and what to try.
    pub fn advice(&self, time: Duration, threads: usize) -> String {
        let (time, wait) = (time.as_secs_f64().max(1e-9), self.wait.as_secs_f64());
        let rate = |seconds: f64| self.images as f64 / seconds.max(1e-9);
        let Stages { read, decode, transform, .. } = self.stages;
        let [read, decode, transform] = [read, decode, transform].map(|stage| stage.as_secs_f64());
        let busy = read + decode + transform;
        if wait < NEGLIGIBLE * time || self.images == 0 {
            let share = 100.0 * busy / (time * threads.max(1) as f64);
            return format!("the loader keeps up; its threads were busy {:.0} % of the time", share.min(100.0));
        }
        let idle = wait > IDLE * time;
        let speed = match idle {
            true => format!("{} img/s", grouped(rate(time))),
            false => format!("{} of {} img/s wanted", grouped(rate(time)), grouped(rate(time - wait))),
        };
        // threads that would keep up, were each as fast as these; a consumer that does nothing has no pace to keep up with
        let more = ((busy / (time - wait).max(1e-9)).ceil() as usize).saturating_sub(threads).max(1);
        let threads = match (idle, more) {
            (true, _) => "more loader threads".to_owned(),
            (false, 1) => "1 more loader thread".to_owned(),
            (false, more) => format!("{more} more loader threads"),
        };
        let from_storage = self.bytes as f64 / read.max(1e-9);
        let (stage, cure) = if decode >= read && decode >= transform {
            ("decode", format!("convert with --resize 256 (or --raw) or give {threads}"))
        } else if transform > read {
            ("transform", format!("give {threads}"))
        } else if from_storage > MEMORY {
            ("read", format!("the records come from memory, their checksums take the time; give {threads}"))
        } else {
            let rate = from_storage / 1e6;
            let cure = "copy to a local disk with --stage, use shuffle = \"window(8)\"";
            ("read", format!("a thread gets {rate:.0} MB/s; {cure}, or give {threads}"))
        };
        format!("{stage}-bound: {speed}; {cure}")
    }
}

/// `1234.5` as `1,234`.
fn grouped(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What all threads of a loader add to, a batch at a time; nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    read: AtomicU64,
    decode: AtomicU64,
    transform: AtomicU64,
    slots: AtomicU64,
}

/// One batch's times, of the images that were timed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub images: u64,
    pub timed: u64,
    pub read: Duration,
    pub decode: Duration,
    pub transform: Duration,
    /// Waiting for records that readers fetch, of all images.
    pub waited: Duration,
}

impl Tally {
    /// Adds one image's times.
    pub(crate) fn add(&mut self, read: Duration, decode: Duration, transform: Duration) {
        self.timed += 1;
        self.read += read;
        self.decode += decode;
        self.transform += transform;
    }
}

impl Totals {
    pub(crate) fn add_slots(&self, waited: Duration) {
        self.slots.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Adds a thread's tally, scaled to all its images, and empties it. Nothing where none was timed: the images wait for
    /// the next.
    pub(crate) fn add(&self, tally: &mut Tally) {
        if tally.timed == 0 {
            return;
        }
        let scaled = |time: Duration| (time.as_nanos() * u128::from(tally.images) / u128::from(tally.timed)) as u64;
        for (total, time) in
            [(&self.read, tally.read), (&self.decode, tally.decode), (&self.transform, tally.transform)]
        {
            total.fetch_add(scaled(time), Ordering::Relaxed);
        }
        self.read.fetch_add(tally.waited.as_nanos() as u64, Ordering::Relaxed);
        *tally = Tally::default();
    }

    pub(crate) fn stages(&self) -> Stages {
        let time = |total: &AtomicU64| Duration::from_nanos(total.load(Ordering::Relaxed));
        Stages {
            read: time(&self.read),
            decode: time(&self.decode),
            transform: time(&self.transform),
            slots: time(&self.slots),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(images: u64, wait: f64, read: f64, decode: f64, transform: f64) -> LoaderStats {
        let seconds = Duration::from_secs_f64;
        let stages =
            Stages { read: seconds(read), decode: seconds(decode), transform: seconds(transform), ..Stages::default() };
        LoaderStats { wait: seconds(wait), images, bytes: images * 100_000, stages, ..LoaderStats::default() }
    }

    #[test]
    fn advice_names_what_holds_up() {
        let ten = Duration::from_secs(10);
        // 6,400 images in 10 s, of which compute took 5.82 s: 1,100 a second wanted; 2 threads were busy all the time
        let text = stats(6400, 4.18, 1.0, 17.0, 2.0).advice(ten, 2);
        assert_eq!(
            text,
            "decode-bound: 640 of 1,100 img/s wanted; convert with --resize 256 (or --raw) or give 2 more loader threads"
        );
        let text = stats(6400, 5.0, 9.0, 0.5, 0.5).advice(ten, 1);
        assert!(text.starts_with("read-bound: 640 of 1,280 img/s wanted; a thread gets 71 MB/s; "), "{text}");
        assert!(text.contains("--stage") && text.ends_with("give 1 more loader thread"), "{text}");
        let text = stats(6400, 5.0, 1.0, 1.0, 8.0).advice(ten, 1);
        assert_eq!(text, "transform-bound: 640 of 1,280 img/s wanted; give 1 more loader thread");
        let text = stats(6400, 9.9, 1.0, 6.0, 1.0).advice(ten, 1);
        assert!(text.starts_with("decode-bound: 640 img/s; ") && text.ends_with("give more loader threads"), "{text}");
        let text = stats(6400, 5.0, 0.5, 0.1, 0.1).advice(ten, 1);
        assert!(text.contains("come from memory"), "{text}");
        let text = stats(6400, 0.1, 1.0, 3.0, 1.0).advice(ten, 1);
        assert_eq!(text, "the loader keeps up; its threads were busy 50 % of the time");
    }

    #[test]
    fn tallies_count_for_all_images() {
        let totals = Totals::default();
        let mut tally = Tally { images: 10, ..Tally::default() };
        totals.add(&mut tally);
        assert_eq!((totals.stages(), tally.images), (Stages::default(), 10));
        tally = Tally { images: 32, timed: 2, decode: Duration::from_micros(30), ..tally };
        totals.add(&mut tally);
        assert_eq!((totals.stages().decode, tally.images), (Duration::from_micros(480), 0));
    }
}
