//! The worst mistakes as a contact sheet.

use std::path::Path;

use super::score::Scored;
use crate::error::Error;
use data_tools::ContactSheet;
use loaders::Limits;

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
    let mistakes = scored.predictions.as_ref().map(|predictions| predictions.mistakes()).unwrap_or_default();
    let shown = &mistakes[..mistakes.len().min(PICTURES)];
    let refuse = |error: data_tools::Error| Error::Failed(error.to_string());
    let mut sheet = ContactSheet::new(path, shown.len(), Limits::default()).map_err(refuse)?;
    let name = |class: u32| scored.classes.get(class as usize).map_or("?", String::as_str);
    for one in shown {
        let guess = one.guess();
        let words = [name(one.label).to_string(), format!("{:.0}% {}", 100.0 * guess.p, name(guess.class))];
        sheet.add_record(&scored.images, one.id, &words).map_err(refuse)?;
    }
    if !sheet.is_empty() {
        sheet.write().map_err(refuse)?;
    }
    Ok(shown.len())
}
