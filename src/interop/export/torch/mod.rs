//! Safetensors with PyTorch's names, and a Python file beside that builds the same `torch.nn.Module` and loads them.
//!
//! - `file`: safetensors to the byte; `module`: the Python file; `ops`: a layer as PyTorch's code; `names`: variables and paths.

mod file;
mod module;
mod names;
mod ops;

use std::io::Write;
use std::path::Path;

use super::error::Error;
use super::number::Number;
use super::trained::Trained;
use loaders::safe_create::NewFile;

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
