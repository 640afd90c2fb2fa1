//! What is said when something is lost: a loss, a gradient or a parameter that is no number any more, once, by rank 0, with the ranks that
//! it came from; a card that is gone, with its place.

use crate::backend::{self, LossScale, Precision};
use crate::comm::{self, Comm};
use crate::device::{Device, Gpu};
use crate::error::Error;
use crate::train::agree::session::Session;

/// The loss of the step after `done`, or a parameter after it, is not finite. All ranks have seen the same sums and call this together;
/// `own` is this rank's part of the loss, `precision` the recipe's.
pub fn not_finite(session: &Session, precision: Precision, done: u64, lr: f64, own: f64) -> Error {
    let text = match whose(&session.comm, own) {
        Ok(Some(text)) => text,
        Ok(None) => return Error::Elsewhere { code: 1 },
        Err(error) => return error.into(),
    };
    let range = if precision == Precision::F16 { "precision = \"bf16\" (f16 ends at 65,504), " } else { "" };
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

/// Under f16, a scale of the losses that was halved in vain; nothing while it helps. Ranks that step together have the same scale and
/// call this together; others (`alone`) speak for themselves.
pub fn underflow(session: &Session, scale: &LossScale, alone: bool) -> Option<Error> {
    let LossScale { scale, bad, .. } = *scale;
    if scale >= LossScale::LEAST {
        return None;
    }
    let text = format!(
        "{bad} steps in a row had gradients with Inf or NaN and were left out, although the scale of the losses was halved each time, down \
         to {scale:e}: the values themselves are not finite in f16. The last good checkpoint stands, if there is one. Try precision = \
         \"bf16\", a smaller schedule.base_lr, or check the data with `trireme data stats`"
    );
    Some(match (alone, session.is_root()) {
        (true, _) => Error::Failed(text),
        (false, true) => Error::Agreed { code: 1, text },
        (false, false) => Error::Elsewhere { code: 1 },
    })
}

/// Says where the card is that is gone, or that failed a call; the rank is said before any message. Cards come and go one by one,
/// processors do not.
pub fn located<D: Device>(_: &D, error: Error, host: &str, card: Option<&Gpu>) -> Error {
    match &error {
        Error::Backend(backend::Error::Lost { .. } | backend::Error::Foreign { .. }) if D::REMOVABLE => {
            let card = card.map_or(String::new(), |card| format!(", {} ({})", card.name, card.uuid));
            Error::Failed(format!("on {host}{card}: {error}"))
        }
        _ => error,
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
