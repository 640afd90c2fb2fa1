//! Makes all ranks use rank 0's algorithms, or the algorithms in the checkpoint if the run is resumed. If a rank's
//! device or library cannot use them, a note names the rank.

use std::collections::BTreeMap;

use backend::{AlgorithmChoice, Algorithms, Backend};

use crate::error::Error;
use crate::train::agree::Session;

/// Name under which rank 0's choice is broadcast.
const CHOICE: &str = "choice of algorithms";
/// Name of the operation in which ranks explain why they use other algorithms.
const REFUSALS: &str = "ranks with other algorithms";

/// Maximum number of ranks in a note.
const NAMED: usize = 8;

/// Plans on all ranks. If devices choose among algorithms, rank 0 plans first and the other ranks adopt its choices.
/// `device` extracts the device from a plan. On rank 0, the result includes notes about the ranks that could not adopt
/// the algorithms. Collective.
pub fn plan<B: Backend, T>(
    session: &Session,
    backend: B,
    plan: impl FnOnce(B) -> Result<T, Error>,
    device: impl Fn(&T) -> &B,
) -> Result<(T, Vec<String>), Error> {
    if session.world.size == 1 || backend.algorithm_choice().is_none() {
        return Ok((session.agree(plan(backend))?, Vec::new()));
    }
    let own = |planned: &T| used(device(planned)).unwrap_or_default();
    if backend.algorithm_choice().is_some_and(AlgorithmChoice::is_known_before) {
        return at_once(session, backend, plan);
    }
    if session.is_root() {
        let planned = session.agree(plan(backend))?;
        session.comm.broadcast(CHOICE, Some(&own(&planned).to_string()))?;
        session.agree(Ok(()))?;
        let reasons = session.comm.gather(REFUSALS, &None)?;
        return Ok((planned, notes(reasons.unwrap_or_default())));
    }
    session.agree(Ok(()))?;
    let given = Algorithms::parse(&session.comm.broadcast::<String>(CHOICE, None)?);
    if let Some(choice) = backend.algorithm_choice() {
        choice.adopt(&given);
    }
    let planned = session.agree(plan(backend))?;
    let reason = refused(&given, &own(&planned)).map(|reason| for_themselves(&reason));
    session.comm.gather(REFUSALS, &reason)?;
    Ok((planned, Vec::new()))
}

/// Plans on all ranks at the same time, for devices that choose their algorithms before they plan.
fn at_once<B: Backend, T>(
    session: &Session,
    backend: B,
    plan: impl FnOnce(B) -> Result<T, Error>,
) -> Result<(T, Vec<String>), Error> {
    let known = session.is_root().then(|| used(&backend).unwrap_or_default().to_string());
    let given = Algorithms::parse(&session.comm.broadcast(CHOICE, known.as_ref())?);
    let choice = backend.algorithm_choice().filter(|_| !session.is_root());
    let reason = choice.and_then(|choice| taken(choice, &given));
    let planned = session.agree(plan(backend))?;
    let reasons = session.comm.gather(REFUSALS, &reason)?;
    Ok((planned, notes(reasons.unwrap_or_default())))
}

/// Adopts rank 0's algorithms. Returns the text of a note if this rank would have chosen others, or cannot use them.
fn taken(choice: &dyn AlgorithmChoice, given: &Algorithms) -> Option<String> {
    let (own, described) = (choice.used(), choice.describe());
    choice.adopt(given);
    if let Some(reason) = refused(given, &choice.used()) {
        return Some(for_themselves(&reason));
    }
    let said =
        || format!("must use rank 0's algorithms ({}), but would have chosen others ({described})", choice.describe());
    (choice.used() != own).then(said)
}

fn for_themselves(reason: &str) -> String {
    format!(
        "cannot use all of rank 0's algorithms (rank 0's {reason}), so results on another number of ranks may not be bit-identical"
    )
}

/// Returns the device's algorithms, or `None` if it has no choice.
fn used<B: Backend>(backend: &B) -> Option<Algorithms> {
    backend.algorithm_choice().map(|choice| choice.used())
}

/// Formats one note per distinct reason, with the ranks that have this reason. `reasons` has one entry per rank.
fn notes(reasons: Vec<Option<String>>) -> Vec<String> {
    let mut ranks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (rank, reason) in reasons.into_iter().enumerate() {
        reason.into_iter().for_each(|reason| ranks.entry(reason).or_default().push(rank.to_string()));
    }
    let note = |(reason, ranks): (String, Vec<String>)| match ranks.as_slice() {
        [rank] => format!("note: rank {rank} {reason}"),
        ranks if ranks.len() <= NAMED => format!("note: ranks {} {reason}", ranks.join(", ")),
        ranks => {
            let (named, more) = (ranks[..NAMED].join(", "), ranks.len() - NAMED);
            format!("note: ranks {named} and {more} more: each {reason}")
        }
    };
    ranks.into_iter().map(note).collect()
}

/// Compares the given algorithms with the device's. Returns the difference as text, or `None` if the device uses the
/// given algorithms.
fn refused(given: &Algorithms, own: &Algorithms) -> Option<String> {
    if given.on != own.on {
        return Some(format!("are for {}, not for {}", given.on, own.on));
    }
    let (first, count) = given.differs(own)?;
    Some(match count {
        1 => format!("differ for {first}"),
        _ => format!("differ for {count} operations, such as {first}"),
    })
}

/// Returns a note if a resumed run uses other algorithms than the checkpoint. `text` lists the checkpoint's algorithms
/// and is empty if its device had no choice.
pub fn changed<B: Backend>(text: &str, backend: &B) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let given = Algorithms::parse(text);
    let nothing = || Algorithms { on: backend.describe(), ..Algorithms::default() };
    let reason = refused(&given, &used(backend).unwrap_or_else(nothing))?;
    Some(format!(
        "note: the run continues with other algorithms than before (the checkpoint's {reason}). From this step on, its results are the \
         same only up to rounding, not bit for bit"
    ))
}

/// Returns a line for the log with the algorithms and who chose them, or `None` if the device has no choice. `text` is
/// the same as in [`changed`].
pub fn describe<B: Backend>(text: &str, backend: &B) -> Option<(String, String)> {
    let choice = backend.algorithm_choice()?;
    let own = choice.used();
    let given = Algorithms::parse(text);
    let whose =
        if given.on == own.on && given.differs(&own).is_none() { "the checkpoint's" } else { "rank 0's choice" };
    Some(("algorithms".into(), format!("{}, {whose}", choice.describe())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    #[test]
    fn the_reason_is_another_device_or_another_choice() {
        let of = |text: &str| Algorithms::parse(text);
        let given = of("A100, cuDNN 9.1\n3\tconv1\n4\tconv2\n");
        assert_eq!(refused(&given, &given), None);
        assert_eq!(refused(&given, &of("A100, cuDNN 9.1\n3\tconv1\n5\tconv3\n")), None);
        let why = refused(&given, &of("A100, cuDNN 9.1\n3\tconv1\n5\tconv2\n")).unwrap();
        mentions(&why, &["differ for ", "conv2"]);
        assert!(!why.contains("conv1"), "{why}");
        let why = refused(&given, &of("H100, cuDNN 9.1\n")).unwrap();
        let [given, own] = ["A100, cuDNN 9.1", "H100, cuDNN 9.1"].map(|device| why.find(device));
        assert!(given.is_some() && given < own, "{why}");
    }
}
