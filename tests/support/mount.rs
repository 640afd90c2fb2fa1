//! Permission to mount file systems, for tests that need it.

use std::process::{Command, Output};

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
