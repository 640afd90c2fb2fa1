//! What the system says of a path, with what a user needs beside its words.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::text::{nearest, printable};

/// Names of a folder that are compared with a missing one, at most.
const NAMES: usize = 10_000;

/// The system's words, and, of a path that is not there, which folder is missing and which name may have been meant; of too many open
/// files, how many are allowed.
pub fn why(path: &Path, error: &Error) -> String {
    let cause = match error.kind() {
        _ if error.raw_os_error() == Some(libc::EMFILE) => open_files(),
        ErrorKind::NotFound => missing(path),
        ErrorKind::NotADirectory => {
            let file = path.ancestors().skip(1).find(|part| part.is_file());
            file.map_or_else(String::new, |file| {
                format!("; {} is a file, no folder", printable(&file.to_string_lossy()))
            })
        }
        ErrorKind::IsADirectory => "; it is a folder, a file is expected".into(),
        _ => String::new(),
    };
    format!("{error}{cause}")
}

/// Returns advice for an error while writing a run's file.
pub fn write_advice(error: &Error) -> &'static str {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => {
            "free some space (`df -h`, `quota`) or choose another --out"
        }
        (ErrorKind::FileTooLarge, _) => "raise the limit of the file size (`ulimit -f`)",
        (ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem, _) => {
            "mend its permissions or choose another --out"
        }
        (_, Some(libc::EIO | libc::ESTALE | libc::ENXIO | libc::ENODEV | libc::EREMOTEIO)) => {
            "the disk or the way to it fails (`dmesg` may say more): choose another --out"
        }
        _ => "choose another --out",
    }
}

/// What to do where this process may open no more files.
fn open_files() -> String {
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    // twice what is too little, or what usual limits are
    let more = now.saturating_mul(2).max(1024).min(most);
    match more > now {
        true => format!("; raise the limit of open files from {now} first (`ulimit -n {more}`)"),
        false => format!(
            "; the limit of open files is {now}, which an administrator may raise; or use fewer shards, or fewer --jobs"
        ),
    }
}

/// The folder that a path is in; `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// The first part of the path that is not there, and the name beside it that was meant, if there is one near to it.
fn missing(path: &Path) -> String {
    let parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    let Some(first) = parts.into_iter().rev().find(|part| part.symlink_metadata().is_err()) else {
        return String::new();
    };
    let folder = if first == path {
        String::new()
    } else {
        format!("; there is no folder {}", printable(&first.to_string_lossy()))
    };
    let meant = beside(first)
        .map_or_else(String::new, |found| format!("; did you mean {}?", printable(&found.to_string_lossy())));
    format!("{folder}{meant}")
}

/// What lies beside a path under the nearest name.
fn beside(path: &Path) -> Option<PathBuf> {
    let wanted = path.file_name()?.to_str()?;
    let entries = fs::read_dir(folder_of(path)).ok()?.flatten().take(NAMES);
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    nearest(wanted, &names).map(|name| path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_disk_needs_space() {
        let advice = |code| write_advice(&Error::from_raw_os_error(code));
        assert!(advice(libc::ENOSPC).contains("free some space") && advice(libc::EDQUOT).contains("free some space"));
        for (code, word) in [(libc::EIO, "dmesg"), (libc::EFBIG, "ulimit -f"), (libc::EROFS, "permissions")] {
            assert!(advice(code).contains(word) && !advice(code).contains("space"), "{code}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = std::env::temp_dir().join(format!("loaders-why-{}", std::process::id()));
        fs::create_dir_all(folder.join("photos")).unwrap();
        fs::write(folder.join("photos/kitten.png"), "").unwrap();
        let said = |name: &str| {
            let path = folder.join(name);
            why(&path, &fs::read(&path).unwrap_err())
        };
        let at = |name: &str| folder.join(name).display().to_string();
        assert!(said("photos/kiten.png").ends_with(&format!("; did you mean {}?", at("photos/kitten.png"))));
        assert!(said("photos/zebra").starts_with("No such file") && said("photos/zebra").ends_with("(os error 2)"));
        let (gone, meant) = (at("phots"), at("photos"));
        assert!(said("phots/a/b.png").ends_with(&format!("; there is no folder {gone}; did you mean {meant}?")));
        let file = at("photos/kitten.png");
        assert!(said("photos/kitten.png/a").ends_with(&format!("; {file} is a file, no folder")));
        assert!(said("photos").ends_with("; it is a folder, a file is expected"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn too_many_open_files_say_which_limit_to_raise() {
        let text = why(Path::new("photos"), &Error::from_raw_os_error(libc::EMFILE));
        assert!(text.contains("(os error 24); "), "{text}");
        // what may be raised without an administrator
        let limit = getrlimit(Resource::Nofile);
        let may_rise = limit.maximum.is_none_or(|most| limit.current.is_some_and(|now| now < most));
        assert_eq!(
            text.contains("raise the limit of open files from ") && text.contains("`ulimit -n "),
            may_rise,
            "{text}"
        );
        assert_eq!(text.contains("an administrator may raise"), !may_rise, "{text}");
    }
}
