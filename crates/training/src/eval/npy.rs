//! Arrays of f32 as NumPy's .npy files (format 1.0), row by row: the number of rows is known at the end.

use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use loaders::overwrite::Content;
use loaders::safe_create::NewFile;

use crate::error::Error;

/// How a file begins.
const MAGIC: &[u8] = b"\x93NUMPY";

/// A table: no other file is written over by one.
pub const TABLE: Content = Content { name: "an array of NumPy", begins: |head| head.starts_with(MAGIC) };

/// Bytes before the values, a multiple of 64; the header is padded to them.
const HEAD: usize = 128;

/// A table under construction; it gets its name when it is whole.
pub struct Npy {
    path: PathBuf,
    file: NewFile,
    columns: usize,
    rows: usize,
}

impl Npy {
    /// Begins the table.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn create(path: &Path, columns: usize) -> Result<Self, Error> {
        let refuse = |source| refusal(path, source);
        let mut file = NewFile::beside(path).map_err(refuse)?;
        file.file().and_then(|file| file.write_all(&[b' '; HEAD])).map_err(refuse)?;
        Ok(Self { path: path.to_path_buf(), file, columns, rows: 0 })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// What the disk refused; [`Error::Mismatch`] for a row of another length.
    pub fn add(&mut self, row: &[f32]) -> Result<(), Error> {
        if row.len() != self.columns {
            return Err(Error::Mismatch {
                what: format!("a row of {}", self.path.display()),
                expected: format!("{} values", self.columns),
                got: row.len().to_string(),
                cure: "a fault of this program".into(),
            });
        }
        let path = &self.path;
        let write = |file: &mut std::fs::File| {
            let mut out = BufWriter::new(file);
            row.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
            out.flush()
        };
        self.file.file().and_then(write).map_err(|source| refusal(path, source))?;
        self.rows += 1;
        Ok(())
    }

    /// Ends the table.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn finish(mut self) -> Result<(), Error> {
        let refuse = |source| refusal(&self.path, source);
        let head = head(self.rows, self.columns);
        let file = self.file.file().map_err(refuse)?;
        file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&head)).map_err(refuse)?;
        self.file.publish().map(drop).map_err(|source| refusal(&self.path, source))
    }
}

fn refusal(path: &Path, source: std::io::Error) -> Error {
    Error::File { action: "write", path: path.to_path_buf(), source }
}

fn head(rows: usize, columns: usize) -> Vec<u8> {
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let mut head = [MAGIC, &[1, 0]].concat();
    head.extend(((HEAD - 10) as u16).to_le_bytes());
    head.extend(text.as_bytes());
    head.resize(HEAD - 1, b' ');
    head.push(b'\n');
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of `numpy.save("x.npy", numpy.zeros((2, 3), "<f4"))`.
    #[test]
    fn the_head_is_that_of_numpy() {
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let head = head(2, 3);
        assert_eq!(&head[..10], b"\x93NUMPY\x01\x00v\x00");
        assert_eq!(&head[10..][..expected.len()], expected.as_bytes());
        assert_eq!((head.len(), head[127]), (128, b'\n'));
        let path = std::env::temp_dir().join(format!("trireme-npy-{}", std::process::id()));
        let mut table = Npy::create(&path, 2).unwrap();
        table.add(&[1.0, 2.0]).unwrap();
        table.add(&[3.0, 4.0]).unwrap();
        assert!(table.add(&[5.0]).unwrap_err().to_string().contains("expected 2 values, got 1"));
        assert!(!path.exists());
        table.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[140..]), (144, &4f32.to_le_bytes()[..]));
        std::fs::remove_file(path).unwrap();
    }
}
