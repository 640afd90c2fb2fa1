//! The transports of images and gradients to and from a GPU that ranks share. The results do not depend on the
//! transport or on where the run was stopped.

use support::gpu::PATIENCE;
use support::program::{ProgramOutput, events, start, trireme};
use support::setting::Setting;
use support::{emulator, gpu, mentions, program};

fn setting() -> Setting {
    gpu::resnet("[reduce]\ncodec = \"exact\"\nbucket_mb = 0.2\n\n[checkpoint]\nevery = \"2 steps\"\n", [26, 8])
}

const NESTEROV: [&str; 2] = ["--set", "optimizer.nesterov=true"];

/// Trains with [`NESTEROV`] on ranks that share the GPU and returns the results' digest.
#[track_caller]
fn digest(setting: &Setting, out: &str, ranks: usize, more: &[&str]) -> String {
    gpu::train(setting, out, ranks, &[&["--share-gpu"], &NESTEROV[..], more].concat(), &[]).succeeded();
    setting.digest(out)
}

#[test]
fn ranks_stops_and_transports_change_nothing_on_a_gpu() {
    let setting = setting();
    let one = digest(&setting, "one", 1, &[]);
    for (out, ranks, more) in [
        ("two", 2, &[][..]),
        ("four", 4, &[]),
        ("kept", 2, &["--set", "loader.cache=device"]),
        ("staged", 2, &["--set", "reduce.path=staged", "--set", "reduce.overlap=false"]),
    ] {
        assert_eq!(digest(&setting, out, ranks, more), one, "{out}");
    }
    digest(&setting, "parts", 2, &["--max-steps", "2"]);
    assert_eq!(digest(&setting, "parts", 1, &["--resume", "auto"]), one, "resumed");
    // a resumed run continues with the loss scale of the checkpoint
    let half = ["--set", "precision=f16"];
    let whole = digest(&setting, "f16", 1, &half);
    digest(&setting, "f16 parts", 1, &[&half[..], &["--max-steps", "2"]].concat());
    assert_eq!(digest(&setting, "f16 parts", 2, &[&half[..], &["--resume", "auto"]].concat()), whole, "f16, resumed");
}

/// With two ranks there is only one order of addition, so the results do not depend on MPI's choice of algorithm.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn sums_in_gpu_memory_are_those_on_the_host() {
    let setting = setting();
    let float = ["--set", "reduce.codec=float", "--max-steps", "2", "--share-gpu", "--set"];
    // the host can access the memory of this GPU, as a CUDA-aware MPI requires
    let unified = [("TRIREME_EMULATED_UNIFIED", "1")];
    let train = |out: &str, path: &str| {
        let ended = gpu::train(&setting, out, 2, &[&float[..], &[path]].concat(), &unified).succeeded();
        (setting.digest(out), ended.stderr)
    };
    let (staged, _) = train("staged", "reduce.path=staged");
    let (aware, said) = train("aware", "reduce.path=cuda-aware");
    assert_eq!(aware, staged);
    assert!(said.contains("cuda-aware") && said.contains("sums are right"), "{said}");
    assert!(!program::files(&setting.folder.at("aware")).iter().any(|file| file.contains("trial")));
}

/// Gradients that the GPU encodes equal gradients that the host encodes, so the choice does not change the results. The
/// log says which device encodes.
#[test]
fn gpu_codes_match_the_host() {
    let setting = setting();
    let fed_back = "reduce.error_feedback=true";
    for (codec, more) in [
        ("exact", ""),
        ("int8", ""),
        ("bf16", ""),
        ("bf16", fed_back),
        ("ternary", "reduce.clip=0"),
        ("ternary", ""),
        ("ternary", fed_back),
    ] {
        let set = format!("reduce.codec={codec}");
        let own = if more.is_empty() { vec![] } else { vec!["--set", more] };
        let train = |name: &str, path: &str| {
            let shared = ["--share-gpu", "--max-steps", "3", "--set", &set, "--set", path];
            let out = format!("{codec} {more} {name}");
            let ended = gpu::train(&setting, &out, 2, &[&shared, &own[..]].concat(), &[]).succeeded();
            (setting.digest(&out), ended.stderr)
        };
        let (staged, said) = train("staged", "reduce.path=staged");
        mentions(said, &["staged: the host ", &format!("gradients with {codec}")]);
        let (coded, said) = train("coded", "reduce.path=auto");
        assert_eq!(coded, staged, "{codec} {more}");
        mentions(said, &["coded: ", &format!("encodes gradients with {codec}")]);
    }
}

#[test]
fn dry_runs_count_codes_where_they_are_made() {
    let setting = setting();
    let planned = |what: &str, more: &[&str]| {
        let printed = gpu::train(&setting, "out", 1, &[&["--dry-run"], more].concat(), &[]).succeeded().stdout;
        let row = printed.lines().find(|line| line.starts_with(what))?;
        Some(row.split_whitespace().last().and_then(|mb| mb.parse::<f64>().ok()).expect("a number"))
    };
    let codec = |path: &str, more: &[&str]| {
        let path = format!("reduce.path={path}");
        planned("codec, including residuals", &[&["--set", &path], more].concat())
    };
    // on the host, integers replace the gradients in place; otherwise each element has one integer on the GPU and one in the buffer for MPI
    let elements = planned("parameters", &[]).expect("a row of parameters");
    assert_eq!(codec("staged", &[]), None);
    let coded = codec("auto", &[]).expect("a row of codes");
    assert!((2.0 * elements..2.1 * elements).contains(&coded), "codes take {coded} MB for parameters of {elements} MB");
    // rank 0 copies the parameters and the momentum in GPU memory, and again into the file in host memory
    for what in ["copy for checkpoints (rank 0)", "checkpoint being written (rank 0)"] {
        let copy = planned(what, &[]).expect("a row for checkpoints");
        assert!((copy - 2.0 * elements).abs() < 0.2, "{what}: {copy} MB for parameters of {elements} MB");
    }
    // the residuals of four workers take four times the parameters, the encoded gradients almost nothing
    let fed_back = ["--set", "reduce.codec=ternary", "--set", "reduce.error_feedback=true"];
    for path in ["staged", "auto"] {
        let both = codec(path, &fed_back).expect("a row of codes and residuals");
        assert!(
            (4.0 * elements..5.0 * elements).contains(&both),
            "{path}: codes and residuals take {both} MB for parameters of {elements} MB"
        );
    }
}

/// The residuals of error feedback survive a stop, on any number of ranks, and whether GPU or host encodes.
#[test]
fn residuals_survive_a_resume_on_other_ranks_and_transports() {
    let setting = setting();
    let sets = ["--set", "reduce.codec=ternary", "--set", "reduce.error_feedback=true", "--set"];
    let train = |out: &str, ranks, path: &str, more: &[&str]| {
        digest(&setting, out, ranks, &[&sets[..], &[path], more].concat())
    };
    let (coded, staged) = ("reduce.path=auto", "reduce.path=staged");
    let whole = train("whole", 1, coded, &[]);
    for (out, ranks, first, then) in
        [("fewer", [3, 1], coded, coded), ("more", [1, 4], coded, staged), ("back", [2, 2], staged, coded)]
    {
        train(out, ranks[0], first, &["--max-steps", "2"]);
        assert_eq!(train(out, ranks[1], then, &["--resume", "auto"]), whole, "{out}");
    }
    // a CPU stores residuals in another layout and can continue from the same checkpoint
    train("processor", 2, coded, &["--max-steps", "2"]);
    let on_cpu = [&["--device", "cpu", "--resume", "auto"], &NESTEROV[..], &sets[..4]].concat();
    let on_cpu = setting.command("processor", 1, &on_cpu);
    start(on_cpu).wait(PATIENCE).succeeded();
    assert_eq!(events(&setting.folder.at("processor"), "step").len(), 4);
}

/// Returns the variable that preloads a library which claims that MPI is CUDA-aware. The claim is true only if the host
/// can access the GPU's memory.
fn liar() -> (&'static str, String) {
    let library = emulator::folder().join("libliar.so");
    ("LD_PRELOAD", library.display().to_string())
}

/// The program tests MPI's claim with a sum in device memory. Because the claim is false, a signal kills the program. A
/// file in the output folder remains and prevents the same test in later starts.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn device_memory_is_not_tested_again_after_a_crash() {
    let setting = setting();
    let float = ["--set", "reduce.codec=float", "--max-steps", "2", "--share-gpu"];
    let (name, library) = liar();
    let lies = [(name, library.as_str())];
    let ended = gpu::train(&setting, "out", 2, &float, &lies);
    assert!(!ended.status.success() && ended.stderr.contains("touched device memory"), "{}", ended.stderr);
    let left = |out: &str| program::files(&setting.folder.at(out)).iter().any(|f| f.ends_with(".cuda-aware-trial"));
    assert!(left("out"), "the failed trial left no file");
    // a second start with the same MPI does not try again
    let resume = [&float[..], &["--resume", "auto"]].concat();
    let again = gpu::train(&setting, "out", 2, &resume, &lies).succeeded();
    let path = line(&again, "path ");
    mentions(path, &["staged", "no cuda-aware: ", "earlier start", ".cuda-aware-trial"]);
    assert!(left("out"), "the file of the trial must remain, or the next start would try again");
    assert_eq!(setting.digest("out"), {
        gpu::train(&setting, "honest", 2, &float, &[]).succeeded();
        setting.digest("honest")
    });
    // now the library claims to accept device memory, and the claim is true
    let honest = gpu::train(&setting, "true", 2, &float, &[lies[0], ("TRIREME_EMULATED_UNIFIED", "1")]).succeeded();
    mentions(line(&honest, "path "), &["MPIX_Query_cuda_support", "sums are right"]);
    assert!(!left("true"));
}

#[track_caller]
fn line<'a>(ended: &'a ProgramOutput, begin: &str) -> &'a str {
    let said = ended.stderr.lines().find(|line| line.starts_with(begin));
    said.unwrap_or_else(|| panic!("no line {begin:?} in\n{}", ended.stderr))
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn unavailable_transports_are_reported() {
    let setting = setting();
    let float = ["--set", "reduce.codec=float", "--max-steps", "1", "--share-gpu"];
    // the program decides this without NCCL, which would refuse only after the ranks have met
    let auto = gpu::train(&setting, "auto", 2, &float, &[]).succeeded();
    let path = line(&auto, "path ");
    mentions(path, &["staged", "no cuda-aware: ", "no nccl: ", "share a GPU"]);
    assert!(!auto.stderr.contains("Duplicate GPU"), "NCCL was tried:\n{}", auto.stderr);
    let nccl = [&float[..], &["--set", "reduce.path=nccl"]].concat();
    gpu::train(&setting, "nccl", 2, &nccl, &[]).failed(1, &["reduce.path = \"nccl\"", "share a GPU"]);
    let codes = ["--max-steps", "1", "--share-gpu", "--set", "reduce.path=cuda-aware"];
    gpu::train(&setting, "codes", 2, &codes, &[])
        .failed(2, &["reduce.path = \"cuda-aware\"", "reduce.codec = \"exact\""]);
    let mut cpu = trireme(2, &["train", &setting.recipe, "--data", &setting.data, "--device", "cpu"]);
    cpu.args(["--out", &setting.folder.at("cpu"), "--set", "reduce.codec=float", "--set", "reduce.path=nccl"]);
    start(cpu).wait(PATIENCE).failed(2, &["reduce.path = \"nccl\"", "GPUs", "--device cuda"]);
}

/// Runs two ranks with a GPU each. The second rank finds a damaged NCCL library.
fn one_without_nccl(setting: &Setting, out: &str, more: &[&str]) -> ProgramOutput {
    let damaged = setting.folder.at("libnccl.so.2");
    emulator::empty_library(damaged.as_ref());
    let lines = [
        "#!/bin/sh".to_string(),
        format!("[ \"${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}\" = 0 ] || export LD_PRELOAD='{damaged}'"),
        format!("exec '{}' \"$@\"", env!("CARGO_BIN_EXE_trireme")),
    ];
    let script = setting.folder.write("trireme.sh", lines.join("\n"));
    let mut command = program::on_ranks(2, "sh");
    command.args([&script, "train", "-v", &setting.recipe, "--data", &setting.data, "--device", "cuda"]);
    command.args(["--out", &setting.folder.at(out), "--max-steps", "1", "--set", "reduce.codec=float"]);
    command.args(more).env("TRIREME_EMULATED_DEVICES", "2");
    gpu::run(command)
}

/// A rank that joined NCCL would wait forever for a rank that cannot join. Therefore no rank joins, and the log has the
/// message of the rank that cannot join.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn ranks_join_nccl_only_if_all_can() {
    let setting = setting();
    let auto = one_without_nccl(&setting, "auto", &[]).succeeded();
    let path = line(&auto, "path ");
    let reason = ["rank 1: ", "lacks a function", "NCCL 2.14"];
    mentions(path, &[&reason[..], &["staged", "no nccl: "]].concat());
    let ended = one_without_nccl(&setting, "nccl", &["--set", "reduce.path=nccl"]);
    ended.failed(1, &[&reason[..], &["reduce.path = \"nccl\""]].concat());
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn doctor_tests_device_memory_in_a_separate_job() {
    let doctor = |more: &[&str], variables: &[(&str, &str)]| {
        let mut program = trireme(2, &[&["doctor", "--cuda-aware"], more].concat());
        program.envs(variables.iter().copied());
        gpu::run(program)
    };
    doctor(&[], &[]).failed(1, &["ranks 0 and 1 ", "same GPU", "--share-gpu"]);
    let no = doctor(&["--share-gpu"], &[]);
    assert!(!no.status.success(), "{}", no.stderr);
    mentions(&no.stderr, &["MPI_Allreduce", "over 2 ranks", "If a signal", "touched device memory"]);
    let yes = doctor(&["--share-gpu"], &[("TRIREME_EMULATED_UNIFIED", "1")]).succeeded();
    mentions(&yes.stdout, &["cuda-aware: ", "sums are right"]);
}

/// Runs a benchmark on an emulated GPU per rank and returns its JSON lines.
#[track_caller]
fn bench(ranks: usize, args: &[&str], variables: &[(&str, &str)]) -> Vec<serde_json::Value> {
    let mut command = trireme(ranks, &[&["bench"], args, &["--device", "cuda"]].concat());
    command.env("TRIREME_EMULATED_DEVICES", ranks.to_string()).envs(variables.iter().copied());
    gpu::run(command).succeeded().json_lines()
}

/// `bench scale` uses the same transport as training would, also if it measures only some ranks.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn benchmarks_sum_as_training_does() {
    let scale = ["scale", "--model", "lenet", "--batch", "4", "--seconds", "0.1", "--precision", "bf16"];
    let on = |ranks: usize, path: &str, variables: &[(&str, &str)]| {
        let lines = bench(ranks, &[&scale[..], &["--path", path]].concat(), variables);
        let measured: Vec<_> = lines.iter().filter(|line| line["held_out"].is_null()).collect();
        let counts: Vec<u64> = measured.iter().map(|line| line["ranks"].as_u64().unwrap()).collect();
        assert_eq!(counts, if ranks == 2 { vec![1, 2] } else { vec![1, 2, 4] }, "{path}");
        for line in &measured[1..] {
            assert!(line["allreduce_gb_per_s"].as_f64() > Some(0.0) && line["comm_ms"].as_f64() >= Some(0.0), "{line}");
            assert_eq!((&line["precision"], &line["overlap"]), (&"bf16".into(), &true.into()), "{line}");
        }
        (lines[0]["path"].clone(), lines[0]["path_why"].as_str().unwrap().to_string())
    };
    let (path, why) = on(4, "auto", &[]);
    assert_eq!(path, "nccl", "{why}");
    mentions(why, &["NCCL 2.27.3", "sums are right"]);
    assert_eq!(on(2, "staged", &[]).0, "staged");
    assert_eq!(on(2, "cuda-aware", &[("TRIREME_EMULATED_UNIFIED", "1")]).0, "cuda-aware");
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn sums_are_measured_over_the_transport_of_a_training() {
    let sums = ["allreduce", "--sizes", "40000", "--bucket", "20000"];
    for (codec, path, used) in [
        ("float", "nccl", "nccl"),
        ("float", "staged", "staged"),
        ("exact", "auto", "nccl"),
        ("exact", "staged", "staged"),
    ] {
        let lines = bench(2, &[&sums[..], &["--codec", codec, "--path", path]].concat(), &[]);
        let [line] = lines.as_slice() else { panic!("expected one line, got {lines:?}") };
        assert_eq!((&line["codec"], &line["path"], &line["ranks"]), (&codec.into(), &used.into(), &2.into()), "{line}");
        for key in ["gb_per_s", "queued_gb_per_s", "plain_gb_per_s"] {
            assert!(line[key].as_f64() > Some(0.0), "{key} of {line}");
        }
        assert_eq!(line["wire_ms"].is_null(), used == "nccl", "{line}");
        assert!(line["wire_bytes"].as_u64() >= Some(40_000), "{line}");
    }
    // ranks that share a GPU cannot use NCCL, so MPI sums the codes that the GPU makes
    let shared = [&sums[..], &["--codec", "exact", "--share-gpu"]].concat();
    let lines = bench(2, &shared, &[("TRIREME_EMULATED_DEVICES", "1")]);
    assert_eq!(lines[0]["path"], "coded", "{}", lines[0]);
    let mut command = trireme(2, &[&["bench"], &sums[..], &["--device", "cpu", "--path", "nccl"]].concat());
    command.env("TRIREME_EMULATED_DEVICES", "2");
    start(command).wait(PATIENCE).failed(2, &["reduce.path = \"nccl\"", "works only on GPUs"]);
}
