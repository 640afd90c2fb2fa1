//! The result of a learning rate search: losses at increasing rates, smoothed losses, a suggested rate, and a plot.

use super::text::rate;

/// Smoothing factor of the loss per step, as in fastai and Lightning.
const SMOOTHING: f64 = 0.98;
/// The search ends when the smoothed loss is this many times its minimum.
const WORSE: f64 = 4.0;
/// Number of skipped steps at the beginning. Their rates are never suggested, because their smoothed losses average too
/// few values.
const SKIPPED: usize = 10;

/// The losses of a search, one per step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateSearch {
    points: Vec<Point>,
    mean: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    lr: f64,
    loss: f64,
    smooth: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suggestion {
    /// The rate at which the loss falls most steeply over the logarithm of the rate.
    pub steepest: f64,
    /// A tenth of the rate with the lowest smoothed loss.
    pub tenth: f64,
}

impl RateSearch {
    /// Adds a step. Returns false if the smoothed loss has grown so much that the search can end.
    pub fn add(&mut self, lr: f64, loss: f64) -> bool {
        self.mean = SMOOTHING * self.mean + (1.0 - SMOOTHING) * loss;
        let smooth = self.mean / (1.0 - SMOOTHING.powi(self.points.len() as i32 + 1));
        self.points.push(Point { lr, loss, smooth });
        let least = self.points.iter().map(|point| point.smooth).fold(f64::INFINITY, f64::min);
        smooth.is_finite() && smooth <= WORSE * least
    }

    pub fn steps(&self) -> usize {
        self.points.len()
    }

    /// Returns the suggestion, or `None` if the smoothed loss never fell after the first steps, which are never
    /// suggested.
    pub fn suggestion(&self) -> Option<Suggestion> {
        let known: Vec<Point> = self.points.iter().copied().filter(|point| point.smooth.is_finite()).collect();
        let least = (0..known.len()).min_by(|a, b| known[*a].smooth.total_cmp(&known[*b].smooth))?;
        let slope =
            |k: &usize| (known[k + 1].smooth - known[k - 1].smooth) / (known[k + 1].lr.ln() - known[k - 1].lr.ln());
        let steepest =
            (SKIPPED..least).filter(|k| *k + 1 < known.len()).min_by(|a, b| slope(a).total_cmp(&slope(b)))?;
        (slope(&steepest) < 0.0).then(|| Suggestion { steepest: known[steepest].lr, tenth: known[least].lr / 10.0 })
    }

    /// Draws the losses over the rates as SVG, raw and smoothed, with the suggestion.
    pub fn picture(&self) -> String {
        let plot = Plot::of(&self.points);
        let curve = |of: fn(&Point) -> f64| {
            let known = self.points.iter().filter(|point| of(point).is_finite());
            known.map(|point| format!("{:.1},{:.1}", plot.x(point.lr), plot.y(of(point)))).collect::<Vec<_>>().join(" ")
        };
        let (raw, smooth) = (curve(|point| point.loss), curve(|point| point.smooth));
        let mark = self.suggestion().map_or(String::new(), |Suggestion { steepest, .. }| plot.mark(steepest));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <title>Loss over the learning rate</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}\
             <polyline points=\"{raw}\" fill=\"none\" stroke=\"#b8c4d6\"/>\n\
             <polyline points=\"{smooth}\" fill=\"none\" stroke=\"#1f4e9c\" stroke-width=\"2\"/>\n{mark}</svg>\n",
            plot.axes()
        )
    }
}

/// Size of the picture in pixels, and the margins for axis labels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const BELOW: f64 = 46.0;
const EDGE: f64 = 16.0;

/// Maps rates and losses to pixel positions in the plot.
struct Plot {
    /// Decimal logarithms of the smallest and largest rate.
    rates: [f64; 2],
    losses: [f64; 2],
}

impl Plot {
    /// Covers all rates, and losses up to 1.5 times the first smoothed loss. Higher losses are drawn at the upper edge.
    fn of(points: &[Point]) -> Self {
        let first = points.first().map_or(1.0, |point| point.smooth);
        let ends = [points.first(), points.last()].map(|point| point.map_or(1.0, |point| point.lr).log10());
        let least = points.iter().map(|point| point.smooth.min(point.loss)).fold(first, f64::min);
        let most = if first > 0.0 { 1.5 * first } else { 1.0 };
        Self { rates: [ends[0], ends[1].max(ends[0] + 1e-9)], losses: [least.min(0.95 * most), most] }
    }

    fn x(&self, lr: f64) -> f64 {
        let [from, to] = self.rates;
        LEFT + (lr.log10() - from) / (to - from) * (WIDTH - LEFT - EDGE)
    }

    fn y(&self, loss: f64) -> f64 {
        let [from, to] = self.losses;
        EDGE + (to - loss.clamp(from, to)) / (to - from) * (HEIGHT - BELOW - EDGE)
    }

    /// Draws lines and labels at powers of ten and at five losses.
    fn axes(&self) -> String {
        let (bottom, right) = (HEIGHT - BELOW, WIDTH - EDGE);
        let mut text = String::new();
        for power in self.rates[0].ceil() as i32..=self.rates[1].floor() as i32 {
            let x = self.x(10f64.powi(power));
            text += &format!(
                "<line x1=\"{x:.1}\" y1=\"{EDGE}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#e3e3e3\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">1e{power}</text>\n",
                bottom + 16.0
            );
        }
        for k in 0..5 {
            let loss = self.losses[0] + f64::from(k) / 4.0 * (self.losses[1] - self.losses[0]);
            let y = self.y(loss);
            text += &format!(
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#e3e3e3\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{loss:.2}</text>\n",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let middle = (LEFT + right) / 2.0;
        text + &format!(
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">learning rate. Loss: dark is smoothed, light is raw</text>\n",
            HEIGHT - 10.0
        )
    }

    /// Draws a vertical line at the suggested rate.
    fn mark(&self, lr: f64) -> String {
        let (x, bottom) = (self.x(lr), HEIGHT - BELOW);
        format!(
            "<line x1=\"{x:.1}\" y1=\"{EDGE}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#c0392b\" stroke-dasharray=\"5 4\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#c0392b\">{}</text>\n",
            x + 5.0,
            EDGE + 14.0,
            rate(lr)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a search in which the loss is at first constant, falls around a rate of 1e-2, and grows above a rate of
    /// 1.
    fn search() -> (RateSearch, bool) {
        let (mut search, mut goes_on) = (RateSearch::default(), true);
        for k in 0..200 {
            let lr = 1e-6 * 10f64.powf(8.0 * f64::from(k) / 199.0);
            let loss = 1.0 + 1.3 / (1.0 + (lr / 1e-2).powi(2)) + lr.powi(2);
            if goes_on {
                goes_on = search.add(lr, loss);
            }
        }
        (search, goes_on)
    }

    #[test]
    fn the_steepest_fall_is_suggested() {
        let (search, goes_on) = search();
        let Suggestion { steepest, tenth } = search.suggestion().unwrap();
        // Smoothing delays the curve, so its steepest point is above 1e-2.
        assert!((5e-3..1e-1).contains(&steepest), "{steepest}");
        assert!((1e-2..1.0).contains(&tenth) && steepest < 10.0 * tenth, "{tenth}");
        assert!(!goes_on && search.steps() < 200, "the search ends when the loss grows");
    }

    #[test]
    fn a_loss_that_never_falls_gives_no_suggestion() {
        let mut search = RateSearch::default();
        (0..50).for_each(|k| assert!(search.add(1e-3 * f64::from(k + 1), 2.0 + f64::from(k) * 0.01)));
        assert_eq!(search.suggestion(), None);
        assert!(!search.add(1.0, f64::NAN) && search.suggestion().is_none());
        assert_eq!(RateSearch::default().suggestion(), None);
    }

    #[test]
    fn the_picture_is_svg_without_nan_or_infinity() {
        for search in [search().0, RateSearch::default()] {
            let picture = search.picture();
            assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
            assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
        }
        assert!(search().0.picture().contains("stroke-dasharray"));
    }
}
