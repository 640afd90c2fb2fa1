//! Test-time augmentation: the scores for different views of an image are averaged before softmax, as in torchvision
//! and timm.

use std::collections::BTreeMap;

use backend::Backend;
use engine::{Batch, Graph};
use loaders::transform::HEAD_WORDS;
use loaders::{Images, LabelSets, Manifest, Pipeline};
use report::predictions::{Outcome, Softmax};

use super::collector::{BatchScore, sets_of};
use super::{Collectors, Evaluation, ScoreSums};
use crate::error::Error;
use crate::train::agree::Session;
use crate::train::device_input::DeviceInput;
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::Activity;

/// A batch, and the sums of its scores over the views so far.
struct ScoredBatch {
    ids: Vec<u64>,
    labels: Vec<u32>,
    sets: LabelSets,
    sums: Vec<f32>,
}

impl Evaluation {
    /// Scores this rank's images with several views each. `collectors` gets the result of each image.
    pub(super) fn by_views<B: Backend>(
        &self,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
        collectors: &mut Collectors,
    ) -> Result<ScoreSums, Error> {
        let batches = self.images().div_ceil(self.batch as u64) as usize;
        let mut sums = ScoreSums { losses: vec![0.0; batches], ..ScoreSums::default() };
        let mut seen: BTreeMap<u64, ScoredBatch> = BTreeMap::new();
        let classes = graph.classes();
        for view in &self.views {
            self.add_view(view, session, graph, stop, &mut seen)?;
            if stop.requested() {
                sums.stop = 1.0;
                return Ok(sums);
            }
        }
        for (step, ScoredBatch { ids, labels, sets, sums: mut scores }) in seen {
            scores.iter_mut().for_each(|score| *score /= self.views.len() as f32);
            if let Some(collector) = &mut collectors.several {
                sums.add(step, collector.add(&ids, &sets, &scores));
                continue;
            }
            for ((id, label), row) in ids.iter().zip(&labels).zip(scores.chunks_exact(classes.max(1))) {
                let outcome = Outcome::new(*id, *label, row, Softmax::of(row));
                let [top1, top5] = [1, 5].map(|most| u64::from(outcome.place < most));
                sums.add(step, BatchScore { loss: outcome.loss, top1, top5, count: 1 });
            }
            collectors.one.iter_mut().for_each(|collector| collector.add(&ids, &labels, &scores));
        }
        Ok(sums)
    }

    /// Adds a view's scores for all images on this rank.
    fn add_view<B: Backend>(
        &self,
        view: &Pipeline,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
        seen: &mut BTreeMap<u64, ScoredBatch>,
    ) -> Result<(), Error> {
        session.watch.set_activity(Activity::ScoringData { after: 0 });
        let input = DeviceInput::new(graph.backend(), view);
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
                    seen.insert(batch.step(), ScoredBatch { ids, labels, sets: sets_of(&batch), sums: found });
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

// The views of an image for test-time augmentation: the image, its mirror image, its four corners and the centre, or
// all of these (ten crops).

/// The requested views of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestTime {
    /// Adds the mirror image of each view.
    pub flip: bool,
    /// Adds the four corners to the centre.
    pub corners: bool,
}

/// Transforms that determine which part of an image is visible. A mirror image is made after them.
const CROPS: [&str; 3] = ["resize", "center_crop", "corner_crop"];

impl TestTime {
    /// Returns true if images have further views.
    pub fn is_on(self) -> bool {
        self.flip || self.corners
    }

    /// Returns the transforms of all views. The first list is `ops`, and the rest is derived from it.
    ///
    /// # Errors
    ///
    /// Returns an error if corners are requested but `ops` has no `center_crop`.
    pub fn lists(self, ops: &[String]) -> Result<Vec<Vec<String>>, String> {
        let mut lists = vec![ops.to_vec()];
        if self.corners {
            let centre = ops
                .iter()
                .position(|op| name(op) == "center_crop")
                .ok_or("the corners replace center_crop(size), but augment.eval of this model does not have it")?;
            let size = ops[centre].trim_start_matches("center_crop").trim_matches(['(', ')']).to_string();
            lists.extend((0..4).map(|corner| {
                let mut list = ops.to_vec();
                list[centre] = format!("corner_crop({size}, {corner})");
                list
            }));
        }
        if self.flip {
            let mirrored: Vec<Vec<String>> = lists.iter().map(|list| mirrored(list)).collect();
            lists.extend(mirrored);
        }
        Ok(lists)
    }

    /// Returns one pipeline per view, starting with the plain pipeline.
    ///
    /// # Errors
    ///
    /// Returns an error if a view is not possible for these images.
    pub fn pipelines(self, plain: &Pipeline, images: Images, manifest: &Manifest) -> Result<Vec<Pipeline>, Error> {
        let lists = self.lists(&plain.ops()).map_err(Error::Usage)?;
        let of = |list: &Vec<String>| Ok(Pipeline::new(list, images, manifest, 0)?);
        std::iter::once(Ok(plain.clone())).chain(lists[1..].iter().map(of)).collect()
    }
}

fn name(op: &str) -> &str {
    op.split('(').next().unwrap_or(op).trim()
}

fn mirrored(list: &[String]) -> Vec<String> {
    let place =
        list.iter().position(|op| !HEAD_WORDS.contains(&name(op)) && !CROPS.contains(&name(op))).unwrap_or(list.len());
    let mut list = list.to_vec();
    list.insert(place, "mirror".into());
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(flip: bool, corners: bool, ops: &[&str]) -> Result<Vec<Vec<String>>, String> {
        TestTime { flip, corners }.lists(&ops.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn views_of_a_list() {
        let photos = ["resize(256)", "center_crop(224)", "normalize(0.5, 0.2)"];
        assert_eq!(lists(false, false, &photos).unwrap(), [photos]);
        let two = lists(true, false, &photos).unwrap();
        assert_eq!(two[1], ["resize(256)", "center_crop(224)", "mirror", "normalize(0.5, 0.2)"]);
        let ten = lists(true, true, &photos).unwrap();
        assert_eq!(ten.len(), 10);
        assert_eq!(ten[4], ["resize(256)", "corner_crop(224, 3)", "normalize(0.5, 0.2)"]);
        assert_eq!(ten[6], ["resize(256)", "corner_crop(224, 0)", "mirror", "normalize(0.5, 0.2)"]);
        assert_eq!(lists(true, false, &["normalize"]).unwrap()[1], ["mirror", "normalize"]);
        let stored = ["ignore_exif", "resize(256)", "center_crop(224)", "normalize"];
        assert_eq!(lists(true, false, &stored).unwrap()[1][3..], ["mirror", "normalize"]);
        assert!(lists(false, true, &["normalize"]).unwrap_err().contains("center_crop"));
    }
}
