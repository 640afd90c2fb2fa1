//! The best checkpoint of a run that goes on from a named one: OUT may be another folder, or may no longer have it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use formats::checkpoint::Best;
use loaders::folder_of;
use loaders::safe_create::NewFile;

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::save::resume::Head;
use crate::train::save::saver::path_of;

/// The best so far, whose checkpoint lies in OUT: rank 0 copies it from beside the one that the run goes on from. Where that is not
/// possible, there is none, and a note; the next score is the best again. Collective.
pub fn carried(session: &Session, out: &Path, head: &Head) -> Result<(Option<Best>, Option<String>), Error> {
    let Some(best) = &head.progress.best else { return Ok((None, None)) };
    let taken = if session.is_root() { take(out, head, best.step) } else { Ok(()) };
    let why =
        session.comm.broadcast("whether the best checkpoint is there", session.is_root().then_some(&taken.err()))?;
    let note = why.map(|why| {
        format!(
            "note: no checkpoint of the best {} so far ({:.4}, step {}): {why}; the next score is the best again",
            best.by, best.score, best.step
        )
    });
    Ok((note.is_none().then(|| best.clone()), note))
}

/// Sees to it that the checkpoint of this step lies in OUT; says why it does not.
fn take(out: &Path, head: &Head, step: u64) -> Result<(), String> {
    let path = path_of(&out.join("checkpoints"), step);
    if path.exists() {
        return Ok(());
    }
    let from = if step == head.progress.step { head.path.clone() } else { path_of(folder_of(&head.path), step) };
    let copy = || {
        let mut source = File::open(&from)?;
        let mut new = NewFile::beside(&path)?;
        io::copy(&mut source, new.file()?)?;
        new.publish().map(drop)
    };
    copy().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("it lies neither in OUT nor beside {}", head.path.display()),
        _ => format!("cannot copy {} into OUT: {error}", from.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use formats::checkpoint::Progress;

    #[test]
    fn it_is_taken_along_where_it_lies_beside_the_other() {
        let root = std::env::temp_dir().join(format!("trireme-best-{}", std::process::id()));
        let (old, new) = (root.join("old/checkpoints"), root.join("new/checkpoints"));
        [&old, &new].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        for step in [10, 20] {
            std::fs::write(path_of(&old, step), step.to_string()).unwrap();
        }
        let head = Head::at(path_of(&old, 20), Progress { step: 20, ..Progress::default() });
        let taken = |step| take(&root.join("new"), &head, step).is_ok();
        let content = |step| std::fs::read_to_string(path_of(&new, step)).ok();
        assert_eq!((taken(10), content(10)), (true, Some("10".into())));
        assert_eq!((taken(20), content(20)), (true, Some("20".into())));
        assert_eq!((taken(15), content(15)), (false, None));
        std::fs::remove_file(path_of(&old, 10)).unwrap();
        assert!(taken(10), "it is there already");
        // a file is in the way of the folder
        let why = take(&root.join("old/checkpoints/step-00000020.h5"), &head, 20).unwrap_err();
        assert!(why.starts_with("cannot copy "), "{why}");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
