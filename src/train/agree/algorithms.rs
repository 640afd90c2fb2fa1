//! One choice of algorithms for all ranks, and for all starts of a run: rank 0's, or its checkpoint's. Where devices or libraries differ
//! they cannot be one; then it is said whose bits no longer hold.

use std::collections::BTreeMap;

use crate::backend::{Algorithms, Backend};
use crate::error::Error;
use crate::train::agree::session::Session;

/// Plans on all ranks: rank 0 first where devices choose among algorithms, since the others take its choices. `device` finds the device
/// in what was planned. Gives what is to be said on rank 0 of ranks that could not. Collective.
pub fn plan<B: Backend, T>(
    session: &Session,
    backend: B,
    plan: impl FnOnce(B) -> Result<T, Error>,
    device: impl Fn(&T) -> &B,
) -> Result<(T, Vec<String>), Error> {
    if session.world.size == 1 || backend.algorithms().is_none() {
        return Ok((session.agree(plan(backend))?, Vec::new()));
    }
    let own = |planned: &T| device(planned).algorithms().unwrap_or_default();
    if session.is_root() {
        let planned = session.agree(plan(backend))?;
        share(session, own(&planned).to_string())?;
        session.agree(Ok(()))?;
        let reasons = gather(session, String::new())?;
        return Ok((planned, reasons));
    }
    session.agree(Ok(()))?;
    let given = Algorithms::parse(&share(session, String::new())?);
    backend.adopt(&given);
    let planned = session.agree(plan(backend))?;
    gather(session, refused(&given, &own(&planned)).unwrap_or_default())?;
    Ok((planned, Vec::new()))
}

/// Rank 0's text, on all ranks.
fn share(session: &Session, text: String) -> Result<String, Error> {
    let mut bytes = text.into_bytes();
    let bytes = session.comm.run("choice of algorithms", move |world| {
        world.broadcast(&mut bytes, 0)?;
        Ok(bytes)
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// On rank 0, a note for each reason and the ranks that have it.
fn gather(session: &Session, reason: String) -> Result<Vec<String>, Error> {
    let all = session.comm.run("who has other algorithms", move |world| world.gather(reason.as_bytes()))?;
    let mut ranks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (rank, reason) in all.iter().flatten().enumerate().filter(|(_, reason)| !reason.is_empty()) {
        ranks.entry(String::from_utf8_lossy(reason).into_owned()).or_default().push(rank.to_string());
    }
    let note = |(reason, ranks): (String, Vec<String>)| {
        format!(
            "note: rank(s) {} choose algorithms for themselves (rank 0's {reason}): another number of ranks may compute other bits",
            ranks.join(", ")
        )
    };
    Ok(ranks.into_iter().map(note).collect())
}

/// Why a device that was given algorithms has others now, if it has: what is to be said of those given.
fn refused(given: &Algorithms, own: &Algorithms) -> Option<String> {
    if given.on != own.on {
        return Some(format!("are for {}, not for {}", given.on, own.on));
    }
    let (first, count) = given.differs(own)?;
    Some(format!("include {count} that cannot run, such as that of {first}"))
}

/// What is to be said when a run goes on that was computed by the algorithms of `text`, empty if it had none to choose.
pub fn changed<B: Backend>(text: &str, backend: &B) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let given = Algorithms::parse(text);
    let nothing = || Algorithms { on: backend.describe(), ..Algorithms::default() };
    let reason = refused(&given, &backend.algorithms().unwrap_or_else(nothing))?;
    Some(format!(
        "note: the run goes on by other algorithms (the checkpoint's {reason}): from here on its numbers are what they would have been to \
         rounding only, not bit for bit"
    ))
}

/// A fact for the log: how many there are, and whose they are; none where there are none to choose. `text` as in [`changed`].
pub fn describe<B: Backend>(text: &str, backend: &B) -> Option<(String, String)> {
    let own = backend.algorithms()?;
    let given = Algorithms::parse(text);
    let whose =
        if given.on == own.on && given.differs(&own).is_none() { "the checkpoint's" } else { "rank 0's choice" };
    Some(("algorithms".into(), format!("{} for {}, {whose}", own.by_operation.len(), own.on)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_devices_and_other_choices_are_told_apart() {
        let of = |text: &str| Algorithms::parse(text);
        let given = of("A100, cuDNN 9.1\n3\tconv1\n4\tconv2\n");
        assert_eq!(refused(&given, &given), None);
        assert_eq!(refused(&given, &of("A100, cuDNN 9.1\n3\tconv1\n5\tconv3\n")), None);
        let why = refused(&given, &of("A100, cuDNN 9.1\n3\tconv1\n5\tconv2\n")).unwrap();
        assert!(why.contains("1 that cannot run") && why.ends_with("conv2"), "{why}");
        let why = refused(&given, &of("H100, cuDNN 9.1\n")).unwrap();
        assert_eq!(why, "are for A100, cuDNN 9.1, not for H100, cuDNN 9.1");
    }
}
