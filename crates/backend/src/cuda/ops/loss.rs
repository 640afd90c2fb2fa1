//! Softmax cross-entropy, losses with soft targets, and their sums. The host reads the sums when the GPU has finished.

use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::kernels::declarations::{CrossEntropy as CrossEntropyKernel, SoftLossKernel};
use crate::cuda::pass::{PassBlocks, Sums};
use crate::cuda::shared::Shared;
use crate::{CrossEntropy, Distance, Error, LossForm, LossSums, SoftLoss, SoftTargets, Teaching, TensorDesc};

/// Enqueues the loss of (rows, classes) scores and, if `dx` is given, its gradient. [`sums`] returns the sums.
pub fn cross_entropy(
    shared: &Shared,
    desc: &TensorDesc,
    args: CrossEntropy<'_>,
    x: &CudaBuf,
    dx: Option<&mut CudaBuf>,
) -> Result<(), Error> {
    let (rows, classes) = (args.labels.len(), desc.shape.elems());
    if let Some(wrong) = args.labels.iter().find(|l| **l as usize >= classes) {
        return Err(no_class(classes, &wrong.to_string()));
    }
    let mut blocks = shared.blocks.borrow_mut();
    if !blocks.labelled {
        send_arguments(shared, &mut blocks, &args)?;
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
        weight: args.weight,
        rows,
        classes: classes as u32,
        losses,
        hits,
        arrivals: blocks.arrivals.slice(),
        not_finite: blocks.not_finite.slice(),
        sums: blocks.outbox.sums(),
    })
}

/// Waits for the oldest pass whose sums were not read yet and returns them. Returns zeros if there is no such pass.
pub fn sums(shared: &Shared) -> Result<LossSums, Error> {
    let mut blocks = shared.blocks.borrow_mut();
    if !blocks.outbox.wait()? {
        shared.settle()?;
    }
    // the next pass may have other labels
    blocks.labelled = false;
    let Some(Sums { sums, rows: count, classes }) = blocks.outbox.take() else { return Ok(LossSums::default()) };
    let (&[loss, top1, top5, wrong], 1..) = (sums, count) else { return Ok(LossSums::default()) };
    if wrong > 0.0 {
        return Err(no_class(classes, &format!("{wrong} labels of {classes} or more")));
    }
    Ok(LossSums { loss, top1: top1 as u64, top5: top5 as u64, count })
}

fn no_class(classes: usize, got: &str) -> Error {
    Error::Size { op: "cross-entropy".into(), expected: format!("labels below {classes}"), got: got.into() }
}

/// Copies a pass's targets to the GPU, where its loss reads them.
pub fn copy_targets(shared: &Shared, targets: &SoftTargets<'_>) -> Result<(), Error> {
    let mut blocks = shared.blocks.borrow_mut();
    shared.note_moved(blocks.targets.fit(targets.table.len(), "targets")?);
    blocks.targets.write(targets.table, shared.stream())
}

/// Enqueues the loss of (rows, classes) scores with soft targets and, if `dx` is given, its gradient. [`sums`] returns
/// the sums.
pub fn soft_loss(
    shared: &Shared,
    desc: &TensorDesc,
    args: SoftLoss<'_>,
    x: &CudaBuf,
    teacher: Option<&CudaBuf>,
    dx: Option<&mut CudaBuf>,
) -> Result<(), Error> {
    let (rows, classes) = (args.targets.rows(), desc.shape.elems());
    args.targets.check(classes)?;
    if !shared.blocks.borrow().labelled {
        let (labels, scale) = (args.targets.labels, args.scale);
        let loss = CrossEntropy { labels, smoothing: 0.0, scale, weight: 1.0 };
        send_arguments(shared, &mut shared.blocks.borrow_mut(), &loss)?;
        copy_targets(shared, &args.targets)?;
    }
    let mut blocks = shared.blocks.borrow_mut();
    blocks.outbox.set_classes(classes);
    let holds = |buffer| shared.holds(buffer, rows * classes);
    let gamma = args.objective.gamma;
    let (alpha, mean) = match args.objective.form {
        LossForm::Sigmoid { alpha, mean } => (alpha, mean),
        LossForm::Softmax => (None, false),
        LossForm::Distance(_) => (None, true),
    };
    // the numbers of the forms in loss.cu
    let (form, gamma) = match args.objective.form {
        LossForm::Softmax => (0, gamma),
        LossForm::Sigmoid { .. } => (1, gamma),
        LossForm::Distance(Distance::Squared) => (2, 0.0),
        LossForm::Distance(Distance::Absolute) => (3, 0.0),
        LossForm::Distance(Distance::Huber { delta }) => (4, delta),
    };
    let teaching = args.objective.teacher.filter(|_| teacher.is_some());
    let Teaching { share, temperature } = teaching.unwrap_or(Teaching { share: 0.0, temperature: 1.0 });
    shared.launch(&SoftLossKernel {
        x: holds(x)?,
        dx: dx.as_deref().map(holds).transpose()?,
        teacher: teacher.filter(|_| teaching.is_some()).map(holds).transpose()?,
        labels: blocks.inbox.labels()?,
        targets: blocks.targets.slice(),
        factors: blocks.inbox.factors()?,
        loss_scale: blocks.scale.slice(),
        weight: args.weight,
        rows: rows as u32,
        classes: classes as u32,
        form,
        gamma,
        alpha: alpha.unwrap_or(-1.0),
        mean: if mean { 1.0 / classes as f32 } else { 1.0 },
        share,
        temperature,
        losses: blocks.losses.slice(),
        hits: blocks.hits.slice(),
        arrivals: blocks.arrivals.slice(),
        not_finite: blocks.not_finite.slice(),
        sums: blocks.outbox.sums(),
    })
}

/// Copies the arguments of the loss to the GPU. Needed if the pass began without them.
fn send_arguments(shared: &Shared, blocks: &mut PassBlocks, args: &CrossEntropy<'_>) -> Result<(), Error> {
    shared.note_moved(blocks.fit_rows(&shared.queues, args.labels.len())?);
    shared.start()?;
    blocks.inbox.set_loss(args);
    blocks.inbox.send(shared.stream())?;
    blocks.outbox.expect(args.labels.len());
    Ok(())
}
