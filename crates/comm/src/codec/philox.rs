//! The codecs' random words. They are the Philox4x32-10 of `loaders::random`, computed for eight counters at a time so
//! that the compiler vectorises the loop. Element i of a parameter uses word (i / 8 mod 4) of block 8 floor(i / 32) + i
//! mod 8. The counter of a block is (worker, block, step, [`CODEC_OP`] << 16 | parameter), and the key is the seed. So
//! the words do not depend on bucket, rank or instruction set.

use base::simd;
use loaders::random::{CODEC_OP, ROUNDS, key, philox_round};

use super::Key;

/// Elements per set of eight counters.
pub(super) const GROUP: usize = 32;

/// Counters computed at a time.
const LANES: usize = 8;

/// The random words for one parameter of one worker in one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    key: [u32; 2],
    worker: u32,
    step: u32,
    op: u32,
}

impl Stream {
    pub fn new(draw: Key, worker: usize, parameter: u16) -> Self {
        let op = u32::from(CODEC_OP) << 16 | u32::from(parameter);
        Self { key: key(draw.seed), worker: worker as u32, step: draw.step as u32, op }
    }

    /// Writes the random words of the elements starting at `first`, which must be a multiple of [`GROUP`].
    pub fn fill(&self, first: usize, words: &mut [u32]) {
        debug_assert!(first.is_multiple_of(GROUP), "element {first} is not the start of a group");
        fill(*self, (first / 4) as u32, words);
    }
}

simd! {
    fn fill(stream: Stream, first: u32, words: &mut [u32]) {
        let mut block = first;
        let (whole, rest) = words.as_chunks_mut::<GROUP>();
        for group in whole {
            *group = blocks(stream, block);
            block += LANES as u32;
        }
        let length = rest.len();
        rest.copy_from_slice(&blocks(stream, block)[..length]);
    }
}

/// Computes the random words of eight consecutive blocks. The result has word 0 of all blocks, then word 1, 2 and 3.
#[inline(always)]
fn blocks(stream: Stream, first: u32) -> [u32; GROUP] {
    let mut x = [[stream.worker; LANES], [0; LANES], [stream.step; LANES], [stream.op; LANES]];
    for (lane, block) in x[1].iter_mut().enumerate() {
        *block = first + lane as u32;
    }
    for round in 0..ROUNDS {
        let [a, b, c, d] = x;
        for lane in 0..LANES {
            let word = philox_round([a[lane], b[lane], c[lane], d[lane]], stream.key, round);
            (x[0][lane], x[1][lane], x[2][lane], x[3][lane]) = (word[0], word[1], word[2], word[3]);
        }
    }
    let mut words = [0; GROUP];
    for (to, from) in words.as_chunks_mut::<LANES>().0.iter_mut().zip(x) {
        *to = from;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use loaders::random::philox4x32;

    #[test]
    fn stream_words_match_philox_at_any_offset() {
        let draw = Key { seed: 0x0123_4567_89ab_cdef, step: 41 };
        let stream = Stream::new(draw, 6, 77);
        let mut words = vec![0; 1_000];
        stream.fill(0, &mut words);
        for (i, word) in words.iter().enumerate() {
            let counter = [6, (8 * (i / 32) + i % 8) as u32, 41, u32::from(CODEC_OP) << 16 | 77];
            assert_eq!(*word, philox4x32(counter, [0x89ab_cdef, 0x0123_4567])[i / 8 % 4], "element {i}");
        }
        let mut part = vec![0; 101];
        stream.fill(640, &mut part);
        assert_eq!(part, words[640..741]);
    }
}
