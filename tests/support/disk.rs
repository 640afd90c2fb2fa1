//! A small file system that tests can fill up, and the permission to mount it.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Output};

/// A tmpfs file system. It is unmounted when dropped.
pub struct Disk(String);

impl Disk {
    /// Creates `folder` and mounts the file system there. `size` has the format of mount's option, such as `40m`.
    /// Returns `None` if the test is not allowed to mount.
    pub fn mount(folder: String, size: &str) -> Option<Self> {
        fs::create_dir(&folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
        let size = format!("size={size}");
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "trireme-test", &folder]).output();
        done.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    pub fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    /// Fills the disk and leaves `bytes` bytes free. [`Disk::clear`] frees the space again.
    pub fn fill_but(&self, bytes: u64) {
        let file = self.top_up();
        file.set_len(file.metadata().unwrap().len().saturating_sub(bytes)).unwrap();
    }

    pub fn top_up(&self) -> File {
        let mut file = File::options().create(true).append(true).open(self.at("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        file
    }

    /// Frees the space that the filler file takes.
    pub fn clear(&self) {
        fs::remove_file(self.at("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Options for `unshare`, for a process that runs as root and for any other user's process.
const ROOT: &[&str] = &["--mount"];
const USER: &[&str] = &["--mount", "--user", "--map-root-user"];

/// Environment variable that is set while a test runs in a user namespace.
const INSIDE: &str = "TRIREME_TEST_MAY_MOUNT";

fn unshare(options: &[&str], command: &[&str]) -> Output {
    let mut unshare = Command::new("unshare");
    unshare.args(options).args(command).env(INSIDE, "1");
    unshare.output().unwrap_or_else(|e| panic!("unshare (Debian: util-linux): {e}"))
}

fn may_mount(options: &[&str]) -> bool {
    unshare(options, &["mount", "-t", "tmpfs", "trireme-test", "/tmp"]).status.success()
}

/// Runs `body`, which mounts file systems.
///
/// If this process may not do so, runs the test `name` of this test binary again in a user namespace, where it may.
///
/// # Panics
///
/// Panics if neither is allowed, or if the test fails.
#[track_caller]
pub fn with_permission_to_mount(name: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() || may_mount(ROOT) {
        return body();
    }
    assert!(
        may_mount(USER),
        "{name}: no permission to mount file systems: this test needs root or user namespaces (`unshare --user \
         --map-root-user --mount true`); leave it out with `-- --skip {name}`, as `make test` does"
    );
    let own = std::env::current_exe().unwrap_or_else(|e| panic!("the test's own path: {e}"));
    let ended = unshare(USER, &[&own.to_string_lossy(), "--exact", name, "--include-ignored", "--nocapture"]);
    let [out, err] = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    eprint!("{err}");
    assert!(ended.status.success() && out.contains("1 passed"), "{name}, in a user namespace:\n{out}");
}
