//! What a run on more than one rank reports about its ranks: times in metrics.jsonl, the slowest rank of an epoch, and
//! the trace. Also what benchmarks report: parallel regions per step, the roofline, and a forecast for more cores.

use std::collections::BTreeSet;

use backend::cpu::Cpu;
use serde_json::Value;

use support::images::THINGS;
use support::mentions;
use support::program::{PATIENCE, events, run, sets, start, trireme};
use support::setting::Setting;

const RECIPE: &str = r#"
model = "resnet20"
epochs = 2
batch = 16
workers = 4
schedule.base_lr = 0.01
augment.train = ["flip", "normalize"]
reduce.bucket_mb = 0.2
"#;

fn setting() -> Setting {
    Setting::new(RECIPE, THINGS, [80, 20])
}

fn train(setting: &Setting, name: &str, more: &[&str]) -> (String, String) {
    (setting.out(name), setting.train(name, 2, more).succeeded().stderr)
}

#[test]
fn every_step_logs_minimum_median_and_maximum_of_the_ranks() {
    let setting = setting();
    let (out, stderr) = train(&setting, "out", &[]);
    let steps = events(&out, "step");
    assert_eq!(steps.len(), 10);
    for line in &steps {
        for (ranks, most) in
            [("data_wait_ranks", Some("data_wait_ms")), ("comm_wait_ranks", Some("comm_wait_ms")), ("step_ranks", None)]
        {
            let of: Vec<f64> = line[ranks].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
            assert!(of.len() == 3 && of[0] <= of[1] && of[1] <= of[2], "{ranks} of {line}");
            assert!(most.is_none_or(|most| line[most] == line[ranks][2]), "{ranks} of {line}");
        }
        assert_eq!(line["step_ranks"][0].as_f64().unwrap() > 0.0, line["step"] != 1, "{line}");
    }
    assert_eq!(stderr.matches("slowest rank: ").count(), 2, "expected one line per epoch:\n{stderr}");
}

fn spans<'a>(trace: &'a Value, kind: &str, rank: u64) -> Vec<&'a Value> {
    let all = trace["traceEvents"].as_array().expect("a list of events");
    all.iter().filter(|e| e["ph"] == "X" && e["cat"] == kind && e["pid"] == rank).collect()
}

/// Checks that every lane of a rank has a name and contains events.
#[track_caller]
fn assert_lanes(trace: &Value, rank: u64) {
    let of = |wanted: &dyn Fn(&Value) -> bool| -> BTreeSet<u64> {
        let all = trace["traceEvents"].as_array().expect("a list of events").iter();
        all.filter(|e| e["pid"] == rank && wanted(e)).filter_map(|e| e["tid"].as_u64()).collect()
    };
    let (named, full) = (of(&|e| e["name"] == "thread_name"), of(&|e| e["ph"] == "X"));
    assert_eq!(named, full);
}

#[test]
fn the_trace_holds_all_ranks_and_every_part_of_the_first_steps() {
    let setting = setting();
    for (overlap, lane) in [("false", 0), ("true", 1)] {
        let file = setting.out(&format!("trace-{overlap}.json"));
        let sets = ["--set", &format!("reduce.overlap={overlap}"), "--set", "reduce.codec=exact"];
        let (_, stderr) = train(
            &setting,
            &format!("out-{overlap}"),
            &[&["--trace", &file, "--trace-steps", "3"], &sets[..]].concat(),
        );
        assert!(stderr.contains("trace: "), "{stderr}");
        let trace: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(trace["displayTimeUnit"], "ms");
        for rank in 0..2 {
            let count = |kind: &str| spans(&trace, kind, rank).len();
            let layers = |kind: &str| -> BTreeSet<String> {
                let names = spans(&trace, kind, rank);
                names.iter().map(|s| s["name"].as_str().unwrap().replace(&format!(" {kind}"), "")).collect()
            };
            let forward = layers("forward");
            assert!(forward.contains("conv1") && forward.contains("fc"), "{forward:?}");
            // two workers per rank and three steps make six passes
            assert_eq!(count("forward"), 6 * forward.len());
            assert_eq!(layers("backward"), forward);
            // if backward needs the output of a norm, it recomputes it, which is a separate event
            let norms = forward.iter().filter(|name| name.contains("bn")).count();
            let anew = count("backward") - count("forward");
            assert!(anew > 0 && anew <= 6 * norms && anew.is_multiple_of(6), "{anew} recomputations, {norms} norms");
            assert_eq!((count("data"), count("update"), count("eval"), count("files")), (6, 3, 2, 2));
            let loads = spans(&trace, "load", rank);
            assert!(loads.len() == 6 && loads.iter().all(|s| s["tid"].as_u64() >= Some(2)), "{loads:?}");
            assert_lanes(&trace, rank);
            let wire = spans(&trace, "wire", rank);
            assert!(wire.len() >= 3 && wire.len() == count("encode") && wire.len() == count("decode"));
            assert!(wire.iter().all(|s| s["tid"] == lane), "overlap {overlap}");
            for span in trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X") {
                let (ts, dur) = (span["ts"].as_f64().unwrap(), span["dur"].as_f64().unwrap());
                assert!((0.0..60e6).contains(&ts) && (0.0..60e6).contains(&dur), "{span}");
            }
        }
        // events of one thread do not overlap
        let mut lanes: Vec<(f64, f64)> = trace["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|e| {
                e["ph"] == "X" && e["pid"] == 0 && e["tid"] == 0 && (e["cat"] == "forward" || e["cat"] == "backward")
            })
            .map(|e| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap()))
            .collect();
        lanes.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(lanes.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0 + 1.0));
    }
}

#[test]
fn the_trace_of_a_resumed_run_has_its_first_steps() {
    let setting = setting();
    train(&setting, "out", &["--max-steps", "4"]);
    let file = setting.out("trace.json");
    let more = ["--resume", "auto", "--max-steps", "8", "--trace", &file, "--trace-steps", "2"];
    train(&setting, "out", &more);
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!([0, 1].map(|rank| spans(&trace, "update", rank).len()), [2, 2]);
}

fn bench(args: &[&str]) -> Vec<Value> {
    run(2, &[&["bench"], args].concat()).succeeded().json_lines()
}

#[test]
fn scaling_is_measured_on_the_ranks_there_are_and_forecast_for_others() {
    let more = ["--threads", "1", "--seconds", "0.2", "--link", "100Gb/s,2us", "--ranks", "8,64"];
    let lines = bench(&[&["scale", "--model", "lenet", "--batch", "8"], &more[..]].concat());
    let of = |key: &str| lines.iter().map(|line| line[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("ranks"), [1, 2, 8, 64]);
    assert_eq!(of("forecast"), [false, false, true, true]);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}"));
    assert!(
        lines.iter().all(|line| (&line["path"], &line["precision"]) == (&"host".into(), &"f32".into())),
        "{lines:?}"
    );
    let alone = number(&lines[0]["step_ms"]);
    for line in &lines[..2] {
        let (step, comm) = (number(&line["step_ms"]), number(&line["comm_ms"]));
        assert!(step > 0.0 && (0.0..step).contains(&comm), "{line}");
        assert!((number(&line["efficiency"]) / (alone / step) - 1.0).abs() < 1e-9, "{line}");
    }
    assert!(number(&lines[1]["allreduce_gb_per_s"]) > 0.0, "{}", lines[1]);
    // in the worst case of a forecast, a step takes at least as long as the computation that was measured on two ranks
    let here = number(&lines[1]["step_ms"]) - number(&lines[1]["comm_ms"]);
    for line in &lines[2..] {
        let [best, worst] = [0, 1].map(|end| number(&line["step_ms"][end]));
        assert!(alone <= best && best <= worst && here <= worst, "{line}");
        assert!(number(&line["efficiency"][1]) <= number(&line["efficiency"][0]), "{line}");
        assert!(line["assumes"][0].as_str().unwrap().starts_with("at best: "), "{line}");
    }
    // on 64 ranks, a ring sends 2 * 63/64 of all bytes at 12.5 GB/s, and each bucket adds 12 latencies
    let bytes = number(&lines[3]["gradient_bytes"]);
    let wire = 2.0 * 63.0 / 64.0 * bytes / 12.5e9 * 1e3;
    let latencies = (number(&lines[3]["comm_ms"][0]) - wire) / (12.0 * 2e-3);
    assert!((latencies - latencies.round()).abs() < 1e-6 && latencies >= 1.0, "{}", lines[3]);
}

#[test]
fn reductions_are_compared_with_plain_ones_for_every_codec() {
    for (codec, bytes) in [("float", 40_000), ("exact", 40_000 + 8), ("ternary", 2 * (8 * 239 + 4))] {
        let lines = bench(&["allreduce", "--sizes", "40000", "--bucket", "20000", "--codec", codec]);
        let [line] = lines.as_slice() else { panic!("expected one line, got {lines:?}") };
        assert_eq!((&line["codec"], &line["bytes"], &line["bucket"]), (&codec.into(), &40_000.into(), &20_000.into()));
        assert_eq!(line["wire_bytes"], bytes, "{line}");
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("no {key} in {line}"));
        assert!((number("of_plain") - number("plain_ms") / number("ms")).abs() < 1e-9, "{line}");
        for key in ["gb_per_s", "queued_gb_per_s", "plain_gb_per_s", "wire_ms"] {
            assert!(number(key) > 0.0, "{key} of {line}");
        }
        assert!(number("encode_ms") >= 0.0 && number("decode_ms") >= 0.0);
    }
    run(0, &["bench", "allreduce", "--codec", "morse"]).failed(2, &["codec \"morse\"", "ternary"]);
}

#[test]
fn benchmarks_warn_about_bound_cores() {
    let scale = ["bench", "scale", "--model", "lenet", "--batch", "2", "--threads", "1", "--seconds", "0.05"];
    for args in [&["bench", "allreduce", "--sizes", "4K"][..], &scale] {
        let mut command = trireme(2, args);
        command.env("OMP_PROC_BIND", "close");
        start(command).wait(PATIENCE).succeeded().says(&["warning: ", "OMP_PROC_BIND=close"]);
    }
}

#[test]
fn settings_without_effect_cause_a_warning() {
    let setting = setting();
    let set = sets(&["schedule.kind=step", "schedule.milestones=[82, 123]", "batch=32"]);
    for more in [&["--dry-run"][..], &["--max-steps", "1"]] {
        let (_, stderr) = train(&setting, "out", &[&set[..], more].concat());
        for parts in [
            ["warning: ", "epoch 82, 123", "2 epochs", "schedule.milestones=[1.00, 1.50]"],
            ["warning: ", "batch = 32", "third", "80 training images"],
        ] {
            let named = |line: &&str| parts.iter().all(|part| line.contains(part));
            assert_eq!(stderr.lines().filter(named).count(), 1, "{parts:?} in\n{stderr}");
        }
    }
}

/// `--dry-run` counts rank 0's memory for checkpoints: a copy of parameters, slots and averages, and the same again
/// while a file is written. Error feedback also needs memory for its residuals during the write.
#[test]
fn dry_runs_count_the_memory_for_checkpoints() {
    let setting = setting();
    let momentum = "optimizer.momentum=0.9";
    let feedback = ["reduce.codec=ternary", "reduce.error_feedback=true"];
    for (keys, copies, residuals) in [
        (vec![momentum], 2.0, 0.0),
        (vec![momentum, "ema.decay=0.9"], 3.0, 0.0),
        (vec!["optimizer.kind=adam"], 3.0, 0.0),
        ([&[momentum][..], &feedback].concat(), 2.0, 4.0),
    ] {
        let plan = setting.train("out", 0, &[&sets(&keys)[..], &["--dry-run"]].concat()).succeeded().stdout;
        let row = |what: &str| -> f64 {
            let line = plan.lines().find(|line| line.starts_with(what));
            let line = line.unwrap_or_else(|| panic!("no {what} in:\n{plan}"));
            line.split_whitespace().last().and_then(|mb| mb.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        };
        let parameters = row("parameters, ");
        for (what, times) in
            [("copy for checkpoints (rank 0)", copies), ("checkpoint being written (rank 0)", copies + residuals)]
        {
            let (found, expected) = (row(what), times * parameters);
            // each number is rounded to 0.1 MB
            assert!((found - expected).abs() < 0.06 * (1.0 + times), "{keys:?}: {what} {found}, expected {expected}");
        }
    }
    let elastic = [&sets(&["sync=easgd(2, 0.4)", "workers=2"])[..], &["--dry-run"]].concat();
    let plan = setting.train("out", 2, &elastic).succeeded().stdout;
    for what in ["centre and distance (easgd)", "copy of the weights for scoring"] {
        assert!(plan.contains(what), "no {what} in:\n{plan}");
    }
}

/// Runs the benchmark on two threads and returns its JSON line and stderr.
fn step(args: &[&str]) -> (Value, String) {
    let all = ["bench", "step", "--device", "cpu", "--threads", "2", "--seconds", "0.1"];
    let ended = run(0, &[&all[..], args].concat()).succeeded();
    (ended.json(), ended.stderr)
}

/// Limits the number of barriers per step for each network, with AVX2 and AVX-512. Barriers are expensive on many cores.
#[test]
fn barriers_of_a_step_are_limited() {
    for (model, most) in [("lenet", 32), ("resnet20", 186), ("resnet50", 411)] {
        let (line, _) = step(&["--model", model, "--batch", "4"]);
        let [all, own] = ["regions", "regions_own"].map(|key| line[key].as_u64().expect("a count"));
        assert!(0 < own && own < all, "{line}");
        assert!(all <= most, "{model}: a step has {all} parallel regions, expected at most {most}");
        assert!(line["barrier_us"].as_f64().is_some_and(|us| us > 0.0), "{line}");
    }
}

#[test]
fn layers_have_a_roofline_and_more_cores_a_forecast() {
    let args = ["--model", "lenet", "--batch", "8", "--profile", "--roofline", "--cores", "64", "--bandwidth", "100"];
    let (line, text) = step(&args);
    let number =
        |value: &Value| value.as_f64().filter(|x| x.is_finite() && *x > 0.0).unwrap_or_else(|| panic!("{line}"));
    let roofline = &line["roofline"];
    for key in ["gflops_per_thread", "gb_per_s", "gb_per_s_one_thread", "of_roof"] {
        number(&roofline[key]);
    }
    let layers = roofline["layers"].as_array().expect("layers");
    assert!(layers.iter().any(|layer| layer["layer"] == "conv1"), "{line}");
    assert!(layers.iter().all(|layer| number(&layer["ms"]) > 0.0 && number(&layer["of_roof"]) > 0.0), "{line}");
    let own: f64 = layers.iter().map(|layer| layer["regions"].as_f64().expect("regions")).sum();
    assert!(own > 0.0 && own <= number(&line["regions"]), "{line}");
    let forecast = &line["forecast"];
    let [best, worst] = [0, 1].map(|end| number(&forecast["step_ms"][end]));
    assert!(forecast["forecast"] == true && forecast["cores"] == 64 && best < worst, "{line}");
    assert_eq!(forecast["gb_per_s"][0], 100.0);
    mentions(&text, &["not measured", "64 cores"]);
    assert!(text.contains("regions") && text.contains("GFLOP/s"), "{text}");
    // these requests are refused before anything is measured
    for (threads, cores, why) in [("1", "64", "--threads 2"), ("2", "2", "2 measured threads")] {
        let bench = ["bench", "step", "--device", "cpu", "--model", "lenet", "--roofline", "--seconds", "0.1"];
        let ended = run(0, &[&bench[..], &["--threads", threads, "--cores", cores]].concat());
        assert!(!ended.stderr.contains("GFLOP/s"), "{}", ended.stderr);
        ended.failed(2, &[&format!("--cores {cores}"), why]);
    }
}

/// In bf16, tensors between convolutions and batch norms take half the bytes that they take in f32. The test turns AMX off,
/// because with AMX convolutions read and write f32 tensors.
#[test]
fn bytes_of_a_layer_match_its_tensors_in_memory() {
    if let Err(why) = Cpu::bf16() {
        return support::skip(&why.to_string());
    }
    let megabytes = |precision: &str| {
        let all = ["bench", "step", "--device", "cpu", "--threads", "2", "--seconds", "0.1"];
        let more = ["--model", "resnet20", "--batch", "8", "--roofline", "--precision", precision];
        let mut command = trireme(0, &[&all[..], &more].concat());
        command.env("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16");
        let line = start(command).wait(PATIENCE).succeeded().json();
        let layers = line["roofline"]["layers"].as_array().expect("layers");
        let norm = layers.iter().find(|layer| layer["layer"] == "layer1.0.bn1").expect("the layer");
        norm["mb"].as_f64().expect("a number")
    };
    let share = megabytes("bf16") / megabytes("f32");
    assert!((0.49..0.52).contains(&share), "bf16 moves {share} times the bytes of f32");
}
