//! `tests/gpu/check.sh`, the first script to run on a machine with a GPU, run on the emulated GPU with small limits.
//!
//! It must write one line of JSON per stage, whatever fails, and leave no more files than its limit. Cargo and python3
//! are replaced by scripts, some of which fail on purpose.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use support::gpu;
use support::program::{Folder, start};

/// Limits in seconds: for one stage and for all stages.
const MOST: u64 = 5;
const TOTAL: u64 = 90;

/// A replacement for cargo. Its first set of tests passes, and its second hangs. Its third fails, and leaves a very
/// large file and more files than the limit.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
*ops::*) echo 'test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 7 filtered out; finished in 0.01s' ;;
*gradients::*) sleep 1000 ;;
*)
    echo 'test graph::replays ... FAILED'
    head -c 17000000 /dev/zero >"$OUT/large"
    for i in 1 2 3 4 5 6 7 8 9; do echo "$i" >"$OUT/file$i"; done
    exit 101
    ;;
esac
"#;

fn programs(folder: &Folder) -> String {
    let place = folder.path().join("bin");
    fs::create_dir_all(&place).expect("a folder");
    for (name, text) in [("cargo", CARGO), ("python3", "#!/bin/sh\nexit 1\n")] {
        fs::write(place.join(name), text).expect("a program");
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o755)).expect("may be run");
    }
    format!("{}:{}", place.display(), std::env::var("PATH").expect("a PATH"))
}

/// Reads the lines that a script wrote about its stages.
fn stages(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_stage_that_fails_stops_no_other() {
    let folder = Folder::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/check.sh");
    let mut command = gpu::find(Command::new(script));
    command.env("PATH", programs(&folder)).env("TRIREME", env!("CARGO_BIN_EXE_trireme")).env("OUT", folder.at("out"));
    command.env("MOST", MOST.to_string()).env("TOTAL", TOTAL.to_string());
    start(command).wait(Duration::from_secs(TOTAL + 60)).succeeded();
    let lines = stages(&folder.path().join("out/check.jsonl"));
    let of = |name: &str| {
        let found = lines.iter().find(|line| line["stage"] == name);
        found.unwrap_or_else(|| panic!("no stage {name} in {lines:#?}"))
    };
    assert_eq!(of("operations")["rc"], 0);
    assert_eq!(
        of("operations")["figures"][0],
        serde_json::json!({"passed": 3, "failed": 0, "ignored": 2, "filtered": 7})
    );
    assert_eq!(of("gradients")["rc"], 124, "{:#?}", of("gradients"));
    assert!(of("gradients")["seconds"].as_f64().is_some_and(|s| s < TOTAL as f64), "its limit has ended it");
    assert_eq!(of("graph")["rc"], 101);
    assert_eq!(of("graph")["figures"][0], serde_json::json!({"failed_test": "graph::replays"}));
    let doctor = fs::read_to_string(folder.path().join("out/check.log")).expect("a log");
    assert!(doctor.contains("libcudnn: 9.19.0, "), "doctor's report is in the log");
    assert_eq!(of("resnet50-pytorch")["rc"], Value::Null, "PyTorch is not installed");
    // these stages must report an exit code, even if they ran out of time
    assert!(of("lenet")["rc"].is_u64() && of("profile-resnet20")["rc"].is_u64(), "{lines:#?}");
    let left: Vec<_> = fs::read_dir(folder.path().join("out")).expect("OUT").flatten().collect();
    let names: Vec<_> = left.iter().map(|file| file.file_name()).collect();
    assert!(left.len() <= 8 && names.iter().any(|name| name == "file9"), "{names:?}");
    assert!(left.iter().all(|file| file.metadata().expect("its size").len() <= 16 << 20), "{names:?}");
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn figures_of_a_step_are_in_its_line() {
    let folder = Folder::new();
    // runs only two stages: one that finishes in time, and one for which no time is left
    let lines = r#"set -uo pipefail; . tests/gpu/stages.sh; ours lenet 60 --model lenet --batch 2 --seconds 0.01; TOTAL=1; SECONDS=1
        stage late 5 true"#;
    let mut command = gpu::find(Command::new("bash"));
    command.args(["-c", lines, "short.sh"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.env("PATH", programs(&folder)).env("TRIREME", env!("CARGO_BIN_EXE_trireme")).env("OUT", folder.at("out"));
    start(command).wait(gpu::PATIENCE).succeeded();
    let lines = stages(&folder.path().join("out/short.jsonl"));
    assert_eq!(lines[0]["rc"], 0, "{lines:#?}");
    assert!(lines[0]["figures"][0]["img_per_s"].is_f64(), "{lines:#?}");
    assert_eq!((&lines[1]["stage"], &lines[1]["why"]), (&"late".into(), &"no time left".into()));
}
