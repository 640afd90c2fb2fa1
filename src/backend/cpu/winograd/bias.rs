//! The gradient of the bias.

use super::super::threads::Threads;
use crate::backend::TensorDesc;

/// Sum of dy over images and pixels, by channel.
pub fn bias_gradient<const BLOCK: usize>(threads: Threads, desc: &TensorDesc, dy: &[f32], db: &mut [f32]) {
    let (row, blocks, samples) = (desc.shape.plane() * BLOCK, desc.blocks(), desc.n);
    threads.split(db, BLOCK, |first, db| {
        for (block, db) in (first..).zip(db.chunks_mut(BLOCK)) {
            let mut total = [0f64; BLOCK];
            for n in 0..samples {
                let mut sum = [0f32; BLOCK];
                for lanes in dy[(n * blocks + block) * row..][..row].as_chunks::<BLOCK>().0 {
                    sum.iter_mut().zip(lanes).for_each(|(s, d)| *s += d);
                }
                total.iter_mut().zip(sum).for_each(|(t, s)| *t += f64::from(s));
            }
            db.iter_mut().zip(total).for_each(|(d, t)| *d = t as f32);
        }
    });
}
