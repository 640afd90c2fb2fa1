//! A pseudo terminal for a program: keys that it can read, and the text on its screen.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::program::{PATIENCE, longer};

pub struct Terminal {
    keys: File,
    inner: Option<OwnedFd>,
    pub path: String,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    pub fn new(columns: u16) -> Self {
        let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
        grantpt(&outer).and_then(|()| unlockpt(&outer)).expect("a pseudo terminal");
        let path = ptsname(&outer, Vec::new()).expect("its name").into_string().expect("a plain name");
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&outer, size).expect("setting its size");
        let inner = rustix::fs::open(&path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other side");
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut outer, sink) = (File::from(outer), written.clone());
        let keys = outer.try_clone().expect("a second handle");
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // an error means that no process has the terminal open any more
            while let Ok(n @ 1..) = outer.read(&mut piece) {
                sink.lock().unwrap().extend(&piece[..n]);
            }
        });
        Self { keys, inner: Some(inner), path, written, reader: Some(reader) }
    }

    /// Starts a program with this as its controlling terminal. Its stderr goes to the terminal, its stdout to /dev/null.
    pub fn start(&mut self, mut command: Command) -> Child {
        let inner = self.inner.take().expect("only one program per terminal");
        let terminal = inner.as_raw_fd();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(inner.as_fd().try_clone_to_owned().expect("a handle"));
        // SAFETY: the closure makes two system calls and touches no memory.
        unsafe {
            command.pre_exec(move || {
                if libc::setsid() < 0 || libc::ioctl(terminal, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            })
        };
        command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    /// Runs a program to its end in a new terminal. Returns everything that it wrote.
    #[track_caller]
    pub fn run(columns: u16, command: Command) -> (ExitStatus, String) {
        let mut terminal = Self::new(columns);
        let program = terminal.start(command);
        terminal.end(program)
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    /// Returns everything written so far, including control codes.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until `text` was written.
    #[track_caller]
    pub fn until(&self, text: &str) {
        let since = Instant::now();
        while !self.written().contains(text) {
            assert!(since.elapsed() < longer(PATIENCE), "no {text:?} in\n{}", self.written());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end of the program and returns everything that it wrote.
    #[track_caller]
    pub fn end(mut self, mut program: Child) -> (ExitStatus, String) {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = program.try_wait().expect("a child") {
                break status;
            }
            if since.elapsed() > longer(PATIENCE) {
                let _ = program.kill();
                panic!("the program is still running:\n{}", self.written());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        drop(self.inner.take());
        self.reader.take().map(JoinHandle::join);
        (status, self.written())
    }
}

/// Returns the lines of a screen with this many columns and unlimited height, after everything in `written`.
///
/// # Panics
///
/// Panics if `written` has a control code that this function does not know.
pub fn screen(written: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut row, mut column): (Vec<Vec<char>>, usize, usize) = (vec![Vec::new()], 0, 0);
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\x1b' => {
                assert_eq!(rest.next(), Some('['));
                let code = code(&mut rest);
                let (number, name) = code.split_at(code.len() - 1);
                match name {
                    "A" => row -= number.parse::<usize>().unwrap(),
                    "J" => {
                        rows.truncate(row + 1);
                        rows[row].truncate(column);
                    }
                    "m" => {}
                    _ => panic!("ESC [ {code}"),
                }
            }
            c => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                }
                rows.resize(rows.len().max(row + 1), Vec::new());
                let line = &mut rows[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    rows.into_iter().map(|row| row.into_iter().collect()).collect()
}

/// Reads the rest of a control code, up to its letter.
fn code(rest: &mut impl Iterator<Item = char>) -> String {
    let mut code = String::new();
    for c in rest {
        code.push(c);
        if c.is_ascii_alphabetic() {
            break;
        }
    }
    code
}
