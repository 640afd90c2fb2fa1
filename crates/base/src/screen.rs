//! The terminal behind stderr, and what stands on it: lines, and below them a block that is drawn again and again. There is one for the
//! process, so that whoever has a line to print, a watchdog or the end after a failure, puts it above the block.
//!
//! The block ends with a line break: whatever ends the process leaves whole lines, and what comes next begins one of its own.

use std::io::Write;
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

/// Columns of the terminal.
pub fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if size == 0 { COLUMNS } else { size }
}

/// Whether lines may have colours.
pub fn set_colors(colors: bool) {
    block().colors = colors;
}

/// Prints one or several lines, above the block where there is one.
pub fn say(text: &str) {
    let block = block();
    let text = block.painted(&printable_lines(text));
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
        write(&format!("{erased}{}\n", printable_lines(text)));
        return;
    }
    write(&format!("{}\n", printable_lines(text)));
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
    fn colours_only_where_they_are_wanted() {
        let paint = |colors, text| Block { lines: Vec::new(), colors }.painted(text);
        assert_eq!(paint(true, "warning: hot"), "\x1b[33mwarning:\x1b[0m hot");
        assert_eq!(paint(false, "warning: hot"), "warning: hot");
        assert_eq!(paint(true, "note: hot"), "note: hot");
    }
}
