//! Formats events as text, for the terminal and for plain lines.

use std::time::Duration;

use base::text::grouped;

use super::{Checkpoint, End, Epoch, Eval, Event, Exchange, Start, Step, Verbosity, pace};

/// A wait is shown if it is at least this fraction of the step's time.
const LARGE: f64 = 0.1;

/// Formats an event other than a step. Returns `None` if the event is not shown at this verbosity.
pub(super) fn line(event: &Event, verbosity: Verbosity) -> Option<String> {
    let facts = verbosity.shows_facts();
    let text = match event {
        Event::Start(event) => Some(if facts { start(event) } else { headline(event) }),
        Event::Epoch(event) => Some(epoch(event)),
        Event::Exchange(event) => facts.then(|| exchange(event)),
        Event::Eval(event) => Some(eval(event)),
        Event::Checkpoint(event) => (facts || event.error.is_some()).then(|| checkpoint(event)),
        Event::End(event) => Some(end(event)),
        Event::Step(_) | Event::Layers(_) => None,
    };
    text.filter(|text| verbosity.shows(text))
}

/// Summarises the run in two lines. If the run was resumed, a line between them names the step and the checkpoint.
fn headline(start: &Start) -> String {
    let Start { model, parameters, images, batch, ranks, .. } = start;
    let steps = match start.steps {
        Some(steps) => format!("{} of {batch}, {} per epoch", plural(steps, "step"), start.steps_per_epoch),
        None => format!("{} of {} steps of {batch}", plural(start.epochs.into(), "epoch"), start.steps_per_epoch),
    };
    let from = start
        .facts
        .get("resumed")
        .map_or(String::new(), |file| format!("resumes after step {} from {file}\n", start.step));
    let facts = start.facts.get("out").map_or(String::new(), |out| format!("; all facts: {out}/{}, or -v", super::LOG));
    format!(
        "{model}: {} parameters, {} images, {steps}\n{from}{}, {}{facts}",
        grouped(*parameters),
        grouped(*images),
        plural(*ranks as u64, "rank"),
        plural(start.workers as u64, "worker")
    )
}

/// Formats the table of facts at the start.
fn start(start: &Start) -> String {
    let Start { model, parameters, images, batch, workers, ranks, .. } = start;
    let whole = start.steps.unwrap_or(u64::from(start.epochs) * start.steps_per_epoch);
    let mut rows = vec![
        ("model", format!("{model}, {} parameters", grouped(*parameters))),
        ("data", format!("{} images, {} steps of {batch} per epoch", grouped(*images), start.steps_per_epoch)),
        ("run", format!("steps {} of {} in {}", range(start), grouped(whole), plural(start.epochs.into(), "epoch"))),
        ("ranks", format!("{ranks}, running {}", plural(*workers as u64, "worker"))),
    ];
    rows.extend(start.facts.iter().map(|(name, value)| (name.as_str(), value.clone())));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

/// Formats the range of steps that this process will train.
fn range(start: &Start) -> String {
    format!("{} to {}", grouped(start.step + 1), grouped(start.last_step))
}

/// Formats a count, like `1 epoch` or `2 epochs`.
fn plural(n: u64, what: &str) -> String {
    base::text::plural(grouped(n), what)
}

/// Formats loss, accuracy, learning rate and speed of a step, and long waits.
pub(super) fn numbers(step: &Step) -> Vec<String> {
    let Step { loss, top1, lr, img_per_s, step_ms, .. } = *step;
    let mut words = vec![format!("loss {loss:.4}")];
    // top-1 is NaN if the labels are numbers, and also if the loss is NaN; it is shown only in the second case
    words.extend((!top1.is_nan() || loss.is_nan()).then(|| format!("top-1 {:.2} %", top1 * 100.0)));
    words.extend([format!("lr {}", rate(lr)), format!("{} img/s", grouped(img_per_s.round() as u64))]);
    // The time spent waiting for other ranks is from the previous step, which may have been much longer.
    let before = step.step_ranks[2].max(step_ms);
    let waits = [("data", step.data_wait_ms, step_ms), ("comm", step.comm_wait_ms, before)];
    let large = waits.into_iter().filter(|(_, wait, of)| *wait >= LARGE * of && *wait > 0.0);
    words.extend(large.map(|(what, wait, of)| format!("{what} wait {:.0} %", (100.0 * wait / of).min(100.0))));
    words
}

/// Formats the progress line of a step for plain output. Verbose output includes the parts of its time.
pub(super) fn step(start: &Start, step: &Step, left: Option<Duration>, verbosity: Verbosity) -> String {
    let Step { data_wait_ms, comm_wait_ms, step_ms, .. } = step;
    let mut words =
        vec![format!("epoch {}/{}", step.epoch + 1, start.epochs), format!("step {}/{}", step.step, start.last_step)];
    words.extend(numbers(step).into_iter().filter(|word| !verbosity.shows_facts() || !word.contains(" wait ")));
    if verbosity.shows_facts() {
        words.push(format!("step {step_ms:.1} ms  data wait {data_wait_ms:.1} ms  comm wait {comm_wait_ms:.1} ms"));
    }
    words.extend(left.map(|left| format!("{} left", pace::format_time(left))));
    words.join("  ")
}

fn epoch(epoch: &Epoch) -> String {
    let Epoch { loss, top1, lr, img_per_s, seconds, .. } = epoch;
    let skipped = match epoch.loader.skipped {
        0 => String::new(),
        n => format!("  {} skipped", plural(n, "bad record")),
    };
    let done = match epoch.part {
        None => "done".to_string(),
        Some((steps, of)) => format!("ends early, after {} of {} steps", grouped(steps), grouped(of)),
    };
    let top1 = if top1.is_nan() && !loss.is_nan() { String::new() } else { format!("top-1 {:.2} %  ", top1 * 100.0) };
    format!(
        "epoch {} {done}: loss {loss:.4}  {top1}lr {}  {} img/s  {seconds:.1} s{skipped}",
        epoch.epoch + 1,
        rate(*lr),
        grouped(img_per_s.round() as u64)
    )
}

/// If MPI needs at least this many times the time of the codec, the network limits the exchange.
const SLOW_WIRE: f64 = 10.0;

/// Formats the cost of the exchange, compares it with `float`, and makes a suggestion.
fn exchange(exchange: &Exchange) -> String {
    let Exchange { codec, bytes, float_bytes, encode_ms, wire_ms, decode_ms, float_ms, steps, .. } = exchange;
    let mb = |bytes: u64| format!("{:.3} MB", bytes as f64 / 1e6);
    let mut text = format!("exchange: {codec}, {} per step", mb(*bytes));
    if codec == "float" {
        return text + &format!(": wire {wire_ms:.2} ms, including waiting (mean of {steps} steps)");
    }
    let whole = encode_ms + wire_ms + decode_ms;
    text += &format!(
        " (float {}): encode {encode_ms:.2} + wire {wire_ms:.2} + decode {decode_ms:.2} = {whole:.2} ms (mean of {steps} steps); ",
        mb(*float_bytes)
    );
    let fewer = bytes < float_bytes;
    text += &match float_ms {
        None => "with one rank, reduce.codec = \"float\" would send nothing".to_string(),
        Some(float) if *float <= whole => format!(
            "float takes {float:.2} ms and is faster by {:.2} ms per step on these ranks. Keep {codec} if you need its results{}, \
             otherwise set reduce.codec = \"float\"",
            whole - float,
            if fewer { " or have slower links" } else { "" }
        ),
        Some(float) => format!("float takes {float:.2} ms: {codec} saves {:.2} ms per step", float - whole),
    };
    if float_ms.is_some() && !fewer && *wire_ms > SLOW_WIRE * (encode_ms + decode_ms) {
        text += ". Nearly all of this time is spent in the network; reduce.codec = \"int8\" sends fewer bytes";
    }
    text
}

fn eval(eval: &Eval) -> String {
    let Eval { split, top1, top5, loss, count, macro_f1, micro_f1, map, ema, .. } = eval;
    let images = grouped(*count);
    let (top1, top5) = (top1 * 100.0, top5 * 100.0);
    let of = match (*ema, eval.at_end) {
        (false, false) => "",
        (true, false) => " (averages)",
        (false, true) => " (at the end)",
        (true, true) => " (averages, at the end)",
    };
    if let (Some(rmse), Some(mae), r2) = (eval.rmse, eval.mae, r2_text(eval.r2.unwrap_or(f64::NAN))) {
        return format!("{split}{of}: RMSE {rmse:.4}  MAE {mae:.4}  R2 {r2}  loss {loss:.4}  ({images} images)");
    }
    let share =
        |name: &str, share: Option<f64>| share.map_or(String::new(), |s| format!("{name} {:.2} %  ", s * 100.0));
    let (map, micro) = (share("mAP", *map), share("micro-F1", *micro_f1));
    let f1 = format!("{map}{micro}{}", share("macro-F1", *macro_f1));
    format!("{split}{of}: top-1 {top1:.2} %  top-5 {top5:.2} %  {f1}loss {loss:.4}  ({images} images)")
}

/// Formats an R2. It is NaN if all numbers of the split are equal.
pub fn r2_text(r2: f64) -> String {
    if r2.is_nan() { "-".into() } else { format!("{r2:.4}") }
}

/// Formats the best score so far with its name in recipes, like `top1 91.23 % (step 4000)`.
pub fn best(by: &str, score: f64, step: u64) -> String {
    let is_share = !["loss", "rmse", "mae", "r2"].contains(&by.trim_start_matches("ema."));
    let score = if is_share { format!("{:.2} %", 100.0 * score) } else { format!("{score:.4}") };
    format!("{by} {score} (step {})", grouped(step))
}

/// Formats the score if the evaluation is the best so far. Returns `None` otherwise.
pub(super) fn best_of(eval: &Eval) -> Option<String> {
    let by = eval.best.as_deref()?;
    let score = match by.trim_start_matches("ema.") {
        "top1" => Some(eval.top1),
        "top5" => Some(eval.top5),
        "loss" => Some(eval.loss),
        "map" => eval.map,
        "rmse" => eval.rmse,
        "mae" => eval.mae,
        "r2" => eval.r2,
        _ => eval.macro_f1,
    };
    score.map(|score| best(by, score, eval.step))
}

fn checkpoint(checkpoint: &Checkpoint) -> String {
    let Checkpoint { path, bytes, wait_ms, write_ms, error, .. } = checkpoint;
    let path = path.display();
    match error {
        None => format!("wrote {path}  {} bytes in {write_ms:.0} ms; training waited {wait_ms:.1} ms", grouped(*bytes)),
        Some(why) => format!("warning: no checkpoint of step {}: {why}", checkpoint.step),
    }
}

fn end(end: &End) -> String {
    let End { step, before, seconds, img_per_s, model, .. } = end;
    let new = step.saturating_sub(*before);
    let steps = if *before == 0 { format!("{step} steps") } else { format!("{step} steps, {new} of them") };
    let since = if *before == 0 { "" } else { " since the last start" };
    // Without steps in this process there is no rate.
    let rate = if new == 0 { String::new() } else { format!(", {} img/s", grouped(img_per_s.round() as u64)) };
    let best = match &end.best {
        Some((by, score, at)) if at == step => format!("; {}, the last step, is the best", best(by, *score, *at)),
        Some((by, score, at)) => format!(
            "; model.h5 has the weights of the last step\nbest: {}; to use it: trireme eval {} --best",
            best(by, *score, *at),
            model.parent().unwrap_or(model).display()
        ),
        None => String::new(),
    };
    format!("done: {steps} in {seconds:.1} s{since}{rate}; model: {}{best}", model.display())
}

/// Formats a learning rate with four significant digits: `0.05`, `0.0007123`, `1.2e-7`, `1e30`.
pub(super) fn rate(lr: f64) -> String {
    let short: f64 = format!("{lr:.3e}").parse().unwrap_or(lr);
    let plain = short == 0.0 || (1e-4..1e7).contains(&short.abs());
    if plain { short.to_string() } else { format!("{short:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    #[test]
    fn rates_are_rounded_for_display() {
        let rates = [0.05, 0.1 + 0.2, 0.000_712_345, 1.234_567e-7, 1e30, 0.0, f64::NAN];
        assert_eq!(["0.05", "0.3", "0.0007123", "1.235e-7", "1e30", "0", "NaN"], rates.map(rate).as_slice());
    }

    fn some_step() -> Step {
        Step {
            step: 1251,
            epoch: 1,
            loss: 0.47361,
            top1: 0.8325,
            lr: 0.029_42,
            img_per_s: 1918.4,
            step_ms: 33.4,
            data_wait_ms: 0.1,
            comm_wait_ms: 6.5,
            ..Step::default()
        }
    }

    #[test]
    fn large_waits_are_shown() {
        let start = Start { epochs: 3, last_step: 2814, ..Start::default() };
        let left = Some(Duration::from_secs(45));
        let line = step(&start, &some_step(), left, Verbosity::Normal);
        let words = "epoch 2/3  step 1251/2814  loss 0.4736  top-1 83.25 %  lr 0.02942  1,918 img/s";
        assert_eq!(line, format!("{words}  comm wait 19 %  0:45 left"));
        let calm = Step { comm_wait_ms: 3.3, ..some_step() };
        assert_eq!(step(&start, &calm, left, Verbosity::Normal), format!("{words}  0:45 left"));
        // The network was interrupted in the previous step.
        let down = Step { comm_wait_ms: 510.0, step_ranks: [500.0, 510.0, 520.0], ..some_step() };
        assert!(step(&start, &down, None, Verbosity::Normal).ends_with("  comm wait 98 %"));
        let longer = Step { comm_wait_ms: 900.0, ..down };
        assert!(step(&start, &longer, None, Verbosity::Normal).ends_with("  comm wait 100 %"));
        let all = step(&start, &some_step(), None, Verbosity::Verbose);
        assert_eq!(all, format!("{words}  step 33.4 ms  data wait 0.1 ms  comm wait 6.5 ms"));
    }

    #[test]
    fn a_slow_network_gets_advice() {
        let text = |codec: &str, bytes, wire_ms| {
            let (codec, float_ms) = (codec.into(), Some(wire_ms));
            let times = Exchange { encode_ms: 3.0, wire_ms, decode_ms: 2.0, float_ms, ..Exchange::default() };
            exchange(&Exchange { codec, bytes, float_bytes: 4000, steps: 20, ..times })
        };
        let slow = text("exact", 4000, 900.0);
        mentions(&slow, &["Keep exact", "reduce.codec = \"float\"", "reduce.codec = \"int8\""]);
        assert!(!slow.contains("slower links"), "{slow}");
        assert!(!text("exact", 4000, 9.0).contains("int8"));
        let few = text("ternary", 400, 900.0);
        mentions(&few, &["Keep ternary", "slower links", "reduce.codec = \"float\""]);
        assert!(!few.contains("int8"), "{few}");
    }

    #[test]
    fn the_end_shows_the_steps_since_the_last_start() {
        let end = |step, before, img_per_s| {
            let model = "a.h5".into();
            end(&End { step, before, seconds: 16.52, img_per_s, model, ..End::default() })
        };
        let (once, resumed) = (end(61, 0, 1234.4), end(61, 41, 1234.4));
        mentions(&once, &["done: ", "61 steps", "16.5 s", "1,234 img/s", "a.h5"]);
        assert!(!once.contains("of them"), "{once}");
        mentions(resumed, &["done: ", "61 steps", "20 of them", "16.5 s", "1,234 img/s", "a.h5"]);
        let (nothing_new, no_steps) = (end(61, 61, 0.0), end(0, 0, 0.0));
        mentions(&nothing_new, &["done: ", "61 steps", "0 of them", "16.5 s", "a.h5"]);
        mentions(&no_steps, &["done: ", "0 steps", "16.5 s", "a.h5"]);
        assert!(!nothing_new.contains("img/s") && !no_steps.contains("img/s"), "{nothing_new}\n{no_steps}");
    }

    #[test]
    fn the_end_says_which_checkpoint_is_the_best() {
        let line = |best| {
            let model = "runs/a/model.h5".into();
            end(&End { step: 61, seconds: 16.52, img_per_s: 1234.4, model, best, ..End::default() })
        };
        let done = line(None);
        assert!(done.ends_with("runs/a/model.h5") && !done.contains("best"), "{done}");
        let added = |best: &str, score, step| {
            let line = line(Some((best.into(), score, step)));
            line.strip_prefix(&done).unwrap_or_else(|| panic!("{done} is not in: {line}")).to_string()
        };
        let best = added("top1", 0.9123, 40);
        mentions(best, &["model.h5", "last step", "top1 91.23 % (step 40)", "trireme eval runs/a --best"]);
        let last = added("ema.loss", 0.25, 61);
        mentions(&last, &["ema.loss 0.2500 (step 61)", "last step", "best"]);
        assert!(!last.contains("trireme eval"), "{last}");
    }

    #[test]
    fn an_epoch_that_ends_early_says_so() {
        let whole =
            Epoch { epoch: 2, loss: 0.5, top1: 0.25, lr: 0.1, img_per_s: 90.0, seconds: 2.0, ..Epoch::default() };
        let rest = "loss 0.5000  top-1 25.00 %  lr 0.1  90 img/s  2.0 s";
        assert_eq!(epoch(&whole), format!("epoch 3 done: {rest}"));
        let part = Epoch { part: Some((3, 6)), ..whole };
        let early = epoch(&part);
        mentions(&early, &["epoch 3 ", "early", "3 of 6 steps"]);
        assert!(early.ends_with(&format!(": {rest}")) && !early.contains("done"), "{early}");
    }

    #[test]
    fn equal_numbers_have_no_r2() {
        let line = |r2| eval(&Eval { rmse: Some(2.0), mae: Some(1.0), r2, ..Eval::default() });
        mentions(line(Some(0.25)), &["RMSE 2.0000", "R2 0.2500"]);
        for absent in [None, Some(f64::NAN)] {
            mentions(line(absent), &["RMSE 2.0000", "R2 -  loss"]);
        }
    }

    #[test]
    fn best_of_formats_name_value_and_step() {
        let eval = Eval { step: 4_000, top1: 0.9123, loss: 0.25, macro_f1: Some(0.5), ..Eval::default() };
        let of = |by: &str| best_of(&Eval { best: Some(by.into()), ..eval.clone() });
        assert_eq!(of("top1").unwrap(), "top1 91.23 % (step 4,000)");
        assert_eq!(of("ema.loss").unwrap(), "ema.loss 0.2500 (step 4,000)");
        assert_eq!(of("ema.macro_f1").unwrap(), "ema.macro_f1 50.00 % (step 4,000)");
        assert_eq!(best_of(&eval), None);
    }

    /// Lines that are not facts fit 80 columns. A quiet run prints only warnings.
    #[test]
    fn facts_are_shown_only_if_verbose() {
        let facts = [("out", "runs/try"), ("device", "cpu"), ("resumed", "runs/try/checkpoints/step-00001000.h5")];
        let facts = facts.map(|(name, fact)| (name.to_string(), fact.to_string())).into();
        let start = Start {
            step: 1000,
            epochs: 160,
            steps_per_epoch: 391,
            model: "resnet20".into(),
            parameters: 269_722,
            images: 50_000,
            batch: 128,
            ranks: 2,
            workers: 4,
            facts,
            ..Start::default()
        };
        let line = |event: &Event, verbosity| super::line(event, verbosity);
        let headline = line(&start.clone().into(), Verbosity::Normal).unwrap();
        let lines: Vec<&str> = headline.lines().collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= 80), "{headline}");
        mentions(lines[0], &["resnet20", "269,722 parameters", "50,000 images", "160 epochs", "391 steps", "128"]);
        let in_steps = line(&Start { steps: Some(500), epochs: 2, ..start.clone() }.into(), Verbosity::Normal).unwrap();
        let first = in_steps.lines().next().unwrap();
        mentions(first, &["500 steps of 128", "391 per epoch"]);
        assert!(first.chars().count() <= 80 && !first.contains("epochs"), "{first}");
        mentions(lines[1], &["step 1000", "runs/try/checkpoints/step-00001000.h5"]);
        mentions(lines[2], &["2 ranks", "4 workers", "runs/try/run.log", "-v"]);
        assert!(line(&start.clone().into(), Verbosity::Verbose).unwrap().contains("\ndevice   cpu\n"));
        let written = Checkpoint { path: "a.h5".into(), ..Checkpoint::default() };
        let failed = Checkpoint { error: Some("no space left".into()), ..written.clone() };
        let shown = |verbosity| {
            let events: [Event; 4] =
                [start.clone().into(), written.clone().into(), failed.clone().into(), Eval::default().into()];
            events.map(|event| line(&event, verbosity).is_some())
        };
        assert_eq!(shown(Verbosity::Quiet), [false, false, true, false]);
        assert_eq!(shown(Verbosity::Normal), [true, false, true, true]);
        assert_eq!(shown(Verbosity::Verbose), [true; 4]);
    }
}
