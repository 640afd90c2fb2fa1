//! The complete messages of the program for common mistakes, one file per command in this folder. Read them as a user would. After a change
//! of a message, `TRIREME_BLESS=1 cargo test --test messages` writes the files, and the diff shows the change.
//!
//! A file consists of a command after `$ `, its exit code and its output, stdout before stderr. Commands run in a folder
//! with the files that [`folder`] creates.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use support::images::{Images, THINGS};
use support::in_repository;
use support::program::{Folder, PATIENCE, start, trireme};

const RECIPE: &str = r#"model = "lenet-caffe"
data = "data"
epochs = 2
batch = 8

[optimizer]
kind = "sgd"

[schedule]
kind = "constant"
base_lr = 0.003

[augment]
train = ["normalize"]
eval = ["normalize"]
"#;

/// Creates a folder with a recipe, faulty recipes, a data set, a run and other files that commands may name by mistake.
fn folder() -> Folder {
    let folder = Folder::new();
    Images::new(&folder.path().join("data"), THINGS, 16, 8);
    folder.write("recipe.toml", RECIPE);
    folder.write("syntax.toml", RECIPE.replace("batch = 8", "batch = "));
    folder.write("without-batch.toml", RECIPE.replace("batch = 8\n", ""));
    folder.write("net.toml", "name = \"small\"\ninput = [28, 28, 3]\n");
    folder.write("notes.txt", "not a model");
    fs::create_dir(folder.path().join("empty")).unwrap();
    fs::create_dir_all(folder.path().join("photos/cats")).unwrap();
    folder.write("photos/cats/1.jpg", "not a picture");
    let args = ["train", "recipe.toml", "--out", "run", "--threads", "1", "--max-steps", "3"];
    run(folder.path(), &args).0.then_some(()).expect("a run for the other commands");
    folder
}

/// Runs a command in `folder`. Returns whether it succeeded, and its exit code and output as text.
fn run(folder: &Path, args: &[&str]) -> (bool, String) {
    let mut command = trireme(0, args);
    command.current_dir(folder).env_remove("COLUMNS").env("HOME", folder);
    let ended = start(command).wait(PATIENCE);
    let code = ended.status.code().map_or("no exit code".into(), |code| format!("exit code {code}"));
    (ended.status.success(), format!("{code}\n{}{}", ended.stdout, ended.stderr))
}

fn check(name: &str) {
    let path = in_repository("tests/messages").join(name);
    let recorded = fs::read_to_string(&path).unwrap();
    let commands: Vec<&str> = recorded.lines().filter_map(|line| line.strip_prefix("$ trireme")).collect();
    assert!(!commands.is_empty(), "{name} has no commands");
    let folder = folder();
    let mut printed = String::new();
    for command in commands {
        let args: Vec<&str> = command.split_whitespace().collect();
        let (_, text) = run(folder.path(), &args);
        writeln!(printed, "$ trireme{command}\n{}\n", text.trim_end()).unwrap();
    }
    if std::env::var_os("TRIREME_BLESS").is_some() {
        fs::write(&path, &printed).unwrap();
    }
    let differs = recorded.lines().zip(printed.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or(recorded.lines().count().min(printed.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("the end of the file").to_string();
    assert!(
        printed == fs::read_to_string(&path).unwrap(),
        "{name}:{}: recorded: {}\nprinted: {}\nTRIREME_BLESS=1 writes the file",
        line + 1,
        at(&recorded),
        at(&printed)
    );
}

#[test]
fn train() {
    check("train.txt");
}

#[test]
fn eval_and_predict() {
    check("eval.txt");
}

#[test]
fn data() {
    check("data.txt");
}

#[test]
fn other_commands() {
    check("other.txt");
}
