//! The terminal behind stderr, and what stands on it: lines, and below them a block that is drawn again and again. There is one for the
//! process, so that whoever has a line to print, a watchdog or the end after a failure, puts it above the block.
//!
//! The block ends with a line break: whatever ends the process leaves whole lines, and what comes next begins one of its own.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use loaders::printable_lines;

/// Columns where the terminal does not tell its size.
const COLUMNS: usize = 80;
/// How often the end of the process looks whether a line of another thread is out.
const TRIES: u32 = 20;

static BLOCK: Mutex<Block> = Mutex::new(Block { lines: Vec::new(), colors: false });

/// What is drawn.
struct Block {
    lines: Vec<String>,
    colors: bool,
}

impl Block {
    /// Takes the block off a terminal of so many columns, which may have been wider when it was drawn.
    fn erased(&self, columns: usize) -> String {
        let rows: usize = self.lines.iter().map(|line| line.chars().count().div_ceil(columns).max(1)).sum();
        if rows == 0 { String::new() } else { format!("\x1b[{rows}A\r\x1b[J") }
    }

    fn drawn(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// A line for good, with a warning's first word in yellow.
    fn painted(&self, text: &str) -> String {
        let warning = text.strip_prefix("warning:").filter(|_| self.colors);
        warning.map_or_else(|| text.to_string(), |rest| format!("\x1b[33mwarning:\x1b[0m{rest}"))
    }
}

fn block() -> MutexGuard<'static, Block> {
    BLOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In one piece, so that lines of several processes do not mix. With stderr closed nothing is left to try.
fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Width of the terminal on stderr.
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

/// Whether lines may have colours.
pub fn set_colors(colors: bool) {
    block().colors = colors;
}

/// Prints one or several lines, above the block where there is one.
pub fn say(text: &str) {
    let block = block();
    let text = block.painted(&fitted(&printable_lines(text), &std::io::stderr()));
    let erased = if block.lines.is_empty() { String::new() } else { block.erased(columns()) };
    write(&format!("{erased}{text}\n{}", block.drawn()));
}

/// Draws the block in place of the one before. No line may be longer than the terminal.
pub fn show(lines: Vec<String>) {
    let mut block = block();
    let erased = block.erased(columns());
    block.lines = lines;
    write(&format!("{erased}{}", block.drawn()));
}

/// Takes the block away.
pub fn clear() {
    show(Vec::new());
}

/// The last line of a process that fails, in place of the block. A thread that was stopped in the middle of a line does not hold it up.
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
        // drawn at 80 columns, and the window is 30 wide by now: 3 rows and 1
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
