//! Training against targets over all classes instead of labels: what is compared, the targets of the next pass, the teacher.

use backend::{Backend, CrossEntropy, Error, LossSums, Objective, SoftLoss, SoftTargets, TensorDesc};

use super::graph::{Batch, Graph};
use super::replay::Kind;

/// What training compares the scores with, where that is not labels.
pub(super) struct SoftTargetLoss<B: Backend> {
    objective: Objective,
    /// Of the next pass, as [`SoftTargets::table`](backend::SoftTargets::table).
    table: Vec<f32>,
    pub(super) teacher: Option<Box<Graph<B>>>,
}

impl<B: Backend> SoftTargetLoss<B> {
    pub(super) fn targets<'a>(&'a self, labels: &'a [u32]) -> SoftTargets<'a> {
        SoftTargets { labels, table: &self.table }
    }

    /// The loss of a tensor of scores, with the labels and factors of `ask`.
    pub(super) fn loss(
        &self,
        backend: &B,
        desc: &TensorDesc,
        ask: CrossEntropy<'_>,
        x: &B::Buf,
        dx: Option<&mut B::Buf>,
    ) -> Result<Option<LossSums>, Error> {
        let CrossEntropy { labels, scale, weight, .. } = ask;
        let soft = SoftLoss { targets: self.targets(labels), objective: self.objective, scale, weight };
        let scores = self.teacher.as_ref().map(|t| t.pass.tensors.take(t.plan.value_of(t.net().nodes.len())));
        let scores = scores.transpose()?;
        backend.soft_loss(desc, soft, x, scores.as_deref(), dx)
    }

    /// Has the teacher score the batch that a pass begins with.
    pub(super) fn consult(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let Some(teacher) = &mut self.teacher else { return Ok(()) };
        teacher.begin(batch, None, false)?;
        teacher.enqueue(Kind::Scores, &mut |teacher| teacher.forward(batch, false))
    }
}

impl<B: Backend> Graph<B> {
    /// From now on training passes compare the scores with the targets that [`Graph::targets_mut`] was given before each of them. Scoring
    /// goes on with labels.
    pub fn train_against(&mut self, objective: Objective) {
        self.soft = Some(SoftTargetLoss { objective, table: Vec::new(), teacher: None });
    }

    /// Gives the objective its teacher: a network that was made by [`Graph::beside`], for the same images.
    ///
    /// # Errors
    /// For another number of scores, and where training is against labels alone.
    pub fn teach(&mut self, teacher: Graph<B>) -> Result<(), Error> {
        let wrong = |expected: String, got: String| Err(Error::Size { op: "the teacher".into(), expected, got });
        if teacher.classes() != self.classes() || teacher.net().input != self.net().input {
            let text = |graph: &Graph<B>| format!("{} scores of images of {}", graph.classes(), graph.net().input);
            return wrong(text(self), text(&teacher));
        }
        match &mut self.soft {
            Some(soft) => soft.teacher = Some(Box::new(teacher)),
            None => return wrong("training against targets".into(), "labels".into()),
        }
        Ok(())
    }

    /// Bytes of the teacher's parameters and activations.
    pub fn teacher_bytes(&self) -> usize {
        let teacher = self.soft.as_ref().and_then(|soft| soft.teacher.as_ref());
        teacher.map_or(0, |t| 4 * (t.memory().elems + t.layout().buckets.iter().sum::<usize>()) + t.state_bytes())
    }

    /// The targets of the next training pass, as [`SoftTargets::table`]; none where training is against labels.
    pub fn targets_mut(&mut self) -> Option<&mut Vec<f32>> {
        self.soft.as_mut().map(|soft| &mut soft.table)
    }
}
