//! What goes wrong from outside, tried on the real binary: each ends with exit code 1 or 2 and one clear line on stderr, in
//! reasonable time, on every rank, and leaves no file half-written.

#[path = "support/images.rs"]
mod images;
#[path = "support/program.rs"]
mod program;

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use images::{DIGITS, Images, THINGS};
use loaders::{Dataset, Job, Loader, Options, Order, Pipeline, shard};
use program::{Ended, Folder, PATIENCE, Running, events, files, is_alive, on_ranks, run, signal, start, trireme};
use trireme::checkpoint::ModelFile;
use trireme::comm::{self, Comm, World};

const RECIPE: &str = r#"
model = "lenet-caffe"
data = "given with --data"
epochs = 2
batch = 8
workers = 2

[optimizer]
kind = "sgd"

[schedule]
kind = "constant"
base_lr = 0.01

[augment]
train = ["normalize"]
eval = ["normalize"]
"#;

/// A folder with a recipe and a data set, all of it good; each test spoils something.
struct Setting {
    folder: Folder,
    recipe: String,
    data: String,
    out: String,
}

impl Setting {
    /// 48 digits to train on.
    fn new() -> (Self, Images) {
        Self::of(|dir| Images::new(dir, DIGITS, 48, 10))
    }

    fn of(images: impl Fn(&Path) -> Images) -> (Self, Images) {
        let folder = Folder::new();
        let images = images(&folder.path().join("data"));
        let recipe = folder.write("recipe.toml", RECIPE);
        let out = folder.at("out");
        (Self { folder, recipe, data: images.arg(), out }, images)
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let args = ["train", &self.recipe, "--data", &self.data, "--out", &self.out, "--threads", "1"];
        [&args, more].concat()
    }

    #[track_caller]
    fn train(&self, ranks: usize, more: &[&str]) -> Ended {
        run(ranks, &self.args(more))
    }

    /// Fails with `code` and one line of these parts, on one rank and on two, before OUT is touched.
    #[track_caller]
    fn refused(&self, code: i32, more: &[&str], parts: &[&str]) {
        for ranks in [0, 2] {
            self.train(ranks, more).failed(code, parts);
            assert!(!Path::new(&self.out).exists(), "{:?} on {ranks} ranks", files(&self.out));
        }
    }

    /// The run failed after its start: no model, nothing half-written, a log of whole lines.
    #[track_caller]
    fn assert_no_model(&self) {
        let files = files(&self.out);
        assert!(!files.iter().any(|file| file == "model.h5" || file.contains("tmp")), "{files:?}");
        assert!(events(&self.out, "end").is_empty());
    }

    /// Starts a training of a thousand epochs and waits for its first steps.
    #[track_caller]
    fn endless(&self, ranks: usize) -> Running {
        let mut running = start(trireme(ranks, &self.args(&["--set", "epochs=1000"])));
        running.until("step", || events_so_far(&self.out) >= 3);
        running
    }
}

/// Whole lines of metrics.jsonl by now.
fn events_so_far(out: &str) -> usize {
    let text = fs::read_to_string(Path::new(out).join("metrics.jsonl")).unwrap_or_default();
    text.matches('\n').count()
}

/// Writes a number of bytes into a file, in place.
fn poke(path: &Path, offset: u64, change: impl Fn(u8) -> u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset as usize] = change(bytes[offset as usize]);
    fs::write(path, bytes).unwrap();
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap()
}

#[test]
fn data_that_is_not_there() {
    let (mut setting, _images) = Setting::new();
    let empty = setting.folder.at("empty");
    fs::create_dir(&empty).unwrap();
    let absent = setting.folder.at("absent");
    for (dir, why) in [(absent, "there is no such folder"), (empty, "the folder is empty")] {
        setting.data = dir.clone();
        setting.refused(1, &[], &[&dir, "is not a data set", why, "trireme data convert"]);
    }
}

#[test]
fn a_shard_cut_short_before_the_start() {
    let (setting, images) = Setting::new();
    let shard = images.shard("train", 2);
    let whole = fs::metadata(&shard).unwrap().len();
    OpenOptions::new().write(true).open(&shard).unwrap().set_len(whole - 9).unwrap();
    let numbers = format!("dataset.json says {whole}, found {}", whole - 9);
    setting.refused(1, &[], &[name(&shard), &numbers, "cut short"]);
}

/// A manifest that says another number of records than the index, of classes than the labels, or nothing at all.
#[test]
fn a_manifest_that_contradicts_the_shards() {
    let (setting, images) = Setting::new();
    let mut manifest = images.manifest.clone();
    let split = manifest.splits.get_mut("train").unwrap();
    (split.shards[1].count, split.count) = (13, 49);
    manifest.write(&images.dir).unwrap();
    setting.refused(1, &[], &[name(&images.shard("train", 1)), "records: dataset.json says 13, found 12"]);

    fs::write(images.dir.join("dataset.json"), "{\"version\": 1, \"classes\": [").unwrap();
    setting.refused(1, &[], &["dataset.json: EOF while parsing", "trireme data"]);

    let mut manifest = images.manifest.clone();
    manifest.splits.remove("train");
    manifest.write(&images.dir).unwrap();
    setting.refused(1, &[], &[&setting.data, "has no split `train`; it has `test`"]);
}

/// Found while training, by the one rank whose record it is.
#[test]
fn a_flipped_byte() {
    let (setting, images) = Setting::new();
    let path = images.shard("train", 3);
    let (offset, _) = shard::scan_index(&path).unwrap()[7];
    poke(&path, offset + 400, |byte| byte ^ 0x20);
    let place = format!("{}, record 7 at byte {offset}", name(&path));
    for ranks in [0, 2] {
        let ended = setting.train(ranks, &[]).failed(1, &[&place, "checksum of the payload", "trireme data verify"]);
        let line = ended.stderr.lines().find(|line| line.contains(&place)).unwrap();
        assert_eq!(line.starts_with("rank "), ranks > 0, "{line}");
        setting.assert_no_model();
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

#[test]
fn a_label_out_of_range() {
    let (setting, _images) = Setting::of(|dir| {
        Images::edited(dir, DIGITS, 48, 10, |id, record| {
            if id == 30 {
                record.label = 10;
            }
        })
    });
    let place = "train-00002-of-00004.tfrecord, record 6 at byte";
    for ranks in [0, 2] {
        setting.train(ranks, &[]).failed(1, &[place, "label 10", "expected 0 to 9", "classes"]);
        setting.assert_no_model();
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

#[test]
fn an_image_of_another_size() {
    let (setting, _images) = Setting::of(|dir| {
        Images::edited(dir, DIGITS, 48, 10, |id, record| {
            if id == 17 {
                *record = images::record(1, id, loaders::ImageSpec::new(28, 30, 1));
            }
        })
    });
    let place = "train-00001-of-00004.tfrecord, record 5 at byte";
    setting.train(2, &[]).failed(1, &[place, "image of 28x30x1", "expected 28x28x1", "resize"]);
    setting.assert_no_model();
}

/// A split for scoring that is bad shows after the first epoch; what was trained until then is kept nowhere half.
#[test]
fn a_flipped_byte_in_the_test_split() {
    let (setting, images) = Setting::new();
    let path = images.shard("test", 1);
    let (offset, _) = shard::scan_index(&path).unwrap()[2];
    poke(&path, offset + 300, |byte| !byte);
    let place = format!("{}, record 2 at byte {offset}", name(&path));
    setting.train(2, &[]).failed(1, &[&place, "checksum of the payload"]);
    setting.assert_no_model();
}

#[test]
fn recipes_that_name_what_there_is_not() {
    let (mut setting, _images) = Setting::new();
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
    setting.recipe = setting.folder.at("absent.toml");
    setting.refused(2, &[], &["cannot read the recipe", "absent.toml", "No such file"]);
    assert!(!Path::new(&setting.out).exists());
}

#[test]
fn numbers_that_do_not_fit() {
    let (setting, _images) = Setting::new();
    setting.refused(2, &["--set", "workers=9"], &["batch", "8 images cannot be shared by 9 workers"]);
    setting.train(3, &[]).failed(2, &["workers", "3 ranks for 2 workers", "start at most 2 ranks"]);
    let silent = RECIPE.replace("workers = 2\n", "").replace("batch = 8", "batch = 2");
    let recipe = setting.folder.write("silent.toml", &silent);
    let args = ["train", &recipe, "--data", &setting.data, "--out", &setting.out];
    run(3, &args).failed(2, &["batch", "2 images cannot be shared by 3 workers"]);
    setting.refused(
        2,
        &["--set", "schedule.base_lr=fast"],
        &["--set schedule.base_lr=fast", "expected a finite number"],
    );
    assert!(!Path::new(&setting.out).exists());
}

/// A network whose planes would shrink to nothing, and images of two sizes.
#[test]
fn images_that_the_network_cannot_take() {
    let (setting, _images) = Setting::new();
    let small = ["--set", "augment.train=[\"center_crop(6)\"]", "--set", "augment.eval=[\"center_crop(6)\"]"];
    for ranks in [0, 2] {
        let ended = setting.train(ranks, &small);
        assert!(matches!(ended.status.code(), Some(1 | 2)), "{}\n{}", ended.status, ended.stderr);
        assert_eq!(ended.stderr.matches("conv2").count(), 1, "{}", ended.stderr);
        assert!(!Path::new(&setting.out).exists());
    }
    let unequal = ["--set", "augment.train=[\"center_crop(24)\"]"];
    setting.refused(2, &unequal, &["augment.train makes images of 24x24x1", "augment.eval of 28x28x1"]);
}

#[test]
fn an_output_folder_that_cannot_be() {
    let (mut setting, _images) = Setting::new();
    let file = setting.folder.write("file", "mine");
    for out in [format!("{file}/out"), "/proc/trireme".to_string()] {
        setting.out = out.clone();
        setting.refused(1, &[], &["cannot write to the folder", &out, "--out"]);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn an_output_folder_that_is_not_empty() {
    let (setting, _images) = Setting::new();
    fs::create_dir(&setting.out).unwrap();
    fs::write(Path::new(&setting.out).join("notes.txt"), "mine").unwrap();
    for ranks in [0, 2] {
        setting.train(ranks, &[]).failed(2, &[&setting.out, "is not empty", "--out"]);
        assert_eq!(files(&setting.out), ["notes.txt"]);
    }
}

/// A file-size limit takes what a full disk would, on any machine and without being root: writes fail beyond the limit.
#[test]
fn a_disk_that_fills_while_training() {
    let (setting, _images) = Setting::new();
    let program = env!("CARGO_BIN_EXE_trireme");
    for ranks in [0, 2] {
        // 12,000 units of 512 or 1,024 bytes: enough for MPI's own files, not for a model of 13.1 MB. Without its signal,
        // the limit is an error of write(2).
        let mut command = on_ranks(ranks, "sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 12000; exec \"$@\"", "sh", program]);
        command.args(setting.args(&["--set", "model=lenet", "--set", "epochs=1"]));
        start(command).wait(PATIENCE).failed(1, &["no space left to write", "model.h5", "--out"]);
        setting.assert_no_model();
        assert_eq!(files(&setting.out), ["metrics.jsonl", "recipe.toml"]);
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

/// A file system of 1 MiB, unmounted when dropped.
struct Disk(String);

impl Disk {
    /// Mounted at this folder, or nothing where the test may not.
    fn mount(folder: String) -> Option<Self> {
        fs::create_dir(&folder).unwrap();
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "trireme-test", &folder]).output();
        done.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The real thing, where this test may mount a file system of its own: full in the middle, and from the start.
#[test]
fn a_disk_that_is_full() {
    let (mut setting, _images) = Setting::new();
    let Some(disk) = Disk::mount(setting.folder.at("disk")) else {
        eprintln!(
            "NOT TESTED on a full disk: no permission to mount a tmpfs; the test with a file-size limit stands for it"
        );
        return;
    };
    setting.out = Path::new(&disk.0).join("out").display().to_string();
    // tests/faults.rs fills a disk while training goes on
    setting
        .train(2, &[])
        .failed(1, &[&setting.out, "no space left for what the run writes", "a checkpoint takes", "--out"]);
    assert!(!Path::new(&setting.out).exists());
}

#[test]
fn model_files_that_are_none() {
    let (setting, images) = Setting::new();
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
        (&text, &["text.h5", "no trireme model"]),
        (&flipped, &["flipped.h5", "damaged", "checksum"]),
        ("absent.h5", &["cannot read absent.h5", "No such file"]),
    ];
    for (file, parts) in cases {
        run(0, &["predict", file, &picture]).failed(1, parts);
        for ranks in [0, 2] {
            let ended = run(ranks, &["eval", file, "--data", &setting.data, "--json"]).failed(1, parts);
            assert_eq!(ended.stdout, "");
        }
    }
    let model = model.display().to_string();
    run(0, &["predict", &model, &picture]).failed(1, &["picture.png", "No such file"]);
    let things = Images::new(&setting.folder.path().join("things"), THINGS, 4, 4).arg();
    run(2, &["eval", &model, "--data", &things]).failed(1, &["model.h5", "28x28x1", "32x32x3", &things]);
    let unknown = ["eval", &model, "--data", &images.arg(), "--split", "tset"];
    run(2, &unknown).failed(2, &["no split \"tset\"", "did you mean \"test\"?"]);
}

/// A file that is whole and says it is another network than its weights are.
#[test]
fn a_model_file_of_another_network() {
    let (setting, _images) = Setting::new();
    setting.train(0, &["--max-steps", "1"]).succeeded();
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

/// The rate jumps beyond f32 in the second epoch; the model of the first is good and stays.
#[test]
fn a_loss_that_is_no_number() {
    let (setting, _images) = Setting::new();
    let jump = RECIPE.replace("kind = \"constant\"", "kind = \"step\"\nmilestones = [1]\ngamma = 1e42");
    let recipe = setting.folder.write("jump.toml", &jump);
    let args = ["train", &recipe, "--data", &setting.data, "--out", &setting.out, "--threads", "1"];
    for ranks in [0, 2] {
        run(ranks, &args).failed(
            1,
            &["the loss of step 7 is not finite, or a parameter after it", "last good checkpoint", "base_lr"],
        );
        assert_eq!(files(&setting.out), ["checkpoints/step-00000006.h5", "metrics.jsonl", "recipe.toml"]);
        let kept = ModelFile::read(&Path::new(&setting.out).join("checkpoints/step-00000006.h5")).unwrap();
        assert_eq!((kept.epoch, kept.step), (1, 6));
        assert!(kept.layers.iter().flat_map(|l| &l.tensors).all(|t| t.2.iter().all(|v| v.is_finite())));
        setting.assert_no_model();
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

/// A step may break the weights while its own loss is still a number.
#[test]
fn weights_that_are_no_numbers() {
    let (setting, _images) = Setting::new();
    let more = ["--set", "schedule.base_lr=1e39", "--max-steps", "1"];
    for ranks in [0, 2] {
        let ended = setting.train(ranks, &more);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert_eq!(
            ended.stderr.matches("the loss of step 1 is not finite, or a parameter after it").count(),
            1,
            "{}",
            ended.stderr
        );
        assert_eq!(files(&setting.out), ["metrics.jsonl", "recipe.toml"]);
        fs::remove_dir_all(&setting.out).unwrap();
    }
}

/// The kernel's SIGBUS, on whichever rank reads first.
#[test]
fn a_shard_cut_short_while_it_is_read() {
    let (setting, images) = Setting::new();
    let running = setting.endless(2);
    for number in 0..4 {
        OpenOptions::new().write(true).open(images.shard("train", number)).unwrap().set_len(0).unwrap();
    }
    let ended = running.wait(PATIENCE);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let told: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("cannot read at byte offset")).collect();
    assert!((1..=2).contains(&told.len()), "once a rank at most:\n{}", ended.stderr);
    for line in told {
        assert!(line.starts_with("rank ") && line.contains(": shard ") && line.contains(".tfrecord"), "{line}");
    }
    setting.assert_no_model();
}

#[test]
fn the_death_of_a_rank_ends_the_run() {
    let (setting, _images) = Setting::new();
    let running = setting.endless(2);
    let ranks = running.ranks();
    assert_eq!(ranks.len(), 2, "{ranks:?}");
    signal(ranks[1] as i32, libc::SIGKILL);
    let ended = running.wait(Duration::from_secs(15));
    assert!(!ended.status.success(), "{}", ended.stderr);
    assert_gone(&ranks);
    assert_only_whole_models(&setting);
}

#[test]
fn an_interrupt_ends_all_ranks() {
    let (setting, _images) = Setting::new();
    let running = setting.endless(2);
    let ranks = running.ranks();
    assert_eq!(ranks.len(), 2, "{ranks:?}");
    signal(running.id() as i32, libc::SIGINT);
    let ended = running.wait(Duration::from_secs(15));
    assert!(!ended.status.success(), "{}", ended.stderr);
    assert_gone(&ranks);
    assert_only_whole_models(&setting);
}

/// A killed rank may leave the hidden file that it was writing; whatever has a model's name is whole.
#[track_caller]
fn assert_only_whole_models(setting: &Setting) {
    for file in files(&setting.out).iter().filter(|f| f.ends_with(".h5")) {
        let path = Path::new(&setting.out).join(file);
        ModelFile::read(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
    assert!(!Path::new(&setting.out).join("model.h5").exists());
}

#[track_caller]
fn assert_gone(ranks: &[u32]) {
    let start = Instant::now();
    while ranks.iter().any(|&rank| is_alive(rank)) {
        assert!(start.elapsed() < Duration::from_secs(5), "ranks outlive mpirun");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Without mpirun there is one rank, and it needs none.
#[test]
fn without_mpirun_there_is_one_rank() {
    let (setting, _images) = Setting::new();
    setting.train(0, &["--max-steps", "1"]).succeeded();
    let starts = events(&setting.out, "start");
    assert_eq!((starts.len(), &starts[0]["ranks"]), (1, &serde_json::json!(1)));
}

#[test]
fn a_device_that_this_build_has_not() {
    let (setting, _images) = Setting::new();
    setting.refused(1, &["--device", "cuda"], &["--device cuda", "no CUDA backend", "libcuda.so.1", "--device cpu"]);
}

#[test]
fn arguments_that_make_no_sense() {
    let (setting, _images) = Setting::new();
    setting.refused(2, &["--device", "tpu"], &["invalid value 'tpu'"]);
    setting.refused(2, &["--thread", "2"], &["unexpected argument '--thread'"]);
}

const CASE: &str = "TRIREME_TEST_PANIC";

/// Hands out some batches, then panics on the loader's thread.
struct Defect(u64);

impl Order for Defect {
    fn fill(&mut self, job: &mut Job) -> bool {
        assert!(self.0 < 5, "the order has a defect");
        (job.epoch, job.step, job.worker) = (0, self.0, 0);
        job.ids.clear();
        job.ids.push(self.0);
        self.0 += 1;
        true
    }
}

/// The ranks' side of the test below: a loader whose thread panics on rank 1, while the others wait for each other.
#[test]
#[ignore = "the ranks' side of a_panic_in_a_loader_thread_of_one_rank"]
fn ranks_with_a_defect() {
    let Ok(data) = std::env::var(CASE) else { return };
    comm::install_panic_hook();
    let comm = Comm::launch();
    if comm.world().unwrap().rank == 1 {
        let dataset = Dataset::open(&data).unwrap();
        let pipeline = Pipeline::new(&[], DIGITS, &dataset.manifest, 0).unwrap();
        let split = dataset.split("train").unwrap().into();
        let mut loader = Loader::start(split, pipeline, Box::new(Defect(0)), Options::default()).unwrap();
        while loader.next().is_ok() {}
    }
    let waited = comm.run("sum that rank 1 never joins", World::barrier);
    unreachable!("nobody ended this rank: {waited:?}");
}

#[test]
fn a_panic_in_a_loader_thread_of_one_rank() {
    let (setting, _images) = Setting::new();
    let mut command = on_ranks(3, std::env::current_exe().unwrap());
    command.args(["ranks_with_a_defect", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(CASE, &setting.data);
    let ended = start(command).wait(PATIENCE);
    ended.failed(1, &["rank 1: panic in thread loader-0 at ", "the order has a defect"]);
}

/// An OpenMP that starts fewer threads than are planned for would skip their work.
#[test]
fn fewer_threads_than_asked_for() {
    let (setting, _images) = Setting::new();
    let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &setting.out, "--threads", "2"];
    let mut limited = trireme(0, &args);
    limited.env("OMP_THREAD_LIMIT", "1");
    start(limited).wait(PATIENCE).failed(1, &["OpenMP starts 1 of 2", "OMP_THREAD_LIMIT", "--threads 1"]);
    assert!(!Path::new(&setting.out).exists());
    let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &setting.out, "--threads", "100000"];
    run(2, &args).failed(1, &["100000 are asked for"]);
}

/// Ranks that see different data sets would each train on their own.
#[test]
fn ranks_with_different_data() {
    let (setting, images) = Setting::new();
    let other = setting.folder.at("other");
    fs::create_dir(&other).unwrap();
    for entry in fs::read_dir(&images.dir).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, Path::new(&other).join(from.file_name().unwrap())).unwrap();
    }
    let mut manifest = images.manifest.clone();
    manifest.mean = vec![0.9];
    manifest.write(Path::new(&other)).unwrap();
    let mut program = trireme(1, &setting.args(&[]));
    let second = ["train", &setting.recipe, "--data", &other, "--out", &setting.out, "--threads", "1"];
    program.args([":", "-n", "1"]).arg(env!("CARGO_BIN_EXE_trireme")).args(second);
    // the recipe's `data` differs too: it is part of what all ranks must share
    start(program).wait(PATIENCE).failed(1, &["rank 1: the recipe or the data set differs from rank 0's"]);
    assert!(!Path::new(&setting.out).exists());
}

#[test]
fn splits_of_different_image_sizes() {
    let (setting, _images) = Setting::of(|dir| {
        Images::edited(dir, DIGITS, 48, 10, |id, record| {
            *record = images::record(1, id, loaders::ImageSpec::new(28, 30, 1));
        })
    });
    setting.refused(1, &[], &["images of split train are 28x30x1", "28x28x1"]);
}

/// Whole numbers cannot stand for them: the parameter is named, once, and all ranks end.
#[test]
fn gradients_that_are_not_finite_end_all_ranks_by_name() {
    for codec in ["exact", "int8", "ternary"] {
        for ranks in [1, 2] {
            let (setting, _images) = Setting::new();
            let codec_set = format!("reduce.codec={codec}");
            let more = ["--set", &codec_set, "--set", "schedule.base_lr=1e18"];
            let named = format!("reduce.codec = \"{codec}\"");
            setting.train(ranks, &more).failed(1, &["the gradient of parameter ", " holds NaN", &named]);
            setting.assert_no_model();
        }
    }
}

#[test]
fn more_workers_than_lanes_can_hold() {
    let (setting, _images) = Setting::new();
    let more = ["--set", "reduce.codec=int8", "--set", "workers=257", "--set", "batch=257"];
    setting.refused(2, &more, &["--set workers=257", "256 workers at most, got 257"]);
}

/// The second rank runs a copy that is one byte longer.
#[test]
fn ranks_of_different_builds() {
    let (setting, _images) = Setting::new();
    let copy = setting.folder.at("trireme");
    fs::copy(env!("CARGO_BIN_EXE_trireme"), &copy).unwrap();
    std::io::Write::write_all(&mut OpenOptions::new().append(true).open(&copy).unwrap(), b"x").unwrap();
    let mut both = trireme(1, &setting.args(&[]));
    both.args([":", "-n", "1", &copy]).args(setting.args(&[]));
    let ended = start(both).wait(PATIENCE);
    ended.failed(1, &["rank 1: the program differs from rank 0's", "start all ranks with one build"]);
    assert!(!Path::new(&setting.out).exists());
}
