//! `bench step`: the number of parallel regions per step, the roofline, and the forecast for more cores.

use backend::cpu::Cpu;
use serde_json::Value;

use support::mentions;
use support::program::{PATIENCE, run, start, trireme};

/// Runs the benchmark on two threads and returns its JSON line and stderr.
fn step(args: &[&str]) -> (Value, String) {
    let all = ["bench", "step", "--device", "cpu", "--threads", "2", "--seconds", "0.1"];
    let ended = run(0, &[&all[..], args].concat()).succeeded();
    (ended.json(), ended.stderr)
}

/// Limits the number of barriers per step for each network, with AVX2 and AVX-512. Barriers are expensive on many
/// cores.
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
