//! Training with targets for all classes instead of labels: the loss, the targets of the next pass, and the teacher.

use backend::{Backend, CrossEntropy, Error, LossSums, Objective, SoftLoss, SoftTargets, TensorDesc};

use super::graph::{Graph, SoftTargetLoss};
use super::request::{Batch, Kind};

impl<B: Backend> SoftTargetLoss<B> {
    pub(super) fn targets<'a>(&'a self, labels: &'a [u32]) -> SoftTargets<'a> {
        SoftTargets { labels, table: &self.table }
    }

    /// Computes the loss for a tensor of scores, and its gradient if `dx` is given. Labels and factors come from
    /// `args`.
    pub(super) fn loss(
        &self,
        backend: &B,
        desc: &TensorDesc,
        args: CrossEntropy<'_>,
        x: &B::Buf,
        dx: Option<&mut B::Buf>,
    ) -> Result<Option<LossSums>, Error> {
        let CrossEntropy { labels, scale, weight, .. } = args;
        let soft = SoftLoss { targets: self.targets(labels), objective: self.objective, scale, weight };
        let Some(teacher) = &self.teacher else { return backend.soft_loss(desc, soft, x, None, dx) };
        let last = teacher.net().nodes.len();
        let scores = teacher.pass.tensors.take(teacher.plan.value_of(last))?;
        backend.soft_loss(desc, soft, x, Some((&teacher.current_size.desc(last, labels.len()), &scores)), dx)
    }

    /// Computes the teacher's scores for this batch.
    pub(super) fn run_teacher(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let Some(teacher) = &mut self.teacher else { return Ok(()) };
        teacher.begin(batch, None, false, true)?;
        teacher.enqueue(Kind::Scores, &mut |teacher| teacher.forward(batch, false))
    }
}

impl<B: Backend> Graph<B> {
    /// Makes training passes compare the scores with targets instead of labels. The caller must fill
    /// [`Graph::targets_mut`] before each of these passes. Evaluation still uses labels.
    pub fn train_against(&mut self, objective: Objective) {
        self.soft = Some(SoftTargetLoss { objective, table: Vec::new(), teacher: None });
    }

    /// Adds a teacher to the objective: a network created with [`Graph::inference_graph`] for the same images.
    ///
    /// # Errors
    ///
    /// Returns an error if the numbers of scores or the image sizes differ, or if training uses labels.
    pub fn teach(&mut self, teacher: Graph<B>) -> Result<(), Error> {
        let wrong = |expected: String, got: String| Err(Error::Size { op: "the teacher".into(), expected, got });
        if teacher.classes() != self.classes() || teacher.net().input != self.net().input {
            let text = |graph: &Graph<B>| format!("{} scores for images of {}", graph.classes(), graph.net().input);
            return wrong(text(self), text(&teacher));
        }
        match &mut self.soft {
            Some(soft) => soft.teacher = Some(Box::new(teacher)),
            None => return wrong("training with soft targets".into(), "labels".into()),
        }
        Ok(())
    }

    /// Returns the bytes of the teacher's parameters and activations, and of the memory that its operations allocate.
    pub fn teacher_bytes(&self) -> usize {
        let teacher = self.soft.as_ref().and_then(|soft| soft.teacher.as_ref());
        teacher.map_or(0, |t| {
            let parameters = t.layout().buckets.iter().sum::<usize>() * t.backend().parameter_bytes();
            4 * t.memory().elems + parameters + t.state_bytes()
        })
    }

    /// Returns the targets of the next training pass, to be filled in the format of [`SoftTargets::table`]. Returns
    /// `None` if training uses labels.
    pub fn targets_mut(&mut self) -> Option<&mut Vec<f32>> {
        self.soft.as_mut().map(|soft| &mut soft.table)
    }
}
