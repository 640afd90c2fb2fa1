//! What a scoring has found beyond its score: in words, as JSON, and as a table with a line for each image.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::score::Scored;
use super::table::field;
use crate::error::Error;
use crate::report::predictions::{ClassScore, Pair, Predictions, calibration, expected_error};
use loaders::{printable, replace};

/// Classes that are told in words; JSON has all.
const CLASSES: usize = 50;
/// Pairs of classes that are told in words.
const PAIRS: usize = 10;

/// All that follows from the predictions, in words; empty where there are none.
pub fn text(scored: &Scored) -> String {
    let Some(predictions) = &scored.predictions else { return String::new() };
    let mut text = format!("macro-F1 {}, ", percent(predictions.macro_f1()));
    if let Some(precision) = predictions.mean_precision() {
        text += &format!("mAP {}, ", percent(precision));
    }
    text += &format!("ECE {}\n\n", percent(expected_error(&calibration(predictions.outcomes()))));
    text += &class_table(&scored.classes, &predictions.per_class());
    text + &pairs(&scored.classes, &predictions.confusion().pairs())
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn known(share: Option<f64>) -> String {
    share.map_or("-".into(), percent)
}

fn name(classes: &[String], class: u32) -> String {
    classes.get(class as usize).map_or_else(|| class.to_string(), |name| printable(name).to_string())
}

/// A row a class; of many classes those with the lowest F1.
fn class_table(classes: &[String], scores: &[ClassScore]) -> String {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    let mut text = String::new();
    if scores.len() > CLASSES {
        order.sort_by(|&a, &b| scores[a].f1().unwrap_or(2.0).total_cmp(&scores[b].f1().unwrap_or(2.0)));
        order.truncate(CLASSES);
        let _ = writeln!(text, "the {CLASSES} classes of {} with the lowest F1; --json has all", scores.len());
    }
    let names: Vec<String> = order.iter().map(|&class| name(classes, class as u32)).collect();
    let wide = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).clamp(5, 40);
    let _ = writeln!(text, "{:wide$}  {:>7}  {:>9}  {:>9}  {:>9}", "class", "images", "precision", "recall", "F1");
    for (class, name) in order.into_iter().zip(names) {
        let score = &scores[class];
        let (precision, recall, f1) = (known(score.precision()), known(score.recall()), known(score.f1()));
        let _ = writeln!(text, "{name:wide$}  {:>7}  {precision:>9}  {recall:>9}  {f1:>9}", score.images);
    }
    text
}

fn pairs(classes: &[String], pairs: &[Pair]) -> String {
    let mut text = String::from("\nmost often taken for another:");
    for Pair { label, taken_for, images } in pairs.iter().take(PAIRS) {
        let _ = write!(text, "\n{images:>7}  {} for {}", name(classes, *label), name(classes, *taken_for));
    }
    if pairs.is_empty() { "\nno image was taken for another class".into() } else { text }
}

/// The members that JSON has beyond the score; `top`: shares with the right class among the 1, 2, ... `top` likeliest.
pub fn json(scored: &Scored, top: usize) -> Value {
    let Some(predictions) = &scored.predictions else { return json!({}) };
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
        "per_class": per_class(scored, predictions),
        "confusion": confusion.rows(),
    })
}

fn per_class(scored: &Scored, predictions: &Predictions) -> Vec<Value> {
    let row = |(score, name): (ClassScore, &String)| {
        json!({
            "class": name, "images": score.images, "predicted": score.predicted, "right": score.right,
            "precision": score.precision(), "recall": score.recall(), "f1": score.f1(),
            "average_precision": score.average_precision,
        })
    };
    predictions.per_class().into_iter().zip(&scored.classes).map(row).collect()
}

/// Writes a table with a line for each image, whole or not at all.
///
/// # Errors
/// For a file that cannot be written, and a shard that is gone.
pub fn csv(scored: &Scored, path: &Path) -> Result<(), Error> {
    let Some(predictions) = &scored.predictions else { return Ok(()) };
    let mut text = String::from("image,shard,record,label,class,predicted,predicted_class,probability,place,loss\n");
    for one in predictions.outcomes() {
        let (shard, record) = scored.images.locate(one.id)?;
        let (guess, file) = (one.guess(), &scored.images.shards()[shard].file);
        let [class, predicted] = [one.label, guess.class].map(|class| {
            let name = scored.classes.get(class as usize);
            field(name.map_or("", String::as_str))
        });
        let _ = writeln!(
            text,
            "{},{},{record},{},{class},{},{predicted},{},{},{}",
            one.id,
            field(file),
            one.label,
            guess.class,
            guess.p,
            one.place + 1,
            one.loss
        );
    }
    Ok(replace::replace(path, text.as_bytes())?)
}
