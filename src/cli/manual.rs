//! `trireme manual`: prints man pages and shell completions for `make install`. The help does not list it.

use super::output::{Failure, print};
use clap::Command;
use clap_complete::{Shell, generate};
use std::io;

/// Where each shell searches for its completions, relative to a folder such as `/usr/local/share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/trireme"),
    (Shell::Zsh, "zsh/site-functions/_trireme"),
    (Shell::Fish, "fish/vendor_completions.d/trireme.fish"),
];

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme manual
  trireme manual man/man1/trireme-train.1")]
pub struct Args {
    /// File to print, with its path as in the list or only its name [default: print the list]
    #[arg(value_name = "FILE")]
    pub file: Option<String>,
}

/// A file to install: its path relative to `share`, and its text.
struct Page {
    path: String,
    text: Vec<u8>,
}

impl Page {
    /// Returns true if `wanted` is the path or the file name of this page.
    fn is(&self, wanted: &str) -> bool {
        self.path == wanted || self.path.rsplit('/').next() == Some(wanted)
    }
}

/// Prints the list of all files, or a single file. `program` defines the command line.
pub fn run(args: &Args, program: Command) -> Result<(), Failure> {
    let pages = pages(program)?;
    let Some(wanted) = &args.file else { return pages.iter().try_for_each(|page| print(&page.path)) };
    let page = pages.iter().find(|page| page.is(wanted)).ok_or_else(|| unknown(wanted))?;
    print(String::from_utf8_lossy(&page.text).trim_end())
}

fn unknown(wanted: &str) -> Failure {
    Failure::usage(format!("there is no man page or completion file {wanted}; `trireme manual` lists them"))
}

/// Returns a man page for the program and for each command in the help, followed by the completions.
fn pages(program: Command) -> Result<Vec<Page>, Failure> {
    // Otherwise `trireme help` and all its subcommands would get pages too.
    let mut program = visible(program.disable_help_subcommand(true));
    program.build();
    let mut pages = Vec::new();
    add_man_pages(&program, &mut pages)?;
    for (shell, path) in COMPLETIONS {
        let mut text = Vec::new();
        generate(shell, &mut program, "trireme", &mut text);
        pages.push(Page { path: path.into(), text });
    }
    Ok(pages)
}

/// Copies the command without hidden subcommands. clap cannot remove a subcommand, so a new command is built.
fn visible(command: Command) -> Command {
    let inner: Vec<Command> = command.get_subcommands().filter(|c| !c.is_hide_set()).cloned().collect();
    let mut shown = Command::new("trireme")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args(command.get_arguments().cloned())
        .subcommands(inner);
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(more) = command.get_after_help() {
        shown = shown.after_help(more.clone());
    }
    shown
}

fn add_man_pages(command: &Command, pages: &mut Vec<Page>) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
    let text =
        man_page(command, &name).map_err(|e| Failure::failed(format!("cannot make the man page of {name}: {e}")))?;
    pages.push(Page { path: format!("man/man1/{name}.1"), text });
    command.get_subcommands().try_for_each(|inner| add_man_pages(inner, pages))
}

/// Formats a man page. Lines are not justified, because the page contains examples.
fn man_page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let version = concat!("trireme ", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command.clone()).title(name).source(version).manual("trireme");
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    text.extend(b".ds AD l\n.ad l\n.nh\n");
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    let mut more = Vec::new();
    page.render_extra_section(&mut more)?;
    text.extend(String::from_utf8_lossy(&more).replacen(".SH EXTRA", ".SH EXAMPLES", 1).bytes());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_of_the_help_has_a_page_and_hidden_ones_have_none() {
        let pages = pages(Cli::command()).unwrap();
        let text = |path: &str| {
            let page = pages.iter().find(|page| page.path == path).unwrap_or_else(|| panic!("no {path}"));
            String::from_utf8(page.text.clone()).unwrap()
        };
        assert!(text("man/man1/trireme.1").contains("Trains image classifiers"));
        for command in Cli::command().get_subcommands() {
            let path = format!("man/man1/trireme-{}.1", command.get_name());
            assert_eq!(pages.iter().any(|page| page.path == path), !command.is_hide_set(), "{path}");
        }
        let meant = |wanted: &str| pages.iter().filter(|page| page.is(wanted)).count();
        assert_eq!(["trireme-train.1", "man/man1/trireme-train.1", "train.1"].map(meant), [1, 1, 0]);
        let train = text("man/man1/trireme-train.1");
        assert!(train.contains("trireme train") && train.contains(".SH EXAMPLES"), "{train}");
        assert!(text("man/man1/trireme-data-convert.1").contains("validation"));
        for (_, path) in COMPLETIONS {
            let text = text(path);
            assert!(text.contains("predict") && text.contains("resume"), "{path}");
            assert!(!text.contains("rewrite"), "{path} offers a hidden command");
        }
    }

    #[test]
    fn an_unknown_page_is_a_usage_error() {
        let args = Args { file: Some("man/man1/nothing.1".into()) };
        let failure = run(&args, Cli::command()).unwrap_err();
        assert!(failure.code == super::super::output::USAGE && failure.message.contains("trireme manual"), "{failure}");
    }
}
