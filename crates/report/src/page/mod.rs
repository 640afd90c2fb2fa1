//! report.html: one page with all that a run, or several side by side, left behind. It needs no network and no other file.

mod data;
mod layers;
mod series;

use loaders::overwrite::Content;
use serde_json::Value;

use super::history::Run;

const TEXT: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str =
    concat!(include_str!("page.js"), include_str!("evaluation.js"), include_str!("layers.js"), include_str!("main.js"));

/// Its name in the folder of a run.
pub const NAME: &str = "report.html";

/// A page: no other file is written over by one.
pub const PAGE: Content = Content { name: "a page of HTML", begins: |head| head.starts_with(b"<!DOCTYPE html>") };

/// Points of all curves of all runs together: more than a screen shows, and little enough for a page that opens at once.
const POINTS: usize = 16_000;

/// Returns the page of these runs. With `reload`, browsers load it again after so many seconds. `is_default` returns true for a key of a
/// recipe and its value as TOML if that is the default, which the page folds away.
pub fn render(runs: &[Run], reload: Option<u32>, is_default: fn(&str, &str) -> bool) -> String {
    let points = (POINTS / runs.len().max(1) / series::CURVES).max(100);
    let all: Vec<Value> = runs.iter().map(|run| data::of(run, points, is_default)).collect();
    let data = serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "runs": all });
    let names: Vec<String> = runs.iter().map(Run::name).collect();
    let refresh =
        reload.map(|seconds| format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">")).unwrap_or_default();
    // what comes from a run goes in last, so that nothing in it is taken for a place to fill
    let page = TEXT.replace("{{refresh}}", &refresh).replace("{{style}}", STYLE).replace("{{script}}", SCRIPT);
    let (head, tail) = page.split_once("{{data}}").unwrap_or((&page, ""));
    head.replace("{{title}}", &escaped(&names.join(", "))) + &inert(&data.to_string()) + tail
}

/// JSON that no HTML parser takes for markup, whatever the strings in it are.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
        let (changed, released, evaluation, unusable) = (SystemTime::now(), false, None, Vec::new());
        Run { folder: name.into(), log, recipe, changed, released, evaluation, unusable }
    }

    /// The JSON in a page.
    fn data_of(page: &str) -> Value {
        let from = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap().1;
        serde_json::from_str(from.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn the_numbers_are_those_of_the_log() {
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

    /// The last start may have had nothing to do but score.
    #[test]
    fn a_start_without_steps_has_the_rate_of_those_before() {
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

    /// Nothing in a run becomes markup.
    #[test]
    fn strings_stay_strings() {
        let page = render(&[run("<img src=x onerror=alert(1)>{{style}}", "")], None, |_, _| false);
        assert!(!page.contains("<img") && !page.contains("</script><b>"), "{page}");
        assert_eq!(data_of(&page)["runs"][0]["recipe"]["model"], "\"</script><b>\"");
        assert_eq!(data_of(&page)["runs"][0]["defaults"], serde_json::json!([]));
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains("<title>&lt;img"));
        let page = render(&[run("a", "")], None, |key, value| (key, value) == ("model", "\"</script><b>\""));
        assert_eq!(data_of(&page)["runs"][0]["defaults"], serde_json::json!(["model"]));
    }

    /// It loads nothing: no address but that of the namespace of SVG, no reference but into itself.
    #[test]
    fn a_page_stands_alone() {
        let page =
            render(&[run("a", "")], None, |_, _| false).replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
        // links within the page
        let page = page.replace("href=\"#", "");
        for word in ["http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "{{"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
