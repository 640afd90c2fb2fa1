//! What a run prints: a status block on a terminal, plain lines elsewhere, and more or fewer facts with `-v` and `--quiet`.

use std::fs;
use std::path::Path;
use std::process::Command;

use support::images::DIGITS;
use support::mentions;
use support::program::{on_ranks, run, trireme};
use support::setting::Setting;
use support::small_run::RECIPE;
use support::terminal::{Terminal, screen};

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [48, 10])
}

/// Returns the `trireme train` command as a user would type it.
fn typed(setting: &Setting, out: &str, more: &[&str]) -> Command {
    let out = setting.out(out);
    let mut command = trireme(0, &["train", &setting.recipe, "--data", &setting.data, "--out", &out, "--threads", "1"]);
    command.args(more).env("TERM", "xterm").env_remove("NO_COLOR");
    command
}

fn block(written: &str) -> Vec<&str> {
    let plain = written.split(['\n', '\r']).map(|line| line.rsplit_once("\x1b[J").map_or(line, |(_, line)| line));
    plain.filter(|line| (line.starts_with("epoch ") && !line.contains("done")) || line.starts_with("loss ")).collect()
}

/// Joins lines that were broken between words.
fn unwrapped(lines: &[String]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_block_fits_the_terminal_and_leaves_it_clean() {
    let setting = setting();
    for columns in [60, 80, 120, 200] {
        let (status, written) = Terminal::run(columns, typed(&setting, &columns.to_string(), &[]));
        assert!(status.success(), "{written}");
        let lines = block(&written);
        assert!(lines.iter().any(|line| line.starts_with("epoch 2/2 [=") && line.contains(" left")), "{written}");
        let longest = lines.iter().map(|line| line.len()).max().unwrap();
        assert!(longest < usize::from(columns) && longest + 1 >= usize::from(columns).min(80), "{columns}: {written}");
        let screen = screen(&written, usize::from(columns));
        let (lines, text) = (screen.join("\n"), unwrapped(&screen));
        assert!(block(&lines).is_empty() && !lines.contains("\nlaunch "), "{lines}");
        assert!(lines.contains("\nepoch 2 done: ") && lines.contains("\ndone: 12 steps"), "{lines}");
        let begin = "lenet-caffe: 431,080 parameters, 48 images, 2 epochs of 6 steps of 8";
        assert!(text.starts_with(begin) && text.contains("/model.h5; ") && text.contains("best"), "{lines}");
    }
}

/// Sends Ctrl-C as a terminal does, including its echo.
#[test]
fn an_interrupt_leaves_a_clean_terminal() {
    let setting = setting();
    let mut terminal = Terminal::new(80);
    let program = terminal.start(typed(&setting, "out", &["--set", "epochs=10000"]));
    terminal.until("epoch 2/10000 [");
    terminal.press("\x03");
    let (status, written) = terminal.end(program);
    assert_eq!(status.code(), Some(75), "{written}");
    let screen = screen(&written, 80);
    let text = screen.join("\n");
    assert!(block(&text).is_empty() && !text.contains("^C"), "{text}");
    let last = screen.iter().position(|line| line.starts_with("stopped after step ")).expect("the last message");
    assert!(unwrapped(&screen[last..]).contains("--resume auto"), "{text}");
}

#[test]
fn the_block_is_there_under_mpirun_where_rank_0_has_the_terminal() {
    let setting = setting();
    let mut terminal = Terminal::new(80);
    let mut mpirun = on_ranks(2, "sh");
    let line = format!("exec \"$0\" \"$@\" 2>{}", terminal.path);
    mpirun.args(["-c", &line]).arg(env!("CARGO_BIN_EXE_trireme"));
    mpirun.args(typed(&setting, "out", &[]).get_args()).env("TERM", "xterm");
    for (name, value) in [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")] {
        mpirun.env(name, value);
    }
    let program = terminal.start(mpirun);
    let (status, written) = terminal.end(program);
    assert!(status.success(), "{written}");
    let text = screen(&written, 80).join("\n");
    assert!(block(&written).iter().any(|line| line.starts_with("epoch 2/2 [=")), "{written}");
    assert!(block(&text).is_empty() && text.contains("2 ranks, 2 workers"), "{text}");
}

#[test]
fn colours_can_be_turned_off() {
    let setting = setting();
    for (no_color, colours) in [("", true), ("1", false)] {
        // this batch size causes a warning
        let mut command = typed(&setting, &format!("out{no_color}"), &["--set", "batch=24"]);
        command.env("NO_COLOR", no_color);
        let (_, written) = Terminal::run(80, command);
        assert!(written.contains("warning:") && written.contains("\x1b[33m") == colours, "{written:?}");
    }
    // a terminal that cannot erase lines gets plain ones
    let mut command = typed(&setting, "dumb", &[]);
    command.env("TERM", "dumb");
    let (_, written) = Terminal::run(80, command);
    assert!(!written.contains('\x1b') && written.contains("Z  epoch 2/2  step 12/12"), "{written:?}");
}

#[test]
fn without_a_terminal_lines_are_short_and_facts_are_in_the_log() {
    let setting = setting();
    let said = |name: &str, more: &[&str]| {
        let out = setting.out(name);
        let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &out, "--threads", "1"];
        run(2, &[&args, more].concat()).succeeded().stderr
    };
    let (facts, plain) = (["launch  ", "room  ", "schedule  ", "first step done"], said("plain", &[]));
    let line = plain.lines().find(|line| line.contains("step 12/12")).unwrap();
    assert!(line.get(8..27) == Some("Z  epoch 2/2  step ") && line.ends_with(" left") && line.len() <= 130, "{line}");
    assert!(facts.iter().all(|fact| !plain.contains(fact)), "{plain}");
    let log = fs::read_to_string(Path::new(&setting.out("plain")).join("run.log")).unwrap();
    assert!(facts.iter().all(|fact| log.contains(fact)) && log.contains("done: 12 steps"), "{log}");
    let all = said("all", &["-v"]);
    assert!(facts.iter().all(|fact| all.contains(fact)), "{all}");
    assert_eq!(said("none", &["--quiet"]), "");
    // a resumed run says where it continues and appends to its log
    said("part", &["--max-steps", "6"]);
    let more = said("part", &["--resume", "auto"]);
    mentions(&more, &["resumes", "after step 6 "]);
    let log = fs::read_to_string(Path::new(&setting.out("part")).join("run.log")).unwrap();
    assert_eq!(log.matches("Z  launch  ").count(), 2, "{log}");
    run(0, &["train", &setting.recipe, "-q", "-v"]).failed(2, &["--quiet", "cannot be used"]);
}
