//! Losses against targets: the targets' way to the GPU, and the launch.

use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::kernels::soft_loss::SoftLossKernel;
use crate::cuda::shared::Shared;
use crate::{CrossEntropy, Error, LossForm, SoftLoss, SoftTargets, Teaching, TensorDesc};

/// Brings the targets of a pass to the GPU, to where its loss reads them.
pub fn bring(shared: &Shared, targets: &SoftTargets<'_>) -> Result<(), Error> {
    let mut blocks = shared.blocks.borrow_mut();
    if blocks.fit_targets(&shared.queues, targets.table.len())? {
        shared.moved.set(shared.moved.get() + 1);
    }
    blocks.targets.write(targets.table, shared.stream())
}

/// Enqueues the loss of (rows, classes) scores against targets, and with `dx` its gradient; [`super::loss::sums`] gives the sums.
pub fn soft_loss(
    shared: &Shared,
    desc: &TensorDesc,
    ask: SoftLoss<'_>,
    x: &CudaBuf,
    teacher: Option<&CudaBuf>,
    dx: Option<&mut CudaBuf>,
) -> Result<(), Error> {
    let (rows, classes) = (ask.targets.rows(), desc.shape.elems());
    ask.targets.check(classes)?;
    if !shared.blocks.borrow().labelled {
        begin(shared, &ask)?;
    }
    let mut blocks = shared.blocks.borrow_mut();
    blocks.outbox.set_classes(classes);
    let holds = |buffer| shared.holds(buffer, rows * classes);
    let (alpha, mean) = match ask.objective.form {
        LossForm::Sigmoid { alpha, mean } => (alpha, mean),
        LossForm::Softmax => (None, false),
    };
    let teaching = ask.objective.teacher.filter(|_| teacher.is_some());
    let Teaching { share, temperature } = teaching.unwrap_or(Teaching { share: 0.0, temperature: 1.0 });
    shared.launch(&SoftLossKernel {
        x: holds(x)?,
        dx: dx.as_deref().map(holds).transpose()?,
        teacher: teacher.filter(|_| teaching.is_some()).map(holds).transpose()?,
        labels: blocks.inbox.labels()?,
        targets: blocks.targets.slice(),
        factors: blocks.inbox.factors()?,
        loss_scale: blocks.scale.slice(),
        weight: ask.weight,
        rows: rows as u32,
        classes: classes as u32,
        sigmoid: u32::from(ask.objective.form != LossForm::Softmax),
        gamma: ask.objective.gamma,
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

/// What a pass brings that was begun with a loss.
fn begin(shared: &Shared, ask: &SoftLoss<'_>) -> Result<(), Error> {
    let (labels, scale) = (ask.targets.labels, ask.scale);
    {
        let mut blocks = shared.blocks.borrow_mut();
        if blocks.fit_rows(&shared.queues, labels.len())? {
            shared.moved.set(shared.moved.get() + 1);
        }
        shared.start()?;
        blocks.inbox.set_loss(&CrossEntropy { labels, smoothing: 0.0, scale, weight: 1.0 });
        blocks.inbox.send(shared.stream())?;
        blocks.outbox.expect(labels.len());
    }
    bring(shared, &ask.targets)
}
