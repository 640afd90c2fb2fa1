//! Events in words, shared by the terminal and the plain lines.

use super::{Checkpoint, End, Epoch, Eval, Exchange, Start, Step};

/// The table at the start: what will happen, on what.
pub(super) fn start(start: &Start) -> String {
    let Start { model, parameters, images, batch, workers, ranks, .. } = start;
    let whole = u64::from(start.epochs) * start.steps_per_epoch;
    let mut rows = vec![
        ("model", format!("{model}, {} parameters", grouped(*parameters))),
        ("data", format!("{} images, {} steps of {batch} an epoch", grouped(*images), start.steps_per_epoch)),
        ("run", format!("steps {} of {} in {}", range(start), grouped(whole), plural(start.epochs.into(), "epoch"))),
        ("ranks", format!("{ranks}, carrying {}", plural(*workers as u64, "worker"))),
    ];
    rows.extend(start.facts.iter().map(|(name, value)| (name.as_str(), value.clone())));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

/// The steps that this run does.
fn range(start: &Start) -> String {
    format!("{} to {}", grouped(start.step + 1), grouped(start.last_step))
}

/// `1 epoch`, `2 epochs`.
fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// The numbers of a step, aligned from line to line.
pub(super) fn step(step: &Step) -> String {
    format!("{}  {}", score(step), times(step))
}

/// What a step has learnt, and how fast.
pub(super) fn score(step: &Step) -> String {
    let Step { loss, top1, lr, img_per_s, .. } = step;
    format!("loss {loss:7.4}  top-1 {:5.2} %  lr {:<9}  {img_per_s:7.0} img/s", top1 * 100.0, rate(*lr))
}

/// Where the time of a step has gone.
pub(super) fn times(step: &Step) -> String {
    let Step { data_wait_ms, comm_wait_ms, step_ms, .. } = step;
    format!("step {step_ms:6.1} ms  data wait {data_wait_ms:5.1} ms  comm wait {comm_wait_ms:5.1} ms")
}

pub(super) fn epoch(epoch: &Epoch) -> String {
    let Epoch { loss, top1, lr, img_per_s, seconds, .. } = epoch;
    let skipped = match epoch.loader.skipped {
        0 => String::new(),
        n => format!("  {} left out", plural(n, "bad record")),
    };
    format!(
        "epoch {} done: loss {loss:.4}  top-1 {:.2} %  lr {}  {img_per_s:.0} img/s  {seconds:.1} s{skipped}",
        epoch.epoch + 1,
        top1 * 100.0,
        rate(*lr),
    )
}

/// What the exchange costs, what float does, and what to make of it.
pub(super) fn exchange(exchange: &Exchange) -> String {
    let Exchange { codec, bytes, float_bytes, encode_ms, wire_ms, decode_ms, float_ms, steps, .. } = exchange;
    let mb = |bytes: u64| format!("{:.3} MB", bytes as f64 / 1e6);
    let mut text = format!("exchange: {codec}, {} a step", mb(*bytes));
    if codec == "float" {
        return text + &format!(": wire {wire_ms:.2} ms, waiting included (mean of {steps} steps)");
    }
    let whole = encode_ms + wire_ms + decode_ms;
    text += &format!(
        " (float {}): encode {encode_ms:.2} + wire {wire_ms:.2} + decode {decode_ms:.2} = {whole:.2} ms (mean of {steps} steps); ",
        mb(*float_bytes)
    );
    text + &match float_ms {
        None => "one rank: with float nothing would travel".to_string(),
        Some(float) if *float <= whole => format!(
            "float takes {float:.2} ms and is faster by {:.2} ms a step on these ranks: {codec} is worth it for what it \
             computes or on slower links, else set reduce.codec = \"float\"",
            whole - float
        ),
        Some(float) => format!("float takes {float:.2} ms: {codec} saves {:.2} ms a step", float - whole),
    }
}

pub(super) fn eval(eval: &Eval) -> String {
    let Eval { split, top1, top5, loss, count, .. } = eval;
    let (top1, top5) = (top1 * 100.0, top5 * 100.0);
    format!("{split}: top-1 {top1:.2} %  top-5 {top5:.2} %  loss {loss:.4}  ({} images)", grouped(*count))
}

pub(super) fn checkpoint(checkpoint: &Checkpoint) -> String {
    let Checkpoint { path, bytes, wait_ms, write_ms, error, .. } = checkpoint;
    let path = path.display();
    match error {
        None => format!("wrote {path}  {} bytes in {write_ms:.0} ms; training waited {wait_ms:.1} ms", grouped(*bytes)),
        Some(why) => format!("warning: no checkpoint of step {}: {why}", checkpoint.step),
    }
}

pub(super) fn end(end: &End) -> String {
    let End { step, seconds, img_per_s, model, .. } = end;
    format!("done: {step} steps in {seconds:.1} s, {img_per_s:.0} img/s; model: {}", model.display())
}

/// A learning rate with four significant digits: `0.05`, `0.0007123`, `1.2e-7`.
pub(super) fn rate(lr: f64) -> String {
    let short: f64 = format!("{lr:.3e}").parse().unwrap_or(lr);
    if short != 0.0 && short.abs() < 1e-4 { format!("{short:e}") } else { short.to_string() }
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_the_eye() {
        assert_eq!(["0", "123", "1,234", "60,965,224"], [0, 123, 1234, 60_965_224].map(grouped).as_slice());
        let rates = [0.05, 0.1 + 0.2, 0.000_712_345, 1.234_567e-7, 0.0, f64::NAN];
        assert_eq!(["0.05", "0.3", "0.0007123", "1.235e-7", "0", "NaN"], rates.map(rate).as_slice());
    }

    #[test]
    fn step_lines_align() {
        let one = step(&Step { loss: 2.3, lr: 0.1, img_per_s: 99.0, ..Step::default() });
        let two = step(&Step { loss: 12.34567, top1: 0.98, lr: 0.000_123_4, img_per_s: 104_000.0, ..Step::default() });
        assert_eq!(one.find("data wait"), two.find("data wait"));
        assert!(two.contains("loss 12.3457  top-1 98.00 %  lr 0.0001234"), "{two}");
    }
}
