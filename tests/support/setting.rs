//! A recipe and images in a folder of their own, trained on by the real binary; and what a training leaves in OUT. No expectations of its
//! own.

use std::fs;
use std::path::Path;
use std::process::Command;

use loaders::{ImageSpec, Manifest};

use super::images::Images;
use super::program::{Ended, Folder, PATIENCE, Running, events, start, trireme};

/// A recipe and a data set.
pub struct Setting {
    /// For everything; removed when dropped.
    pub folder: Folder,
    /// The recipe's file.
    pub recipe: String,
    /// The data set.
    pub images: Images,
    /// Its folder.
    pub data: String,
}

impl Setting {
    /// With so many images to train on and to score.
    pub fn new(recipe: &str, image: ImageSpec, [train, test]: [u64; 2]) -> Self {
        Self::with(recipe, |dir| Images::new(dir, image, train, test))
    }

    /// With a recipe beside the images that `images` makes in a folder.
    pub fn with(recipe: &str, images: impl FnOnce(&Path) -> Images) -> Self {
        let folder = Folder::new();
        let images = images(&folder.path().join("data"));
        let recipe = folder.write("recipe.toml", recipe);
        Self { folder, recipe, data: images.arg(), images }
    }

    /// The folder of this name with the same images under another description.
    pub fn described(&self, name: &str, change: impl FnOnce(&mut Manifest)) -> String {
        let folder = self.folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        for entry in fs::read_dir(&self.images.dir).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
        let mut manifest = self.images.manifest.clone();
        change(&mut manifest);
        manifest.write(&folder).unwrap();
        folder.display().to_string()
    }

    /// The path of OUT of this name.
    pub fn out(&self, name: &str) -> String {
        self.folder.at(name)
    }

    /// `trireme train` into OUT of this name on `ranks` ranks, or without mpirun for 0, with all facts on stderr;
    /// `more` may name another data set.
    pub fn command(&self, out: &str, ranks: usize, more: &[&str]) -> Command {
        let data = if more.contains(&"--data") { &[][..] } else { &["--data", &self.data] };
        trireme(ranks, &[&["train", "-v", &self.recipe, "--out", &self.out(out)], data, more].concat())
    }

    /// Starts that training with one compute thread a rank.
    pub fn start(&self, out: &str, ranks: usize, more: &[&str]) -> Running {
        start(self.command(out, ranks, &[&["--threads", "1"], more].concat()))
    }

    /// Trains with one compute thread a rank, to whatever end.
    #[track_caller]
    pub fn train(&self, out: &str, ranks: usize, more: &[&str]) -> Ended {
        self.start(out, ranks, more).wait(PATIENCE)
    }

    /// Trains to a good end, and gives the path of OUT.
    #[track_caller]
    pub fn trained(&self, out: &str, ranks: usize, more: &[&str]) -> String {
        self.train(out, ranks, more).succeeded();
        self.out(out)
    }

    /// Digest of all that the last run into OUT has made.
    #[track_caller]
    pub fn digest(&self, out: &str) -> String {
        let ends = events(&self.out(out), "end");
        ends.last().expect("an end")["digest"].as_str().expect("a digest").to_string()
    }

    /// Losses of all steps.
    pub fn losses(&self, out: &str) -> Vec<f64> {
        let steps = events(&self.out(out), "step");
        steps.iter().map(|line| line["loss"].as_f64().expect("a loss")).collect()
    }

    /// Bytes of the model.
    #[track_caller]
    pub fn model(&self, out: &str) -> Vec<u8> {
        let path = Path::new(&self.out(out)).join("model.h5");
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}
