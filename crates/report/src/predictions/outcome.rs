//! What a network made of one image.

/// Classes that are kept of each image, the likeliest.
const KEPT: usize = 5;

/// No class: the network has fewer.
const NONE: u32 = u32::MAX;

/// Probabilities out of scores, in f64.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    highest: f64,
    log_total: f64,
}

impl Softmax {
    /// Of an image's scores.
    pub fn of(scores: &[f32]) -> Self {
        let highest = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let total: f64 = scores.iter().map(|score| (f64::from(*score) - highest).exp()).sum();
        Self { highest, log_total: total.ln() }
    }

    /// Natural logarithm of the probability of a class with this score.
    pub fn log(self, score: f32) -> f64 {
        f64::from(score) - self.highest - self.log_total
    }
}

/// A class and its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// Index of the class.
    pub class: u32,
    /// Its probability; NaN if any of the image's scores was.
    pub p: f32,
}

/// What a network made of one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Number of the image in its split.
    pub id: u64,
    /// Its class.
    pub label: u32,
    /// Classes before it by score, of equal scores those of smaller index; all, if its score is NaN.
    pub place: u32,
    /// Cross-entropy.
    pub loss: f64,
    guesses: [Guess; KEPT],
}

impl Outcome {
    /// Bytes of one that travels.
    pub const BYTES: usize = 24 + 8 * KEPT;

    /// Of an image with these scores, one a class.
    pub fn new(id: u64, label: u32, scores: &[f32], softmax: Softmax) -> Self {
        let own = scores.get(label as usize).copied().unwrap_or(f32::NAN);
        let before = |(i, score): (usize, &f32)| *score > own || (*score == own && i < label as usize);
        let place = match own.is_nan() {
            true => scores.len(),
            false => scores.iter().enumerate().filter(|one| before(*one)).count(),
        };
        let best = best(scores);
        let guess = |class: u32| Guess {
            class,
            p: scores.get(class as usize).map_or(0.0, |score| softmax.log(*score).exp() as f32),
        };
        Self { id, label, place: place as u32, loss: -softmax.log(own), guesses: best.map(guess) }
    }

    /// The likeliest classes, the likeliest first; five, or as many as there are.
    pub fn guesses(&self) -> impl Iterator<Item = Guess> {
        self.guesses.into_iter().filter(|guess| guess.class != NONE)
    }

    /// What the network takes the image for.
    pub fn guess(&self) -> Guess {
        self.guesses[0]
    }

    /// Whether that is right.
    pub fn is_right(&self) -> bool {
        self.place == 0
    }

    /// Adds its bytes.
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.id.to_le_bytes());
        to.extend(self.label.to_le_bytes());
        to.extend(self.place.to_le_bytes());
        to.extend(self.loss.to_le_bytes());
        for guess in self.guesses {
            to.extend(guess.class.to_le_bytes());
            to.extend(guess.p.to_le_bytes());
        }
    }

    /// Those in `bytes`, as many as are whole.
    pub fn read(bytes: &[u8]) -> Vec<Self> {
        bytes.as_chunks::<{ Self::BYTES }>().0.iter().map(Self::of_bytes).collect()
    }

    fn of_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let four = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let eight = |at: usize| [four(at), four(at + 4)].concat().try_into().unwrap_or_default();
        let guess =
            |k: usize| Guess { class: u32::from_le_bytes(four(24 + 8 * k)), p: f32::from_le_bytes(four(28 + 8 * k)) };
        Self {
            id: u64::from_le_bytes(eight(0)),
            label: u32::from_le_bytes(four(8)),
            place: u32::from_le_bytes(four(12)),
            loss: f64::from_le_bytes(eight(16)),
            guesses: std::array::from_fn(guess),
        }
    }
}

/// Indexes of the highest scores; of equal ones the smaller index first, NaN last.
fn best(scores: &[f32]) -> [u32; KEPT] {
    let mut best = [NONE; KEPT];
    let value = |class: u32| scores.get(class as usize).copied().filter(|score| !score.is_nan());
    for class in 0..scores.len() as u32 {
        let beats = |other: u32| match (value(class), value(other)) {
            (Some(own), Some(held)) => own > held,
            (own, None) => own.is_some() || other == NONE,
            (None, Some(_)) => false,
        };
        let Some(at) = best.iter().position(|held| beats(*held)) else { continue };
        best[at..].rotate_right(1);
        best[at] = class;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(label: u32, scores: &[f32]) -> Outcome {
        Outcome::new(7, label, scores, Softmax::of(scores))
    }

    #[test]
    fn places_and_guesses_by_hand() {
        let one = outcome(2, &[1.0, 3.0, 1.0, 0.0, -1.0, 0.5, 1.0]);
        assert_eq!((one.place, one.is_right()), (2, false));
        assert_eq!(one.guesses().map(|guess| guess.class).collect::<Vec<_>>(), [1, 0, 2, 6, 5]);
        let even = outcome(1, &[0.0, 0.0]);
        assert_eq!((even.place, even.loss, even.guess().p), (1, 2f64.ln(), 0.5));
        assert_eq!(even.guesses().count(), 2);
        assert!(outcome(0, &[0.0, 0.0]).is_right());
    }

    #[test]
    fn scores_that_are_no_numbers_are_never_right() {
        let lost = outcome(1, &[0.0, f32::NAN, 2.0]);
        assert_eq!((lost.place, lost.is_right(), lost.guess().class), (3, false, 2));
        assert!(lost.loss.is_nan() && lost.guess().p.is_nan());
        assert_eq!(outcome(0, &[f32::NAN; 2]).guesses().map(|guess| guess.class).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn bytes_come_back() {
        let both = [outcome(2, &[1.0, 3.0, 1.5]), outcome(0, &[9.0, 1.0, 2.0])];
        let mut bytes = Vec::new();
        both.iter().for_each(|one| one.write(&mut bytes));
        assert_eq!((bytes.len(), Outcome::read(&bytes).as_slice()), (2 * Outcome::BYTES, both.as_slice()));
    }
}
