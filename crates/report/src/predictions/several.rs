//! What a network made of one image that may have several labels.

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeveralOutcome {
    /// Number of the image in its split.
    pub id: u64,
    /// Binary cross-entropy, the mean over the classes.
    pub loss: f64,
    /// Its classes, ascending.
    pub labels: Vec<u32>,
    /// The classes with a probability above one half, ascending, each with its probability.
    pub predicted: Vec<(u32, f32)>,
}

/// Probability of a class by itself, of its score.
pub fn sigmoid(score: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(score)).exp())
}

impl SeveralOutcome {
    /// Of an image of these classes, with a score for each class of the network.
    pub fn new(id: u64, loss: f64, labels: &[u32], scores: &[f32]) -> Self {
        let taken = scores.iter().enumerate().filter(|(_, score)| **score > 0.0);
        let predicted = taken.map(|(class, score)| (class as u32, sigmoid(*score) as f32)).collect();
        Self { id, loss, labels: labels.to_vec(), predicted }
    }

    /// Whether all its classes were predicted, and no other.
    pub fn is_right(&self) -> bool {
        self.labels.iter().eq(self.predicted.iter().map(|(class, _)| class))
    }

    /// Adds its bytes.
    pub fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.id.to_le_bytes());
        to.extend(self.loss.to_le_bytes());
        to.extend([self.labels.len(), self.predicted.len()].iter().flat_map(|count| (*count as u32).to_le_bytes()));
        to.extend(self.labels.iter().flat_map(|class| class.to_le_bytes()));
        for (class, p) in &self.predicted {
            to.extend(class.to_le_bytes());
            to.extend(p.to_le_bytes());
        }
    }

    /// Those in `bytes`, as many as are whole.
    pub fn read(mut bytes: &[u8]) -> Vec<Self> {
        std::iter::from_fn(|| Self::take(&mut bytes)).collect()
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (id, loss) = (u64::from_le_bytes(chunk(bytes)?), f64::from_le_bytes(chunk(bytes)?));
        let [labels, predicted] = [u32::from_le_bytes(chunk(bytes)?), u32::from_le_bytes(chunk(bytes)?)];
        let labels = (0..labels).map(|_| Some(u32::from_le_bytes(chunk(bytes)?))).collect::<Option<_>>()?;
        let pair = |bytes: &mut &[u8]| Some((u32::from_le_bytes(chunk(bytes)?), f32::from_le_bytes(chunk(bytes)?)));
        let predicted = (0..predicted).map(|_| pair(bytes)).collect::<Option<_>>()?;
        Some(Self { id, loss, labels, predicted })
    }
}

fn chunk<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let all = [
            SeveralOutcome::new(7, 0.5, &[0, 2], &[1.0, -1.0, 0.25]),
            SeveralOutcome::new(8, 0.25, &[], &[-1.0, 0.0, f32::NAN]),
            SeveralOutcome::new(9, 0.75, &[1], &[3.0, 0.5, -0.5]),
        ];
        assert_eq!(all.each_ref().map(SeveralOutcome::is_right), [true, true, false]);
        assert_eq!(all[2].predicted[0], (0, sigmoid(3.0) as f32));
        let mut bytes = Vec::new();
        all.iter().for_each(|one| one.write(&mut bytes));
        assert_eq!(SeveralOutcome::read(&bytes), all);
        assert_eq!(SeveralOutcome::read(&bytes[..bytes.len() - 1]), all[..2]);
    }
}
