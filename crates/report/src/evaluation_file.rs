//! The file OUT/evaluation.json: details of a run's last evaluation for report.html, such as the confusion matrix, the
//! worst mistakes and their pictures.

use std::io;
use std::path::Path;

use data_tools::Thumbnail;
use loaders::regular;
use serde::{Deserialize, Serialize};

use super::predictions::{ClassScore, NumberOutcome, Pair, Predictions, TargetScore, calibration, expected_error};

/// Name of the file in a run's folder.
pub const NAME: &str = "evaluation.json";

/// Version of the layout. Files with another version are rejected.
const VERSION: u32 = 1;
/// Maximum number of cells in the confusion matrix. Cells with the most images are kept.
const MOST_CELLS: usize = 60_000;
/// Number of mistakes that are stored with their pictures.
const WORST: usize = 32;
/// Maximum number of targets with plots, and maximum number of points in all plots together.
const MOST_TARGETS: usize = 64;
const MOST_POINTS: usize = 20_000;
const RESIDUAL_BINS: usize = 41;
/// Maximum size of a file to read, in bytes. The files that trireme writes are smaller, unless there are more than about
/// 200,000 classes.
const LONGEST: u64 = 8 << 20;

/// The contents of evaluation.json.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationFile {
    pub version: u32,
    /// Number of optimizer steps that were done before the evaluation.
    pub step: u64,
    pub epoch: u32,
    pub split: String,
    pub classes: Vec<String>,
    /// Number of images in each class, in the order of `classes`.
    pub images: Vec<u64>,
    /// Number of images predicted as each class.
    pub predicted: Vec<u64>,
    /// Number of correctly predicted images in each class.
    pub right: Vec<u64>,
    /// Mean F1 score of the classes.
    pub macro_f1: Option<f64>,
    pub ece: Option<f64>,
    /// Bins of confidence in ascending order.
    pub calibration: Vec<CalibrationBin>,
    /// The cells of the confusion matrix that are not 0, as [class, predicted class, images].
    pub confusion: Vec<[u64; 3]>,
    /// Number of cells that were left out because there are too many.
    pub confusion_left_out: u64,
    /// Number of images that were predicted as a wrong class.
    pub mistakes: u64,
    /// The mistakes with the highest loss.
    pub worst: Vec<Mistake>,
    /// Training images after the transforms.
    pub augmented: Vec<Picture>,
    /// Present for a multi-label split. The file then has no mistakes, confusion matrix and calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub several: Option<MultiLabelScores>,
    /// Data for the plots, per target. Only if labels are numbers. `classes` then has the names of the targets,
    /// `images` has only the number of all images, and the other fields about classes are empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<TargetPlot>,
}

/// A target's scores and some predictions, in the target's units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetPlot {
    pub name: String,
    pub rmse: Option<f64>,
    pub mae: Option<f64>,
    pub r2: Option<f64>,
    /// Pairs of number and prediction, from images that are evenly spread over the split.
    pub points: Vec<[f32; 2]>,
    /// Smallest and largest residual (prediction minus number) over all images.
    pub range: [f64; 2],
    /// Images in equally wide bins from the smallest to the largest residual.
    pub residuals: Vec<u64>,
}

/// The scores of a multi-label split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MultiLabelScores {
    pub images: u64,
    /// Mean of the classes' average precisions.
    pub map: Option<f64>,
    /// F1 score over all pairs of image and class.
    pub micro_f1: Option<f64>,
    /// The average precision of each class.
    pub average_precision: Vec<Option<f64>>,
}

/// Images for which the highest probability is in one range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    pub images: u64,
    /// Images in which the most probable class is correct.
    pub right: u64,
    /// Mean of the highest probabilities.
    pub confidence: Option<f64>,
}

/// An image predicted as a wrong class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mistake {
    /// Index of the image in the split.
    pub id: u64,
    /// The true class, as an index into `classes`.
    pub label: u32,
    /// Position of the true class if the classes are sorted by score, from 1.
    pub place: u32,
    pub loss: Option<f64>,
    /// The most probable classes with their probabilities.
    pub guesses: Vec<(u32, Option<f64>)>,
    /// The image as a `data:` URL.
    pub picture: Option<String>,
    /// Name of the image's original file, if the record has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Index of the image in its split.
    pub id: u64,
    /// The class of the image, or its first class if it has several labels.
    pub label: u32,
    /// The image as a `data:` URL.
    pub picture: Option<String>,
    /// The class names of a multi-label image. Empty for other images.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}

fn known(number: f64) -> Option<f64> {
    Some(number).filter(|number| number.is_finite())
}

impl EvaluationFile {
    /// Creates the contents for a single-label split, without pictures. `when` has the numbers of steps and epochs that
    /// are done.
    pub fn new(when: (u64, u32), split: &str, classes: &[String], predictions: &Predictions) -> Self {
        let bins = calibration(predictions.outcomes());
        let mistakes = predictions.mistakes();
        let mut cells: Vec<Pair> = predictions.confusion().cells().collect();
        cells.sort_by_key(|cell| std::cmp::Reverse(cell.images));
        let left_out = cells.len().saturating_sub(MOST_CELLS);
        cells.truncate(MOST_CELLS);
        let bin = |bin: &super::predictions::Bin| CalibrationBin {
            images: bin.images,
            right: bin.right,
            confidence: known(bin.confidence / bin.images as f64),
        };
        let mistake = |one: &super::predictions::Outcome| Mistake {
            id: one.id,
            label: one.label,
            place: one.place + 1,
            loss: known(one.loss),
            guesses: one.guesses().take(3).map(|guess| (guess.class, known(f64::from(guess.p)))).collect(),
            picture: None,
            file: String::new(),
        };
        Self {
            ece: known(expected_error(&bins)),
            calibration: bins.iter().map(bin).collect(),
            confusion: cells.iter().map(|c| [u64::from(c.label), u64::from(c.taken_for), c.images]).collect(),
            confusion_left_out: left_out as u64,
            mistakes: mistakes.len() as u64,
            worst: mistakes.iter().take(WORST).map(mistake).collect(),
            ..Self::of_scores(when, split, classes, &predictions.per_class(), predictions.macro_f1())
        }
    }

    /// Creates the contents for a multi-label split.
    pub fn of_classes(
        when: (u64, u32),
        split: &str,
        classes: &[String],
        scores: &[ClassScore],
        several: MultiLabelScores,
        macro_f1: f64,
    ) -> Self {
        Self { several: Some(several), ..Self::of_scores(when, split, classes, scores, macro_f1) }
    }

    /// Creates the contents with the scores of the classes only.
    fn of_scores(
        (step, epoch): (u64, u32),
        split: &str,
        classes: &[String],
        scores: &[ClassScore],
        macro_f1: f64,
    ) -> Self {
        Self {
            version: VERSION,
            step,
            epoch,
            split: split.into(),
            classes: classes.to_vec(),
            images: scores.iter().map(|score| score.images).collect(),
            predicted: scores.iter().map(|score| score.predicted).collect(),
            right: scores.iter().map(|score| score.right).collect(),
            macro_f1: known(macro_f1),
            ..Self::default()
        }
    }

    /// Creates the contents for a split with numbers as labels.
    pub fn of_numbers(when: (u64, u32), split: &str, scores: &[TargetScore], outcomes: &[NumberOutcome]) -> Self {
        let plot = |(at, score): (usize, &TargetScore)| {
            let pair = |one: &NumberOutcome| [one.numbers[at], one.predicted[at]];
            let residuals: Vec<f64> = outcomes.iter().map(|one| one.residual(at)).filter(|r| r.is_finite()).collect();
            let least = residuals.iter().copied().fold(f64::INFINITY, f64::min);
            let most = residuals.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mut bins = vec![0; if residuals.is_empty() { 0 } else { RESIDUAL_BINS }];
            let width = (most - least).max(f64::MIN_POSITIVE) / RESIDUAL_BINS as f64;
            residuals.iter().for_each(|r| bins[(((r - least) / width) as usize).min(RESIDUAL_BINS - 1)] += 1);
            let (count, shown) = (outcomes.len(), outcomes.len().min(MOST_POINTS / scores.len().max(1)));
            let points = (0..shown).map(|k| pair(&outcomes[k * count / shown]));
            TargetPlot {
                name: score.name.clone(),
                rmse: known(score.rmse),
                mae: known(score.mae),
                r2: known(score.r2),
                points: points.filter(|point| point.iter().all(|value| value.is_finite())).collect(),
                range: if residuals.is_empty() { [0.0; 2] } else { [least, most] },
                residuals: bins,
            }
        };
        let numbers = scores.iter().take(MOST_TARGETS).enumerate().map(plot).collect();
        let names: Vec<String> = scores.iter().map(|score| score.name.clone()).collect();
        let head = Self::of_scores(when, split, &names, &[], f64::NAN);
        Self { images: vec![outcomes.len() as u64], numbers, ..head }
    }

    /// Serialises the file to JSON.
    pub fn to_text(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Reads the file in the folder of a run. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, is too long, or has another format or version.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(NAME);
        match path.metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
            Ok(meta) if meta.len() > LONGEST => {
                return Err(io::Error::other(format!("is larger than {LONGEST} bytes")));
            }
            Ok(_) => {}
        }
        let mut file: Self = serde_json::from_slice(&regular::read(&path)?)?;
        if file.version != VERSION {
            return Err(io::Error::other(format!("has version {}, expected {VERSION}", file.version)));
        }
        file.keep_own_pictures();
        Ok(Some(file))
    }

    /// Removes all pictures that are not `data:` URLs of PNG or JPEG files, because they could make a page load data
    /// from elsewhere.
    fn keep_own_pictures(&mut self) {
        let own = |picture: &String| {
            let digits =
                ["data:image/png;base64,", "data:image/jpeg;base64,"].iter().find_map(|p| picture.strip_prefix(p));
            digits.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)))
        };
        let mistakes = self.worst.iter_mut().map(|one| &mut one.picture);
        for picture in mistakes.chain(self.augmented.iter_mut().map(|one| &mut one.picture)) {
            *picture = picture.take().filter(own);
        }
    }
}

impl From<&Thumbnail> for Picture {
    fn from(picture: &Thumbnail) -> Self {
        Self { id: picture.id, label: picture.label, picture: Some(address(picture)), words: picture.words.clone() }
    }
}

/// Returns the picture as a `data:` URL.
pub fn address(picture: &Thumbnail) -> String {
    format!("data:{};base64,{}", picture.kind, base64(&picture.bytes))
}

/// Encodes bytes as in RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let number = (0..3).fold(0u32, |number, i| number << 8 | u32::from(group.get(i).copied().unwrap_or(0)));
        for digit in 0..4 {
            let known = digit <= group.len();
            text.push(if known { DIGITS[(number >> (18 - 6 * digit)) as usize & 63] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::predictions::{Outcome, Softmax};
    use super::*;

    #[test]
    fn base64_matches_the_rfc_examples() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        cases.iter().for_each(|(bytes, text)| assert_eq!(base64(bytes.as_bytes()), *text));
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    fn file() -> EvaluationFile {
        let of = |id: u64, label: u32, scores: [f32; 2]| Outcome::new(id, label, &scores, Softmax::of(&scores));
        let all = vec![of(0, 0, [1.0, 0.0]), of(1, 1, [2.0, 0.0]), of(2, 1, [f32::NAN, 0.0])];
        let classes = ["a".to_string(), "b".to_string()];
        EvaluationFile::new((7, 1), "test", &classes, &Predictions::new(2, all, None))
    }

    #[test]
    fn evaluation_file_round_trips_without_external_resources() {
        let folder = std::env::temp_dir().join(format!("trireme-evaluation-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(EvaluationFile::read(&folder).unwrap(), None);
        let mut file = file();
        assert_eq!((file.mistakes, file.worst[0].id, &file.confusion), (1, 1, &vec![[0, 0, 1], [1, 0, 1], [1, 1, 1]]));
        file.worst[0].picture = Some("data:image/png;base64,Zg==".into());
        std::fs::write(folder.join(NAME), file.to_text().unwrap()).unwrap();
        assert_eq!(EvaluationFile::read(&folder).unwrap(), Some(file.clone()));
        for elsewhere in
            ["https://elsewhere/a.png", "data:image/svg+xml;base64,Zg==", "data:image/png;base64,\"onerror"]
        {
            file.worst[0].picture = Some(elsewhere.into());
            std::fs::write(folder.join(NAME), file.to_text().unwrap()).unwrap();
            assert_eq!(EvaluationFile::read(&folder).unwrap().unwrap().worst[0].picture, None);
        }
        for (text, why) in
            [("{\"vers", "EOF"), ("[]", "invalid"), (&file.to_text().unwrap().replace(":1,", ":9,"), "version 9")]
        {
            std::fs::write(folder.join(NAME), text).unwrap();
            let error = EvaluationFile::read(&folder).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
