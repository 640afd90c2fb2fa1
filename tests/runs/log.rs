//! The log of a run: every line is as docs/metrics.schema.json says; pages, lists and comparisons are made from it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::images::DIGITS;
use crate::support::program::{events, run};
use crate::support::setting::Setting;
use crate::support::small_run::RECIPE;

/// What is wrong with a value by a schema of the keywords that the file uses; `None` if nothing is.
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_line_is_as_the_schema_says() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    setting.train("out", 2, &["--set", "optimizer.clip_norm=1", "--set", "reduce.codec=ternary"]).succeeded();
    setting
        .train("out", 1, &["--set", "optimizer.clip_norm=1", "--set", "reduce.codec=ternary", "--resume", "auto"])
        .succeeded();
    let (schema, text) = (schema(), fs::read_to_string(Path::new(&setting.out("out")).join("metrics.jsonl")).unwrap());
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(fault(&schema, &value), None, "{line}");
        assert!(value["t"].is_f64() && value["utc"].as_str().unwrap().ends_with('Z'), "{line}");
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

/// The JSON in a page.
fn data_of(page: &str) -> Value {
    let from = page.split_once("id=\"data\">").unwrap().1;
    serde_json::from_str(from.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_run_ends_with_a_page_and_runs_are_listed_and_compared() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    setting.train("out/a", 2, &[]).succeeded();
    setting.train("out/b", 0, &["--set", "schedule.base_lr=0.02", "--set", "log.report=false"]).succeeded();
    let [a, b, root] = ["out/a", "out/b", "out"].map(|name| setting.out(name));
    let page = fs::read_to_string(Path::new(&a).join("report.html")).unwrap();
    assert!(!Path::new(&b).join("report.html").exists(), "log.report = false");
    let data = data_of(&page);
    let losses: Vec<f64> = events(&a, "step").iter().map(|e| e["loss"].as_f64().unwrap()).collect();
    assert_eq!(data["runs"][0]["curves"]["loss"]["y"], serde_json::json!(losses));
    assert_eq!(data["runs"][0]["evals"][1]["top1"], events(&a, "eval")[1]["top1"]);

    let listed = run(0, &["runs", &root]).succeeded().stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(lines[1].starts_with("a ") && lines[1].contains("lenet-caffe") && lines[1].contains("done"), "{listed}");
    assert!(lines[1].ends_with(&setting.digest("out/a")), "{listed}");
    let objects = run(0, &["runs", &root, "--json"]).succeeded().stdout;
    let second: Value = serde_json::from_str(objects.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&second["state"], &second["recipe"]["schedule.base_lr"]), (&"done".into(), &"0.02".into()));

    let text = run(0, &["diff", &a, &b]).succeeded().stdout;
    for part in [
        "schedule.base_lr\n    a  0.01\n    b  0.02",
        "ranks\n    a  2\n    b  1",
        "losses: the same number before step 2",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(run(0, &["diff", &a, &a]).succeeded().stdout.contains("recipe: the same"));

    let both = Path::new(&root).join("both.html").display().to_string();
    let said = run(0, &["report", &a, &b, "-o", &both]).succeeded().stdout;
    assert_eq!(said.trim(), both);
    assert_eq!(data_of(&fs::read_to_string(&both).unwrap())["runs"].as_array().unwrap().len(), 2);
    run(0, &["report", &root]).failed(1, &["no metrics.jsonl in it", "name the folder that `trireme train` wrote"]);
    run(0, &["runs", &setting.out("nowhere")]).failed(1, &["cannot read", "nowhere"]);
}

/// Lines that were cut, foreign ones, losses that were no numbers: the page has the rest, and says so.
#[test]
fn what_a_log_lacks_is_said() {
    let setting = Setting::new(RECIPE, DIGITS, [48, 10]);
    let out = setting.out("out");
    fs::create_dir_all(&out).unwrap();
    let log = "{\"event\":\"start\",\"step\":0,\"last_step\":3,\"model\":\"<b>\"}\nnoise\n{\"event\":\"step\",\"step\":1,\"loss\":null}\n{\"eve";
    fs::write(Path::new(&out).join("metrics.jsonl"), log).unwrap();
    run(0, &["report", &out]).succeeded();
    let page = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    let read = &data_of(&page)["runs"][0];
    assert_eq!((&read["unread"]["lines"], &read["unread"]["first"]), (&2.into(), &2.into()));
    assert!(read["curves"]["loss"].is_null() && read["evals"].as_array().unwrap().is_empty() && !page.contains("<b>"));
    assert!(run(0, &["runs", &out]).succeeded().stdout.contains("step 1 of 3"));
}
