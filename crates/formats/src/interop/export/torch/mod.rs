//! Safetensors with PyTorch's names, and a Python file beside that builds the same `torch.nn.Module` and loads them.
//!
//! - `file`: safetensors to the byte; `module`: the Python file; `ops`: a layer as PyTorch's code; `names`: variables and paths.

mod file;
mod module;
mod names;
mod ops;

use std::io::Write;
use std::path::Path;

use loaders::safe_create::NewFile;

use super::error::Error;
use super::number::Number;
use super::trained::Trained;

/// Writes the weights to `weights`, and the Python file to `code`; both are there in the end, or neither is new.
pub(super) fn write(trained: &Trained, weights: &Path, code: &Path, number: Number) -> Result<(), Error> {
    let text = module::code(trained, weights)?;
    let new = |path: &Path, fill: &dyn Fn(&mut dyn Write) -> std::io::Result<()>| {
        let refuse = |source| Error::Io { path: path.to_path_buf(), source };
        let mut new = NewFile::beside(path).map_err(refuse)?;
        fill(new.file().map_err(refuse)?).map_err(refuse)?;
        Ok::<NewFile, Error>(new)
    };
    let first = new(weights, &|out| file::write(trained, number, out))?;
    let second = new(code, &|out| out.write_all(text.as_bytes()))?;
    let publish = |new: NewFile, path: &Path| {
        new.publish().map(drop).map_err(|source| Error::Io { path: path.to_path_buf(), source })
    };
    publish(first, weights)?;
    publish(second, code)
}

/// Modules that the Python file imports itself: in a file of such a name it would find itself.
const IMPORTED: [&str; 4] = ["json", "pathlib", "struct", "torch"];

/// What to say of a Python file that cannot be imported by its name.
pub(super) fn unfit_name(code: &Path) -> Option<String> {
    let stem = code.file_stem()?.to_string_lossy();
    let why = if IMPORTED.contains(&&*stem) {
        "is named as a module that it needs itself"
    } else if !names::is_name(&stem) {
        "has a name that Python cannot import"
    } else {
        return None;
    };
    Some(format!("note: {} {why}; choose another -o, as net.safetensors", code.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_python_cannot_import_are_told() {
        let of = |name: &str| unfit_name(Path::new(name));
        assert_eq!([of("net.py"), of("a/resnet20_2.py"), of("_x.py")], [None, None, None]);
        assert!(of("torch.py").is_some_and(|text| text.contains("a module that it needs itself")));
        for odd in ["my-net.py", "2nd.py", "class.py", "a b.py"] {
            assert!(of(odd).is_some_and(|text| text.contains("cannot import")), "{odd}");
        }
    }
}
