//! Softmax cross-entropy, and its sums, which the host reads once the GPU has finished.

use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::kernels::loss::CrossEntropy as CrossEntropyKernel;
use crate::cuda::outbox::Sums;
use crate::cuda::shared::Shared;
use crate::{CrossEntropy, Error, LossSums, TensorDesc};

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
    if !blocks.labelled {
        if blocks.fit_rows(&shared.queues, rows)? {
            shared.moved.set(shared.moved.get() + 1);
        }
        shared.start()?;
        blocks.inbox.set_loss(&ask);
        blocks.inbox.send(shared.stream())?;
        blocks.outbox.expect(rows);
    }
    blocks.outbox.set_classes(classes);
    let x = shared.holds(x, rows * classes)?;
    let dx = dx.as_deref().map(|dx| shared.holds(dx, rows * classes)).transpose()?;
    let (losses, hits, rows) = (blocks.losses.slice(), blocks.hits.slice(), rows as u32);
    shared.launch(&CrossEntropyKernel {
        x,
        dx,
        labels: blocks.inbox.labels()?,
        factors: blocks.inbox.factors()?,
        loss_scale: blocks.scale.slice(),
        weight: ask.weight,
        rows,
        classes: classes as u32,
        losses,
        hits,
        arrivals: blocks.arrivals.slice(),
        not_finite: blocks.not_finite.slice(),
        sums: blocks.outbox.sums(),
    })
}

/// Waits for the oldest pass whose sums nobody has read, and gives them; zeros if there was none.
pub fn sums(shared: &Shared) -> Result<LossSums, Error> {
    let mut blocks = shared.blocks.borrow_mut();
    if !blocks.outbox.wait()? {
        shared.settle()?;
    }
    // the next pass may bring labels of its own
    blocks.labelled = false;
    let Some(Sums { sums, rows: count, classes }) = blocks.outbox.take() else { return Ok(LossSums::default()) };
    let (&[loss, top1, top5, wrong], 1..) = (sums, count) else { return Ok(LossSums::default()) };
    if wrong > 0.0 {
        return Err(no_class(classes, &format!("{wrong} labels beyond")));
    }
    Ok(LossSums { loss, top1: top1 as u64, top5: top5 as u64, count })
}

fn no_class(classes: usize, got: &str) -> Error {
    Error::Size { op: "cross-entropy".into(), expected: format!("labels below {classes}"), got: got.into() }
}
