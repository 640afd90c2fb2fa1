//! From the ranks' news to a sentence: who keeps whom waiting. No threads, no files, no clock of its own but for tests' sake given times.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What a rank says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct News {
    /// Counts the signs of life.
    pub beat: u64,
    /// The node.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Number of the operation of MPI that it took up last; equal on all ranks that keep step.
    pub operation: u64,
    /// The operation's name.
    pub name: String,
    /// Whether it is still in it.
    pub inside: bool,
    /// Seconds since it went in, or came out.
    pub operation_s: f64,
    /// What it does beside.
    pub doing: String,
    /// Seconds since it turned to that.
    pub doing_s: f64,
    /// Whether that is writing files, which may take its time.
    pub writing: bool,
}

impl News {
    /// What this rank waits for.
    pub fn what(&self, alone: bool) -> String {
        match alone {
            true => self.doing.clone(),
            false => format!("\"{}\" (operation {})", self.name, self.operation),
        }
    }

    /// The last that it is known to have done.
    fn last(&self) -> String {
        match self.inside {
            true => format!("is in \"{}\" (operation {}) for {:.0} s", self.name, self.operation, self.operation_s),
            false => format!("{} for {:.0} s", self.doing, self.doing_s),
        }
    }
}

/// Another rank, as seen from this one.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    news: Option<News>,
    heard: Option<Instant>,
}

impl Peer {
    /// Takes news; only a new beat is a sign of life.
    pub fn hear(&mut self, news: News, now: Instant) {
        if self.news.as_ref().is_none_or(|old| old.beat != news.beat) {
            self.heard = Some(now);
            self.news = Some(news);
        }
    }
}

/// Files may take so many times longer than anything else; so may what nothing is known of.
const PATIENCE: u32 = 10;

/// Ranks named in a sentence at most.
const NAMED: usize = 8;

/// Namespace of the judgements: each is a sentence and the factor by which to stretch the limits, or nothing to say.
pub struct Verdict;

impl Verdict {
    /// One rank without others.
    pub fn alone(me: &News) -> Option<(String, u32)> {
        Some((format!("this rank {}", me.last()), 1))
    }

    /// Nothing is known of the other ranks yet.
    pub fn unknown(me: &News) -> Option<(String, u32)> {
        let what = me.what(false);
        let text = format!(
            "waiting in {what} for {:.0} s; which ranks have not come is not known before the output folder is there",
            me.operation_s
        );
        Some((text, PATIENCE))
    }

    /// Rank `rank` waits; `limit` is how long a rank may take over one thing, half of it how long it may give no sign of life. Only the
    /// lowest of the ranks that wait speaks.
    pub fn of(me: &News, rank: usize, peers: &[Peer], limit: Duration) -> Option<(String, u32)> {
        let quiet = limit / 2;
        let (mut missing, mut stuck, mut lower) = (Vec::new(), false, false);
        for (other, peer) in peers.iter().enumerate().filter(|(other, _)| *other != rank) {
            let Some(news) = &peer.news else {
                missing.push(format!("rank {other} has given no sign of life"));
                stuck = true;
                continue;
            };
            let who = format!("rank {other} on {} (process {})", news.host, news.pid);
            let silent = peer.heard.map_or(Duration::MAX, |heard| heard.elapsed());
            if silent > quiet {
                let silent = silent.as_secs_f64();
                missing.push(format!("{who} has given no sign of life for {silent:.0} s (it or its node has stopped, or its file system hangs); its last: it {}", news.last()));
                stuck = true;
            } else if news.operation < me.operation {
                let allowed = limit.as_secs_f64() * f64::from(if news.writing { PATIENCE } else { 1 });
                stuck |= if news.inside { news.operation_s } else { news.doing_s } > allowed;
                missing.push(format!("{who} {}", news.last()));
            } else {
                lower |= other < rank && news.operation == me.operation && news.inside;
            }
        }
        if lower || !(stuck || missing.is_empty()) {
            return None;
        }
        let (what, waited) = (me.what(false), me.operation_s);
        let all = peers.len();
        Some(match missing.len() {
            0 => (
                format!(
                    "waiting in {what} for {waited:.0} s although all {all} ranks have come: MPI or the network hangs"
                ),
                1,
            ),
            n => {
                let rest = if n > NAMED { format!("; and {} more", n - NAMED) } else { String::new() };
                missing.truncate(NAMED);
                (
                    format!(
                        "waiting in {what} for {waited:.0} s; {n} of {all} ranks not there: {}{rest}",
                        missing.join("; ")
                    ),
                    1,
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn inside(operation: u64) -> News {
        let name = "sum of gradients".into();
        News { operation, name, inside: true, operation_s: 70.0, host: "n1".into(), pid: 12, ..News::default() }
    }

    fn busy(operation: u64, doing: &str, doing_s: f64) -> News {
        News { inside: false, doing: doing.into(), doing_s, ..inside(operation) }
    }

    fn peers(news: &[Option<News>], silent: u64) -> Vec<Peer> {
        let heard = Instant::now().checked_sub(Duration::from_secs(silent)).unwrap();
        let peer = |news: &Option<News>| Peer { news: news.clone(), heard: news.is_some().then_some(heard) };
        news.iter().map(peer).collect()
    }

    #[test]
    fn a_rank_stuck_in_data_is_named() {
        let all = peers(&[None, Some(busy(4, "waits for data (step 3, worker 1)", 69.0)), Some(inside(5))], 1);
        let (text, factor) = Verdict::of(&inside(5), 0, &all, LIMIT).unwrap();
        assert_eq!(
            text,
            "waiting in \"sum of gradients\" (operation 5) for 70 s; 1 of 3 ranks not there: rank 1 on n1 (process 12) waits for data \
             (step 3, worker 1) for 69 s"
        );
        assert_eq!(factor, 1);
        // rank 2 waits too, and leaves it to rank 0 to speak
        let all = peers(&[Some(inside(5)), Some(busy(4, "waits for data", 69.0)), None], 1);
        assert_eq!(Verdict::of(&inside(5), 2, &all, LIMIT), None);
    }

    #[test]
    fn ranks_at_work_are_left_alone() {
        let writing = News { writing: true, ..busy(4, "writes the files of step 3", 300.0) };
        for news in [busy(4, "scores batch 17", 2.0), busy(4, "computes step 3", 59.0), writing.clone()] {
            assert_eq!(Verdict::of(&inside(5), 0, &peers(&[None, Some(news.clone())], 1), LIMIT), None, "{news:?}");
        }
        let forever = News { doing_s: 700.0, ..writing };
        assert!(Verdict::of(&inside(5), 0, &peers(&[None, Some(forever)], 1), LIMIT).is_some());
    }

    #[test]
    fn a_rank_without_a_sign_of_life_is_named_wherever_it_was() {
        let (text, _) = Verdict::of(&inside(5), 0, &peers(&[None, Some(inside(5))], 40), LIMIT).unwrap();
        assert!(text.contains("rank 1 on n1 (process 12) has given no sign of life for 40 s"), "{text}");
        let (text, _) = Verdict::of(&inside(5), 0, &peers(&[None, None], 1), LIMIT).unwrap();
        assert!(text.contains("rank 1 has given no sign of life"), "{text}");
    }

    #[test]
    fn where_all_have_come_the_network_is_to_blame() {
        let (text, _) = Verdict::of(&inside(5), 0, &peers(&[None, Some(inside(5))], 1), LIMIT).unwrap();
        assert!(text.contains("all 2 ranks have come"), "{text}");
        // who has passed already is no reason to wait
        let (text, _) =
            Verdict::of(&inside(5), 0, &peers(&[None, Some(busy(6, "computes step 4", 1.0))], 1), LIMIT).unwrap();
        assert!(text.contains("all 2 ranks have come"), "{text}");
    }

    #[test]
    fn many_missing_ranks_are_counted() {
        let all = peers(&vec![None; 100], 1);
        let (text, _) = Verdict::of(&inside(5), 0, &all, LIMIT).unwrap();
        assert!(text.contains("99 of 100 ranks not there") && text.ends_with("; and 91 more"), "{text}");
    }

    #[test]
    fn the_same_beat_again_is_no_sign_of_life() {
        let mut peer = Peer::default();
        let then = Instant::now().checked_sub(Duration::from_secs(50)).unwrap();
        peer.hear(News { beat: 3, ..inside(5) }, then);
        peer.hear(News { beat: 3, ..inside(5) }, Instant::now());
        assert_eq!(peer.heard, Some(then));
        peer.hear(News { beat: 4, ..inside(5) }, Instant::now());
        assert_ne!(peer.heard, Some(then));
    }
}
