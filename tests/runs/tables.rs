//! The choice of convolution kernels on the CPU: the built-in table of the processor, a table from the environment, the
//! table of rank 0, and the table of the checkpoint. Also tests instruction sets that the environment disables.

use std::path::Path;

use support::images::DIGITS;
use support::mentions;
use support::numerics::has_own_kernels;
use support::program::{PATIENCE, events, start, trireme};
use support::setting::Setting;
use support::small_run::RECIPE;

/// A network whose second convolution (5x5, stride 1, on channel blocks) has two implementations.
const NET: [&str; 2] = ["--set", "model=lenet"];
const TABLE: &str = "TRIREME_CPU_TABLE";
const ISA: &str = "ONEDNN_MAX_CPU_ISA";
/// A table that chooses other kernels for this convolution than the default rule.
const OWN: &str = "# By hand.\n5 32 64 14 14 onednn\n";

fn has_choice() -> bool {
    let has = cfg!(target_arch = "x86_64") && has_own_kernels();
    if !has {
        support::skip("the choice of kernels: the processor has no AVX2 and FMA");
    }
    has
}

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [48, 10])
}

/// Returns a fact from the `start` event that the last start of this run has logged.
fn fact(setting: &Setting, out: &str, name: &str) -> String {
    let starts = events(&setting.out(out), "start");
    starts.last().expect("a start")["facts"][name].as_str().unwrap_or_else(|| panic!("no fact {name}")).to_string()
}

#[test]
fn a_disabled_instruction_set_is_not_used_and_is_reported() {
    let setting = setting();
    let held = |isa: &str, more: &[&str]| {
        // trains a single step, because a step without fast instructions needs more than a second
        let args = [&["--threads", "1", "--max-steps", "1"], more].concat();
        let mut command = setting.command(isa, 0, &args);
        command.env(ISA, isa).env_remove(TABLE);
        start(command).wait(PATIENCE).succeeded()
    };
    let conv2 = |isa: &str| {
        let plan = held(isa, &[&NET[..], &["--dry-run"]].concat()).stdout;
        plan.lines()
            .find(|line| line.starts_with("conv2 "))
            .unwrap_or_else(|| panic!("no conv2 in\n{plan}"))
            .to_string()
    };
    // the program runs as on a processor without AVX2
    held("SSE41", &[]);
    mentions(fact(&setting, "SSE41", "device"), &[", sse4.1,", "1 thread, no table)"]);
    let line = conv2("SSE41");
    assert!(!line.contains("winograd") && !line.contains("avx"), "{line}");
    if has_choice() {
        held("AVX2", &[]);
        mentions(fact(&setting, "AVX2", "device"), &[", avx2, 1 thread", "table avx2"]);
        let line = conv2("AVX2");
        assert!(line.contains("own winograd") || line.contains("jit:avx2"), "{line}");
    }
}

#[test]
fn a_table_of_the_environment_is_named_or_refused() {
    let setting = setting();
    let args = [&NET[..], &["--threads", "1", "--max-steps", "2"]].concat();
    let broken = setting.folder.write("broken.txt", format!("{OWN}3 16 16 32 32 winnograd\n"));
    let unknown = ["\"zen\"", "zen4, zen5", "No such file"];
    let wrong = [broken.as_str(), "line 3, \"3 16 16 32 32 winnograd\"", "onednn or winograd"];
    for (ranks, table, parts) in [(0, "zen", unknown), (2, "zen", unknown), (0, broken.as_str(), wrong)] {
        let mut command = setting.command("refused", ranks, &args);
        command.env(TABLE, table);
        let own = ["TRIREME_CPU_TABLE: ", "unset TRIREME_CPU_TABLE"];
        start(command).wait(PATIENCE).failed(2, &[&own[..], &parts].concat());
        assert!(!Path::new(&setting.out("refused")).exists());
    }
    let own = setting.folder.write("own.txt", OWN);
    for (out, table, said) in [("named", "none", "no table".to_string()), ("file", &own, format!("table {own}"))] {
        let mut command = setting.command(out, 0, &args);
        command.env(TABLE, table);
        start(command).wait(PATIENCE).succeeded();
        assert!(fact(&setting, out, "device").ends_with(&format!("1 thread, {said})")));
        let who = fact(&setting, out, "algorithms");
        mentions(who, &["convolutions", &said, "TRIREME_CPU_TABLE)", "oneDNN"]);
    }
    assert_eq!(setting.digest("file") != setting.digest("named"), has_choice(), "the row of the file has no effect");
}

#[test]
fn all_ranks_use_rank_0s_table_and_report_it() {
    let setting = setting();
    let own = setting.folder.write("own.txt", OWN);
    let args = [&NET[..], &["--threads", "1", "--max-steps", "2", "--set", "reduce.codec=exact"]].concat();
    let both = |out: &str, tables: [Option<&str>; 2]| {
        let mut command = setting.command(out, 1, &args);
        command.env_remove(TABLE);
        let words: Vec<_> = command.get_args().map(|word| word.to_os_string()).collect();
        let program = words.iter().position(|word| word == env!("CARGO_BIN_EXE_trireme")).expect("the program");
        let mut own = std::process::Command::new(command.get_program());
        own.env_remove(TABLE).args(&words[..program]);
        for (rank, table) in tables.into_iter().enumerate() {
            if rank > 0 {
                own.args([":", "-n", "1"]);
            }
            own.args(table.map(|name| ["env".to_string(), format!("{TABLE}={name}")]).into_iter().flatten());
            own.args(&words[program..]);
        }
        start(own).wait(PATIENCE)
    };
    both("same", [Some(&own), Some(&own)]).succeeded();
    let ended = both("first", [Some(&own), None]).succeeded();
    ended.says(&["rank 1 ", "rank 0's algorithms", &format!("table {own},")]);
    assert_eq!(setting.digest("first"), setting.digest("same"), "rank 1 does not use rank 0's table");
    // each rank keeps a table that its environment names, and a message says so; the run fails if the ranks' tables
    // give different memory layouts
    let ended = both("named", [Some("none"), Some("intel-avx512")]).succeeded();
    ended.says(&["rank 1 ", "cannot use", "rank 0's differ for ", "convolutions)"]);
    if has_choice() {
        let parts = ["rank 1: ", "memory layout", "rank 0", "TRIREME_CPU_TABLE"];
        both("differ", [Some(&own), Some("none")]).failed(1, &parts);
    }
}

#[test]
fn a_resumed_run_uses_the_table_of_its_checkpoint() {
    let setting = setting();
    let own = setting.folder.write("own.txt", OWN);
    let go = |out: &str, table: Option<&str>, more: &[&str]| {
        let mut command = setting.command(out, 0, &[&NET[..], &["--threads", "1"], more].concat());
        command.env_remove(TABLE);
        table.map(|name| command.env(TABLE, name));
        start(command).wait(PATIENCE).succeeded()
    };
    go("whole", Some(&own), &[]);
    go("parts", Some(&own), &["--max-steps", "7"]);
    std::fs::remove_file(format!("{}/model.h5", setting.out("parts"))).unwrap();
    go("parts", None, &["--resume", "auto"]);
    let who = fact(&setting, "parts", "algorithms");
    mentions(&who, &["convolutions", &format!("table {own},")]);
    assert!(who.ends_with("the checkpoint's"), "{who}");
    assert_eq!(setting.digest("parts"), setting.digest("whole"));
    // the environment has priority over the checkpoint, and a message says so
    go("other", Some(&own), &["--max-steps", "7"]);
    std::fs::remove_file(format!("{}/model.h5", setting.out("other"))).unwrap();
    let ended = go("other", Some("none"), &["--resume", "auto"]);
    ended.says(&["note: ", "other algorithms", "the checkpoint's"]);
}

/// Measures every implementation in every pass and checks the rows of the table. Files that are not tables are refused.
#[test]
fn each_implementation_is_measured_and_the_fastest_becomes_a_row() {
    let setting = setting();
    let table = setting.folder.write("table.txt", "# By hand.\n3 8 8 4 4 onednn 0.50\n");
    let shapes = ["--shape", "3,16,32,6,6", "--shape", "1,16,8,6,6"];
    let few = ["--batch", "2,4", "--threads", "1", "--seconds", "0.001"];
    let bench = |table: &str, model: &[&str]| {
        let args = [&["bench", "ops", "--table", table], &shapes[..], &few, model].concat();
        let mut command = trireme(0, &args);
        command.env_remove(TABLE).env_remove(ISA);
        start(command).wait(PATIENCE)
    };
    let ended = bench(&table, &["--model", "lenet"]).succeeded();
    let lines = ended.json_lines();
    let of = |op: &str, by: &str| -> Vec<String> {
        let wanted = lines.iter().filter(|line| line["op"] == op && line["implementation"] == by);
        wanted.map(|line| format!("{} {}", line["batch"], line["pass"].as_str().unwrap())).collect()
    };
    let passes = ["2 forward", "2 weights", "2 input", "4 forward", "4 weights", "4 input"];
    let by: &[&str] = if has_choice() { &["onednn", "winograd"] } else { &[] };
    by.iter().for_each(|by| assert_eq!(of("3 16>32 6x6", by), passes, "{by}"));
    // layers with only one implementation are not measured
    assert!(of("1 16>8 6x6", "onednn").is_empty() && lines.iter().all(|line| line["implementation"] != ""));
    assert!(lines.iter().all(|line| !line["op"].as_str().unwrap().starts_with("linear")), "linear layer in a table");
    for line in &lines {
        let positive = |name: &str| line[name].as_f64().is_some_and(|number| number > 0.0);
        assert!(["ms", "gflops", "of_peak"].into_iter().all(positive) && line["threads"] == 1, "{line}");
    }
    let rows = std::fs::read_to_string(&table).unwrap();
    assert!(rows.starts_with("# By hand.\n# ") && rows.contains("2 and 4 images"), "{rows}");
    assert!(rows.contains("\n3 8 8 4 4 onednn 0.50\n"), "the row of another size is gone:\n{rows}");
    assert_eq!(rows.contains("\n3 16 32 6 6 "), has_choice(), "{rows}");
    assert!(!rows.contains("\n1 "), "a layer without a choice has a row:\n{rows}");
    let args = [&["bench", "ops", "--model", "lenet"], &few[..], &shapes[2..]].concat();
    let all = start(trireme(0, &args)).wait(PATIENCE).succeeded();
    // the gradient of the network's input is never computed, so it is not measured
    assert!(!all.stdout.lines().any(|line| line.contains("\"5 1>32 28x28\"") && line.contains("\"pass\":\"input\"")));
    assert!(
        all.stdout.contains("\"op\":\"linear 1024>10\"") && all.stdout.contains("\"op\":\"1 16>8 6x6\""),
        "{}",
        all.stdout
    );
    assert!(all.stderr.contains("(no choice)"), "{}", all.stderr);
    let rubbish = setting.folder.write("rubbish.txt", "3 8 8 4\n");
    let nowhere = bench(&setting.folder.at("none/table.txt"), &[]).failed(2, &["cannot write", "none/table.txt"]);
    assert_eq!(nowhere.stdout, "", "nothing must be measured if the table cannot be written");
    for (name, text) in [("photo.png", "\u{89}PNG"), ("run.sh", "#!/bin/sh\nexit 0\n"), ("notes.md", "Notes\n")] {
        let other = setting.folder.write(name, text);
        bench(&other, &[]).failed(2, &[name, "`trireme bench ops`"]);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), text);
    }
    bench(&rubbish, &[]).failed(1, &["rubbish.txt", "line 1, \"3 8 8 4\"", "expected kernel"]);
    bench(&table, &["--model", "lenett"]).failed(2, &["no network lenett", "lenet"]);
}
