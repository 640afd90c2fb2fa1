//! Equalised histograms, by PIL's rule: the shares of all values but the largest become steps of equal height.

use super::image::ByteImage;
use super::lookup::look_up;

/// Equalises the histogram of each plane. A plane with fewer than 255 pixels below its largest value stays.
pub(in crate::transform) fn equalize(image: &mut ByteImage) {
    for plane in image.planes() {
        let counts = histogram(plane);
        let largest = counts.iter().rev().find(|count| **count > 0).copied().unwrap_or(0);
        let step = (plane.len() as u64 - largest) / 255;
        if step == 0 {
            continue;
        }
        let mut below = 0;
        let table = counts.map(|count| {
            let level = (below + step / 2) / step;
            below += count;
            level.min(255) as u8
        });
        look_up(plane, &table);
    }
}

/// How often each value occurs. Four counts side by side: one count of equal neighbours would wait for itself.
fn histogram(plane: &[u8]) -> [u64; 256] {
    let mut counts = [[0u32; 256]; 4];
    let (fours, rest) = plane.as_chunks::<4>();
    for four in fours {
        for (counts, &byte) in counts.iter_mut().zip(four) {
            counts[usize::from(byte)] += 1;
        }
    }
    rest.iter().for_each(|&byte| counts[0][usize::from(byte)] += 1);
    std::array::from_fn(|byte| counts.iter().map(|counts| u64::from(counts[byte])).sum())
}
