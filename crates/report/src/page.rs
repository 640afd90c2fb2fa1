//! Renders report.html: one page about one run, or a comparison of runs. It needs no network and no other file.

use loaders::overwrite::Content;
use serde_json::{Value, json};

use super::history::{LayersLine, Log, Run, StepLine, TensorLine};
use super::predictions;

const TEXT: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/page.js"),
    include_str!("page/evaluation.js"),
    include_str!("page/layers.js"),
    include_str!("page/main.js")
);

/// Name of the page in a run's folder.
pub const NAME: &str = "report.html";

/// The kind of file that a page may overwrite: an HTML page.
pub const PAGE: Content = Content { name: "an HTML page", begins: |head| head.starts_with(b"<!DOCTYPE html>") };

/// Maximum number of points in all curves together. A screen cannot show more, and a page with this number opens at
/// once.
const POINTS: usize = 16_000;

/// Renders the page for these runs. With `reload`, browsers reload the page every `reload` seconds. The page hides
/// recipe keys with default values at first. `is_default(key, value)` returns true if `value`, as TOML, is the default.
pub fn render(runs: &[Run], reload: Option<u32>, is_default: fn(&str, &str) -> bool) -> String {
    let points = (POINTS / runs.len().max(1) / CURVES).max(100);
    let names = names(runs);
    let data = |(run, name): (&Run, &String)| run_data(run, name, points, is_default);
    let all: Vec<Value> = runs.iter().zip(&names).map(data).collect();
    let data = serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "runs": all });
    let refresh =
        reload.map(|seconds| format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">")).unwrap_or_default();
    // Data of the runs is inserted last, so that no text in it can be mistaken for a placeholder.
    let page = TEXT.replace("{{refresh}}", &refresh).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    let (head, tail) = page.split_once("{{data}}").unwrap_or((&page, ""));
    head.replace("{{title}}", &escape_html(&names.join(", "))) + &escape_json(&data.to_string()) + tail
}

/// Escapes JSON so that no HTML parser finds markup in it.
fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns each run's folder name. Runs with equal folder names, as in two sweeps, get their paths instead.
fn names(runs: &[Run]) -> Vec<String> {
    let short: Vec<String> = runs.iter().map(Run::name).collect();
    let is_shared = |name: &String| short.iter().filter(|other| *other == name).count() > 1;
    let name =
        |(run, name): (&Run, &String)| if is_shared(name) { run.folder.display().to_string() } else { name.clone() };
    runs.iter().zip(&short).map(name).collect()
}

/// Converts a run to JSON. Each curve has at most `points` points.
fn run_data(run: &Run, name: &str, points: usize, is_default: fn(&str, &str) -> bool) -> Value {
    let Run { log, .. } = run;
    let last = log.starts.last();
    json!({
        "name": name,
        "folder": run.folder.display().to_string(),
        "state": run.state().word(),
        "step": log.step(),
        "last_step": run.last_step(),
        "steps_per_epoch": last.map(|start| start.steps_per_epoch),
        "epochs": last.map(|start| start.epochs),
        "model": last.map(|start| start.model.clone()),
        "parameters": last.map(|start| start.parameters),
        "images": last.map(|start| start.images),
        "batch": last.map(|start| start.batch),
        "workers": last.map(|start| start.workers),
        "ranks": last.map(|start| start.ranks),
        "resumed": log.starts.iter().map(|start| start.step).filter(|step| *step > 0).collect::<Vec<_>>(),
        "facts": last.map(|start| &start.facts),
        "begun": log.starts.first().and_then(|start| start.utc.clone()),
        "recipe": run.recipe,
        "defaults": run.recipe.iter().filter(|(key, value)| is_default(key, value)).map(|(key, _)| key).collect::<Vec<_>>(),
        "curves": curves(&log.steps, points),
        "lost_steps": log.steps.iter().filter(|step| !step.loss.is_finite()).count(),
        "epoch_means": log.epochs,
        "evals": log.evals.iter().chain(&log.averages).collect::<Vec<_>>(),
        "best": log.best(),
        "at_end": log.at_end,
        "time": time(log),
        "img_per_s": rate(log),
        "end": log.end,
        "seconds_of_steps": log.seconds_of_steps(),
        "layers": layer_data(log),
        "evaluation": run.evaluation,
        "unusable": run.unusable,
        "unread": { "lines": log.unread.lines, "first": log.unread.first },
    })
}

fn curves(steps: &[StepLine], points: usize) -> Value {
    let curve = |value: fn(&StepLine) -> f64| thin_out(steps.iter().map(|step| (step.step, value(step))), points);
    json!({
        "loss": curve(|step| step.loss),
        "top1": curve(|step| step.top1),
        "lr": curve(|step| step.lr),
        "img_per_s": curve(|step| step.img_per_s),
        "data_wait_ms": curve(|step| step.data_wait_ms),
        "comm_wait_ms": curve(|step| step.comm_wait_ms),
        "grad_norm": curve(|step| step.grad_norm),
    })
}

/// Returns the images per second that the end event has. If it is missing or its part of the run had no steps, computes
/// them from the mean time of all logged steps.
fn rate(log: &Log) -> Option<f64> {
    let told = log.end.as_ref().map(|end| end.img_per_s).filter(|rate| *rate > 0.0);
    let batch = log.starts.last().map(|start| start.batch as f64);
    told.or_else(|| Some(1e3 * batch? / time(log)["step_ms"].as_f64()?))
}

/// Returns means over all logged steps except the first, which includes preparations: the time of a step, its parts,
/// and the differences between ranks.
fn time(log: &Log) -> Value {
    let steps = log.steps.get(1..).unwrap_or_default();
    let mean =
        |value: &dyn Fn(&StepLine) -> f64| predictions::mean(steps.iter().map(value).filter(|value| value.is_finite()));
    let ranks = |value: fn(&StepLine) -> [f64; 3]| [0, 1, 2].map(|k| mean(&move |step| value(step)[k]));
    let loader = |key: &str| predictions::mean(log.epochs.iter().filter_map(|epoch| *epoch.loader.get(key)?));
    json!({
        "step_ms": mean(&|step| step.step_ms),
        "data_wait_ms": mean(&|step| step.data_wait_ms),
        "comm_wait_ms": mean(&|step| step.comm_wait_ms),
        "step_ranks": ranks(|step| step.step_ranks),
        "data_wait_ranks": ranks(|step| step.data_wait_ranks),
        "comm_wait_ranks": ranks(|step| step.comm_wait_ranks),
        "loader": { "read_us": loader("read_us"), "decode_us": loader("decode_us"), "transform_us": loader("transform_us"),
                    "slot_wait_us": loader("slot_wait_us") },
        "exchange": log.exchange,
    })
}

/// Approximate maximum number of values in the page for the statistics of all layers and steps.
const MOST: usize = 40_000;
/// Number of values per tensor and step.
const EACH: usize = 5;

/// Converts the statistics of the layers to JSON: for each parameter, its values over the steps. Returns null if the
/// log has none.
fn layer_data(log: &Log) -> Value {
    let lines = log.layers.lines();
    let Some(&last) = lines.last() else { return Value::Null };
    let room = (MOST / EACH / last.tensors.len().max(1)).max(2);
    let lines: Vec<&LayersLine> = match lines.len() <= room {
        true => lines,
        // Take evenly spaced lines, including the first and the last.
        false => (0..room).map(|k| lines[k * (lines.len() - 1) / (room - 1)]).collect(),
    };
    let tensors = last.tensors.iter().enumerate().map(|(index, tensor)| {
        let of = |value: fn(&TensorLine) -> Option<f64>| {
            let known =
                |line: &&LayersLine| line.tensors.get(index).filter(|other| other.name == tensor.name).and_then(value);
            lines.iter().map(known).collect::<Vec<_>>()
        };
        json!({
            "name": tensor.name,
            "elements": tensor.elements,
            "weight": tensor.weight,
            "gradient": tensor.gradient,
            "weight_deviation": of(|tensor| tensor.weight.deviation),
            "gradient_deviation": of(|tensor| tensor.gradient.deviation),
            "gradient_mean": of(|tensor| tensor.gradient.mean),
            "gradient_zeros": of(|tensor| tensor.gradient.zeros),
            "zero_codes": of(|tensor| tensor.zero_codes),
        })
    });
    json!({ "steps": lines.iter().map(|line| line.step).collect::<Vec<_>>(), "tensors": tensors.collect::<Vec<_>>() })
}

/// Number of curves per run that have one value per step.
const CURVES: usize = 7;

/// Returns `{x, y}` of a curve. If it has more than `most` points, adjacent points are replaced by their mean, with
/// minimum and maximum as `lo` and `hi`. Values that are not finite become null and are left out of means. A curve
/// without finite values is null.
fn thin_out(points: impl Iterator<Item = (u64, f64)>, most: usize) -> Value {
    let points: Vec<(u64, f64)> = points.collect();
    if !points.iter().any(|(_, y)| y.is_finite()) {
        return Value::Null;
    }
    if points.len() <= most {
        let (x, y): (Vec<u64>, Vec<f64>) = points.into_iter().unzip();
        return json!({ "x": x, "y": y });
    }
    // the lengths of the groups differ by at most one
    let group = |k: usize| Group::of(&points[k * points.len() / most..(k + 1) * points.len() / most]);
    let groups: Vec<Group> = (0..most).map(group).collect();
    let column = |value: fn(&Group) -> f64| groups.iter().map(value).collect::<Vec<_>>();
    json!({
        "x": groups.iter().map(|group| group.x).collect::<Vec<_>>(),
        "y": column(|group| group.mean),
        "lo": column(|group| group.least),
        "hi": column(|group| group.most),
    })
}

/// The statistics of adjacent points that are shown as one point.
struct Group {
    /// Step number of the last point.
    x: u64,
    mean: f64,
    least: f64,
    most: f64,
}

impl Group {
    fn of(points: &[(u64, f64)]) -> Self {
        let known = || points.iter().map(|(_, y)| *y).filter(|y| y.is_finite());
        Self {
            x: points.last().map_or(0, |(x, _)| *x),
            mean: known().sum::<f64>() / known().count() as f64,
            least: known().fold(f64::NAN, f64::min),
            most: known().fold(f64::NAN, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Log;
    use super::*;
    use std::collections::BTreeMap;
    use std::time::SystemTime;

    fn run(name: &str, lines: &str) -> Run {
        let recipe = BTreeMap::from([("model".into(), "\"</script><b>\"".into())]);
        let log = Log::from_lines(lines.as_bytes()).unwrap();
        let (changed, heartbeat, released) = (SystemTime::now(), None, false);
        let (evaluation, unusable) = (None, Vec::new());
        Run { folder: name.into(), log, recipe, changed, heartbeat, released, evaluation, unusable }
    }

    /// Returns the JSON data of a page.
    fn data_of(page: &str) -> Value {
        let from = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap().1;
        serde_json::from_str(from.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn numbers_match_the_log() {
        let lines = "{\"event\":\"step\",\"step\":1,\"loss\":2.3115731142461312,\"lr\":0.1}\n\
                     {\"event\":\"step\",\"step\":2,\"loss\":null,\"lr\":0.05}\n\
                     {\"event\":\"eval\",\"step\":2,\"split\":\"test\",\"top1\":0.1188,\"top5\":0.5,\"loss\":2.2,\"count\":10}\n";
        let page = render(&[run("a", lines)], None, |_, _| false);
        let data = &data_of(&page)["runs"][0];
        assert_eq!(data["curves"]["loss"]["y"], serde_json::json!([2.3115731142461312, null]));
        assert_eq!(data["curves"]["lr"]["x"], serde_json::json!([1, 2]));
        assert_eq!(data["evals"][0]["top1"], 0.1188);
        assert!(!page.contains("http-equiv=\"refresh\""));
        assert!(render(&[], Some(5), |_, _| false).contains("<meta http-equiv=\"refresh\" content=\"5\">"));
    }

    #[test]
    fn runs_with_equal_names_are_told_apart() {
        let page = render(&["a/seed=1", "b/seed=1", "b/seed=2"].map(|name| run(name, "")), None, |_, _| false);
        let data = data_of(&page);
        assert_eq!([0, 1, 2].map(|k| data["runs"][k]["name"].clone()), ["a/seed=1", "b/seed=1", "seed=2"]);
        assert!(page.contains("<title>a/seed=1, b/seed=1, seed=2"), "{page}");
    }

    /// The page cannot find these steps in the curve, because each point averages only the finite losses in a group of steps.
    #[test]
    fn steps_with_a_loss_that_is_not_finite_are_counted() {
        let line = |step: u64, loss: &str| format!("{{\"event\":\"step\",\"step\":{step},\"loss\":{loss}}}\n");
        let page = |lines: &str| data_of(&render(&[run("a", lines)], None, |_, _| false));
        let lost = |lines: &str| page(lines)["runs"][0]["lost_steps"].as_u64();
        let finite: String = (1..=3000).map(|step| line(step, "2.5")).collect();
        assert_eq!(lost(&finite), Some(0));
        assert_eq!(lost(&(finite + &line(3001, "null"))), Some(1));
        assert_eq!(lost(&line(1, "null")), Some(1));
    }

    /// If the last part of a run had no steps and only evaluated, the rate is that of the steps before.
    #[test]
    fn a_start_without_steps_shows_the_rate_of_earlier_steps() {
        let steps: String =
            (1..=3).map(|step| format!("{{\"event\":\"step\",\"step\":{step},\"step_ms\":50}}\n")).collect();
        let of = |rate: &str| {
            let start = "{\"event\":\"start\",\"step\":3,\"batch\":10}\n";
            let end = format!("{{\"event\":\"end\",\"step\":3,\"img_per_s\":{rate}}}\n");
            data_of(&render(&[run("a", &(steps.clone() + start + &end))], None, |_, _| false))["runs"][0]["img_per_s"]
                .clone()
        };
        assert_eq!((of("0"), of("123.5")), (200.0.into(), 123.5.into()));
        assert_eq!(data_of(&render(&[run("a", "")], None, |_, _| false))["runs"][0]["img_per_s"], Value::Null);
    }

    /// No text of a run may become markup.
    #[test]
    fn text_of_a_run_is_escaped_in_the_page() {
        let page = render(&[run("<img src=x onerror=alert(1)>{{style}}", "")], None, |_, _| false);
        assert!(!page.contains("<img") && !page.contains("</script><b>"), "{page}");
        assert_eq!(data_of(&page)["runs"][0]["recipe"]["model"], "\"</script><b>\"");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains("<title>&lt;img"));
        assert_eq!(data_of(&page)["runs"][0]["defaults"], serde_json::json!([]));
        let page = render(&[run("a", "")], None, |key, value| (key, value) == ("model", "\"</script><b>\""));
        assert_eq!(data_of(&page)["runs"][0]["defaults"], serde_json::json!(["model"]));
    }

    /// The page must not load anything. The only URL is the SVG namespace, and references stay within the page.
    #[test]
    fn a_page_loads_no_external_resources() {
        let page =
            render(&[run("a", "")], None, |_, _| false).replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
        // Links within the page.
        let page = page.replace("href=\"#", "");
        for word in ["http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "{{"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn numbers_of_each_parameter_over_the_steps() {
        let line = |step: u64| {
            let tensor = |name: &str| {
                format!(
                    "{{\"name\":\"{name}\",\"elements\":4,\"gradient\":{{\"deviation\":{step}.5,\"mean\":null}},\"zero_codes\":0.25}}"
                )
            };
            format!("{{\"event\":\"layers\",\"step\":{step},\"tensors\":[{},{}]}}\n", tensor("a"), tensor("b"))
        };
        let log = Log::from_lines((line(10) + &line(20)).as_bytes()).unwrap();
        let data = layer_data(&log);
        assert_eq!(data["steps"], json!([10, 20]));
        assert_eq!(
            (&data["tensors"][1]["gradient_deviation"], &data["tensors"][1]["name"]),
            (&json!([10.5, 20.5]), &json!("b"))
        );
        assert_eq!(
            (&data["tensors"][0]["gradient_mean"], &data["tensors"][0]["zero_codes"]),
            (&json!([null, null]), &json!([0.25, 0.25]))
        );
        assert_eq!(layer_data(&Log::default()), Value::Null);
        let log = Log::from_lines((1..200).map(line).collect::<String>().replace("\"b\"", "\"a\"").as_bytes()).unwrap();
        assert_eq!(layer_data(&log)["steps"].as_array().unwrap().len(), 199);
    }

    #[test]
    fn thin_out_keeps_few_points_and_averages_many() {
        assert_eq!(thin_out([(1, 0.5), (3, f64::NAN)].into_iter(), 4), json!({"x": [1, 3], "y": [0.5, null]}));
        let many = thin_out((1..=9).map(|step| (step, step as f64)), 3);
        assert_eq!(many, json!({"x": [3, 6, 9], "y": [2.0, 5.0, 8.0], "lo": [1.0, 4.0, 7.0], "hi": [3.0, 6.0, 9.0]}));
        let holes = thin_out([(1, f64::NAN), (2, f64::NAN), (3, 1.0), (4, f64::INFINITY)].into_iter(), 2);
        assert_eq!(holes, json!({"x": [2, 4], "y": [null, 1.0], "lo": [null, 1.0], "hi": [null, 1.0]}));
        assert_eq!(thin_out([(1, f64::NAN)].into_iter(), 2), Value::Null);
    }
}
