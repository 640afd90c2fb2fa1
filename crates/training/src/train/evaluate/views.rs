//! Test-time augmentation: each image is scored as several views of it, whose scores before softmax are averaged, as torchvision and timm
//! do.

use std::collections::BTreeMap;

use backend::Backend;
use engine::{Batch, Graph};
use loaders::{LabelSets, Pipeline};
use report::predictions::{Outcome, Softmax};

use super::several::{Part, sets_of};
use super::{Evaluation, Notes, ScoreSums};
use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::device_input::DeviceInput;
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::Activity;

/// A batch, and the sums of its scores over the views so far.
struct Seen {
    ids: Vec<u64>,
    labels: Vec<u32>,
    sets: LabelSets,
    sums: Vec<f32>,
}

impl Evaluation {
    /// This rank's part of a scoring of several views; `notes` take what was made of each image.
    pub(super) fn by_views<B: Backend>(
        &self,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
        notes: &mut Notes,
    ) -> Result<ScoreSums, Error> {
        let batches = self.images().div_ceil(self.batch as u64) as usize;
        let mut sums = ScoreSums { losses: vec![0.0; batches], ..ScoreSums::default() };
        let mut seen: BTreeMap<u64, Seen> = BTreeMap::new();
        let classes = graph.classes();
        for view in &self.views {
            self.look(view, session, graph, stop, &mut seen)?;
            if stop.requested() {
                sums.stop = 1.0;
                return Ok(sums);
            }
        }
        for (step, Seen { ids, labels, sets, sums: mut scores }) in seen {
            scores.iter_mut().for_each(|score| *score /= self.views.len() as f32);
            if let Some(collector) = &mut notes.several {
                sums.add(step, collector.add(&ids, &sets, &scores));
                continue;
            }
            for ((id, label), row) in ids.iter().zip(&labels).zip(scores.chunks_exact(classes.max(1))) {
                let outcome = Outcome::new(*id, *label, row, Softmax::of(row));
                let [top1, top5] = [1, 5].map(|most| u64::from(outcome.place < most));
                sums.add(step, Part { loss: outcome.loss, top1, top5, count: 1 });
            }
            notes.one.iter_mut().for_each(|collector| collector.add(&ids, &labels, &scores));
        }
        Ok(sums)
    }

    /// Adds the scores of one view of all images of this rank.
    fn look<B: Backend>(
        &self,
        view: &Pipeline,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
        seen: &mut BTreeMap<u64, Seen>,
    ) -> Result<(), Error> {
        session.watch.set_activity(Activity::ScoringData { after: 0 });
        let mut input = DeviceInput::new(graph.backend(), view);
        let mut loader = input.start(&self.split, view, self.order(session), self.options)?;
        let scores = graph.net().nodes.len();
        while let Some(batch) = loader.next()? {
            session.watch.set_activity(Activity::Scoring { batch: batch.step() });
            let labels = self.model_labels(batch.labels())?;
            let one = Batch { images: input.input(&batch), labels: &labels, ids: batch.ids(), epoch: 0 };
            graph.evaluate(one, 0.0)?;
            let found = graph.output(scores)?;
            match seen.get_mut(&batch.step()) {
                Some(seen) => seen.sums.iter_mut().zip(&found).for_each(|(sum, score)| *sum += score),
                None => {
                    let (ids, labels) = (batch.ids().to_vec(), labels.to_vec());
                    seen.insert(batch.step(), Seen { ids, labels, sets: sets_of(&batch), sums: found });
                }
            }
            if stop.requested() {
                break;
            }
            session.watch.set_activity(Activity::ScoringData { after: batch.step() });
        }
        Ok(())
    }
}
