//! What is said when a loss, a gradient or a parameter is no number any more: once, by rank 0, with the ranks that it came from.

use super::Error;
use super::session::Session;
use crate::comm::{self, Comm};

/// The loss of the step after `done`, or a parameter after it, is not finite. All ranks have seen the same sums and call this together;
/// `own` is this rank's part of the loss, `precision` the recipe's.
pub fn not_finite(session: &Session, precision: &str, done: u64, lr: f64, own: f64) -> Error {
    let text = match whose(&session.comm, own) {
        Ok(Some(text)) => text,
        Ok(None) => return Error::Elsewhere { code: 1 },
        Err(error) => return error.into(),
    };
    let range = if precision == "f16" { "precision = \"bf16\" (f16 ends at 65,504), " } else { "" };
    Error::Failed(format!(
        "the loss of step {} is not finite, or a parameter after it ({text}; lr {lr:.4e}); the last good checkpoint stands, if there is one. \
         Try {range}a smaller schedule.base_lr, a longer schedule.warmup_epochs, or check the data with `trireme data stats`",
        done + 1
    ))
}

/// A gradient that a codec of whole numbers cannot carry: all ranks have met it in the same exchange and call this together.
pub fn in_codec(comm: &Comm, error: &comm::Error, own: f64) -> Error {
    match whose(comm, own) {
        Ok(Some(text)) => Error::Agreed { code: 1, text: format!("{error} ({text})") },
        Ok(None) => Error::Elsewhere { code: 1 },
        Err(error) => error.into(),
    }
}

/// On rank 0, which ranks' own losses are not finite.
fn whose(comm: &Comm, own: f64) -> Result<Option<String>, comm::Error> {
    let lost = [u8::from(!own.is_finite())];
    let all = comm.run("search for the lost loss", |world| world.gather(&lost))?;
    Ok(all.map(|all| name(&all.iter().map(|lost| *lost == [1]).collect::<Vec<_>>())))
}

fn name(lost: &[bool]) -> String {
    let ranks: Vec<String> = lost.iter().enumerate().filter(|(_, lost)| **lost).map(|(r, _)| r.to_string()).collect();
    match ranks.len() {
        0 => "the losses themselves are numbers".into(),
        n if n == lost.len() => "the loss of every rank".into(),
        1 => format!("it comes from rank {}", ranks[0]),
        _ => format!("it comes from ranks {}", ranks.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn the_ranks_that_lost_it_are_named() {
        assert_eq!(name(&[false, true, false]), "it comes from rank 1");
        assert_eq!(name(&[true, true, false]), "it comes from ranks 0, 1");
        assert_eq!(name(&[false, false]), "the losses themselves are numbers");
        assert_eq!(name(&[true, true]), "the loss of every rank");
        assert_eq!(name(&[true]), "the loss of every rank");
    }
}
