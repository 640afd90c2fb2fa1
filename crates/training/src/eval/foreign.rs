//! A model file that another program made anew: rewritten by a child process, since libhdf5, which knows all of HDF5, crashes on files that
//! were made to harm.

use std::path::Path;

use formats::checkpoint::foreign::{self, Failed, OUTPUT};
use formats::checkpoint::{ModelFile, Opened, rewrite, rewrite_weights};

use crate::error::Error;

/// Opens a model file that another program made.
///
/// # Errors
/// What the child says, or that it was ended, and what is missing in the file.
pub fn open(path: &Path) -> Result<Opened, Error> {
    match foreign::rewritten(path, &[]) {
        Ok(copy) => Ok(ModelFile::open(&copy.name())?),
        Err(Failed::Io(source)) => Err(Error::File { action: "rewrite", path: path.to_path_buf(), source }),
        Err(Failed::Said(said)) => Err(Error::Failed(format!(
            "{} was made anew by another program, and HDF5 cannot read it: {said}. Take trireme's own file",
            path.display()
        ))),
    }
}

/// The child's part: rewrites a model, or the `weights` in a file of Keras, to standard output, within limits of memory and time.
///
/// # Errors
/// What HDF5 refuses.
pub fn serve(file: &Path, weights: bool) -> Result<(), Error> {
    foreign::limit(file).map_err(|source| Error::File { action: "read", path: file.to_path_buf(), source })?;
    let rewrite = if weights { rewrite_weights } else { rewrite };
    Ok(rewrite(file, Path::new(OUTPUT))?)
}
