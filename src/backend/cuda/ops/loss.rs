//! Softmax cross-entropy, and what the host learns of it once the card is through.

use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::kernels::module::Arg::{At, U32};
use crate::backend::cuda::shared::Shared;
use crate::backend::{CrossEntropy, Error, LossSums, TensorDesc};

/// Enqueues the loss of (rows, classes) scores, and with `dx` its gradient; [`sums`] gives the sums.
pub fn cross_entropy(
    shared: &Shared,
    desc: &TensorDesc,
    ask: CrossEntropy<'_>,
    x: &CudaBuf,
    dx: Option<&mut CudaBuf>,
) -> Result<(), Error> {
    let (rows, classes) = (ask.labels.len(), desc.shape.elems());
    if let Some(wrong) = ask.labels.iter().find(|l| **l as usize >= classes) {
        return Err(no_class(classes, &wrong.to_string()));
    }
    let mut blocks = shared.blocks.borrow_mut();
    if !blocks.asked {
        if blocks.fit_rows(&shared.queues, rows)? {
            shared.moved.set(shared.moved.get() + 1);
        }
        shared.start()?;
        blocks.labels.write(ask.labels, shared.stream())?;
        blocks.ask.write(&[ask.smoothing, ask.scale], shared.stream())?;
        blocks.rows = rows as u64;
    }
    blocks.classes = classes;
    let x = shared.holds(x, rows * classes)?;
    let dx = dx.map(|dx| shared.holds(dx, rows * classes)).transpose()?.unwrap_or(0);
    let [labels, numbers] = [blocks.labels.address(), blocks.ask.address()].map(At);
    let [scale, losses, hits, bad] =
        [&blocks.scale, &blocks.losses, &blocks.hits, &blocks.not_finite].map(|b| At(b.address()));
    let (count, k) = (U32(rows as u32), U32(classes as u32));
    // SAFETY: scores and gradient hold (rows, classes) (checked); the blocks have room for as many rows.
    unsafe {
        let args = [At(x), At(dx), labels, numbers, scale, count, k, losses, hits];
        shared.launch("cross_entropy", shared.grid(32 * rows), &args)?;
        shared.launch("cross_entropy_sums", (1, 1), &[losses, hits, count, bad, At(blocks.sums.address())])
    }
}

/// Waits for the card, and gives the sums of the last loss; zeros if there was none.
pub fn sums(shared: &Shared) -> Result<LossSums, Error> {
    shared.settle()?;
    let mut blocks = shared.blocks.borrow_mut();
    // what comes next may bring labels of its own
    blocks.asked = false;
    let count = std::mem::take(&mut blocks.rows);
    if count == 0 {
        return Ok(LossSums::default());
    }
    let [loss, top1, top5, wrong] = *blocks.sums.as_slice() else { return Ok(LossSums::default()) };
    if wrong > 0.0 {
        return Err(no_class(blocks.classes, &format!("{wrong} labels beyond")));
    }
    Ok(LossSums { loss, top1: top1 as u64, top5: top5 as u64, count })
}

fn no_class(classes: usize, got: &str) -> Error {
    Error::Size { op: "cross-entropy".into(), expected: format!("labels below {classes}"), got: got.into() }
}
