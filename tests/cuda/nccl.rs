//! Runs on several emulated GPUs whose gradients NCCL sums, and their failures: a rank that fails or hangs while the ranks
//! join, in a sum, or in its own pass. Every run ends soon, and one message names the cause.

use std::thread::sleep;
use std::time::Duration;

use backend::cuda::Precision;
use backend::{Backend, Buffer, DeviceMemory, Queue, Reduction};
use support::numerics::{assert_close, cuda};
use support::program::{self, PATIENCE, PATIENT_MPIRUN, ProgramOutput, assert_gone, signal, start};
use support::setting::Setting;
use support::{gpu, skip};

fn setting() -> Setting {
    gpu::resnet("[reduce]\ncodec = \"float\"\nbucket_mb = 0.2\n", [26, 8])
}

const NCCL: &str = "reduce.path=nccl";

/// Options that end a run after a wait of eight seconds. On a busy machine, a rank may not run for some seconds.
const STALL: [&str; 4] = ["--stall-warn", "off", "--stall-abort", "8s"];

/// Trains with one GPU per rank. `fault` is the value of TRIREME_EMULATED_NCCL.
#[track_caller]
fn train(setting: &Setting, out: &str, ranks: usize, fault: &str, more: &[&str]) -> ProgramOutput {
    let devices = ranks.to_string();
    let variables = [("TRIREME_EMULATED_DEVICES", devices.as_str()), ("TRIREME_EMULATED_NCCL", fault)];
    gpu::train(setting, out, ranks, more, &variables)
}

/// On a single rank NCCL does not compute, so sums change nothing and need no second GPU. This checks the functions, the id
/// and the configuration of `cuda/nccl.rs`. Its unit test compares the numbers of types and operations with NCCL's header.
#[test]
fn a_group_of_one_rank_changes_no_value() {
    let device = cuda(Precision::F32);
    let ready = match device.collectives().expect("an interface to NCCL").ready() {
        Ok(ready) => ready,
        Err(why) => return skip(&why.to_string()),
    };
    let id = ready.new_id().unwrap();
    let mut group = ready.join(&id, 0, 1).unwrap();
    while !group.is_ready().unwrap() {
        sleep(Duration::from_millis(1));
    }
    // small integers are also pairs of bf16
    let values: Vec<f32> = (0..1000).map(|i| (i % 250) as f32 - 125.0).collect();
    for reduction in [Reduction::SumF32, Reduction::SumBf16, Reduction::SumI32, Reduction::SumU64, Reduction::MaxU32] {
        let mut bucket = device.alloc(values.len()).unwrap();
        bucket.write(0, &values).unwrap();
        device.mark(&mut bucket).unwrap();
        group.reduce(&mut bucket, reduction).unwrap();
        let mut got = vec![0.0; values.len()];
        bucket.read(0, &mut got).unwrap();
        assert_eq!(got, values, "{reduction:?}");
    }
}

/// With two ranks there is only one order of addition, so NCCL and MPI give the same bits. With more ranks their orders
/// differ, and the losses agree only up to rounding.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn nccl_sums_match_the_host() {
    let setting = setting();
    for ranks in [2, 3, 4] {
        let outs = [format!("staged {ranks}"), format!("nccl {ranks}")];
        for (out, path) in outs.iter().zip(["reduce.path=staged", NCCL]) {
            let ended = train(&setting, out, ranks, "", &["--set", path]).succeeded();
            let why = if path == NCCL { "nccl (nccl: NCCL 2.27.3, " } else { "staged (" };
            assert!(
                ended.stderr.lines().any(|line| line.starts_with("path ") && line.contains(why)),
                "{}",
                ended.stderr
            );
            // if ranks have different numbers of workers, a note says that they do not enqueue steps ahead
            let uneven = ended.stderr.contains("numbers of workers");
            assert_eq!(uneven, ranks == 3 && path == NCCL, "{}", ended.stderr);
        }
        let losses: Vec<Vec<f32>> =
            outs.iter().map(|out| setting.losses(out).iter().map(|l| *l as f32).collect()).collect();
        assert_eq!(losses[0].len(), 4);
        assert_close("losses", &losses[1], &losses[0], 1e-5);
        if ranks == 2 {
            assert_eq!(setting.digest(&outs[1]), setting.digest(&outs[0]));
        }
    }
}

/// Integer sums do not depend on their order. Any number of GPUs gives the same results as one rank without NCCL.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn exact_gives_one_digest_on_any_number_of_gpus() {
    let setting = setting();
    let exact = ["--set", "reduce.codec=exact"];
    train(&setting, "one", 1, "", &exact).succeeded();
    for ranks in [2, 3, 4] {
        let out = format!("nccl {ranks}");
        let ended = train(&setting, &out, ranks, "", &exact).succeeded();
        ended.says(&["path ", "nccl: ", "gradients with exact", "NCCL 2.27.3", "sums are right"]);
        assert_eq!(setting.digest(&out), setting.digest("one"), "{ranks} ranks");
    }
    train(&setting, "staged", 2, "", &[&exact[..], &["--set", "reduce.path=staged"]].concat()).succeeded();
    assert_eq!(setting.digest("staged"), setting.digest("one"), "staged");
}

/// NCCL sums encoded gradients on the GPU, with the same results as MPI on the host. This also holds for bf16, because
/// there is only one order of adding the values of two ranks.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn codes_added_by_nccl_match_mpi() {
    let setting = setting();
    for sets in [
        &["reduce.codec=int8"][..],
        &["reduce.codec=bf16", "reduce.error_feedback=true"],
        &["reduce.codec=ternary", "reduce.clip=0"],
        &["reduce.codec=ternary", "reduce.error_feedback=true"],
        &["reduce.codec=ternary", "reduce.floating_grad_epoch=1"],
    ] {
        let sets = program::sets(sets);
        let digest = |name: &str, variables: &[(&str, &str)]| {
            let out = format!("{} {name}", sets.join(" "));
            let more = [&sets[..], &["--max-steps", "3"]].concat();
            let variables = [variables, &[("TRIREME_EMULATED_DEVICES", "2")]].concat();
            let ended = gpu::train(&setting, &out, 2, &more, &variables).succeeded();
            assert_eq!(ended.stderr.contains("nccl: the device"), name == "nccl", "{}", ended.stderr);
            setting.digest(&out)
        };
        // ranks on MIG instances do not use NCCL, so MPI sums their gradients
        assert_eq!(digest("nccl", &[]), digest("coded", &[("TRIREME_EMULATED_MIG", "1")]), "{sets:?}");
    }
}

/// With three ranks, NCCL and MPI add bf16 values in different orders. So the result of `auto` must not depend on whether
/// NCCL works. The recipe can request NCCL.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn nccl_adds_bf16_on_more_than_two_ranks_only_if_requested() {
    let setting = setting();
    let bf16 = ["--set", "reduce.codec=bf16", "--max-steps", "3"];
    let auto = train(&setting, "auto", 3, "", &bf16).succeeded();
    auto.says(&["coded: the device encodes", "another order than MPI", "reduce.path = \"nccl\""]);
    let variables = [("TRIREME_EMULATED_DEVICES", "3"), ("TRIREME_EMULATED_MIG", "1")];
    gpu::train(&setting, "without", 3, &bf16, &variables).succeeded();
    assert_eq!(setting.digest("auto"), setting.digest("without"));
    let requested = train(&setting, "requested", 3, "", &[&bf16[..], &["--set", NCCL]].concat()).succeeded();
    requested.says(&["nccl: the device encodes gradients with bf16"]);
}

/// The host detects the infinite gradient only when it reads the results of the step. The message is the same as for sums on the host.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_gradient_that_codes_cannot_hold_ends_the_run_by_name() {
    let setting = setting();
    let said = |path: &str| {
        let broken = ["--set", "reduce.codec=exact", "--set", path, "--set", "schedule.base_lr=1e30"];
        let parts = ["gradient of parameter ", "reduce.codec = \"exact\"", "every rank"];
        let ended = train(&setting, path, 2, "", &broken).failed(1, &parts);
        let line = ended.stderr.lines().find(|line| line.contains(parts[0])).map(String::from);
        (line, program::events(&setting.out(path), "step").len())
    };
    assert_eq!(said("reduce.path=auto"), said("reduce.path=staged"));
}

/// MIG instances of one GPU have different ids, so only their common PCI address shows that NCCL would refuse them.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn nccl_is_not_tried_between_parts_of_a_gpu() {
    let setting = setting();
    let variables = [("TRIREME_EMULATED_DEVICES", "2"), ("TRIREME_EMULATED_MIG", "1")];
    let ended = gpu::train(&setting, "out", 2, &["--max-steps", "1"], &variables).succeeded();
    ended.says(&["no nccl: ", "ranks 0 and 1 ", "(MIG)", " 0000:01:00.0 on "]);
    assert!(!ended.stderr.contains("Duplicate GPU"), "NCCL was tried:\n{}", ended.stderr);
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_rank_that_cannot_join_is_named() {
    let setting = setting();
    let fails = "1:join:2";
    let auto = train(&setting, "auto", 2, fails, &["--max-steps", "1"]).succeeded();
    let why = ["rank 1: ", "ncclCommGetAsyncError", "unhandled system error"];
    auto.says(&[&why[..], &["no nccl: "]].concat());
    let key = "reduce.path = \"nccl\": ";
    train(&setting, "fails", 2, fails, &["--set", NCCL]).failed(1, &[&why[..], &[key]].concat());
    let third = ["rank 3: ", "ncclCommGetAsyncError", key];
    train(&setting, "fails on four", 4, "3:join:2", &["--set", NCCL]).failed(1, &third);
    let why = [key, "rank 0 on ", ", 1 on ", "time limit"];
    train(&setting, "hangs", 2, "1:join:hang", &[&["--set", NCCL][..], &STALL].concat()).failed(1, &why);
    // a late rank only delays the others
    train(&setting, "late", 2, "1:join:300ms", &["--set", NCCL, "--max-steps", "1"]).succeeded();
}

/// Number of the first gradient sum, which fails. The sums before it belong to the ranks' test of NCCL.
const SUM: &str = "20";

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_sum_that_fails_or_hangs_ends_the_run() {
    let setting = setting();
    let sum = |what: &str, more: &[&str]| {
        let fault = format!("1:sum{SUM}:{what}");
        train(&setting, what, 2, &fault, &[&["--set", NCCL], more].concat())
    };
    sum("5", &[]).failed(1, &["rank 1: on ", "Emulated GPU 1", "NCCL: ncclAllReduce", "invalid usage"]);
    let why = ["rank 1: on ", "Emulated GPU 1 (GPU-", "NCCL: ncclCommGetAsyncError", "remote process exited"];
    sum("later 6", &[]).failed(1, &why);
    let why = ["\"gradient sums ", "Emulated GPU 0 (GPU-", "all 2 ranks"];
    sum("hang", &STALL).failed(1, &why);
    sum("10ms", &["--max-steps", "2"]).succeeded();
}

/// The kernels of rank 1 hang, so rank 0 waits in the sum for rank 1's gradients.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_gpu_that_hangs_in_a_pass_is_named() {
    let setting = setting();
    let lines = [
        "#!/bin/sh".to_string(),
        "[ \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" = 0 ] || export TRIREME_EMULATED_FAULT='kernel cross_entropy:hang'"
            .into(),
        format!("exec '{}' \"$@\"", env!("CARGO_BIN_EXE_trireme")),
    ];
    let script = setting.folder.write("trireme.sh", lines.join("\n"));
    for path in [NCCL, "reduce.path=staged"] {
        let mut command = program::on_ranks(2, "sh");
        let out = setting.out(path);
        command.args([&script, "train", "-v", &setting.recipe, "--data", &setting.data, "--out", &out, "--set", path]);
        command.args(["--device", "cuda"]).args(STALL).env("TRIREME_EMULATED_DEVICES", "2");
        let why = ["1 of 2 ranks", "rank 1 on ", "compute step 1 on ", "Emulated GPU 1", "--stall-abort"];
        gpu::run(command).failed(1, &why);
    }
    // a single rank must also end if its kernel hangs
    let hangs = [("TRIREME_EMULATED_FAULT", "kernel cross_entropy:hang")];
    let why = ["this rank", "compute step 1 on ", "Emulated GPU 0", "--stall-abort"];
    gpu::train(&setting, "one", 1, &STALL, &hangs).failed(1, &why);
}

/// Rank 0 waits on its GPU for the gradients of a rank that is gone or stopped.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_rank_that_is_killed_or_stopped_while_gpus_sum_is_named() {
    let setting = setting();
    for (out, number, how, says) in [
        ("killed", 2, libc::SIGKILL, " is gone"),
        ("killed of three", 3, libc::SIGKILL, " is gone"),
        ("stopped", 2, libc::SIGSTOP, "sign of life"),
    ] {
        let kills = how == libc::SIGKILL;
        // the ranks notice a rank that is gone before the watchdog does
        let stall = if kills { ["--stall-warn", "off", "--stall-abort", "60s"] } else { STALL };
        let more = ["--device", "cuda", "--set", NCCL, "--set", "epochs=100000"];
        let mut command = gpu::find(setting.command(out, number, &[&more[..], &stall].concat()));
        command.env("TRIREME_EMULATED_DEVICES", number.to_string());
        if kills {
            command.env(PATIENT_MPIRUN.0, PATIENT_MPIRUN.1);
        }
        let mut running = start(command);
        let metrics = setting.out(out) + "/metrics.jsonl";
        running
            .until("third step", || std::fs::read_to_string(&metrics).is_ok_and(|text| text.contains("\"step\":3,")));
        let ranks = running.ranks();
        signal(ranks[1] as i32, how);
        let ended = running.wait(PATIENCE);
        let process = format!("(process {})", ranks[1]);
        assert!(!ended.status.success(), "{out}:\n{}", ended.stderr);
        ended.says(&[says, &process]);
        assert_eq!(ended.stderr.matches(says).count(), 1, "{out}: only one rank names it:\n{}", ended.stderr);
        assert_gone(&ranks);
    }
}
