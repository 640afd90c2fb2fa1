//! Formats the results of an evaluation as text, as JSON, as a table with a line per image, and as a sheet of mistakes.

use std::fmt::Write;
use std::path::Path;

use base::text::{printable, shown};
use data_tools::ContactSheet;
use formats::checkpoint::LabelScores;
use loaders::overwrite::Content;
use loaders::{Limits, replace};
use report::predictions::{
    ClassScore, MultiLabelOutcome, NumberOutcome, Outcome, Pair, TargetScore, calibration, expected_error,
};
use serde_json::{Value, json};

use super::score::SplitScore;
use crate::error::Error;
use crate::train::evaluate::file_name;

/// Kind of file that a prediction table may overwrite.
pub const TABLE: Content =
    Content { name: "a table of predictions", begins: |head| head.starts_with(b"image,shard,record,") };

/// Maximum number of classes in the text. JSON has all classes.
const CLASSES: usize = 50;
/// Maximum number of confused class pairs in the text.
const PAIRS: usize = 10;

/// Formats all statistics of the predictions. Returns an empty text if `scored` has no predictions and no details of a
/// multi-label model or of numbers.
pub fn text(scored: &SplitScore) -> String {
    if let (Some(classes), Some(several)) = (&scored.result.per_class, &scored.result.score.several) {
        return multi_label_text(scored, classes, several);
    }
    if let Some(numbers) = &scored.result.numbers {
        return target_table(&numbers.per_target);
    }
    let Some(predictions) = &scored.result.predictions else { return String::new() };
    let mut text = format!("macro-F1 {}, ", percent(predictions.macro_f1()));
    if let Some(precision) = predictions.mean_precision() {
        text += &format!("mAP {}, ", percent(precision));
    }
    text += &format!("ECE {}\n\n", percent(expected_error(&calibration(predictions.outcomes()))));
    text += &class_table(&scored.classes, &predictions.per_class(), false);
    text + &pairs(&scored.classes, &predictions.confusion().pairs())
}

/// Formats the statistics of a multi-label model. Omits the table of classes if only the score was requested.
fn multi_label_text(scored: &SplitScore, classes: &[ClassScore], several: &LabelScores) -> String {
    let [map, micro, macro_] = [several.map, several.micro_f1, several.macro_f1].map(|share| match share.is_nan() {
        true => "-".into(),
        false => percent(share),
    });
    let mut text = format!("mAP {map}, micro-F1 {micro}, macro-F1 {macro_}, at a probability above one half\n");
    let absent = classes.iter().filter(|class| class.images == 0).count();
    if absent > 0 {
        let _ = writeln!(
            text,
            "{absent} of {} classes have no image in this split, so they have no average precision",
            classes.len()
        );
    }
    if scored.result.outcomes.is_none() {
        return text.trim_end().into();
    }
    format!("{text}\n{}", class_table(&scored.classes, classes, true).trim_end())
}

/// Formats a table with each target's scores, in its units.
fn target_table(targets: &[TargetScore]) -> String {
    let head = ["target", "RMSE", "MAE", "R2"].map(String::from).to_vec();
    let row = |TargetScore { name, rmse, mae, r2 }: &TargetScore| {
        vec![shown(name).to_string(), format!("{rmse:.6}"), format!("{mae:.6}"), report::r2_text(*r2)]
    };
    base::text::table(&std::iter::once(head).chain(targets.iter().map(row)).collect::<Vec<_>>())
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn known(share: Option<f64>) -> String {
    share.map_or("-".into(), percent)
}

fn name(classes: &[String], class: u32) -> String {
    classes.get(class as usize).map_or_else(|| class.to_string(), |name| shown(name).to_string())
}

/// Formats a table with a row per class. With many classes, only the classes with the lowest F1 are shown. With
/// `several` set the table also has the average precision.
fn class_table(classes: &[String], scores: &[ClassScore], several: bool) -> String {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let mut text = String::new();
    if scores.len() > CLASSES {
        order.sort_by(|&a, &b| scores[a].f1().unwrap_or(2.0).total_cmp(&scores[b].f1().unwrap_or(2.0)));
        order.truncate(CLASSES);
        let _ = writeln!(text, "the {CLASSES} of {} classes with the lowest F1; --json has all of them", scores.len());
    }
    let names: Vec<String> = order.iter().map(|&class| name(classes, class as u32)).collect();
    let wide = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).clamp(5, 40);
    let title = if several { format!("  {:>9}", "AP") } else { String::new() };
    let _ =
        writeln!(text, "{:wide$}  {:>7}  {:>9}  {:>9}  {:>9}{title}", "class", "images", "precision", "recall", "F1");
    for (class, name) in order.into_iter().zip(names) {
        let score = &scores[class];
        let (precision, recall, f1) = (known(score.precision()), known(score.recall()), known(score.f1()));
        let average = if several { format!("  {:>9}", known(score.average_precision)) } else { String::new() };
        let _ = writeln!(text, "{name:wide$}  {:>7}  {precision:>9}  {recall:>9}  {f1:>9}{average}", score.images);
    }
    text
}

fn pairs(classes: &[String], pairs: &[Pair]) -> String {
    let mut text = String::from("\nmost frequent confusions:");
    for Pair { label, taken_for, images } in pairs.iter().take(PAIRS) {
        let _ = write!(text, "\n{images:>7}  {} predicted as {}", name(classes, *label), name(classes, *taken_for));
    }
    if pairs.is_empty() { "\nno image was predicted as another class".into() } else { text }
}

/// Returns the JSON members that are written in addition to the score. `top_k` has the accuracies for k from 1 to
/// `top`.
pub fn json(scored: &SplitScore, top: usize) -> Value {
    if let (Some(classes), Some(several)) = (&scored.result.per_class, &scored.result.score.several) {
        return json!({
            "map": several.map,
            "micro_f1": several.micro_f1,
            "macro_f1": several.macro_f1,
            "per_class": per_class(scored, classes),
        });
    }
    if let (Some(means), Some(numbers)) = (&scored.result.score.numbers, &scored.result.numbers) {
        return json!({"rmse": means.rmse, "mae": means.mae, "r2": means.r2, "targets": numbers.per_target});
    }
    let Some(predictions) = &scored.result.predictions else { return json!({}) };
    let bins = calibration(predictions.outcomes());
    let confusion = predictions.confusion();
    json!({
        "top_k": (1..=top.min(scored.classes.len())).map(|k| predictions.top(k)).collect::<Vec<_>>(),
        "macro_f1": predictions.macro_f1(),
        "map": predictions.mean_precision(),
        "ece": expected_error(&bins),
        "calibration": bins.iter().map(|bin| json!({
            "images": bin.images, "right": bin.right, "confidence": bin.confidence / bin.images as f64,
        })).collect::<Vec<_>>(),
        "per_class": per_class(scored, &predictions.per_class()),
        "confusion": confusion.rows(),
    })
}

fn per_class(scored: &SplitScore, classes: &[ClassScore]) -> Vec<Value> {
    let row = |(score, name): (&ClassScore, &String)| {
        json!({
            "class": name, "images": score.images, "predicted": score.predicted, "right": score.right,
            "precision": score.precision(), "recall": score.recall(), "f1": score.f1(),
            "average_precision": score.average_precision,
        })
    };
    classes.iter().zip(&scored.classes).map(row).collect()
}

/// Writes a table with a line per image. The file is replaced atomically. Returns an error if the file cannot be
/// written or a shard is missing.
pub fn csv(scored: &SplitScore, path: &Path) -> Result<(), Error> {
    let numbers = scored.result.numbers.as_ref().and_then(|numbers| numbers.outcomes.as_ref());
    let text = match (&scored.result.outcomes, numbers, &scored.result.predictions) {
        (Some(outcomes), ..) => multi_label_csv(scored, outcomes)?,
        (None, Some(outcomes), _) => number_csv(scored, outcomes)?,
        (None, None, Some(predictions)) => one_label_csv(scored, predictions.outcomes())?,
        (None, None, None) => return Ok(()),
    };
    Ok(replace::replace(path, text.as_bytes())?)
}

/// Returns the first three columns of an image's line: its id, its shard, and its record in this shard.
fn place(scored: &SplitScore, id: u64) -> Result<String, Error> {
    let (shard, record) = scored.images.locate(id)?;
    Ok(format!("{id},{},{record}", field(&scored.images.shards()[shard].file)))
}

fn one_label_csv(scored: &SplitScore, outcomes: &[Outcome]) -> Result<String, Error> {
    let mut text =
        String::from("image,shard,record,label,class,predicted,predicted_class,probability,place,loss,file\n");
    let name = |class: u32| field(scored.classes.get(class as usize).map_or("", String::as_str));
    for one in outcomes {
        let guess = one.guess();
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{}",
            place(scored, one.id)?,
            one.label,
            name(one.label),
            guess.class,
            name(guess.class),
            guess.p,
            one.place + 1,
            one.loss,
            field(&file_name(&scored.images, one.id))
        );
    }
    Ok(text)
}

/// Formats the CSV table for a model that predicts numbers: each target is followed by its prediction.
fn number_csv(scored: &SplitScore, outcomes: &[NumberOutcome]) -> Result<String, Error> {
    let columns: String =
        scored.classes.iter().map(|name| format!("{},{},", field(name), field(&format!("predicted {name}")))).collect();
    let mut text = format!("image,shard,record,{columns}loss,file\n");
    for one in outcomes {
        let pairs: String =
            one.numbers.iter().zip(&one.predicted).map(|(own, found)| format!("{own},{found},")).collect();
        let file = field(&file_name(&scored.images, one.id));
        let _ = writeln!(text, "{},{pairs}{},{file}", place(scored, one.id)?, one.loss);
    }
    Ok(text)
}

/// Formats the table of a multi-label model. A `;` separates the items of a list.
fn multi_label_csv(scored: &SplitScore, outcomes: &[MultiLabelOutcome]) -> Result<String, Error> {
    let mut text =
        String::from("image,shard,record,labels,classes,predicted,predicted_classes,probabilities,loss,file\n");
    let list = |items: &mut dyn Iterator<Item = String>| field(&items.collect::<Vec<_>>().join(";"));
    let name = |class: u32| scored.classes.get(class as usize).cloned().unwrap_or_default();
    for one in outcomes {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{}",
            place(scored, one.id)?,
            list(&mut one.labels.iter().map(u32::to_string)),
            list(&mut one.labels.iter().map(|class| name(*class))),
            list(&mut one.predicted.iter().map(|(class, _)| class.to_string())),
            list(&mut one.predicted.iter().map(|(class, _)| name(*class))),
            list(&mut one.predicted.iter().map(|(_, p)| p.to_string())),
            one.loss,
            field(&file_name(&scored.images, one.id))
        );
    }
    Ok(text)
}

/// Returns a CSV field on one line, quoted if necessary.
pub fn field(text: &str) -> String {
    let text = printable(text).to_string();
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Maximum number of pictures on a sheet.
const PICTURES: usize = 48;

/// Writes a sheet of the images with a mistake, highest loss first. Each picture shows its label and the prediction,
/// which are classes or numbers. Returns the number of pictures. If there is no mistake, no file is written. Returns an
/// error if the name does not end in .png or .jpg, a picture cannot be read, or the file cannot be written.
pub fn write_sheet(scored: &SplitScore, path: &Path) -> Result<usize, Error> {
    let mistakes = worst_mistakes(scored);
    let refuse = |error: data_tools::Error| Error::Failed(error.to_string());
    let pictures = mistakes.len();
    let mut sheet = ContactSheet::new(path, pictures, Limits::default()).map_err(refuse)?;
    for Mistake { id, label, mut predicted } in mistakes {
        // the second line is the name of the original file, if the record has it
        let file = file_name(&scored.images, id);
        if !file.is_empty() {
            predicted = format!("{predicted}\n{}", printable(&file));
        }
        sheet.add_record(&scored.images, id, &[label, predicted]).map_err(refuse)?;
    }
    if !sheet.is_empty() {
        sheet.write().map_err(refuse)?;
    }
    Ok(pictures)
}

/// An image with a mistake. The texts are those of its picture.
struct Mistake {
    id: u64,
    label: String,
    predicted: String,
}

/// Returns the [`PICTURES`] items with the highest losses, highest first. `loss_and_id` returns an item's loss and the id of
/// its image.
fn worst<T>(items: impl Iterator<Item = T>, loss_and_id: impl Fn(&T) -> (f64, u64)) -> impl Iterator<Item = T> {
    let mut items: Vec<T> = items.collect();
    items.sort_by(|a, b| {
        let ((loss_a, id_a), (loss_b, id_b)) = (loss_and_id(a), loss_and_id(b));
        loss_b.total_cmp(&loss_a).then(id_a.cmp(&id_b))
    });
    items.truncate(PICTURES);
    items.into_iter()
}

/// Returns the mistakes with the highest losses, highest first. For several labels, a mistake is an image with predicted
/// classes that differ from its labels. For numbers, it is an image with a loss above 0.
fn worst_mistakes(scored: &SplitScore) -> Vec<Mistake> {
    let name = |class: u32| scored.classes.get(class as usize).map_or("?", String::as_str);
    if let Some(outcomes) = &scored.result.outcomes {
        let names = |classes: &mut dyn Iterator<Item = u32>| {
            let names: Vec<&str> = classes.map(name).collect();
            if names.is_empty() { "no label".to_string() } else { names.join("; ") }
        };
        let mistake = |one: &MultiLabelOutcome| {
            let taken = names(&mut one.predicted.iter().map(|(class, _)| *class));
            let (label, predicted) = (names(&mut one.labels.iter().copied()), format!("predicted as {taken}"));
            Mistake { id: one.id, label, predicted }
        };
        let wrong = outcomes.iter().filter(|one| !one.is_right());
        return worst(wrong, |one| (one.loss, one.id)).map(mistake).collect();
    }
    if let Some(outcomes) = scored.result.numbers.as_ref().and_then(|numbers| numbers.outcomes.as_ref()) {
        let list = |values: &[f32]| {
            let each = scored.classes.iter().zip(values).map(|(name, value)| format!("{name} {value}"));
            each.collect::<Vec<_>>().join("; ")
        };
        let mistake = |one: &NumberOutcome| {
            let (label, predicted) = (list(&one.numbers), format!("predicted {}", list(&one.predicted)));
            Mistake { id: one.id, label, predicted }
        };
        let wrong = outcomes.iter().filter(|one| one.loss > 0.0);
        return worst(wrong, |one| (one.loss, one.id)).map(mistake).collect();
    }
    let mistake = |one: Outcome| {
        let guess = one.guess();
        let (label, predicted) = (name(one.label).into(), format!("{:.0}% {}", 100.0 * guess.p, name(guess.class)));
        Mistake { id: one.id, label, predicted }
    };
    let wrong = scored.result.predictions.iter().flat_map(|predictions| predictions.mistakes());
    worst(wrong, |one| (one.loss, one.id)).map(mistake).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(field("Ankle boot"), "Ankle boot");
        assert_eq!(field("tench, Tinca \"tinca\""), "\"tench, Tinca \"\"tinca\"\"\"");
        assert!(!field("a\nb").contains('\n'));
    }
}
