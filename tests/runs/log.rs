//! The log of a run. Every line matches docs/metrics.schema.json, and reports, lists and comparisons are made from it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use support::blobs;
use support::images::{DIGITS, Images};
use support::in_repository;
use support::program::{events, events_without_times, run};
use support::setting::Setting;
use support::small_run::RECIPE;

/// Checks a value against a schema with the keywords that the file uses. Returns what is wrong, or `None`.
fn fault(schema: &Value, value: &Value) -> Option<String> {
    if let Some(ways) = schema["oneOf"].as_array() {
        let fitting = ways.iter().filter(|way| fault(way, value).is_none()).count();
        let why = || ways.iter().find(|way| way["title"] == value["event"]).and_then(|way| fault(way, value));
        return (fitting != 1).then(|| why().unwrap_or(format!("{fitting} events fit")));
    }
    if let Some(wanted) = schema.get("const") {
        return (wanted != value).then(|| format!("{value} is not {wanted}"));
    }
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("the schema has a type {other}"),
    };
    let fits = match &schema["type"] {
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        name => is(name.as_str().unwrap()),
    };
    if !fits {
        return Some(format!("{value} is not {}", schema["type"]));
    }
    let missing =
        schema["required"].as_array().into_iter().flatten().find(|key| value.get(key.as_str().unwrap()).is_none());
    if let Some(key) = missing {
        return Some(format!("{key} is missing"));
    }
    let items = value.as_array().into_iter().flatten().find_map(|item| fault(&schema["items"], item));
    let members = value.as_object().into_iter().flatten().find_map(|(key, member)| {
        let own = schema["properties"].get(key).or(schema.get("additionalProperties"));
        own.map_or_else(
            || Some(format!("{key} is not in the schema")),
            |own| fault(own, member).map(|why| format!("{key}: {why}")),
        )
    });
    items.or(members)
}

fn schema() -> Value {
    let path = in_repository("docs/metrics.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_line_is_as_the_schema_says() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    let changes = ["--set", "optimizer.clip_norm=1", "--set", "reduce.codec=ternary", "--set", "log.histograms=5"];
    setting.train("out", 2, &changes).succeeded();
    setting.train("out", 1, &[&changes, ["--resume", "auto"].as_slice()].concat()).succeeded();
    let several = Setting::with(RECIPE, |dir| Images::several(dir, DIGITS, 24, 10));
    several.trained("out", 0, &["--set", "loss.kind=bce", "--max-steps", "2"]);
    let numbers = Setting::with(RECIPE, |dir| blobs::images(dir, DIGITS, [24, 10]));
    numbers.trained("out", 0, &["--set", "loss.kind=mse", "--max-steps", "2"]);
    let schema = schema();
    for setting in [&setting, &several, &numbers] {
        for line in fs::read_to_string(setting.out("out/metrics.jsonl")).unwrap().lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!(fault(&schema, &value), None, "{line}");
            assert!(value["t"].is_f64() && value["utc"].as_str().unwrap().ends_with('Z'), "{line}");
        }
    }
    for wrong in [
        r#"{"event":"step","step":1}"#,
        r#"{"event":"weather"}"#,
        r#"{"event":"eval","step":1,"epoch":1,"split":3,"top1":1,"top5":1,"loss":1,"count":1}"#,
        r#"{"event":"eval","step":1,"epoch":1,"split":"a","top1":1,"top5":1,"loss":1,"count":1,"mood":1}"#,
    ] {
        assert!(fault(&schema, &serde_json::from_str(wrong).unwrap()).is_some(), "{wrong}");
    }
}

/// Returns the `layers` events without their times.
fn layers(out: &str) -> Vec<Value> {
    events_without_times(out, "layers")
}

/// Layer statistics are logged every few steps, cover the gradients of all ranks, and are equal on any number of ranks.
#[test]
fn layer_statistics_are_the_same_on_any_number_of_ranks() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    for codec in ["exact", "ternary"] {
        let codes = format!("reduce.codec={codec}");
        let changes = ["--set", &codes, "--set", "log.histograms=4", "--set", "workers=3"];
        let found: Vec<Vec<Value>> =
            [0, 2, 3].map(|ranks| layers(&setting.trained(&format!("{codec}-{ranks}"), ranks, &changes))).into();
        assert_eq!((&found[0], &found[0]), (&found[1], &found[2]), "{codec}");
        let steps: Vec<&Value> = found[0].iter().map(|line| &line["step"]).collect();
        assert_eq!(steps, [4, 8, 12]);
        let tensors = found[0][1]["tensors"].as_array().unwrap();
        // lenet-caffe has two convolutions and two linear layers, each with a weight and a bias
        assert_eq!(tensors.len(), 8, "{tensors:?}");
        for tensor in tensors {
            assert!(tensor["gradient"]["deviation"].as_f64().unwrap() > 0.0, "{tensor}");
            let small = tensor["elements"].as_u64().unwrap() < 432;
            let last = tensor["elements"] == 5000;
            let coded = codec == "ternary" && !small && !last;
            assert_eq!(
                tensor["zero_codes"].as_f64().is_some_and(|share| share > 0.2 && share < 1.0),
                coded,
                "{tensor}"
            );
        }
    }
    // measuring does not change the results
    let without = setting.trained("without", 2, &["--set", "reduce.codec=exact", "--set", "workers=3"]);
    assert_eq!(setting.digest("without"), setting.digest("exact-2"));
    assert!(layers(&without).is_empty());
    let data = data_of(&page_of(&setting.out("ternary-2")));
    let shown = &data["runs"][0]["layers"];
    let first = &layers(&setting.out("ternary-2"))[0]["tensors"][2];
    assert_eq!((&shown["steps"], &shown["tensors"][2]["name"]), (&serde_json::json!([4, 8, 12]), &first["name"]));
    assert_eq!(shown["tensors"][2]["gradient_deviation"][0], first["gradient"]["deviation"]);
    let local = ["--set", "sync=local(2)", "--set", "log.histograms=4"];
    setting.train("local", 2, &local).failed(2, &["log.histograms", "own gradients", "sync = \"allreduce\""]);
}

pub fn page_of(out: &str) -> String {
    fs::read_to_string(Path::new(out).join("report.html")).unwrap()
}

pub fn data_of(page: &str) -> Value {
    let from = page.split_once("id=\"data\">").unwrap().1;
    serde_json::from_str(from.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_run_ends_with_a_page_and_runs_are_listed_and_compared() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    setting.train("out/a", 2, &[]).succeeded();
    setting.train("out/b", 0, &["--set", "schedule.base_lr=0.02", "--set", "log.report=false"]).succeeded();
    let [a, b, root] = ["out/a", "out/b", "out"].map(|name| setting.out(name));
    let page = page_of(&a);
    assert!(!Path::new(&b).join("report.html").exists(), "log.report = false");
    let data = data_of(&page);
    assert_eq!(data["runs"][0]["curves"]["loss"]["y"], serde_json::json!(setting.losses("out/a")));
    assert_eq!(data["runs"][0]["evals"][1]["top1"], events(&a, "eval")[1]["top1"]);

    let listed = run(0, &["runs", &root]).succeeded().stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(lines[1].starts_with("a ") && lines[1].contains("lenet-caffe") && lines[1].contains("done"), "{listed}");
    assert!(lines[1].ends_with(&setting.digest("out/a")), "{listed}");
    let second = &run(0, &["runs", &root, "--json"]).succeeded().json_lines()[1];
    assert_eq!((&second["state"], &second["recipe"]["schedule.base_lr"]), (&"done".into(), &"0.02".into()));

    let text = run(0, &["diff", &a, &b]).succeeded().stdout;
    for part in ["schedule.base_lr\n    a  0.01\n    b  0.02", "ranks\n    a  2\n    b  1", "identical before step 2"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(run(0, &["diff", &a, &a]).succeeded().stdout.contains("recipe: the same"));

    let both = Path::new(&root).join("both.html").display().to_string();
    let said = run(0, &["report", &a, &b, "-o", &both]).succeeded().stdout;
    assert_eq!(said.trim(), both);
    assert_eq!(data_of(&fs::read_to_string(&both).unwrap())["runs"].as_array().unwrap().len(), 2);
    run(0, &["report", &root]).failed(1, &[&root, "no metrics.jsonl", "output folder"]);
    run(0, &["runs", &setting.out("nowhere")]).failed(1, &["cannot read", "nowhere", "your runs"]);
    // under mpirun, a command that does not use ranks runs completely on each rank and prints a warning
    let warning = |ranks| run(ranks, &["runs", &root]).succeeded().stderr.matches("warning: `trireme runs`").count();
    assert_eq!([warning(0), warning(1), warning(2)], [0, 0, 1]);
}

/// If a log has truncated lines, foreign lines or losses that are not numbers, the commands show the rest and report
/// what they could not read.
#[test]
fn missing_parts_of_a_log_are_reported() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    let out = setting.out("out");
    fs::create_dir_all(&out).unwrap();
    let start = "{\"event\":\"start\",\"step\":0,\"last_step\":3,\"model\":\"<b>\"}";
    let log = format!("{start}\nnoise\n{{\"event\":\"step\",\"step\":1,\"loss\":null}}\n{{\"eve");
    fs::write(Path::new(&out).join("metrics.jsonl"), log).unwrap();
    fs::write(Path::new(&out).join("recipe.toml"), "epochs = = 3").unwrap();
    for args in [&["report", &out][..], &["runs", &out], &["diff", &out, &out]] {
        let said = run(0, args).succeeded().stderr;
        for parts in [["metrics.jsonl", "2 lines", "line 2"], ["recipe.toml", "not valid", "TOML"]] {
            let named = |line: &str| parts.iter().all(|part| line.contains(part));
            assert!(said.lines().any(named), "{parts:?} for {args:?} in: {said}");
        }
    }
    fs::remove_file(Path::new(&out).join("recipe.toml")).unwrap();
    // the page also reports a truncated evaluation.json
    fs::write(Path::new(&out).join("evaluation.json"), "{\"version\":1,").unwrap();
    run(0, &["report", &out]).succeeded();
    let page = page_of(&out);
    let read = &data_of(&page)["runs"][0];
    assert!(read["unusable"][0].as_str().unwrap().starts_with("evaluation.json: EOF"), "{}", read["unusable"]);
    assert_eq!((&read["unread"]["lines"], &read["unread"]["first"]), (&2.into(), &2.into()));
    assert!(read["curves"]["loss"].is_null() && read["evals"].as_array().unwrap().is_empty() && !page.contains("<b>"));
    assert!(run(0, &["runs", &out]).succeeded().stdout.contains("step 1 of 3"));
}

/// Tests class names with markup, quotes, scripts or text direction marks, a thousand classes, and runs with different classes.
#[test]
fn a_page_accepts_any_class_names() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    let evil = ["<img src=x onerror=alert(1)>", "</script><script>", "a\"b'c&amp;", "\u{5d0}\u{5d1}\u{202e}", ""];
    let many: Vec<String> = (0..1000).map(|class| format!("class {class}")).collect();
    let write = |name: &str, classes: &[String]| {
        let out = setting.out(name);
        fs::create_dir_all(&out).unwrap();
        let ones = vec![1u64; classes.len()];
        let cells: Vec<[usize; 3]> = (0..classes.len()).map(|class| [class, (class + 1) % classes.len(), 1]).collect();
        let found = serde_json::json!({
            "version": 1, "step": 3, "epoch": 1, "split": "test", "classes": classes, "images": ones, "predicted": ones,
            "right": vec![0; classes.len()], "macro_f1": 0.0, "ece": null, "calibration": [], "confusion": cells,
            "confusion_left_out": 0, "mistakes": classes.len(), "worst": [], "augmented": [],
        });
        fs::write(Path::new(&out).join("evaluation.json"), found.to_string()).unwrap();
        fs::write(Path::new(&out).join("metrics.jsonl"), "{\"event\":\"start\",\"step\":3,\"last_step\":3}\n").unwrap();
        (out, found)
    };
    let (one, found) = write("evil", &evil.map(String::from));
    let (two, others) = write("many", &many);
    let both = setting.out("both.html");
    run(0, &["report", &one, &two, "-o", &both]).succeeded();
    let page = fs::read_to_string(&both).unwrap();
    let runs = &data_of(&page)["runs"];
    assert_eq!((&runs[0]["evaluation"], &runs[1]["evaluation"]), (&found, &others));
    assert!(!page.contains("<img") && page.matches("</script>").count() == 2 && page.len() < 400_000);
    // evaluation.json is of a later step than the log, so the step was undone and the page ignores the evaluation
    let log = Path::new(&one).join("metrics.jsonl");
    fs::write(&log, "{\"event\":\"start\",\"step\":2,\"last_step\":3}\n").unwrap();
    run(0, &["report", &one]).succeeded();
    let page = page_of(&one);
    assert!(data_of(&page)["runs"][0]["evaluation"].is_null());
}
