//! Kernels from files in place of those that are built in, so that variants can be tried without building: TRIREME_KERNELS=DIR.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::source;
use crate::Error;
use crate::cuda::driver::switches::switches;

/// The source of all kernels: what is built in, but for the files of that name in the folder that TRIREME_KERNELS names.
pub fn source() -> Result<String, Error> {
    match &switches().kernels {
        None => Ok(source::text()),
        Some(folder) => variant(folder).map_err(|why| Error::Unsupported { op: "TRIREME_KERNELS".into(), why }),
    }
}

/// With the files of this folder. They must be known by name, and every kernel must keep the parameters that the host gives it.
fn variant(folder: &Path) -> Result<String, String> {
    let files = files(folder)?;
    let text = source::all().map(|(name, text)| match files.get(name) {
        None => Ok(source::with_name(name, text)),
        Some(file) => fs::read_to_string(file)
            .map(|text| source::with_name(name, &text))
            .map_err(|e| format!("{}: {e}", file.display())),
    });
    let text = text.collect::<Result<String, String>>()?;
    check(&source::text(), &text)?;
    Ok(text)
}

/// The sources of a folder by name; fails where one has a name that is none of those built in, which would change nothing.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let unreadable = |e: std::io::Error| format!("{}: {e}", folder.display());
    let known = || source::all().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if !file.extension().is_some_and(|e| e == "cu" || e == "cuh") {
            continue;
        }
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if source::all().all(|(known, _)| known != name) {
            return Err(format!("{}: no source of that name is built in; there are {}", file.display(), known()));
        }
        found.insert(name, file);
    }
    if found.is_empty() {
        return Err(format!("{}: no source there; it may hold {}", folder.display(), known()));
    }
    Ok(found)
}

/// Fails where a kernel is missing or has other parameters: the host would give it those of the built-in one.
fn check(built_in: &str, text: &str) -> Result<(), String> {
    let plain = |parameters: &str| parameters.split_whitespace().collect::<Vec<_>>().join(" ");
    let own: BTreeMap<&str, String> = source::kernels(text).map(|(name, given)| (name, plain(given))).collect();
    for (name, parameters) in source::kernels(built_in) {
        let expected = plain(parameters);
        match own.get(name) {
            None => return Err(format!("the kernel {name} is missing")),
            Some(given) if *given != expected => {
                return Err(format!("the kernel {name} must take ({expected}), but takes ({given})"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files, given to `f`.
    fn with(name: &str, files: &[(&str, &str)], f: impl FnOnce(Result<String, String>)) {
        let folder = std::env::temp_dir().join(format!("trireme-variant-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        f(variant(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }

    fn built_in(name: &str) -> &'static str {
        source::all().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn a_file_takes_the_place_of_the_source_of_its_name() {
        let marked = format!("// a variant\n{}", built_in("loss.cu"));
        with("marked", &[("loss.cu", &marked), ("README", "no source")], |text| {
            let text = text.unwrap();
            assert!(text.contains("#line 1 \"loss.cu\"\n// a variant\n"));
            assert_eq!(
                text.replace("// a variant\n", ""),
                source::text(),
                "everything else is built in, in the same order"
            );
        });
    }

    #[test]
    fn what_would_change_nothing_is_refused() {
        with("unknown", &[("lose.cu", "")], |text| {
            let why = text.unwrap_err();
            assert!(why.contains("lose.cu") && why.contains("loss.cu") && why.contains("common.cuh"), "{why}");
        });
        with("empty", &[], |text| assert!(text.unwrap_err().contains("no source there")));
        assert!(variant(Path::new("/nowhere")).unwrap_err().contains("/nowhere"));
    }

    #[test]
    fn a_kernel_keeps_its_parameters() {
        let source = built_in("bias.cu");
        let (name, parameters) = source::kernels(source).next().unwrap();
        let given = format!("{name}({parameters}");
        let longer = source.replacen(&given, &format!("{given}, int more"), 1);
        with("longer", &[("bias.cu", &longer)], |text| {
            let why = text.err().unwrap_or_default();
            assert!(why.contains(name) && why.contains("int more"), "{why}");
        });
        with("gone", &[("bias.cu", "")], |text| assert!(text.unwrap_err().contains(name)));
    }
}
