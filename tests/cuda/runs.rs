//! Whole runs of the real binary with `--device cuda`, on this machine's GPU with the feature `real-gpu`, otherwise on the emulated GPU.
//!
//! The results do not depend on the number of ranks, on where a run was stopped, or on the GPU's order of execution.
//! Messages name whatever is missing or broken.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use formats::checkpoint::StateFile;
use loaders::ImageSpec;

use support::gpu::{PATIENCE, RESNET};
use support::numerics::shaken;
use support::program::{Folder, events, events_without_times, sets, start, trireme};
use support::setting::Setting;
use support::weights::assert_tensors_near;
use support::{emulator, gpu, mentions, program};

fn setting() -> Setting {
    Setting::new(&RESNET.replace("epochs = 1", "epochs = 2"), ImageSpec::new(8, 8, 3), [43, 16])
}

#[track_caller]
fn train(setting: &Setting, out: &str, ranks: usize, more: &[&str]) {
    gpu::train(setting, out, ranks, more, &[]).succeeded();
}

const EXACT: &[&str] = &["--set", "reduce.codec=exact", "--share-gpu", "--max-steps", "8"];

#[test]
fn ranks_that_share_a_gpu_give_the_same_bits() {
    let setting = setting();
    train(&setting, "1", 1, EXACT);
    assert_eq!(setting.losses("1").len(), 8);
    for ranks in [2, 4] {
        let out = ranks.to_string();
        train(&setting, &out, ranks, EXACT);
        setting.assert_same_bits(&out, "1");
        let counts = |out: &str| {
            let scores = events(&setting.folder.at(out), "eval");
            scores.iter().map(|e| e["count"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(counts(&out), counts("1"), "{ranks} ranks: other numbers of test images");
    }
}

/// A single pass with groups computes the same as a pass per group, on any number of ranks.
#[test]
fn batch_norm_in_groups_gives_the_same_bits_and_replaces_workers() {
    let setting = setting();
    let groups = sets(&["workers=2", "bn_group=2"]);
    for ranks in [1, 2] {
        train(&setting, &ranks.to_string(), ranks, &[EXACT, &groups].concat());
    }
    setting.assert_same_bits("1", "2");
    for ranks in [1, 2] {
        let (out, half) = (format!("bf16 {ranks}"), ["--set", "precision=bf16", "--max-steps", "4"]);
        train(&setting, &out, ranks, &[&EXACT[..3], &half, &groups].concat());
    }
    assert_eq!(setting.digest("bf16 1"), setting.digest("bf16 2"));
    let small = ["--max-steps", "4", "--set", "schedule.base_lr=0.0002"];
    train(&setting, "workers", 1, &[&small[..], &sets(&["workers=4"])].concat());
    train(&setting, "groups", 1, &[&small[..], &sets(&["workers=1", "bn_group=2"])].concat());
    setting.assert_losses_near("groups", "workers", 1e-4);
}

/// Layer statistics are computed on the device at the measured steps. They are equal on any number of ranks, include
/// the encoded gradients, and change nothing else, even for a single rank that would otherwise enqueue steps ahead.
#[test]
fn layers_are_measured_on_the_device() {
    let setting = setting();
    let measured = ["--set", "log.histograms=3", "--share-gpu", "--max-steps", "6"];
    let lines = |out: &str| events_without_times(&setting.out(out), "layers");
    let ternary = [&["--set", "reduce.codec=ternary"], measured.as_slice()].concat();
    train(&setting, "1", 1, &ternary);
    train(&setting, "2", 2, &ternary);
    assert_eq!(lines("1"), lines("2"));
    assert_eq!(lines("1").iter().map(|line| &line["step"]).collect::<Vec<_>>(), [3, 6]);
    let tensors = lines("1")[1]["tensors"].as_array().unwrap().clone();
    let coded = tensors.iter().filter(|tensor| tensor["zero_codes"].as_f64().is_some_and(|s| s > 0.1 && s < 1.0));
    assert!(coded.count() > 10 && tensors.iter().all(|tensor| tensor["gradient"]["deviation"].as_f64() > Some(0.0)));
    train(&setting, "alone", 1, &measured);
    train(&setting, "ahead", 1, &measured[2..]);
    assert_eq!(lines("alone").len(), 2);
    setting.assert_same_bits("alone", "ahead");
}

/// Adds random errors to a checkpoint's parameters, as large as the rounding errors of the network's longest sums, which
/// are in its last convolutions.
fn shake(checkpoint: &Path, k: u64) {
    let mut state = StateFile::read(checkpoint).unwrap_or_else(|e| panic!("{e}"));
    let layers = state.model.layers.iter_mut().flat_map(|layer| &mut layer.tensors);
    for (i, (_, _, values)) in layers.enumerate().filter(|(_, (name, ..))| !name.starts_with("running")) {
        *values = shaken(values, 9 * 64, 1_000 * k + i as u64);
    }
    state.write(checkpoint).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_gpu_computes_what_the_processor_does() {
    let setting = setting();
    // batch normalisation over two images or large steps would amplify rounding errors without limit
    let steps = |last| ["--set", "workers=1", "--set", "schedule.base_lr=0.001", "--max-steps", last];
    train(&setting, "gpu", 1, &steps("4"));
    let on_cpu = |out: &str, more: &[&str]| {
        let command = setting.command(out, 1, &[&["--device", "cpu", "--threads", "1"], more].concat());
        start(command).wait(PATIENCE).succeeded();
        setting.losses(out)
    };
    let log = fs::read_to_string(setting.folder.path().join("gpu/metrics.jsonl")).expect("the log");
    assert!(log.contains("\"device\":\"cuda ("), "the log names another device");
    let want = on_cpu("cpu", &steps("4"));
    // measures how the losses react to errors in the parameters like those of a step with f32 sums
    let mut tolerances = vec![0.0f64; want.len()];
    for k in 0..3 {
        let out = format!("shaken {k}");
        on_cpu(&out, &steps("1"));
        shake(&setting.folder.path().join(&out).join("checkpoints/step-00000001.h5"), k);
        let losses = on_cpu(&out, &[&steps("4")[..], &["--resume", "auto"]].concat());
        for i in 1..want.len() {
            tolerances[i] = tolerances[i].max(tolerances[i - 1]).max(2.0 * (losses[i] / want[i] - 1.0).abs());
        }
    }
    // step 1 gets the tolerance of step 2: the changed parameters first affect step 2, but the pass of step 1 is as inaccurate
    tolerances[0] = tolerances[1];
    println!("tolerances {tolerances:?}");
    assert!(tolerances.iter().all(|tolerance| *tolerance < 1e-3), "{tolerances:?} are too large to prove anything");
    for (i, ((got, want), tolerance)) in setting.losses("gpu").iter().zip(want).zip(tolerances).enumerate() {
        let off = got / want - 1.0;
        println!("step {}: off by {off:e}, tolerance {tolerance:e}", i + 1);
        assert!(off.abs() <= tolerance, "loss of step {}: {got} on the GPU, {want} on the CPU", i + 1);
    }
    let samples = |out: &str| {
        let steps = events(&setting.folder.at(out), "step");
        steps.iter().map(|s| s["samples"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(samples("gpu"), samples("cpu"));
}

/// With progressive resizing, passes for each image size are recorded and replayed separately.
#[test]
fn images_that_grow_give_the_same_bits() {
    let grows = RESNET.replace("pad_crop(1)", "random_resized_crop(8, 0.5)").replace("epochs = 1", "epochs = 3");
    let recipe = grows + "augment.sizes = [[0, 4], [1, 6], [2, 8]]\n";
    let setting = Setting::new(&recipe, ImageSpec::new(8, 8, 3), [43, 16]);
    let exact = &EXACT[..3];
    train(&setting, "1", 1, exact);
    train(&setting, "2", 2, exact);
    train(&setting, "parts", 2, &[exact, &["--max-steps", "8"]].concat());
    fs::remove_file(setting.folder.at("parts/model.h5")).unwrap();
    train(&setting, "parts", 1, &[exact, &["--resume", "auto"]].concat());
    for out in ["2", "parts"] {
        setting.assert_same_bits(out, "1");
    }
}

#[test]
fn sixteen_bits_learn_too() {
    let setting = setting();
    for precision in ["bf16", "f16"] {
        let set = format!("precision={precision}");
        train(&setting, precision, 1, &["--set", &set, "--set", "epochs=4"]);
        setting.assert_learns(precision, 4, 4, 0.95);
    }
}

#[test]
fn benches_of_the_step_count_launches_and_waits_for_data() {
    let bench = |args: &[&str], device: &str| {
        let args = [&["bench"], args, &["--device", device, "--batch", "8", "--seconds", "0.05"]].concat();
        start(gpu::find(trireme(0, &args))).wait(PATIENCE).succeeded().json()
    };
    let step = ["step", "--model", "lenet", "--precision", "bf16"];
    let launches = bench(&step, "cuda")["launches"].as_u64().expect("a number of launches");
    assert!((10..100).contains(&launches), "{launches}");
    assert!(bench(&step[..3], "cpu").get("launches").is_none());
    let setting = setting();
    let both = ["loader+step", &setting.data, "--transform", "pad_crop(1),flip,normalize", "--loader-threads", "4"];
    for device in ["cuda", "cpu"] {
        let line = bench(&both, device);
        let number = |key: &str| line[key].as_f64().unwrap_or_else(|| panic!("no {key}: {line}"));
        assert_eq!((number("loader_threads"), line["device"].as_str()), (4.0, Some(device)));
        assert!(number("img_per_s") > 0.0 && number("steps") >= 3.0, "{line}");
        let (wait, step) = (number("data_wait_ms"), number("step_ms"));
        assert!((0.0..=step).contains(&wait) && number("data_wait_share") == wait / step, "{line}");
    }
}

#[test]
fn two_ranks_on_one_gpu_need_share_gpu() {
    let setting = setting();
    let ended = gpu::train(&setting, "out", 2, &["--max-steps", "2"], &[]);
    ended.failed(1, &["ranks 0 and 1 ", "same GPU", "--share-gpu"]);
}

/// Trains with every schedule of the emulated GPU: work as late as possible, at once, with threads and blocks in
/// reverse order, and in a random order. The models must be equal.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn no_schedule_changes_a_bit() {
    let setting = setting();
    // error feedback, LARS, clipping and averages all enabled
    let mut rich = sets(&["optimizer.kind=lars", "optimizer.clip_norm=0.5", "ema.decay=0.9", "reduce.codec=ternary"]);
    rich.extend(["--set", "reduce.error_feedback=true", "--share-gpu", "--max-steps", "6"]);
    for (name, more) in [("exact", EXACT), ("rich", &rich)] {
        let run = |order: &str| {
            let out = format!("{name} {order}");
            gpu::train(&setting, &out, 2, more, &[("TRIREME_EMULATED_ORDER", order)]).succeeded();
            setting.model(&out)
        };
        let lazy = run("lazy");
        for order in ["eager", "reverse", "3"] {
            assert!(run(order) == lazy, "{name}, order {order}: something is read before it is written");
        }
    }
}

/// Links some of the emulated libraries into a folder.
fn some_libraries(folder: &Folder, names: &[&str]) -> String {
    let here = folder.path().join("libraries");
    fs::create_dir_all(&here).expect("a folder");
    for name in names {
        symlink(emulator::folder().join(name), here.join(name)).expect("a link");
    }
    here.display().to_string()
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn what_is_missing_is_named() {
    let setting = setting();
    let with = |out: &str, variable: &str, value: &str| gpu::train(&setting, out, 1, &[], &[(variable, value)]);
    let none = some_libraries(&setting.folder, &[]);
    let ended = with("no-driver", "LD_LIBRARY_PATH", &none);
    ended.failed(1, &["--device cuda", "libcuda", &none, "NVIDIA driver"]);
    for (more, missing, package) in [
        ("libcuda.so.1", "libnvrtc ", "`pip install nvidia-cuda-nvrtc` (nvidia-cuda-nvrtc-cu12 for"),
        ("libnvrtc.so.13", "libcublasLt ", "`pip install nvidia-cublas` (nvidia-cublas-cu12 for"),
        ("libcublasLt.so.13", "libcudnn ", "`pip install nvidia-cudnn-cu13` (-cu12 for"),
    ] {
        let some = some_libraries(&setting.folder, &[more]);
        with(more, "LD_LIBRARY_PATH", &some).failed(1, &[missing, package]);
    }
    let old = ["CUDA 12.4", "update the driver", "nvidia-cuda-nvrtc-cu12"];
    with("old", "TRIREME_EMULATED_DRIVER", "12040").failed(1, &old);
    with("no-gpu", "CUDA_VISIBLE_DEVICES", "").failed(1, &["--device cuda", "no GPU"]);
    // a driver that does not start: `--device auto` uses the CPU, but not silently
    let broken = ("TRIREME_EMULATED_FAULT", "1:802");
    let call = ["cuInit", "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-smi"];
    with("broken", broken.0, broken.1).failed(1, &[&call[..], &["--device cuda"]].concat());
    let mut auto = setting.command("auto", 1, &["--device", "auto", "--threads", "1", "--max-steps", "1"]);
    auto.env(broken.0, broken.1);
    let unused = [&call[..], &["this machine has a GPU, but it is not used"]].concat();
    gpu::run(auto).succeeded().says(&unused);
    let model = setting.out("auto") + "/model.h5";
    let mut eval = trireme(0, &["eval", &model, "--data", &setting.data, "--threads", "1"]);
    eval.env(broken.0, broken.1);
    gpu::run(eval).succeeded().says(&unused);
    // the message about the different kinds of device says why rank 1 has no GPU
    let (path, fault) = (emulator::library_path().1, format!("{}={}", broken.0, broken.1));
    let (path, own, out) = (format!("LD_LIBRARY_PATH={path}"), env!("CARGO_BIN_EXE_trireme"), setting.out("differs"));
    for device in ["auto", "cuda"] {
        let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &out, "--device", device];
        let mut command = program::on_ranks(1, "env");
        command.arg(&path).arg(own).args(args).args([":", "-n", "1", "env"]).arg(&path).arg(&fault).arg(own).args(args);
        start(command).wait(PATIENCE).failed(1, &["rank 1: ", "kind of device", call[1]]);
    }
    let mut doctor = trireme(0, &["doctor"]);
    doctor.env(broken.0, broken.1);
    mentions(gpu::run(doctor).stdout, &call);
    with("volta", "TRIREME_EMULATED_CC", "70").failed(1, &["compute capability 7.0", "NVRTC of CUDA 12"]);
    with("small", "TRIREME_EMULATED_CC", "60").failed(1, &["compute capability 6.0", "at least 7.0"]);
}

#[test]
fn dry_runs_count_what_a_pass_moves() {
    let printed = gpu::train(&setting(), "out", 1, &["--dry-run"], &[]).succeeded().stdout;
    let (_, table) = printed.split_once("memory traffic of ").unwrap_or_else(|| panic!("no table in {printed}"));
    for kind in ["conv", "norm", "linear", "total"] {
        let row = table.lines().find(|line| line.starts_with(kind)).unwrap_or_else(|| panic!("no {kind} in {table}"));
        let numbers: Vec<f64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(numbers.len() == 2 && numbers.iter().all(|n| *n >= 0.0), "{row}");
    }
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn too_little_gpu_memory_is_reported() {
    let setting = setting();
    let ended = gpu::train(&setting, "out", 1, &[], &[("TRIREME_EMULATED_MEMORY", "3000000")]);
    ended.failed(1, &["memory", "MB", "smaller batch"]);
    // ranks that share a GPU by mistake do not need more memory
    let ended = gpu::train(&setting, "shared", 2, &[], &[("TRIREME_EMULATED_MEMORY", "3000000")]);
    ended.failed(1, &["opened the same GPU", "--share-gpu"]);
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_broken_cache_is_made_again() {
    let setting = setting();
    let cache = setting.folder.at("cache");
    let run = |out: &str| {
        gpu::train(&setting, out, 1, &["--max-steps", "1"], &[("TRIREME_CACHE", &cache)]).succeeded();
    };
    run("first");
    let kernels: Vec<_> = program::files(&cache).into_iter().filter(|file| file.ends_with(".cubin")).collect();
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    let file = Path::new(&cache).join(&kernels[0]);
    let whole = fs::read(&file).expect("the kernels");
    for broken in [&whole[..whole.len() / 2], b"", &[&whole[..9000], b"!", &whole[9001..]].concat()] {
        fs::write(&file, broken).expect("written");
        let _ = fs::remove_dir_all(setting.folder.at("again"));
        run("again");
        assert!(fs::read(&file).expect("the kernels") == whole, "made again");
    }
}

/// NVRTC compiles for compute capability 9.0 since CUDA 11.8. With an older NVRTC, the driver translates PTX for the GPU.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn an_nvrtc_that_does_not_know_the_gpu_compiles_to_ptx() {
    let setting = setting();
    let cache = setting.folder.at("cache");
    let old = [("TRIREME_CACHE", cache.as_str()), ("TRIREME_EMULATED_NVRTC", "80")];
    gpu::train(&setting, "old", 1, &["--max-steps", "1"], &old).succeeded();
    let kernels: Vec<_> = program::files(&cache).into_iter().filter(|file| file.ends_with(".cubin")).collect();
    assert!(kernels.len() == 1 && kernels[0].contains("sm_90"), "{kernels:?}");
    let code = fs::read(Path::new(&cache).join(&kernels[0])).expect("the kernels");
    assert!(code.starts_with(b"//\n// Generated by "), "not PTX");
    train(&setting, "new", 1, &["--max-steps", "1"]);
    assert_eq!(setting.losses("old"), setting.losses("new"));
}

/// From some driver call on, every call on rank 1 fails, as if its GPU had fallen off the bus. One message names the
/// rank, host and GPU and says what to look at.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_gpu_that_falls_off_ends_all_ranks() {
    let setting = setting();
    train(&setting, "whole", 1, &["--max-steps", "1"]);
    let model = setting.folder.at("whole/model.h5");
    let (_, folders) = emulator::library_path();
    let own = env!("CARGO_BIN_EXE_trireme");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("this host's name");
    // the first failing call is during training, during evaluation or while the GPU is opened, with different error codes
    let (place, gone) = (format!("rank 1: on {}", host.trim()), "GPU is gone");
    let (gpu, cure) = ("Emulated GPU 0 (GPU-", "dmesg | grep -i xid");
    let (kernel, kernel_cure) = ("kernel has failed", "compute-sanitizer");
    let (launch, unknown) = ("CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_UNKNOWN");
    for (verb, fault, name, parts) in [
        ("train", "2000:719", launch, [&place[..], gpu, gone, cure]),
        ("train", "2000:999", unknown, [&place, gpu, gone, cure]),
        ("train", "20:999", unknown, [&place, ": ", gone, cure]),
        ("train", "2000:700", "CUDA_ERROR_ILLEGAL_ADDRESS", [&place, gpu, kernel, kernel_cure]),
        ("train", "2000:716", "CUDA_ERROR_MISALIGNED_ADDRESS", [&place, gpu, kernel, kernel_cure]),
        ("eval", "560:719", launch, [&place, gpu, gone, cure]),
        ("eval", "20:999", unknown, [&place, ": ", gone, cure]),
    ] {
        let out = setting.folder.at(fault);
        let train = ["train", &setting.recipe, "--data", &setting.data, "--out", &out];
        let eval = ["eval", &model, "--data", &setting.data, "--batch", "2"];
        let args = [if verb == "eval" { &eval[..] } else { &train }, &["--device", "cuda", "--share-gpu"]].concat();
        let path = format!("LD_LIBRARY_PATH={folders}");
        let mut command = program::on_ranks(1, "env");
        command.args([&path, own]).args(&args).args([":", "-n", "1", "env"]);
        command.args([&path, &format!("TRIREME_EMULATED_FAULT={fault}"), own]).args(&args);
        start(command).wait(PATIENCE).failed(1, &[&parts[..], &[name]].concat());
    }
}

/// Compares two ranks with half the batch each on one GPU with one rank that has the whole batch.
#[test]
fn batch_norm_over_ranks_matches_the_whole_batch() {
    let setting = setting();
    // the rate is so small that rounding errors do not grow from step to step
    let more = ["--set", "sync_bn=true", "--set", "schedule.base_lr=0.0002", "--share-gpu", "--max-steps", "4"];
    let local = ["--set", "sync_bn=false", "--set", "schedule.base_lr=0.0002", "--share-gpu", "--max-steps", "1"];
    let on = |out: &str, ranks: usize, more: &[&str]| {
        let workers = format!("workers={ranks}");
        train(&setting, out, ranks, &[more, &["--set", &workers]].concat());
        setting.losses(out)
    };
    let whole = on("1", 1, &more);
    assert!((on("local", 2, &local)[0] / whole[0] - 1.0).abs() > 1e-4, "half a batch must change the loss");
    on("2", 2, &more);
    setting.assert_losses_near("2", "1", 1e-5);
    assert_tensors_near(&setting.out("2"), &setting.out("1"), 1e-5);
}
