//! Tests how a training run reacts to every signal and resource limit, using the real binary. docs/cluster.md has the same tables.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use formats::checkpoint::LayerWeights;

use support::images::DIGITS;
use support::program::{
    PATIENCE, ProgramOutput, Running, checkpoints, compile_c, files, is_ignored, logged, mpirun, run, signal, start,
    trireme,
};
use support::setting::Setting;
use support::weights::model;

/// A recipe with five steps per epoch. Its 100,000 epochs take longer than any test.
const RECIPE: &str = r#"
model = "lenet-caffe"
epochs = 100000
batch = 10
schedule.base_lr = 0.0001
"#;

/// How a training run reacts to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    /// Writes a checkpoint, names the signal and exits with code 75.
    Stop(&'static str),
    Nothing,
    End,
}

/// All signals except KILL, STOP, TSTP, TTIN and TTOU, which cannot be handled or only pause, and except fault signals.
const SIGNALS: [(i32, Reaction); 19] = [
    (libc::SIGHUP, Reaction::Stop("SIGHUP")),
    (libc::SIGINT, Reaction::Stop("SIGINT")),
    (libc::SIGTERM, Reaction::Stop("SIGTERM")),
    (libc::SIGUSR1, Reaction::Stop("SIGUSR1")),
    (libc::SIGUSR2, Reaction::Stop("SIGUSR2")),
    (libc::SIGXCPU, Reaction::Stop("SIGXCPU")),
    (libc::SIGPWR, Reaction::Stop("SIGPWR")),
    (libc::SIGXFSZ, Reaction::Nothing),
    (libc::SIGPIPE, Reaction::Nothing),
    (libc::SIGCHLD, Reaction::Nothing),
    (libc::SIGCONT, Reaction::Nothing),
    (libc::SIGURG, Reaction::Nothing),
    (libc::SIGWINCH, Reaction::Nothing),
    (libc::SIGQUIT, Reaction::End),
    (libc::SIGALRM, Reaction::End),
    (libc::SIGVTALRM, Reaction::End),
    (libc::SIGPROF, Reaction::End),
    (libc::SIGIO, Reaction::End),
    (libc::SIGSTKFLT, Reaction::End),
];

#[test]
fn every_signal_does_what_the_table_says() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let mut ignored = setting.under_way("ignored", 0, &[]);
    for (number, _) in SIGNALS.into_iter().filter(|(_, reaction)| *reaction == Reaction::Nothing) {
        signal(ignored.id() as i32, number);
    }
    let out = setting.out("ignored");
    ignored.until_logged(&out, logged(&out, "\n") + 3);
    drop(ignored);
    for (number, reaction) in SIGNALS.into_iter().filter(|(number, _)| !is_ignored(*number)) {
        if reaction == Reaction::Nothing {
            continue;
        }
        let name = number.to_string();
        let running = setting.under_way(&name, 0, &[]);
        signal(running.id() as i32, number);
        let ended = running.wait(PATIENCE);
        if let Reaction::Stop(said) = reaction {
            ended.failed(75, &["stopped after step", said, "--resume auto"]);
            assert!(!checkpoints(&setting.out(&name)).is_empty(), "{number}");
        } else {
            assert_eq!(ended.status.signal(), Some(number));
        }
    }
}

/// Trains with a resource limit, given as `ulimit` arguments.
fn limited(setting: &Setting, name: &str, limit: &str, more: &[&str]) -> ProgramOutput {
    start_limited(setting, name, limit, more).wait(PATIENCE)
}

fn start_limited(setting: &Setting, name: &str, limit: &str, more: &[&str]) -> Running {
    let train = setting.command(name, 0, &[&["--threads", "1"], more].concat());
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]).arg(train.get_program()).args(train.get_args());
    shell.envs(train.get_envs().filter_map(|(name, value)| Some((name, value?))));
    start(shell)
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let mut running = start_limited(&setting, "files", "-Sn 64", &[]);
    running.until_logged(&setting.out("files"), 3);
    let limits = fs::read_to_string(format!("/proc/{}/limits", running.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|word| line.split_whitespace().nth(word).unwrap());
    let wanted = hard.parse().unwrap_or(u64::MAX).min(65_536);
    assert_eq!(soft.parse(), Ok(wanted), "{line}");
}

/// Leaves out two limits: RLIMIT_NPROC does not apply to root, and RLIMIT_RTTIME applies only to real-time processes.
#[test]
fn every_limit_does_what_the_table_says() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let short = ["--set", "epochs=2"];
    // core size, resident pages, locked memory, file locks, pending signals, queues, priorities and a small stack have no effect
    for limit in ["-c 0", "-m 1000", "-l 0", "-x 0", "-i 0", "-q 0", "-e 0", "-r 0", "-s 512"] {
        limited(&setting, &format!("fine{}", &limit[1..2]), limit, &short).succeeded();
    }
    let ended = limited(&setting, "t", "-t 3", &[]);
    ended.failed(75, &["stopped after step", "CPU time", "ulimit -t", "--resume auto"]);
    // the limit is in KiB: enough for MPI's files in /tmp and the log, but too small for a 26 MB checkpoint
    let ended = limited(&setting, "f", "-f 20000", &[&short[..], &["--set", "model=lenet"]].concat());
    ended.says(&["warning: ", "no checkpoint", "step-00000010.h5", "`ulimit -f`"]);
    for (option, limits) in [("-v", [150_000, 250_000, 350_000, 450_000]), ("-d", [20_000, 60_000, 100_000, 140_000])] {
        for limit in limits {
            let name = format!("memory{option}{limit}");
            let more = ["--set", "model=resnet20", "--set", "batch=50", "--max-steps", "1"];
            let ended = limited(&setting, &name, &format!("{option} {limit}"), &more);
            let code = ended.status.code();
            let last = ended.stderr.trim_end().lines().next_back().unwrap_or_default();
            let own = ["ulimit", "memory", "allocate", "Cannot"].iter().any(|word| last.contains(word));
            // Open MPI ends the process itself if it cannot start
            let explained = (own || ended.stderr.contains("An error occurred in MPI_Init"))
                && !ended.stderr.contains("bug in trireme");
            // a library, probably Open MPI's, ended the process in this way once. trireme never prints this line
            let foreign = code == Some(255) && ended.stderr.trim() == "Out of memory: Cannot allocate memory";
            assert!(
                code == Some(0) || (code.is_some_and(|code| code < 126) && explained) || foreign,
                "{name}: {code:?}\n{}",
                ended.stderr
            );
        }
    }
}

/// Arguments of both ranks, additional arguments of the first and of the second rank, and a part of the expected
/// message.
type Differing<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], &'a str);

/// Ranks with different options could deadlock by waiting at different points.
#[test]
fn options_that_differ_between_ranks_are_named() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let stage = setting.folder.at("stage");
    fs::create_dir(&stage).unwrap();
    let out = setting.out("out");
    let train =
        ["train", &setting.recipe, "--data", &setting.data, "--out", &out, "--threads", "1", "--set", "workers=2"];
    let eval = ["eval", "model.h5", "--data", &setting.data, "--threads", "1"];
    let cases: [Differing<'_>; 10] = [
        (&train, &["--stage", &stage], &[], "--stage given"),
        (&train, &["--dry-run"], &[], "--dry-run given"),
        (&train, &["--find-lr=20"], &[], "--find-lr 20"),
        (&train, &["--max-steps", "3"], &["--max-steps", "4"], "--max-steps 3"),
        (&train, &["--resume", "auto"], &[], "--resume auto"),
        (&train, &["--resume", "auto"], &["--resume", "out/checkpoints/step-00000002.h5"], "--resume a file"),
        (&train, &["--trace", &stage], &[], "--trace given"),
        (&train, &["--set", "loss.class_weights=auto"], &[], "data set differs"),
        (&eval, &["--stage", &stage], &[], "--stage true"),
        (&["bench", "allreduce"], &["--sizes", "4K"], &["--sizes", "8K"], "--sizes [4096]"),
    ];
    for (common, first, second, said) in cases {
        let ended = run_two_ranks([&[common, first].concat(), &[common, second].concat()]);
        assert!(!ended.status.success(), "{said}: {}", ended.stderr);
        ended.says(&["rank 1: ", "rank 0", said]);
    }
    run_two_ranks([&train, &eval]).says(&["rank 1: ", "\"trireme train\"", "\"trireme eval\""]);
}

fn run_two_ranks(arguments: [&[&str]; 2]) -> ProgramOutput {
    let (name, flags) = mpirun();
    let mut command = Command::new(name);
    for (rank, arguments) in arguments.into_iter().enumerate() {
        command.args((rank > 0).then_some(":")).args(["-n", "1"]).args(if rank == 0 { *flags } else { &[] });
        let own = trireme(0, arguments);
        command.arg(own.get_program()).args(own.get_args());
    }
    start(command).wait(PATIENCE)
}

/// A network with batch norm. The test sets a huge running mean, which only scoring uses. So the scores overflow, but
/// training does not.
const NET: &str = r#"
input = [1, 28, 28]
classes = 10
nodes = [
 { name = "conv1", op = "conv", channels = 8, kernel = 3, pad = 1, stride = 2 },
 { name = "bn1", op = "norm", relu = true },
 { name = "conv2", op = "conv", channels = 16, kernel = 3, pad = 1, stride = 2, bias = true },
 { name = "flatten", op = "flatten" },
 { name = "fc", op = "linear", features = "classes" },
]
"#;

#[test]
fn scores_that_are_not_finite_are_no_success() {
    let setting = Setting::new(&RECIPE.replace("lenet-caffe", "net.toml"), DIGITS, [50, 20]);
    setting.folder.write("net.toml", NET);
    let out = setting.trained("start", 0, &["--max-steps", "1"]);
    let mut model = model(&out);
    let mut with_mean = |name: &str, mean: f32| {
        let of = |layer: &mut LayerWeights| {
            layer.tensors.iter_mut().filter(|t| t.0 == "running_mean").for_each(|t| t.2.fill(mean))
        };
        model.layers.iter_mut().for_each(of);
        let path = setting.folder.at(name);
        model.write(Path::new(&path)).unwrap();
        path
    };
    let absurd = with_mean("absurd.h5", -1e20);
    let more = ["--max-steps", "1", "--set", &format!("init.from={absurd}")];
    setting.train("absurd", 0, &more).failed(1, &["diverged", "after step 1 ", "split test", "far beyond"]);
    let lost = with_mean("lost.h5", -3e38);
    let from = format!("init.from={lost}");
    for ranks in [0, 2] {
        let name = format!("lost{ranks}");
        let more = ["--set", "workers=2", "--max-steps", "1", "--set", &from];
        setting.train(&name, ranks, &more).failed(1, &["diverged", "after step 1 ", "split test"]);
        assert!(!files(&setting.out(&name)).contains(&"model.h5".to_string()));
    }
    let eval = ["eval", &lost, "--data", &setting.data, "--threads", "1"];
    run(0, &eval).failed(1, &["lost.h5", " loss of ", "split test", "no longer finite"]);
    let picture = setting.folder.at("a.png");
    image::GrayImage::from_fn(28, 28, |x, y| image::Luma([(x * 7 + y) as u8])).save(&picture).unwrap();
    let ended = run(0, &["predict", &lost, &picture]);
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    ended.failed(1, &["a.png", "scores", "not finite"]);
}

/// A run and an evaluation must notice if the file system hangs while a rank opens or syncs one of the files in
/// `cases`.
#[test]
fn files_that_hang_are_noticed_wherever_they_are_used() {
    let setting = Setting::new(RECIPE, DIGITS, [50, 20]);
    let library = setting.folder.at("hang.so");
    compile_c("tests/runs/hang.c", &library, &["-Wall", "-Werror", "-shared", "-fPIC"]);
    let limits = ["--threads", "1", "--stall-warn", "1s", "--stall-abort", "2s"];
    let hangs = |mut command: Command, call: &str, word: &str, said: &str| {
        // Open MPI's launcher forwards only variables with its prefix, but ranks on the same machine inherit all variables
        command.env("LD_PRELOAD", &library).env("HANG", word).env("HANG_ON", call);
        let ended = start(command).wait(PATIENCE);
        assert!(!ended.status.success() && ended.stderr.contains(said), "{word}:\n{}", ended.stderr);
        assert!(ended.stderr.contains("--stall-abort"), "{word}:\n{}", ended.stderr);
    };
    let reads = "reads the recipe";
    let cases = [
        ("open", "recipe.toml", reads),
        ("open", "dataset.json", reads),
        ("open", "train-0000", reads),
        ("open", "test-0000", ""),
        ("sync", "step-", "files of step 5"),
        ("sync", "model.h5", "files of step 5"),
    ];
    for ranks in [0, 2] {
        for (number, (call, word, said)) in cases.into_iter().enumerate() {
            let more = [&limits[..], &["--set", "epochs=1", "--set", "workers=2"]].concat();
            hangs(setting.command(&format!("hang{ranks}-{number}"), ranks, &more), call, word, said);
        }
    }
    setting.train("whole", 1, &["--set", "epochs=1"]).succeeded();
    let model = format!("{}/model.h5", setting.out("whole"));
    for (word, said) in [("model.h5", reads), ("dataset.json", reads), ("test-0000", "")] {
        let eval = ["eval", &model, "--data", &setting.data];
        hangs(trireme(0, &[&eval[..], &limits].concat()), "open", word, said);
    }
    let picture = setting.folder.at("slow.png");
    let predict = ["predict", &model, &picture, "--stall-warn", "1s", "--stall-abort", "2s"];
    hangs(trireme(0, &predict), "open", "slow.png", "opening");
}
