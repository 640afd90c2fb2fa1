//! The terminal on stderr: lines, and below them a status block that is redrawn. It is global to the process, so that
//! any code that prints a line (a watchdog, the message of a failure) prints it above the block.
//!
//! The block ends with a line break. So the terminal shows complete lines however the process ends, and later output
//! begins on its own line.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::text::printable_lines;

/// Number of columns if the terminal's size is unknown.
const COLUMNS: usize = 80;
/// How often `say_last` tries to get the lock while another thread prints.
const TRIES: u32 = 20;

static BLOCK: Mutex<Block> = Mutex::new(Block { lines: Vec::new(), colors: false });

/// The status block that is on the terminal.
struct Block {
    lines: Vec<String>,
    colors: bool,
}

impl Block {
    /// Returns the escape codes that erase the block. `columns` is the current width; the terminal may have been wider
    /// when the block was drawn.
    fn erased(&self, columns: usize) -> String {
        let rows: usize = self.lines.iter().map(|line| line.chars().count().div_ceil(columns).max(1)).sum();
        if rows == 0 { String::new() } else { format!("\x1b[{rows}A\r\x1b[J") }
    }

    fn drawn(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Formats a line. The word `warning:` is yellow if colours are allowed.
    fn painted(&self, text: &str) -> String {
        let warning = text.strip_prefix("warning:").filter(|_| self.colors);
        warning.map_or_else(|| text.to_string(), |rest| format!("\x1b[33mwarning:\x1b[0m{rest}"))
    }
}

fn block() -> MutexGuard<'static, Block> {
    BLOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes in one piece, so that lines of different processes do not mix. Errors are ignored, because nothing else can
/// be done if stderr is closed.
fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Returns the width of the terminal on stderr.
pub fn columns() -> usize {
    columns_of(std::io::stderr())
}

fn columns_of(terminal: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if size == 0 { COLUMNS } else { size }
}

/// Breaks the lines of a text between words if it is printed on a terminal. Files and pipes get the text as it is.
pub fn fitted(text: &str, out: &(impl AsFd + IsTerminal)) -> String {
    if out.is_terminal() { wrapped(text, columns_of(out)) } else { text.to_string() }
}

/// Breaks lines with more than `columns` characters at spaces. Continuation lines are indented by two more spaces than the line that they
/// continue. A longer word, such as a path, is not broken.
fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = " ".repeat((line.len() - line.trim_start_matches(' ').len() + 2).min(columns / 2));
        let (mut rest, mut start) = (line, "");
        loop {
            let room = columns.saturating_sub(start.len());
            let Some((end, next)) = rest.char_indices().nth(room) else { break };
            let words = rest.len() - rest.trim_start_matches(' ').len();
            let end = words.max(end + next.len_utf8());
            let space = rest[words..end].rfind(' ').or_else(|| rest[words..].find(' ')).map(|at| words + at);
            let Some(space) = space else { break };
            lines.push(format!("{start}{}", rest[..space].trim_end_matches(' ')));
            (rest, start) = (rest[space..].trim_start_matches(' '), &indent);
        }
        lines.push(format!("{start}{rest}"));
    }
    lines.join("\n")
}

/// Sets whether lines may have colours.
pub fn set_colors(colors: bool) {
    block().colors = colors;
}

/// Prints one or more lines above the block.
pub fn say(text: &str) {
    let block = block();
    let text = block.painted(&fitted(&printable_lines(text), &std::io::stderr()));
    let erased = if block.lines.is_empty() { String::new() } else { block.erased(columns()) };
    write(&format!("{erased}{text}\n{}", block.drawn()));
}

/// Replaces the status block by these lines. No line may be longer than the terminal is wide.
pub fn show(lines: Vec<String>) {
    let mut block = block();
    let erased = block.erased(columns());
    block.lines = lines;
    write(&format!("{erased}{}", block.drawn()));
}

pub fn clear() {
    show(Vec::new());
}

/// Prints the last line of a failing process and erases the block. If another thread was stopped while it held the
/// lock, this waits only for a short time.
pub fn say_last(text: &str) {
    let text = fitted(&printable_lines(text), &std::io::stderr());
    for _ in 0..TRIES {
        let mut block = match BLOCK.try_lock() {
            Ok(block) => block,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
        };
        let erased = block.erased(columns());
        block.lines.clear();
        write(&format!("{erased}{text}\n"));
        return;
    }
    write(&format!("{text}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_taken_back_row_by_row() {
        let block = |lines: &[&str]| Block { lines: lines.iter().map(ToString::to_string).collect(), colors: false };
        assert_eq!(block(&[]).erased(80), "");
        assert_eq!(block(&["epoch 1/2", "loss 2.3"]).erased(80), "\x1b[2A\r\x1b[J");
        // Drawn at 80 columns, but the window is now 30 wide: 3 rows and 1 row.
        assert_eq!(block(&["x".repeat(79).as_str(), "loss 2.3"]).erased(30), "\x1b[4A\r\x1b[J");
        assert_eq!(block(&["", "a"]).drawn(), "\na\n");
    }

    #[test]
    fn long_lines_break_between_words() {
        assert_eq!(wrapped("one two three four", 9), "one two\n  three\n  four");
        assert_eq!(wrapped("  a bb cc\nshort", 8), "  a bb\n    cc\nshort");
        assert_eq!(wrapped("see /a/path/without/a/space please", 12), "see\n  /a/path/without/a/space\n  please");
        assert_eq!(wrapped("exactly ten", 11), "exactly ten");
        assert_eq!(wrapped("größe größe", 10), "größe\n  größe");
        assert_eq!(wrapped("    deep", 3), "    deep");
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        let paint = |colors, text| Block { lines: Vec::new(), colors }.painted(text);
        assert_eq!(paint(true, "warning: hot"), "\x1b[33mwarning:\x1b[0m hot");
        assert_eq!(paint(false, "warning: hot"), "warning: hot");
        assert_eq!(paint(true, "note: hot"), "note: hot");
    }
}
