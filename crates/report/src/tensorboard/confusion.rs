//! The confusion matrix as a picture.

use super::super::evaluation_file::EvaluationFile;
use super::super::message::Message;
use super::value::images;

/// Classes of a matrix that is shown whole.
const MOST: usize = 512;
/// Of more classes, those with the most mistakes.
const WORST: usize = 50;

/// The picture of the last scoring; none if it cannot be made, and where images may have several labels.
pub(super) fn picture(evaluation: &EvaluationFile) -> Option<Message> {
    if evaluation.several.is_some() {
        return None;
    }
    let order = order(evaluation);
    let mut place = vec![None; evaluation.classes.len()];
    order.iter().enumerate().for_each(|(at, class)| place[*class] = Some(at));
    let mut rows = vec![vec![0.0; order.len()]; order.len()];
    for [label, taken, count] in &evaluation.confusion {
        let at = |class: &u64| place.get(*class as usize).copied().flatten();
        let whole = evaluation.images.get(*label as usize).copied().unwrap_or(0);
        if let (Some(row), Some(column), 1..) = (at(label), at(taken), whole) {
            rows[row][column] = *count as f64 / whole as f64;
        }
    }
    let names: Vec<String> = order.iter().map(|class| evaluation.classes[*class].clone()).collect();
    let (width, height, file) = data_tools::matrix(&names, &rows).ok()?;
    Some(images(&format!("{}/confusion", evaluation.split), (width, height), &[&file]))
}

/// The classes that are shown, in their order.
fn order(evaluation: &EvaluationFile) -> Vec<usize> {
    let count = evaluation.classes.len();
    let mut order: Vec<usize> = (0..count).collect();
    if count > MOST {
        let mut mistakes = vec![0; count];
        for [label, taken, images] in evaluation.confusion.iter().filter(|cell| cell[0] != cell[1]) {
            for class in [label, taken] {
                if let Some(sum) = mistakes.get_mut(*class as usize) {
                    *sum += images;
                }
            }
        }
        order.sort_by_key(|class| std::cmp::Reverse(mistakes[*class]));
        order.truncate(WORST);
        order.sort_unstable();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_classes_the_most_confused_are_shown() {
        let confusion = (0..600).map(|class| [class, (class + 1) % 600, if class == 300 { 9 } else { 1 }]).collect();
        let classes = (0..600).map(|class| class.to_string()).collect();
        let evaluation = EvaluationFile { classes, confusion, images: vec![9; 600], ..EvaluationFile::default() };
        let shown = order(&evaluation);
        assert!(shown.len() == 50 && shown.contains(&300) && shown.contains(&301), "{shown:?}");
        assert!(picture(&evaluation).unwrap().bytes().starts_with(b"\x0a\x0a/confusion"));
        assert_eq!(order(&EvaluationFile { classes: vec![String::new(); 3], ..evaluation }), [0, 1, 2]);
    }
}
