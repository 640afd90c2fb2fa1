//! Invalid recipes, arguments, folders and model files, tried with the real binary.
//!
//! Each case ends with exit code 1 or 2 and one clear line on stderr, before the output folder is touched.
//! `bad_data.rs` tests damaged data, `bad_ends.rs` tests failures during a run.

use std::fs::{self, OpenOptions};
use std::path::Path;

use backend::cuda::gpu_count;
use formats::checkpoint::ModelFile;

use support::images::{Images, THINGS};
use support::program::{PATIENCE, files, run, start, trireme};
use support::small_run::{RECIPE, SmallRun, poke};

#[test]
fn misspelt_names_in_recipes() {
    let mut setting = SmallRun::new();
    for (good, bad, parts) in [
        ("model = \"lenet-caffe\"", "model = \"lenet-cafe\"", ["model", "lenet-cafe", "did you mean \"lenet-caffe\"?"]),
        ("epochs = 2", "epoch = 2", ["epoch", "unknown key", "did you mean \"epochs\"?"]),
        ("base_lr = 0.01", "base_rl = 0.01", ["schedule.base_rl", "unknown key", "did you mean \"schedule.base_lr\"?"]),
        (
            "train = [\"normalize\"]",
            "train = [\"normalise\"]",
            ["augment.train", "normalise", "did you mean \"normalize\"?"],
        ),
    ] {
        let recipe = RECIPE.replace(good, bad);
        assert_ne!(recipe, RECIPE, "{good}");
        setting.recipe = setting.folder.write("spoilt.toml", &recipe);
        setting.refused(2, &[], &[&["spoilt.toml"][..], &parts].concat());
    }
    setting.recipe = setting.folder.write("none.toml", "model = ");
    setting.train(2, &[]).failed(2, &["none.toml", "not valid TOML"]);
    let folder = setting.data.clone();
    setting.recipe = folder.clone();
    setting.refused(2, &[], &["the recipe", &folder, "is a folder"]);
    setting.recipe = setting.folder.at("absent.toml");
    setting.refused(2, &[], &["the recipe", "absent.toml", "no such file", "recipe.toml"]);
    assert!(!Path::new(&setting.out).exists());
}

#[test]
fn invalid_batches_workers_and_rates() {
    let setting = SmallRun::new();
    setting.refused(2, &["--set", "workers=9"], &["batch", "8 images", "9 workers"]);
    setting.train(3, &[]).failed(2, &["workers", "3 ranks", "2 workers"]);
    let silent = RECIPE.replace("workers = 2\n", "").replace("batch = 8", "batch = 2");
    let recipe = setting.folder.write("silent.toml", &silent);
    let args = ["train", &recipe, "--data", &setting.data, "--out", &setting.out];
    run(3, &args).failed(2, &["batch", "2 images", "3 workers"]);
    let rate = "schedule.base_lr=fast";
    setting.refused(2, &["--set", rate], &[&format!("--set {rate}"), "finite number", "\"fast\""]);
    assert!(!Path::new(&setting.out).exists());
}

/// Tries images so small that a layer's output would be empty, and transforms that produce two different sizes.
#[test]
fn images_that_the_network_cannot_take() {
    let setting = SmallRun::new();
    let small = ["--set", "augment.train=[\"center_crop(6)\"]", "--set", "augment.eval=[\"center_crop(6)\"]"];
    for ranks in [0, 2] {
        let ended = setting.train(ranks, &small);
        assert!(matches!(ended.status.code(), Some(1 | 2)), "{}\n{}", ended.status, ended.stderr);
        assert_eq!(ended.stderr.matches("conv2").count(), 1, "{}", ended.stderr);
        assert!(!Path::new(&setting.out).exists());
    }
    let unequal = ["--set", "augment.train=[\"center_crop(24)\", \"normalize\"]"];
    setting.refused(2, &unequal, &["augment.train", "24x24x1", "augment.eval", "28x28x1", "fc1"]);
}

#[test]
fn an_output_folder_that_cannot_be_written() {
    let mut setting = SmallRun::new();
    let file = setting.folder.write("file", "mine");
    for out in [format!("{file}/out"), "/proc/trireme".to_string()] {
        setting.out = out.clone();
        setting.refused(2, &[], &["cannot write", &out, "--out"]);
    }
    setting.out = file.clone();
    for ranks in [0, 2] {
        setting.train(ranks, &[]).failed(2, &["cannot write", &file, "not a folder", "--out"]);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

/// A trace file that cannot be written must be an error before the first step, not after the last.
#[test]
fn a_trace_that_cannot_be_written() {
    let setting = SmallRun::new();
    let (nowhere, notes) = (setting.folder.at("no/trace.json"), setting.folder.write("notes.txt", "mine"));
    setting.refused(2, &["--trace", &nowhere], &["cannot write", &nowhere, "no folder", "mkdir -p"]);
    setting.refused(2, &["--trace", &notes], &[&notes, "not a trace"]);
    let recipe = fs::read(&setting.recipe).unwrap();
    setting.refused(2, &["--trace", &setting.recipe], &[&setting.recipe, "input files"]);
    assert_eq!((fs::read(&setting.recipe).unwrap(), fs::read(&notes).unwrap()), (recipe, b"mine".to_vec()));
}

#[test]
fn an_output_folder_that_is_not_empty() {
    let setting = SmallRun::new();
    fs::create_dir(&setting.out).unwrap();
    fs::write(Path::new(&setting.out).join("notes.txt"), "mine").unwrap();
    for ranks in [0, 2] {
        setting.train(ranks, &[]).failed(2, &[&setting.out, "is not empty", "--out"]);
        assert_eq!(files(&setting.out), ["notes.txt"]);
    }
}

#[test]
fn files_that_are_not_models() {
    let setting = SmallRun::new();
    setting.train(0, &["--max-steps", "2"]).succeeded();
    let model = Path::new(&setting.out).join("model.h5");
    let bytes = fs::read(&model).unwrap();
    let (cut, text) = (setting.folder.at("cut.h5"), setting.folder.write("text.h5", "not a model\n"));
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let flipped = setting.folder.at("flipped.h5");
    fs::copy(&model, &flipped).unwrap();
    poke(Path::new(&flipped), bytes.len() as u64 / 2, |byte| byte ^ 1);
    let picture = setting.folder.at("picture.png");
    let cases: [(&str, &[&str]); 4] = [
        (&cut, &["cut.h5", "cut short"]),
        (&text, &["text.h5", "not a trireme model"]),
        (&flipped, &["flipped.h5", "damaged", "checksum"]),
        ("absent.h5", &["absent.h5", "no such file"]),
    ];
    for (file, parts) in cases {
        run(0, &["predict", file, &picture]).failed(1, parts);
        for ranks in [0, 2] {
            let ended = run(ranks, &["eval", file, "--data", &setting.data, "--json"]).failed(1, parts);
            assert_eq!(ended.stdout, "");
        }
    }
    for (program, name) in [("predict", &setting.data), ("eval", &setting.data)] {
        let args = [program, name.as_str(), if program == "eval" { "--data" } else { &picture }, &setting.data];
        run(0, &args).failed(1, &[name, "is a folder", "model.h5", "output folder"]);
    }
    let model = model.display().to_string();
    run(0, &["predict", &model, &picture]).failed(1, &["picture.png", "No such file"]);
    let slip = setting.folder.at("data/dataset.jsn");
    run(0, &["predict", &model, &slip]).failed(1, &["dataset.jsn: No such file", "did you mean", "dataset.json?"]);
    let things = Images::new(&setting.folder.path().join("things"), THINGS, 4, 4).arg();
    run(2, &["eval", &model, "--data", &things]).failed(1, &["model.h5", "28x28x1", "32x32x3", &things]);
    let unknown = ["eval", &model, "--data", &setting.images.arg(), "--split", "tset"];
    run(2, &unknown).failed(2, &["--split tset: ", "no split \"tset\"", "did you mean \"test\"?"]);
}

/// A child process copies HDF5 files of other programs to TMPDIR. Messages must name the file and not its copy.
#[test]
fn hdf5_files_of_other_programs() {
    let setting = SmallRun::new();
    let [old, out, picture] = ["old.h5", "m.h5", "picture.png"].map(|name| setting.folder.at(name));
    let file = hdf5_metno::File::create(&old).unwrap();
    file.create_group("scans").unwrap();
    file.close().unwrap();
    let ended = run(0, &["predict", &old, &picture]).failed(1, &["old.h5", "not a trireme model"]);
    assert!(!ended.stderr.contains("/proc/"), "{}", ended.stderr);
    let mut import = trireme(0, &["import", &old, "--model", "lenet", "--transform", "normalize(0,1)", "-o", &out]);
    import.env("TMPDIR", "/nowhere");
    start(import).wait(PATIENCE).failed(1, &["old.h5", "/nowhere", "Set TMPDIR"]);
}

/// Tries a model file that is intact, but names another network than the one its weights belong to.
#[test]
fn a_model_file_of_another_network() {
    let setting = SmallRun::trained();
    let path = Path::new(&setting.out).join("model.h5");
    let mut model = ModelFile::read(&path).unwrap();
    model.network = "lenet".into();
    model.write(&path).unwrap();
    let model_path = path.display().to_string();
    let args = ["eval", &model_path, "--data", &setting.data];
    for ranks in [0, 2] {
        run(ranks, &args).failed(1, &["model", "network lenet", "conv1.weight", "expected", "got"]);
    }
    model.network = "squeezenet".into();
    model.write(&path).unwrap();
    run(2, &args).failed(2, &["no network squeezenet"]);
}

#[test]
fn devices_that_this_machine_lacks() {
    let setting = SmallRun::new();
    // programs that tests start see no GPU
    let why = match gpu_count() {
        Ok(_) => ["no GPU", "CUDA_VISIBLE_DEVICES is \"-1\""],
        Err(_) => ["libcuda", "LD_LIBRARY_PATH"],
    };
    setting.refused(1, &["--device", "cuda"], &["--device cuda", why[0], why[1], "--device cpu"]);
    setting.refused(1, &["--set", "precision=f16"], &["precision = \"f16\"", "CPU", "f32", "bf16", "--device cuda"]);
    setting.refused(2, &["--set", "reduce.path=nccl"], &["reduce.path = \"nccl\"", "GPUs", "--device cuda"]);
}

#[test]
fn arguments_that_make_no_sense() {
    let setting = SmallRun::new();
    setting.refused(2, &["--device", "tpu"], &["invalid value 'tpu'"]);
    setting.refused(2, &["--thread", "2"], &["unexpected argument '--thread'"]);
}

/// If OpenMP starts fewer threads than planned, the program must end, because the work of the missing threads would be
/// lost.
#[test]
fn fewer_threads_than_asked_for() {
    let setting = SmallRun::new();
    let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &setting.out, "--threads", "2"];
    let mut limited = trireme(0, &args);
    limited.env("OMP_THREAD_LIMIT", "1");
    start(limited).wait(PATIENCE).failed(1, &["OpenMP starts 1 of 2", "OMP_THREAD_LIMIT", "--threads 1"]);
    assert!(!Path::new(&setting.out).exists());
    let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &setting.out, "--threads", "100000"];
    run(2, &args).failed(2, &["100000 threads", "1024"]);
    let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &setting.out, "--loader-threads", "999999"];
    run(2, &args).failed(2, &["999999 threads", "1024"]);
    setting.refused(2, &["--set", "loader.threads=999999"], &["loader.threads", "1 to 1024", "999999"]);
    run(0, &["bench", "loader", &setting.data, "--threads", "999999"]).failed(2, &["999999 threads"]);
}

#[test]
fn more_workers_than_lanes_can_hold() {
    let setting = SmallRun::new();
    let more = ["--set", "reduce.codec=int8", "--set", "workers=257", "--set", "batch=257"];
    setting.refused(2, &more, &["--set workers=257", "at most 256", "got 257"]);
}

/// The second rank runs a copy of the program that is one byte longer.
#[test]
fn ranks_of_different_builds() {
    let setting = SmallRun::new();
    let copy = setting.folder.at("trireme");
    fs::copy(env!("CARGO_BIN_EXE_trireme"), &copy).unwrap();
    std::io::Write::write_all(&mut OpenOptions::new().append(true).open(&copy).unwrap(), b"x").unwrap();
    let mut both = trireme(1, &setting.args(&[]));
    both.args([":", "-n", "1", &copy]).args(setting.args(&[]));
    let ended = start(both).wait(PATIENCE);
    ended.failed(1, &["rank 1: ", "program differs", "rank 0", "same build"]);
    assert!(!Path::new(&setting.out).exists());
}

/// An output folder must have a UTF-8 name, because file names in JSON and HDF5 are UTF-8.
#[test]
fn an_output_folder_whose_name_is_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let setting = SmallRun::new();
    let out = setting.folder.path().join(std::ffi::OsStr::from_bytes(b"w\xff"));
    for ranks in [0, 2] {
        let mut command =
            trireme(ranks, &["train", &setting.recipe, "--data", &setting.data, "--threads", "1", "--out"]);
        command.arg(&out);
        start(command).wait(PATIENCE).failed(2, &["--out", "w\\xFF", "is not UTF-8", "choose another"]);
        assert!(!out.exists());
    }
}

/// A size beyond the memory of any machine is an error with numbers and does not abort the process.
#[test]
fn sizes_beyond_all_memory() {
    let setting = SmallRun::new();
    for slots in ["1000000000000", "9223372036854775807"] {
        let slots = format!("loader.slots={slots}");
        let parts = ["loader would take", "machine has", "fewer slots"];
        setting.refused(1, &["--set", &slots], &parts);
    }
    // a crop of 65535 x 65535 pixels needs 17 GB per image
    let crop = "random_resized_crop(65535)";
    let (train, eval) = (format!("augment.train=[\"{crop}\"]"), format!("augment.eval=[\"{crop}\"]"));
    let images = ["--set", &train, "--set", &eval, "--set", "model=resnet20", "--set", "loader.slots=1000"];
    setting.refused(2, &images, &[" would take ", "machine has", "smaller "]);
    for ranks in [0, 2] {
        let bench = run(ranks, &["bench", "allreduce", "--sizes", "100000000000000"]);
        bench.failed(2, &["--sizes", "100000000000000 bytes", "400000.0 GB", "a rank can use at most"]);
    }
}
