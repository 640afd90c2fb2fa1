//! Test-time augmentation: the scores for different views of an image are averaged before softmax, as in torchvision
//! and timm.

use std::collections::BTreeMap;

use backend::Backend;
use engine::Graph;
use loaders::transform::HEAD_WORDS;
use loaders::{Images, Manifest, Pipeline};
use report::predictions::{Outcome, Softmax};
use serde::{Deserialize, Serialize};

use super::collector::BatchScore;
use super::{Collectors, Evaluation, ScoreSums, ScoredBatch};
use crate::error::Error;
use crate::train::agree::Session;
use crate::train::observe::stop::Stop;

impl Evaluation {
    /// Scores this rank's images with several views each. `collectors` gets the result of each image.
    pub(super) fn by_views<B: Backend>(
        &self,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
        collectors: &mut Collectors,
    ) -> Result<ScoreSums, Error> {
        let mut sums = ScoreSums::new(self, collectors);
        // the scores are the weighted sums over the views so far
        let mut seen: BTreeMap<u64, ScoredBatch> = BTreeMap::new();
        let (classes, scores) = (graph.classes(), graph.net().nodes.len());
        for (view, weight) in &self.views {
            let is_stopped = self.each_batch(view, session, graph, stop, |graph, batch, labels, _| {
                let mut found = graph.output(scores)?;
                found.iter_mut().for_each(|score| *score *= weight);
                match seen.get_mut(&batch.step()) {
                    Some(seen) => seen.scores.iter_mut().zip(&found).for_each(|(sum, score)| *sum += score),
                    None => drop(seen.insert(batch.step(), ScoredBatch::new(batch, labels, found))),
                }
                Ok(())
            })?;
            if is_stopped {
                sums.stop = 1.0;
                return Ok(sums);
            }
        }
        for (step, batch) in seen {
            if collectors.add(step, &batch, &mut sums) {
                continue;
            }
            let ScoredBatch { ids, labels, scores, .. } = batch;
            for ((id, label), row) in ids.iter().zip(&labels).zip(scores.chunks_exact(classes.max(1))) {
                let outcome = Outcome::new(*id, *label, row, Softmax::of(row));
                let [top1, top5] = [1, 5].map(|most| u64::from(outcome.place < most));
                sums.add(step, BatchScore { loss: outcome.loss, top1, top5, count: 1 });
            }
            collectors.one.iter_mut().for_each(|collector| collector.add(&ids, &labels, &scores));
        }
        Ok(sums)
    }
}

// The views of an image for test-time augmentation: the image, its mirror image, its four corners and the centre, all
// of these (ten crops), or shifted images.

/// The requested views of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TestTime {
    /// Adds the mirror image of each view.
    pub flip: bool,
    /// Adds the four corners to the centre.
    pub corners: bool,
    /// Adds two views that are shifted along the diagonal by this number of pixels, if it is not 0. Together they have
    /// the weight of the image itself, as in airbench.
    pub shift: u32,
}

/// The pipeline of each view with its weight in the mean of the scores. The first view is the image without
/// augmentation. The weights add up to 1.
pub type Views = Vec<(Pipeline, f32)>;

/// Transforms that determine which bands and which part of the image the network sees. The transform for a mirror image
/// is inserted after them.
const CROPS: [&str; 5] = ["select_bands", "resize", "center_crop", "corner_crop", "shift"];

impl TestTime {
    /// Returns true if an image has other views than the plain one.
    pub fn is_on(self) -> bool {
        self.flip || self.corners || self.shift > 0
    }

    /// Returns the transforms of all views with their weights. The first list is `ops`, and the rest is derived from
    /// it. Returns an error if corners are requested but `ops` has no `center_crop`, or together with a shift.
    pub fn lists(self, ops: &[String]) -> Result<Vec<(Vec<String>, f32)>, String> {
        let mut lists = vec![(ops.to_vec(), 1.0)];
        if self.corners {
            if self.shift > 0 {
                return Err("eval.corners and eval.shift cannot be combined; choose one of the two".into());
            }
            let centre = ops
                .iter()
                .position(|op| name(op) == "center_crop")
                .ok_or("the corner views (--corners, or eval.corners) replace center_crop(size), but augment.eval has no center_crop; \
                        leave the corner views out")?;
            let size = ops[centre].trim_start_matches("center_crop").trim_matches(['(', ')']).to_string();
            lists.extend((0..4).map(|corner| {
                let mut list = ops.to_vec();
                list[centre] = format!("corner_crop({size}, {corner})");
                (list, 1.0)
            }));
        }
        if self.shift > 0 {
            let shifted = [-1, 1].map(|sign| {
                let pixels = sign * i64::from(self.shift);
                (with_op(ops, format!("shift({pixels}, {pixels})")), 0.5)
            });
            lists.extend(shifted);
        }
        if self.flip {
            let mirrored: Vec<_> =
                lists.iter().map(|(list, weight)| (with_op(list, "mirror".into()), *weight)).collect();
            lists.extend(mirrored);
        }
        let total: f32 = lists.iter().map(|(_, weight)| weight).sum();
        lists.iter_mut().for_each(|(_, weight)| *weight /= total);
        Ok(lists)
    }

    /// Returns the views for the images of a data set. Returns an error if a view is not possible for these images.
    pub fn views(self, plain: &Pipeline, images: Images, manifest: &Manifest) -> Result<Views, Error> {
        let lists = self.lists(&plain.ops()).map_err(Error::Usage)?;
        let refuse = |error: loaders::Error| match error {
            loaders::Error::Transform { problem, .. } if self.shift > 0 => Error::Usage(format!(
                "a shift by {} pixels for test-time augmentation (--shift, or eval.shift): {problem}",
                self.shift
            )),
            error => error.into(),
        };
        let pipeline = |(list, weight): &(Vec<String>, f32)| {
            Pipeline::new(list, images, manifest, 0).map(|pipeline| (pipeline, *weight)).map_err(refuse)
        };
        std::iter::once(Ok((plain.clone(), lists[0].1))).chain(lists[1..].iter().map(pipeline)).collect()
    }
}

fn name(op: &str) -> &str {
    op.split('(').next().unwrap_or(op).trim()
}

/// Inserts `op` after the transforms that determine the visible part of the image.
fn with_op(list: &[String], op: String) -> Vec<String> {
    let place =
        list.iter().position(|op| !HEAD_WORDS.contains(&name(op)) && !CROPS.contains(&name(op))).unwrap_or(list.len());
    let mut list = list.to_vec();
    list.insert(place, op);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighted(test_time: TestTime, ops: &[&str]) -> Result<Vec<(Vec<String>, f32)>, String> {
        test_time.lists(&ops.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn lists(flip: bool, corners: bool, ops: &[&str]) -> Result<Vec<Vec<String>>, String> {
        let lists = weighted(TestTime { flip, corners, shift: 0 }, ops)?;
        let equal = 1.0 / lists.len() as f32;
        assert!(lists.iter().all(|(_, weight)| *weight == equal), "{lists:?}");
        Ok(lists.into_iter().map(|(list, _)| list).collect())
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
        let bands = ["select_bands(4, 3, 2)", "resize(256)", "center_crop(224)", "normalize"];
        assert_eq!(lists(true, false, &bands).unwrap()[1][2..], ["center_crop(224)", "mirror", "normalize"]);
        assert!(lists(false, true, &["normalize"]).unwrap_err().contains("center_crop"));
    }

    /// As in airbench: half of the weight is for the image and its mirror image, and half is for the two shifted images
    /// and their mirror images.
    #[test]
    fn shifted_views_have_half_of_the_weight() {
        let lists = weighted(TestTime { flip: true, corners: false, shift: 1 }, &["resize(32)", "normalize"]).unwrap();
        let weights: Vec<f32> = lists.iter().map(|(_, weight)| *weight).collect();
        assert_eq!(weights, [0.25, 0.125, 0.125, 0.25, 0.125, 0.125]);
        assert_eq!(lists[1].0, ["resize(32)", "shift(-1, -1)", "normalize"]);
        assert_eq!(lists[5].0, ["resize(32)", "shift(1, 1)", "mirror", "normalize"]);
        let both = TestTime { flip: false, corners: true, shift: 1 };
        assert!(weighted(both, &["center_crop(8)"]).unwrap_err().contains("cannot be combined"));
    }
}
