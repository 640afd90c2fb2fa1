//! The terminal on stderr: lines, and below them a status block that is redrawn. It is global to the process, so that
//! any code that prints a line (a watchdog, the message of a failure) prints it above the block.
//!
//! The block ends with a line break. So the terminal shows complete lines however the process ends, and later output
//! begins on its own line.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use loaders::printable_lines;

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

/// Returns the width of the terminal in columns.
pub fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if size == 0 { COLUMNS } else { size }
}

/// Sets whether lines may have colours.
pub fn set_colors(colors: bool) {
    block().colors = colors;
}

/// Prints one or more lines above the block.
pub fn say(text: &str) {
    let block = block();
    let text = block.painted(&printable_lines(text));
    let erased = if block.lines.is_empty() { String::new() } else { block.erased(columns()) };
    write(&format!("{erased}{text}\n{}", block.drawn()));
}

/// Draws the block and erases the previous one. No line may be longer than the terminal is wide.
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
        // Drawn at 80 columns, but the window is now 30 wide: 3 rows and 1 row.
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
