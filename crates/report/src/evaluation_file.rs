//! OUT/evaluation.json: what the page of a run shows of its last scoring beyond the score, with the pictures in it.

use std::io;
use std::path::Path;

use data_tools::Thumbnail;
use loaders::regular;
use serde::{Deserialize, Serialize};

use super::predictions::{ClassScore, Pair, Predictions, calibration, expected_error};

/// Its name in the folder of a run.
pub const NAME: &str = "evaluation.json";

/// Of this layout; others are not read.
const VERSION: u32 = 1;
/// Cells of the confusion matrix at most: those with the most images.
const MOST_CELLS: usize = 60_000;
/// Mistakes that are kept, with their pictures.
const WORST: usize = 32;
/// Bytes of a file that is read: ours have 2 MB at most.
const LONGEST: u64 = 8 << 20;

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluationFile {
    /// Of the layout.
    pub version: u32,
    /// Optimizer steps done before the scoring.
    pub step: u64,
    /// Epochs done.
    pub epoch: u32,
    /// Name of the split.
    pub split: String,
    /// Class names.
    pub classes: Vec<String>,
    /// Images of each class.
    pub images: Vec<u64>,
    /// Images that were taken for each class.
    pub predicted: Vec<u64>,
    /// Images of each class that were taken for it.
    pub right: Vec<u64>,
    /// Mean F1 of the classes.
    pub macro_f1: Option<f64>,
    /// Expected calibration error.
    pub ece: Option<f64>,
    /// Bins of confidence, the lowest first.
    pub calibration: Vec<CalibrationBin>,
    /// Class, what its images were taken for, how many; cells that are not 0.
    pub confusion: Vec<[u64; 3]>,
    /// Cells that are not here, since there are too many.
    pub confusion_left_out: u64,
    /// Images that were taken for another class.
    pub mistakes: u64,
    /// The mistakes with the highest loss.
    pub worst: Vec<Mistake>,
    /// Training images after the transforms.
    pub augmented: Vec<Picture>,
    /// Where images may have several labels: then there are no mistakes, confusion and calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub several: Option<SeveralLabels>,
}

/// What is known of images that may have several labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeveralLabels {
    /// Images that were scored.
    pub images: u64,
    /// Mean of the classes' average precisions.
    pub map: Option<f64>,
    /// F1 of all labels together.
    pub micro_f1: Option<f64>,
    /// Of each class.
    pub average_precision: Vec<Option<f64>>,
}

/// Images whose likeliest class has a probability in one range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    /// How many.
    pub images: u64,
    /// Those whose likeliest class is right.
    pub right: u64,
    /// Mean of these probabilities.
    pub confidence: Option<f64>,
}

/// An image that was taken for another class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mistake {
    /// Its number in the split.
    pub id: u64,
    /// Its class.
    pub label: u32,
    /// Place of that class among all, from 1.
    pub place: u32,
    /// Cross-entropy.
    pub loss: Option<f64>,
    /// The likeliest classes with their probabilities.
    pub guesses: Vec<(u32, Option<f64>)>,
    /// The image, as a `data:` address.
    pub picture: Option<String>,
    /// The image's original file, if its record has the name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
}

/// A picture of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// The image's number in its split.
    pub id: u64,
    /// Its class; of several the first.
    pub label: u32,
    /// As a `data:` address.
    pub picture: Option<String>,
    /// Its classes, where there may be several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}

fn known(number: f64) -> Option<f64> {
    Some(number).filter(|number| number.is_finite())
}

impl EvaluationFile {
    /// Of a split of these classes; `step` and `epoch` are those done. Without pictures.
    pub fn new(step: u64, epoch: u32, split: &str, classes: &[String], predictions: &Predictions) -> Self {
        let scores = predictions.per_class();
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
            version: VERSION,
            step,
            epoch,
            split: split.into(),
            classes: classes.to_vec(),
            images: scores.iter().map(|score| score.images).collect(),
            predicted: scores.iter().map(|score| score.predicted).collect(),
            right: scores.iter().map(|score| score.right).collect(),
            macro_f1: known(predictions.macro_f1()),
            ece: known(expected_error(&bins)),
            calibration: bins.iter().map(bin).collect(),
            confusion: cells.iter().map(|c| [u64::from(c.label), u64::from(c.taken_for), c.images]).collect(),
            confusion_left_out: left_out as u64,
            mistakes: mistakes.len() as u64,
            worst: mistakes.iter().take(WORST).map(mistake).collect(),
            augmented: Vec::new(),
            several: None,
        }
    }

    /// The same of images that may have several labels.
    pub fn of_classes(
        (step, epoch): (u64, u32),
        split: &str,
        classes: &[String],
        scores: &[ClassScore],
        several: SeveralLabels,
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
            several: Some(several),
            ..Self::default()
        }
    }

    /// The text of the file.
    pub fn to_text(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Reads the file of the run in `folder`; nothing where there is none.
    ///
    /// # Errors
    /// A file that cannot be read, that is too long, or that is no such file.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(NAME);
        match path.metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
            Ok(meta) if meta.len() > LONGEST => return Err(io::Error::other("is too long to be ours")),
            Ok(_) => {}
        }
        let mut file: Self = serde_json::from_slice(&regular::read(&path)?)?;
        if file.version != VERSION {
            return Err(io::Error::other(format!("is of version {}, expected {VERSION}", file.version)));
        }
        file.keep_own_pictures();
        Ok(Some(file))
    }

    /// Drops what would make a page load anything from elsewhere.
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

/// A picture as a `data:` address.
pub fn address(picture: &Thumbnail) -> String {
    format!("data:{};base64,{}", picture.kind, base64(&picture.bytes))
}

/// RFC 4648, with padding.
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
    fn base64_of_the_rfc() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        cases.iter().for_each(|(bytes, text)| assert_eq!(base64(bytes.as_bytes()), *text));
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    fn file() -> EvaluationFile {
        let of = |id: u64, label: u32, scores: [f32; 2]| Outcome::new(id, label, &scores, Softmax::of(&scores));
        let all = vec![of(0, 0, [1.0, 0.0]), of(1, 1, [2.0, 0.0]), of(2, 1, [f32::NAN, 0.0])];
        let classes = ["a".to_string(), "b".to_string()];
        EvaluationFile::new(7, 1, "test", &classes, &Predictions::new(2, all, None))
    }

    #[test]
    fn the_file_comes_back_and_loads_nothing_from_elsewhere() {
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
