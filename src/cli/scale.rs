//! `trireme bench scale`: its arguments, a table for users, and JSON lines for programs.

use backend::Precision;
use base::text::plural;
use recipe::TransportSetting;
use serde_json::{Value, json};
use training::bench::scale::{
    Forecast, ForecastCheck, Link, Point, ScaleRequest, ScaleResult, StepTime, WORST, best_case, forecast, messages,
    predict_largest,
};
use training::{bench, launch};

use super::output::{self, Failure, print};
use super::set_wait_policy;
use super::value::{DeviceName, link, measurement_seconds, positive, precision, thread_count, transport};

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  mpirun -n 4 trireme bench scale --model resnet20 --batch 64 --threads 1
  mpirun -n 2 trireme bench scale --model resnet20 --batch 64 \\
      --link 100Gb/s,2us --ranks 8,64

A forecast is a range. At best, every node computes as fast as one rank alone and no rank waits. At worst, ranks slow each other down as \
much as measured. With at least three numbers of ranks (1, 2 and 4), the largest is also predicted from the others, to check the method."
)]
pub struct Args {
    /// Network
    #[arg(long, value_name = "NAME", default_value = "resnet20")]
    pub model: String,
    /// Images per step on each rank
    #[arg(long, value_name = "N", default_value = "64", value_parser = positive)]
    pub batch: usize,
    /// Device to compute on
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceName,
    /// Number format of the arithmetic
    #[arg(long, value_name = "NAME", default_value = "f32", value_parser = precision())]
    pub precision: Precision,
    /// Transport of gradients between GPUs, as in reduce.path
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = transport())]
    pub path: TransportSetting,
    /// Allow ranks to share a GPU
    #[arg(long)]
    pub share_gpu: bool,
    /// Compute threads per rank [default: from the rank's cores; 1 with a GPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<usize>,
    /// Seconds to measure for each number of ranks
    #[arg(long, value_name = "S", default_value = "5", value_parser = measurement_seconds)]
    pub seconds: f64,
    /// Network link between nodes for the forecast, such as 100Gb/s,2us. The bandwidth is for one direction, in Gb/s
    /// (bits) or GB/s (bytes)
    #[arg(long, value_name = "BANDWIDTH,LATENCY", value_parser = link)]
    pub link: Option<Link>,
    /// Numbers of ranks for the forecast, with one rank per node. Separate them by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8,64", requires = "link", value_parser = positive)]
    pub ranks: Vec<usize>,
    /// Print JSON lines even on a terminal
    #[arg(long)]
    pub json: bool,
}

/// Runs the measurements. Prints a table if stdout is a terminal and `--json` is not given, otherwise one JSON line per
/// number of ranks.
pub fn run(args: &Args) -> Result<(), Failure> {
    set_wait_policy()?;
    let request = ScaleRequest {
        model: args.model.clone(),
        batch: args.batch,
        device: args.device.0,
        precision: args.precision,
        path: args.path,
        share_gpu: args.share_gpu,
        threads: args.threads,
        seconds: args.seconds,
    };
    let Some(measured) = launch::bench_scale(&request)? else { return Ok(()) };
    let forecasts = |link: Link| args.ranks.iter().map(|&ranks| forecast(&measured, ranks, link)).collect();
    let shown = ScaleReport {
        args,
        measured: &measured,
        forecasts: args.link.map_or_else(Vec::new, forecasts),
        forecast_check: predict_largest(&measured),
    };
    match !args.json && output::is_read_by_people() {
        true => print(shown.table()),
        false => shown.objects().into_iter().try_for_each(print),
    }
}

/// The measurements and forecasts to print.
struct ScaleReport<'a> {
    args: &'a Args,
    measured: &'a ScaleResult,
    forecasts: Vec<Forecast>,
    forecast_check: Option<ForecastCheck>,
}

impl ScaleReport<'_> {
    fn alone(&self) -> f64 {
        self.measured.points.first().map_or(f64::NAN, |point| point.step_ms)
    }

    /// Returns images per second over this number of ranks.
    fn rate(&self, ranks: usize, step_ms: f64) -> f64 {
        (ranks * self.args.batch) as f64 * 1e3 / step_ms
    }

    fn objects(&self) -> Vec<Value> {
        let points = self.measured.points.iter().map(|point| self.point(point));
        let forecast_check = self.forecast_check.iter().map(|forecast_check| self.check(forecast_check));
        points.chain(self.forecasts.iter().map(|forecast| self.forecast(forecast))).chain(forecast_check).collect()
    }

    fn line(&self, ranks: usize) -> Value {
        let (args, measured) = (self.args, self.measured);
        json!({
            "bench": "scale", "model": args.model, "batch": args.batch, "threads": measured.threads, "ranks": ranks,
            "gradient_bytes": measured.bytes, "sums": measured.buckets, "messages": messages(measured, ranks),
            "memory_mb": measured.memory_mb, "precision": args.precision, "path": measured.path,
            "path_why": measured.why, "overlap": measured.overlap, "forecast": false,
        })
    }

    fn point(&self, point: &Point) -> Value {
        let mut line = self.line(point.ranks);
        line["step_ms"] = point.step_ms.into();
        line["comm_ms"] = point.comm_ms.into();
        line["img_per_s"] = self.rate(point.ranks, point.step_ms).into();
        line["efficiency"] = (self.alone() / point.step_ms).into();
        if let Some(fit) = point.link {
            line["allreduce_latency_us"] = (fit.latency * 1e6).into();
            line["allreduce_gb_per_s"] = (fit.rate / 1e9).into();
        }
        line["mpi"] = self.measured.library.clone().into();
        line["cpu"] = bench::processor().into();
        line
    }

    /// Converts a forecast to JSON. Each pair has the best and the worst case.
    fn forecast(&self, forecast: &Forecast) -> Value {
        let mut line = self.line(forecast.ranks);
        let pair = |of: &dyn Fn(StepTime) -> f64| json!([of(forecast.best), of(forecast.worst)]);
        line["forecast"] = true.into();
        line["step_ms"] = pair(&|time| time.step_ms);
        line["comm_ms"] = pair(&|time| time.comm_ms);
        line["img_per_s"] = pair(&|time| self.rate(forecast.ranks, time.step_ms));
        line["efficiency"] = pair(&|time| self.alone() / time.step_ms);
        if let Some(link) = self.args.link {
            line["gb_per_s"] = (link.rate / 1e9).into();
            line["latency_us"] = (link.latency * 1e6).into();
        }
        line["assumes"] = json!([format!("at best: {}", best_case(self.measured)), format!("at worst: {WORST}")]);
        line
    }

    fn check(&self, forecast_check: &ForecastCheck) -> Value {
        let mut line = self.line(forecast_check.predicted.ranks);
        line["held_out"] = true.into();
        line["step_ms"] = forecast_check.step_ms.into();
        line["predicted_step_ms"] =
            json!([forecast_check.predicted.best.step_ms, forecast_check.predicted.worst.step_ms]);
        line["error"] = forecast_check.error().into();
        line
    }

    fn table(&self) -> String {
        let ScaleResult { threads, bytes, buckets, memory_mb, path, .. } = self.measured;
        let when = if self.measured.overlap { "during backward" } else { "after backward" };
        let mut lines = vec![
            format!(
                "{}, {}, batch {}, {} and {memory_mb:.0} MB per rank, {:.1} MB of gradients in {buckets} sums ({path}); {}",
                self.args.model,
                self.args.precision,
                self.args.batch,
                plural(threads, "compute thread"),
                *bytes as f64 / 1e6,
                bench::processor()
            ),
            match self.measured.why.as_str() {
                "" => format!("sums {when}"),
                why => format!("path: {why}; sums {when}"),
            },
            row(["ranks", "step ms", "sum ms", "img/s", "efficiency", "messages per step"].map(String::from)),
        ];
        lines.extend(self.measured.points.iter().map(|point| {
            let rate = self.rate(point.ranks, point.step_ms);
            row([
                point.ranks.to_string(),
                number(point.step_ms),
                number(point.comm_ms),
                number(rate),
                format!("{:.0} %", 100.0 * self.alone() / point.step_ms),
                self.messages(point.ranks),
            ])
        }));
        if let Some(link) = self.args.link.filter(|_| !self.forecasts.is_empty()) {
            let (rate, latency) = (link.rate / 1e9, link.latency * 1e6);
            lines
                .push(format!("forecast, not measured: one rank per node, {rate} GB/s and {latency} us between nodes"));
            lines.extend(self.forecasts.iter().map(|forecast| self.range(forecast)));
            lines.push(format!("  at best: {};", best_case(self.measured)));
            lines.push(format!("  at worst: {WORST}"));
        }
        lines.extend(self.forecast_check.iter().map(|forecast_check| {
            let ForecastCheck { predicted, step_ms } = forecast_check;
            let (best, worst) = (number(predicted.best.step_ms), number(predicted.worst.step_ms));
            format!(
                "check: predicted from fewer ranks, {} ranks take {best} to {worst} ms per step; measured {} ms, error {:.0} %",
                predicted.ranks,
                number(*step_ms),
                100.0 * forecast_check.error()
            )
        }));
        lines.join("\n")
    }

    fn range(&self, forecast: &Forecast) -> String {
        let pair = |of: &dyn Fn(StepTime) -> String| format!("{} to {}", of(forecast.best), of(forecast.worst));
        row([
            forecast.ranks.to_string(),
            pair(&|time| number(time.step_ms)),
            pair(&|time| number(time.comm_ms)),
            pair(&|time| number(self.rate(forecast.ranks, time.step_ms))),
            pair(&|time| format!("{:.0} %", 100.0 * self.alone() / time.step_ms)),
            self.messages(forecast.ranks),
        ])
    }

    /// Formats the number of messages that a rank sends per step.
    fn messages(&self, ranks: usize) -> String {
        let [least, most] = messages(self.measured, ranks);
        if least == most { least.to_string() } else { format!("{least} to {most}") }
    }
}

/// Formats right-aligned columns that are wide enough for a range.
fn row(cells: [String; 6]) -> String {
    let [ranks, rest @ ..] = cells;
    let rest = rest.map(|cell| format!("{cell:>18}")).concat();
    format!("{ranks:>6}{rest}")
}

/// Formats a number with at least three digits.
fn number(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command, bench::What};
    use super::*;
    use clap::Parser;
    use training::bench::scale::LinearFit;

    fn args() -> Args {
        let line = "trireme bench scale --link 100Gb/s,2us";
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Some(Command::Bench(super::super::bench::Args { what: What::Scale(args) })) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_table_with_its_assumptions() {
        let fit = Some(LinearFit { latency: 0.0, rate: 10e9 });
        let point = |ranks, step_ms, comm_ms, link| Point { ranks, step_ms, comm_ms, link };
        let points = vec![point(1, 100.0, 0.0, None), point(2, 137.0, 16.0, fit), point(4, 260.0, 20.0, fit)];
        let (bytes, buckets, path, why, library) = (1_000_000, 1, "host", String::new(), String::new());
        let (memory_mb, threads, overlap) = (50.0, 1, false);
        let measured = ScaleResult { points, bytes, buckets, path, why, overlap, memory_mb, threads, library };
        let (args, forecast_check) = (args(), predict_largest(&measured));
        let forecasts = vec![forecast(&measured, 64, args.link.unwrap())];
        let shown = ScaleReport { args: &args, measured: &measured, forecasts, forecast_check };
        let table = shown.table();
        let words: Vec<&str> = table.lines().nth(4).unwrap().split_whitespace().collect();
        assert_eq!(words, ["2", "137", "16.0", "934", "73", "%", "2"], "{table}");
        let line = table.lines().find(|line| line.trim_start().starts_with("64 ")).unwrap();
        assert!(line.contains("100 to 3") && line.ends_with(" 12 to 126"), "{table}");
        for part in ["at best: every ", "at worst: ranks ", "check: ", "4 ranks take 100 to ", "measured 260"] {
            assert!(table.contains(part), "{part} in {table}");
        }
        assert!(table.lines().all(|line| line.len() <= 190), "{table}");
        let objects = shown.objects();
        assert_eq!((objects.len(), &objects[3]["ranks"], &objects[4]["held_out"]), (5, &64.into(), &true.into()));
        let range = objects[3]["efficiency"].as_array().unwrap();
        assert!(range[0].as_f64() > Some(0.99) && range[1].as_f64() < Some(0.5), "{range:?}");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.1234, 12.34, 1234.5].map(number), ["0.12", "12.3", "1234"]);
    }
}
