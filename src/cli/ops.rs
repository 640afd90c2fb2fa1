//! `trireme bench ops`: its arguments, a table for users, and JSON lines.

use std::path::PathBuf;

use base::screen;
use serde_json::json;
use training::bench::operation::Convolution;
use training::bench::ops::{MeasuredOn, OperationTimes, OpsRequest};
use training::{Error, bench, launch};

use super::output::{Failure, print};
use super::set_wait_policy;
use super::value::{gflop, measurement_seconds, positive, thread_count};

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme bench ops --model resnet20 --threads 2
  trireme bench ops --shape 3,64,64,56,56 --shape 3,16,16,32,32 --batch 32
  trireme bench ops --model resnet20,vgg16 --most-gflop 10 --table zen4.txt

All implementations that this processor supports are measured for each pass, in alternation, on random images. Figures are medians of \
at least three rounds. The first implementation of an operation is the one that training uses. Convolutions are in f32, without their \
ReLU. GFLOP/s count the multiplications and additions of the direct algorithm, so they can exceed the processor's peak."
)]
pub struct Args {
    /// Networks to measure: their convolutions and linear layers. Separate names by commas [default: resnet20, without
    /// --shape]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub model: Vec<String>,
    /// Convolution to measure. Its padding is half of the kernel, also with a stride. An input of up to 4 channels
    /// counts as the images, so the gradient of the input is not measured. Can be repeated
    #[arg(long, value_name = "KERNEL,IN,OUT,HEIGHT,WIDTH[,STRIDE,GROUPS]")]
    pub shape: Vec<Convolution>,
    /// Numbers of images, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "16,128", value_parser = positive)]
    pub batch: Vec<usize>,
    /// Number of compute threads [default: number of cores]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<usize>,
    /// Seconds to measure each operation with each number of images, after the warm-up
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = measurement_seconds)]
    pub seconds: f64,
    /// Use fewer images (at least 4) for operations that need more than G billion multiplications and additions per
    /// pass
    #[arg(long, value_name = "G", default_value = "1000", value_parser = gflop)]
    pub most_gflop: f64,
    /// Write the fastest implementations to this table, like those in crates/backend/src/cpu/choices. Only operations
    /// with alternatives are measured. Other rows of the table are kept
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
}

/// Measures the operations and prints the results.
pub fn run(args: &Args) -> Result<(), Failure> {
    set_wait_policy()?;
    let usual = args.model.is_empty() && args.shape.is_empty();
    let request = OpsRequest {
        models: if usual { vec!["resnet20".into()] } else { args.model.clone() },
        convolutions: args.shape.clone(),
        batches: args.batch.clone(),
        threads: args.threads,
        seconds: args.seconds,
        most_gflop: args.most_gflop,
        table: args.table.clone(),
    };
    let mut head = Some(());
    launch::bench_ops(&request, |on, measured| {
        if head.take().is_some() {
            let peak = on.peak_gflops.map_or_else(String::new, |peak| format!(", peak {peak:.0} GFLOP/s"));
            screen::say(&format!("{}{peak}", on.backend));
            let names = ["operation", "images", "by", "forward", "weights", "input", "ms", "GFLOP/s"];
            screen::say(&line(names.map(String::from)));
        }
        rows(measured).iter().for_each(|row| screen::say(row));
        let lines = figures(on, measured);
        lines.into_iter().try_for_each(print).map_err(|failure| Error::Failed(failure.message))
    })
    .map_err(Failure::from)
}

/// Formats a line of the table.
fn line([op, images, by, forward, weights, input, sum, rate]: [String; 8]) -> String {
    format!("{op:<30} {images:>6} {by:<14} {forward:>9} {weights:>9} {input:>9} {sum:>9} {rate:>8}")
}

/// Formats the lines of an operation, one per implementation.
fn rows(measured: &OperationTimes) -> Vec<String> {
    let row = |timed: &bench::ops::ImplementationTimes| {
        let ms = |pass: usize| timed.ms.get(pass).map_or(String::new(), |(_, ms)| format!("{ms:.3}"));
        let rate = measured.gflop * timed.ms.len() as f64 / timed.total() * 1e3;
        let name = if timed.name.is_empty() { "(no choice)" } else { timed.name };
        let (op, images) = (measured.op.clone(), measured.batch.to_string());
        line([op, images, name.into(), ms(0), ms(1), ms(2), format!("{:.3}", timed.total()), format!("{rate:.0}")])
    };
    measured.timed.iter().map(row).collect()
}

/// Returns one JSON object per implementation and pass.
fn figures(on: &MeasuredOn, measured: &OperationTimes) -> Vec<serde_json::Value> {
    let mut lines = Vec::new();
    for (place, timed) in measured.timed.iter().enumerate() {
        for (pass, ms) in &timed.ms {
            let rate = measured.gflop / ms * 1e3;
            lines.push(json!({
                "bench": "ops", "layer": measured.layer, "op": measured.op, "batch": measured.batch, "pass": pass.name(),
                "implementation": timed.name, "primitives": timed.by, "taken": place == 0, "ms": ms, "gflops": rate,
                "of_peak": on.peak_gflops.map(|peak| rate / peak), "threads": on.threads, "backend": on.backend, "cpu": bench::processor(),
            }));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use crate::cli::bench::What;
    use clap::Parser;
    use support::mentions;

    fn parse(line: &str) -> Result<Args, String> {
        match Cli::try_parse_from(line.split(' ')).map_err(|e| e.to_string())?.command {
            Some(Command::Bench(args)) => match args.what {
                What::Ops(args) => Ok(args),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lists_have_commas_and_shapes_are_checked() {
        let args =
            parse("trireme bench ops --model lenet,resnet20 --shape 3,64,64,56,56,2,4 --shape 1,8,8,4,4 --batch 1,2")
                .unwrap();
        assert_eq!((args.model.len(), args.shape.len(), args.batch), (2, 2, vec![1, 2]));
        for (wrong, why) in [
            ("--shape 3,64", "expected KERNEL,IN,OUT,HEIGHT,WIDTH"),
            ("--shape 3,64,64,0,56", "\"0\""),
            ("--shape 3,64,64,56,56,1,1,1", "at most 7 numbers"),
            ("--shape 3,64,64,56,56,1,7", "groups"),
            ("--most-gflop 0", "number > 0"),
        ] {
            mentions(parse(&format!("trireme bench ops {wrong}")).unwrap_err(), &[why]);
        }
    }
}
