//! Decides from the ranks' statuses which ranks make other ranks wait, and formats the message. It starts no threads
//! and reads no files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::peers::Peer;
use super::status_files::{SLOWER, Status};

/// Maximum number of ranks in a message.
const NAMED: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub text: String,
    /// True if ranks wait only for MPI or the network, so that a shorter limit applies.
    pub network: bool,
}

impl Verdict {
    fn of_ranks(text: String) -> Self {
        Self { text, network: false }
    }

    fn of_network(text: String) -> Self {
        Self { text, network: true }
    }
}

/// Returns the verdict for a single rank that waits.
pub fn alone(me: &Status) -> Verdict {
    Verdict::of_ranks(format!("this rank {}", me.last()))
}

/// Formats a list of ranks with the verb "is" or "are". A long list is cut.
pub fn all(ranks: &[String]) -> String {
    match ranks {
        [one] => format!("{one} is"),
        all if all.len() <= NAMED => format!("{} are", all.join(", ")),
        all => format!("{} and {} more are", all[..NAMED].join(", "), all.len() - NAMED),
    }
}

/// Returns how long a wait in an operation may last while no status of another rank is known. Until all ranks are
/// `ready`, others may still copy the data set or plan, so this is [`SLOWER`] times `limit`. After that, other ranks
/// may work longer than this rank, for example because a node is slower. So they get at least the time that this rank
/// has `worked` before the operation.
pub fn longest_wait(limit: Duration, ready: bool, worked: Duration) -> Duration {
    let longest = limit.saturating_mul(SLOWER);
    if ready { worked.clamp(limit, longest) } else { longest }
}

/// Returns the verdict on a wait while no status of another rank is known. `limit` applies to waits in an operation and
/// is the result of [`longest_wait`], unless `advice` explains the wait. `advice` is the result of
/// [`comm::network::unreachable`].
pub fn unknown(me: &Status, limit: Duration, advice: Option<&str>) -> Option<Verdict> {
    let (what, waited) = me.waits(false)?;
    if !me.inside {
        return Some(alone(me));
    }
    if let Some(advice) = advice {
        return Some(Verdict::of_network(format!("waiting in {what} for {waited:.0} s: {advice}")));
    }
    (waited >= limit.as_secs_f64()).then(|| {
        let text = "the ranks that have not arrived cannot be named, because ranks know each other's states only in a training that has \
                    opened its output folder";
        Verdict::of_ranks(format!("waiting in {what} for {waited:.0} s; {text}"))
    })
}

/// Returns the verdict of rank `rank` about the ranks in `peers` that it waits for. Returns `None` while each of these
/// ranks is active. An active rank has given a sign of life within half of `limit`, and has started something new
/// within `limit` (ten times `limit` while it copies the data set), or while another rank
/// [reports](Status::reports_before) the wait. `advice` is the result of [`comm::network::unreachable`].
pub fn among(me: &Status, rank: usize, peers: &[Peer], limit: Duration, advice: Option<&str>) -> Option<Verdict> {
    let (what, waited) = me.waits(false)?;
    let others = || peers.iter().enumerate().filter(|(other, _)| *other != rank);
    if !me.inside {
        let known = others().filter_map(|(other, peer)| Some((other, peer.status.as_ref()?)));
        let other_reports = |(other, status): (usize, &Status)| status.reports_before(other, me, rank);
        return (!known.clone().any(other_reports)).then(|| {
            let too = known.filter(|(_, status)| status.waiting).count();
            Verdict::of_ranks(format!("{}; {too} of the {} other ranks wait, too", alone(me).text, peers.len() - 1))
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
                "{who} has given no sign of life for {silent:.0} s (the process or its node has stopped, or its file system hangs); when \
                 last seen, it {}",
                status.last()
            ));
        } else if status.reports_before(other, me, rank) {
            return None;
        } else if status.operation < me.operation {
            stuck |= still > if status.staging { limit * SLOWER } else { limit };
            missing.push(format!("{who} {}", status.last()));
        } else {
            moving |= still < limit;
        }
    }
    let (all, n) = (peers.len(), missing.len());
    let silent = unanswered(me, peers.iter().filter_map(|peer| peer.status.as_ref()));
    if n == 0 {
        let why = silent.or(advice.map(String::from)).unwrap_or("MPI, NCCL or the network hangs".into());
        let text = format!("waiting in {what} for {waited:.0} s although all {all} ranks have arrived: {why}");
        return (!moving).then_some(Verdict::of_network(text));
    }
    let rest = if n > NAMED { format!("; and {} more ranks", n - NAMED) } else { String::new() };
    missing.truncate(NAMED);
    let named = missing.join("; ");
    let text = format!("waiting in {what} for {waited:.0} s; {n} of {all} ranks have not arrived: {named}{rest}");
    stuck.then(|| match silent {
        Some(why) => Verdict::of_network(format!("{text}; {why}")),
        None => Verdict::of_ranks(text),
    })
}

/// Names two or more hosts between which TCP data stays unacknowledged. Returns `None` if there are none.
fn unanswered<'a>(me: &'a Status, peers: impl Iterator<Item = &'a Status> + Clone) -> Option<String> {
    let all = || peers.clone().filter(|status| status.pid != me.pid || status.host != me.host).chain([me]);
    let owners =
        || all().flat_map(|status| status.own_addresses.iter().map(move |address| (address, status.host.as_str())));
    let owner_of: BTreeMap<_, _> = owners().collect();
    let mut pairs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (address, status) in
        all().flat_map(|status| status.silent_addresses.iter().map(move |address| (address, status)))
    {
        let name = owner_of.get(address).map_or_else(|| address.to_string(), |host| host.to_string());
        pairs.entry(name.clone()).or_default().insert(status.host.clone());
        pairs.entry(status.host.clone()).or_default().insert(name);
    }
    // the host that most connections have in common is the likely cause
    let (host, others) = pairs.iter().rev().max_by_key(|(_, others)| others.len())?;
    let others: Vec<&str> = others.iter().take(NAMED).map(String::as_str).collect();
    Some(format!("TCP gets no answer between {host} and {}, so the network between them is down", others.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use support::mentions;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn among(me: &Status, rank: usize, peers: &[Peer], limit: Duration) -> Option<String> {
        super::among(me, rank, peers, limit, None).map(|verdict| verdict.text)
    }

    fn unknown(me: &Status, limit: Duration) -> Option<String> {
        super::unknown(me, limit, None).map(|verdict| verdict.text)
    }

    /// The operation that ranks wait for.
    const SUM: &str = "sum of gradients";
    const DATA: &str = "waits for data (step 3, worker 1)";
    const WRITING: &str = "writes the files of step 3";

    fn inside(operation: u64) -> Status {
        let name = SUM.into();
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
        let all = peers(&[None, Some(busy(4, DATA, 69.0)), Some(inside(5))], 1);
        let text = among(&inside(5), 0, &all, LIMIT).unwrap();
        mentions(&text, &[SUM, "operation 5", "70 s", "1 of 3 ranks", "rank 1 on n1", "process 12", DATA, "69 s"]);
        assert!(!text.contains("rank 2"), "{text}");
        // rank 2 waits too, but rank 0 reports for both
        let all = peers(&[Some(inside(5)), Some(busy(4, DATA, 69.0)), None], 1);
        assert_eq!(among(&inside(5), 2, &all, LIMIT), None);
        // rank 0 is one operation further, so rank 2 reports
        let all = peers(&[Some(inside(6)), Some(busy(4, "computes step 3", 69.0)), Some(inside(5))], 1);
        assert_eq!(among(&inside(6), 0, &all, LIMIT), None);
        mentions(among(&inside(5), 2, &all, LIMIT).unwrap(), &["1 of 3 ranks", "rank 1 on n1"]);
    }

    #[test]
    fn if_all_ranks_wait_for_data_the_lowest_reports() {
        let waits = Status { waiting: true, ..busy(4, DATA, 65.0) };
        assert_eq!(waits.waits(true).unwrap(), (DATA.into(), 65.0));
        // work may take ten times as long as other waits, so its seconds count as a tenth
        let work = busy(4, "computes step 3", 65.0);
        assert_eq!((work.waits(false).unwrap().1, work.patience(false)), (6.5, 10));
        let all = peers(&[Some(waits.clone()), Some(waits.clone()), Some(busy(4, "computes step 3", 65.0))], 1);
        mentions(among(&waits, 0, &all, LIMIT).unwrap(), &["this rank", DATA, "65 s", "1 of the 2 other ranks"]);
        assert_eq!(among(&waits, 1, &all, LIMIT), None);
        // rank 1 waits for this rank in an operation, so rank 1 reports
        assert_eq!(among(&waits, 0, &peers(&[None, Some(inside(5))], 1), LIMIT), None);
    }

    #[test]
    fn ranks_that_work_are_not_reported() {
        let copying = Status { staging: true, ..busy(4, "copies the data set (--stage)", 300.0) };
        let left = Status { operation_s: 3.0, ..busy(4, "prepares the run", 300.0) };
        for status in [busy(4, "scores batch 17", 2.0), busy(4, "computes step 3", 59.0), left, copying.clone()] {
            assert_eq!(among(&inside(5), 0, &peers(&[None, Some(status.clone())], 1), LIMIT), None, "{status:?}");
        }
        let forever = Status { activity_s: 700.0, operation_s: 700.0, ..copying };
        assert!(among(&inside(5), 0, &peers(&[None, Some(forever)], 1), LIMIT).is_some());
        // a rank that has read or written for too long is reported, because its file system hangs
        let writing = Status { waiting: true, ..busy(4, WRITING, 61.0) };
        let text = among(&inside(5), 0, &peers(&[None, Some(writing.clone())], 1), LIMIT).unwrap();
        mentions(text, &["rank 1 on n1", "process 12", WRITING, "61 s"]);
        mentions(unknown(&writing, LIMIT).unwrap(), &["this rank", WRITING, "61 s"]);
    }

    #[test]
    fn without_the_states_of_other_ranks_a_wait_may_last_as_long_as_their_work() {
        mentions(unknown(&inside(5), LIMIT).unwrap(), &[SUM, "operation 5", "70 s", "opened its output folder"]);
        assert_eq!(unknown(&inside(5), 2 * LIMIT), None);
        let longest = |ready, worked| longest_wait(LIMIT, ready, Duration::from_secs(worked)).as_secs();
        assert_eq!(longest(false, 1), 600);
        assert_eq!([1, 60, 250, 601].map(|worked| longest(true, worked)), [60, 60, 250, 600]);
    }

    #[test]
    fn a_rank_without_a_sign_of_life_is_named_wherever_it_was() {
        let text = among(&inside(5), 0, &peers(&[None, Some(inside(5))], 40), LIMIT).unwrap();
        mentions(text, &["rank 1 on n1", "process 12", "sign of life", "40 s", SUM]);
        let text = among(&inside(5), 0, &peers(&[None, None], 40), LIMIT).unwrap();
        mentions(&text, &["1 of 2 ranks", "rank 1 ", "sign of life"]);
        assert!(!text.contains("process"), "{text}");
        // the other rank has no status yet, but this rank has looked for it only for a second
        assert_eq!(among(&inside(5), 0, &peers(&[None, None], 1), LIMIT), None);
    }

    #[test]
    fn if_all_ranks_have_arrived_the_network_is_the_cause() {
        let text = among(&inside(5), 0, &peers(&[None, Some(inside(5))], 1), LIMIT).unwrap();
        mentions(text, &["all 2 ranks"]);
        // a rank that has already finished the operation, but long ago, does not excuse the wait
        let passed = |s| peers(&[None, Some(Status { operation_s: s, ..busy(6, "computes step 4", s) })], 1);
        mentions(among(&inside(5), 0, &passed(61.0), LIMIT).unwrap(), &["all 2 ranks"]);
        // the rank that all others waited for has just arrived, or has just finished the operation
        assert_eq!(among(&inside(5), 0, &passed(1.0), LIMIT), None);
        let come = Status { operation_s: 1.0, ..inside(5) };
        assert_eq!(among(&inside(5), 0, &peers(&[None, Some(come)], 1), LIMIT), None);
    }

    fn at(address: u8, host: &str, silent: &[u8]) -> Status {
        let ip = |last: &u8| std::net::IpAddr::from([10, 0, 0, *last]);
        let silent_addresses = silent.iter().map(ip).collect();
        Status {
            host: host.into(),
            pid: address.into(),
            own_addresses: [ip(&address)].into(),
            silent_addresses,
            ..inside(5)
        }
    }

    #[test]
    fn hosts_that_do_not_answer_are_named() {
        let me = at(1, "n1", &[]);
        let all = [at(1, "n1", &[]), at(2, "n2", &[3, 9]), at(3, "n3", &[2])].map(Some);
        let verdict = super::among(&me, 0, &peers(&all, 1), LIMIT, None).unwrap();
        assert!(verdict.network, "{verdict:?}");
        mentions(verdict.text, &[SUM, "operation 5", "70 s", "all 3 ranks", "TCP", "between n2 and 10.0.0.9, n3,"]);
        // the status files of n2 cannot be read either, because the file system is on the same network
        let me = at(1, "n1", &[2]);
        let both = [me.clone(), at(2, "n2", &[1])].map(Some);
        let verdict = super::among(&me, 0, &peers(&both, 40), LIMIT, None).unwrap();
        assert!(verdict.network, "{verdict:?}");
        mentions(verdict.text, &["sign of life", "40 s", "TCP", "between n1 and n2,"]);
        // without an unacknowledged connection, the cause may also be the node or its file system
        assert!(!super::among(&at(1, "n1", &[]), 0, &peers(&[None, None], 40), LIMIT, None).unwrap().network);
    }

    #[test]
    fn advice_about_the_network_needs_no_other_rank() {
        let advice = "eth1 cannot reach 10.98.0.1";
        let verdict = super::unknown(&inside(2), LIMIT, Some(advice)).unwrap();
        assert!(verdict.network, "{verdict:?}");
        mentions(verdict.text, &[SUM, "operation 2", "70 s", advice]);
        let all = peers(&[None, Some(inside(5))], 1);
        let verdict = super::among(&inside(5), 0, &all, LIMIT, Some(advice)).unwrap();
        assert!(verdict.network, "{verdict:?}");
        mentions(verdict.text, &["all 2 ranks", advice]);
    }

    #[test]
    fn many_missing_ranks_are_counted() {
        let all = peers(&vec![None; 100], 40);
        let text = among(&inside(5), 0, &all, LIMIT).unwrap();
        mentions(text, &["99 of 100 ranks", "91 more"]);
    }
}
