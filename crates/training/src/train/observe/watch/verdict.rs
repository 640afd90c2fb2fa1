//! Decides from the ranks' statuses which ranks make other ranks wait, and formats the message. Uses no threads or
//! files, and the clock only to see how long a rank has been silent.

use std::time::Duration;

use super::status_files::{Peer, SLOWER, Status};

/// Maximum number of ranks in a message.
const NAMED: usize = 8;

/// Returns the message for a single rank that waits.
pub fn alone(me: &Status) -> String {
    format!("this rank {}", me.last())
}

/// Formats the ranks, or as many as fit in a line, with the verb.
pub fn all(ranks: &[String]) -> String {
    match ranks {
        [one] => format!("{one} is"),
        all if all.len() <= NAMED => format!("{} are", all.join(", ")),
        all => format!("{} and {} more are", all[..NAMED].join(", "), all.len() - NAMED),
    }
}

/// Returns the message if no status of another rank is known yet.
pub fn unknown(me: &Status, limit: Duration) -> Option<String> {
    let (what, waited) = me.waits(false)?;
    if !me.inside {
        return Some(alone(me));
    }
    // other ranks may be copying the data set to their nodes
    let long = waited >= (limit * SLOWER).as_secs_f64();
    long.then(|| {
        format!("waiting in {what} for {waited:.0} s; the missing ranks are not known before the output folder exists")
    })
}

/// Returns the message of rank `rank` about the ranks in `peers` that it waits for. Returns `None` if all of them have
/// started something else within `limit` and have given a sign of life within half of it. Only the waiting rank with
/// the earliest operation reports, and among equals the lowest, because the other ranks are further ahead and know
/// less.
pub fn among(me: &Status, rank: usize, peers: &[Peer], limit: Duration) -> Option<String> {
    let (what, waited) = me.waits(false)?;
    let others = || peers.iter().enumerate().filter(|(other, _)| *other != rank);
    if !me.inside {
        // A rank that waits in a collective will name this rank, so this rank stays silent. If there is no such rank,
        // the lowest waiting rank reports for all.
        let silent = others().filter_map(|(other, peer)| Some((other, peer.status.as_ref()?)));
        let other_speaks = |(other, status): (usize, &Status)| status.inside || (other < rank && status.waiting);
        return (!silent.clone().any(other_speaks)).then(|| {
            let too = silent.filter(|(_, status)| status.waiting).count();
            format!("{}; so do {too} of {} other ranks", alone(me), peers.len() - 1)
        });
    }
    let (mut missing, mut stuck, mut moving) = (Vec::new(), false, false);
    for (other, Peer { status, last_change }) in others() {
        let silent = last_change.elapsed();
        let dead = silent > limit / 2;
        let Some(status) = status else {
            stuck |= dead;
            missing.push(format!("rank {other} has given no sign of life"));
            continue;
        };
        let still = Duration::try_from_secs_f64(status.still()).unwrap_or_default();
        let who = format!("rank {other} on {} (process {})", status.host, status.pid);
        if dead {
            stuck = true;
            let silent = silent.as_secs_f64();
            missing.push(format!(
                "{who} has given no sign of life for {silent:.0} s (it or its node has stopped, or its file system hangs); when last \
                 seen, it {}",
                status.last()
            ));
        } else if status.inside && (status.operation, other) < (me.operation, rank) {
            return None;
        } else if status.operation < me.operation {
            stuck |= still > if status.staging { limit * SLOWER } else { limit };
            missing.push(format!("{who} {}", status.last()));
        } else {
            moving |= still < limit;
        }
    }
    let (all, n) = (peers.len(), missing.len());
    if n == 0 {
        let why = format!("although all {all} ranks have arrived, so MPI, NCCL or the network hangs");
        return (!moving).then(|| format!("waiting in {what} for {waited:.0} s {why}"));
    }
    let rest = if n > NAMED { format!("; and {} more", n - NAMED) } else { String::new() };
    missing.truncate(NAMED);
    let named = missing.join("; ");
    stuck.then(|| format!("waiting in {what} for {waited:.0} s; {n} of {all} ranks have not arrived: {named}{rest}"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn inside(operation: u64) -> Status {
        let name = "sum of gradients".into();
        Status { operation, name, inside: true, operation_s: 70.0, host: "n1".into(), pid: 12, ..Status::default() }
    }

    fn busy(operation: u64, activity: &str, activity_s: f64) -> Status {
        Status { inside: false, activity: activity.into(), activity_s, ..inside(operation) }
    }

    fn peers(status: &[Option<Status>], silent: u64) -> Vec<Peer> {
        let last_change = Instant::now().checked_sub(Duration::from_secs(silent)).unwrap();
        let peer = |status: &Option<Status>| Peer { status: status.clone(), last_change };
        status.iter().map(peer).collect()
    }

    #[test]
    fn a_rank_stuck_in_data_is_named() {
        let all = peers(&[None, Some(busy(4, "waits for data (step 3, worker 1)", 69.0)), Some(inside(5))], 1);
        assert_eq!(
            among(&inside(5), 0, &all, LIMIT).unwrap(),
            "waiting in \"sum of gradients\" (operation 5) for 70 s; 1 of 3 ranks have not arrived: rank 1 on n1 (process 12) \
             waits for data (step 3, worker 1) for 69 s"
        );
        // rank 2 waits too, but rank 0 reports
        let all = peers(&[Some(inside(5)), Some(busy(4, "waits for data", 69.0)), None], 1);
        assert_eq!(among(&inside(5), 2, &all, LIMIT), None);
        // rank 0 is ahead, so rank 2 reports, which waits in the operation before
        let all = peers(&[Some(inside(6)), Some(busy(4, "computes step 3", 69.0)), Some(inside(5))], 1);
        assert_eq!(among(&inside(6), 0, &all, LIMIT), None);
        assert!(among(&inside(5), 2, &all, LIMIT).unwrap().contains("1 of 3 ranks have not arrived: rank 1 on n1"));
    }

    #[test]
    fn where_all_wait_for_data_the_lowest_speaks() {
        let waits = Status { waiting: true, ..busy(4, "waits for data (step 3, worker 0)", 65.0) };
        assert_eq!(waits.waits(true).unwrap(), ("waits for data (step 3, worker 0)".into(), 65.0));
        // seconds of work count a tenth
        assert_eq!(busy(4, "computes step 3", 65.0).waits(false).unwrap().1, 6.5);
        let all = peers(&[Some(waits.clone()), Some(waits.clone()), Some(busy(4, "computes step 3", 65.0))], 1);
        let text = "this rank waits for data (step 3, worker 0) for 65 s; so do 1 of 2 other ranks";
        assert_eq!(among(&waits, 0, &all, LIMIT).unwrap(), text);
        assert_eq!(among(&waits, 1, &all, LIMIT), None);
        // the rank that waits for this one reports
        assert_eq!(among(&waits, 0, &peers(&[None, Some(inside(5))], 1), LIMIT), None);
    }

    #[test]
    fn ranks_at_work_are_left_alone() {
        let copying = Status { staging: true, ..busy(4, "copies the data set (--stage)", 300.0) };
        let left = Status { operation_s: 3.0, ..busy(4, "prepares the run", 300.0) };
        for status in [busy(4, "scores batch 17", 2.0), busy(4, "computes step 3", 59.0), left, copying.clone()] {
            assert_eq!(among(&inside(5), 0, &peers(&[None, Some(status.clone())], 1), LIMIT), None, "{status:?}");
        }
        let forever = Status { activity_s: 700.0, operation_s: 700.0, ..copying };
        assert!(among(&inside(5), 0, &peers(&[None, Some(forever)], 1), LIMIT).is_some());
        // the file system hangs while a rank reads or writes
        let writing = Status { waiting: true, ..busy(4, "writes the files of step 3", 61.0) };
        let text = among(&inside(5), 0, &peers(&[None, Some(writing.clone())], 1), LIMIT).unwrap();
        assert!(text.contains("rank 1 on n1 (process 12) writes the files of step 3 for 61 s"), "{text}");
        assert_eq!(unknown(&writing, LIMIT).unwrap(), "this rank writes the files of step 3 for 61 s");
        // a run that is starting has more time
        assert_eq!(unknown(&inside(5), LIMIT), None);
        assert!(unknown(&Status { operation_s: 601.0, ..inside(5) }, LIMIT).is_some());
    }

    #[test]
    fn a_rank_without_a_sign_of_life_is_named_wherever_it_was() {
        let text = among(&inside(5), 0, &peers(&[None, Some(inside(5))], 40), LIMIT).unwrap();
        assert!(text.contains("rank 1 on n1 (process 12) has given no sign of life for 40 s"), "{text}");
        let text = among(&inside(5), 0, &peers(&[None, None], 40), LIMIT).unwrap();
        assert!(text.contains("rank 1 has given no sign of life"), "{text}");
        // the search for messages has only just begun
        assert_eq!(among(&inside(5), 0, &peers(&[None, None], 1), LIMIT), None);
    }

    #[test]
    fn where_all_have_come_the_network_is_to_blame() {
        let text = among(&inside(5), 0, &peers(&[None, Some(inside(5))], 1), LIMIT).unwrap();
        assert!(text.contains("all 2 ranks have arrived"), "{text}");
        // a rank that has already passed the operation does not excuse the wait
        let passed = |s| peers(&[None, Some(Status { operation_s: s, ..busy(6, "computes step 4", s) })], 1);
        assert!(among(&inside(5), 0, &passed(61.0), LIMIT).unwrap().contains("all 2 ranks have arrived"));
        // the rank that all others waited for has just arrived, or has just left
        assert_eq!(among(&inside(5), 0, &passed(1.0), LIMIT), None);
        let come = Status { operation_s: 1.0, ..inside(5) };
        assert_eq!(among(&inside(5), 0, &peers(&[None, Some(come)], 1), LIMIT), None);
    }

    #[test]
    fn many_missing_ranks_are_counted() {
        let all = peers(&vec![None; 100], 40);
        let text = among(&inside(5), 0, &all, LIMIT).unwrap();
        assert!(text.contains("99 of 100 ranks have not arrived") && text.ends_with("; and 91 more"), "{text}");
    }

    #[test]
    fn the_same_beat_again_is_no_sign_of_life() {
        let then = Instant::now().checked_sub(Duration::from_secs(50)).unwrap();
        let mut peer = Peer::without_status(then);
        peer.update(Status { beat: 3, ..inside(5) }, then);
        peer.update(Status { beat: 3, ..inside(5) }, Instant::now());
        assert_eq!(peer.last_change, then);
        peer.update(Status { beat: 4, ..inside(5) }, Instant::now());
        assert_ne!(peer.last_change, then);
    }
}
