//! The worst mistakes as a contact sheet.

use std::path::Path;

use data_tools::ContactSheet;
use loaders::{Limits, printable};
use report::predictions::SeveralOutcome;

use super::score::Scored;
use crate::error::Error;
use crate::train::evaluate::file_name;

/// Pictures of a sheet.
const PICTURES: usize = 48;

/// Refuses a name that ends in neither .png nor .jpg, before anything is computed.
///
/// # Errors
/// For such a name.
pub fn check(path: &Path) -> Result<(), Error> {
    ContactSheet::new(path, 0, Limits::default()).map(drop).map_err(|error| Error::Usage(error.to_string()))
}

/// Writes a sheet of the mistakes with the highest loss, worst first: what each is, and what it was taken for. Gives the number of
/// pictures; without a mistake there is no sheet.
///
/// # Errors
/// For a name that ends in neither .png nor .jpg, pictures that cannot be read, a file that cannot be written.
pub fn write(scored: &Scored, path: &Path) -> Result<usize, Error> {
    if let Some(outcomes) = &scored.outcomes {
        return several(scored, outcomes, path);
    }
    let mistakes = scored.predictions.as_ref().map(|predictions| predictions.mistakes()).unwrap_or_default();
    let shown = &mistakes[..mistakes.len().min(PICTURES)];
    let refuse = |error: data_tools::Error| Error::Failed(error.to_string());
    let mut sheet = ContactSheet::new(path, shown.len(), Limits::default()).map_err(refuse)?;
    let name = |class: u32| scored.classes.get(class as usize).map_or("?", String::as_str);
    for one in shown {
        let guess = one.guess();
        let taken = format!("{:.0}% {}", 100.0 * guess.p, name(guess.class));
        let words = [name(one.label).to_string(), with_file(scored, one.id, taken)];
        sheet.add_record(&scored.images, one.id, &words).map_err(refuse)?;
    }
    if !sheet.is_empty() {
        sheet.write().map_err(refuse)?;
    }
    Ok(shown.len())
}

/// Adds a second line with the image's original file, if the record has its name.
fn with_file(scored: &Scored, id: u64, line: String) -> String {
    let file = file_name(&scored.images, id);
    if file.is_empty() { line } else { format!("{line}\n{}", printable(&file)) }
}

/// The same of images that may have several labels: those of which not just the own classes were predicted.
fn several(scored: &Scored, outcomes: &[SeveralOutcome], path: &Path) -> Result<usize, Error> {
    let mut mistakes: Vec<&SeveralOutcome> = outcomes.iter().filter(|one| !one.is_right()).collect();
    mistakes.sort_by(|a, b| b.loss.total_cmp(&a.loss).then(a.id.cmp(&b.id)));
    mistakes.truncate(PICTURES);
    let refuse = |error: data_tools::Error| Error::Failed(error.to_string());
    let mut sheet = ContactSheet::new(path, mistakes.len(), Limits::default()).map_err(refuse)?;
    let names = |classes: &mut dyn Iterator<Item = u32>| {
        let names: Vec<&str> =
            classes.map(|class| scored.classes.get(class as usize).map_or("?", String::as_str)).collect();
        if names.is_empty() { "no label".to_string() } else { names.join("; ") }
    };
    for one in &mistakes {
        let taken = names(&mut one.predicted.iter().map(|(class, _)| *class));
        let words = [names(&mut one.labels.iter().copied()), with_file(scored, one.id, format!("taken for {taken}"))];
        sheet.add_record(&scored.images, one.id, &words).map_err(refuse)?;
    }
    if !sheet.is_empty() {
        sheet.write().map_err(refuse)?;
    }
    Ok(mistakes.len())
}
