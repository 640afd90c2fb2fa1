//! Means over the steps since the last line shown: one step alone is too noisy for the eye.

use super::Step;

/// Steps not yet shown.
#[derive(Debug, Default)]
pub(super) struct Window {
    steps: u64,
    images: f64,
    sum: Step,
}

impl Window {
    /// Takes in one step. Its number, epoch and rate become the window's.
    pub fn add(&mut self, step: &Step) {
        self.steps += 1;
        self.images += step.img_per_s * step.step_ms / 1e3;
        self.sum = Step {
            loss: self.sum.loss + step.loss,
            top1: self.sum.top1 + step.top1,
            data_wait_ms: self.sum.data_wait_ms + step.data_wait_ms,
            comm_wait_ms: self.sum.comm_wait_ms + step.comm_wait_ms,
            step_ms: self.sum.step_ms + step.step_ms,
            step_ranks: std::array::from_fn(|k| self.sum.step_ranks[k] + step.step_ranks[k]),
            ..*step
        };
    }

    /// The means, and an empty window; `None` if it was empty. Speed is images over time, not a mean of speeds.
    pub fn take(&mut self) -> Option<Step> {
        let Window { steps, images, sum } = std::mem::take(self);
        let mean = |total: f64| total / steps as f64;
        (steps > 0).then(|| Step {
            loss: mean(sum.loss),
            top1: mean(sum.top1),
            data_wait_ms: mean(sum.data_wait_ms),
            comm_wait_ms: mean(sum.comm_wait_ms),
            step_ms: mean(sum.step_ms),
            step_ranks: sum.step_ranks.map(mean),
            img_per_s: if sum.step_ms > 0.0 { images * 1e3 / sum.step_ms } else { sum.img_per_s },
            ..sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_by_hand() {
        let mut window = Window::default();
        assert_eq!(window.take(), None);
        // 100 images in 100 ms, then 100 images in 300 ms: 200 in 400 ms are 500 a second.
        let first =
            Step { step: 1, loss: 2.0, top1: 0.5, lr: 0.1, img_per_s: 1000.0, step_ms: 100.0, ..Step::default() };
        window.add(&first);
        window.add(&Step { step: 2, loss: 1.0, lr: 0.2, img_per_s: 1000.0 / 3.0, step_ms: 300.0, ..first });
        let mean = window.take().unwrap();
        assert_eq!((mean.step, mean.loss, mean.top1, mean.lr, mean.step_ms), (2, 1.5, 0.5, 0.2, 200.0));
        assert!((mean.img_per_s - 500.0).abs() < 1e-9);
        assert_eq!(window.take(), None);
    }
}
