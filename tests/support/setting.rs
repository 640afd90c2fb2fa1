//! A recipe and images in a temporary folder, training runs of the real binary on them, and access to the output of
//! these runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use loaders::{ImageSpec, Manifest};

use super::images::Images;
use super::program::{Folder, PATIENCE, ProgramOutput, Running, events, start, trireme};

pub struct Setting {
    /// The folder for everything. It is removed when dropped.
    pub folder: Folder,
    /// Path of the recipe file.
    pub recipe: String,
    pub images: Images,
    /// The folder of the data set.
    pub data: String,
}

impl Setting {
    /// Creates a data set with this many training and test images.
    pub fn new(recipe: &str, image: ImageSpec, [train, test]: [u64; 2]) -> Self {
        Self::with(recipe, |dir| Images::new(dir, image, train, test))
    }

    /// Works like `new`, but `images` creates the data set in the folder it gets.
    pub fn with(recipe: &str, images: impl FnOnce(&Path) -> Images) -> Self {
        let folder = Folder::new();
        let images = images(&folder.path().join("data"));
        let recipe = folder.write("recipe.toml", recipe);
        Self { folder, recipe, data: images.arg(), images }
    }

    /// Copies the images to a new folder `name`, with a changed `dataset.json`. Returns its path.
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

    /// Returns the path of the output folder `name`.
    pub fn out(&self, name: &str) -> String {
        self.folder.at(name)
    }

    /// Returns the command that trains into the output folder `out` on `ranks` ranks, or without mpirun if `ranks` is
    /// 0, with verbose output. `more` may name another data set.
    pub fn command(&self, out: &str, ranks: usize, more: &[&str]) -> Command {
        let data = if more.contains(&"--data") { &[][..] } else { &["--data", &self.data] };
        trireme(ranks, &[&["train", "-v", &self.recipe, "--out", &self.out(out)], data, more].concat())
    }

    /// Starts this command with one compute thread per rank.
    pub fn start(&self, out: &str, ranks: usize, more: &[&str]) -> Running {
        start(self.command(out, ranks, &[&["--threads", "1"], more].concat()))
    }

    /// Trains with one compute thread per rank and waits for the end, successful or not.
    #[track_caller]
    pub fn train(&self, out: &str, ranks: usize, more: &[&str]) -> ProgramOutput {
        self.start(out, ranks, more).wait(PATIENCE)
    }

    /// Trains successfully and returns the path of the output folder.
    #[track_caller]
    pub fn trained(&self, out: &str, ranks: usize, more: &[&str]) -> String {
        self.train(out, ranks, more).succeeded();
        self.out(out)
    }

    /// Returns the digest of the last complete run into `out`.
    #[track_caller]
    pub fn digest(&self, out: &str) -> String {
        let ends = events(&self.out(out), "end");
        ends.last().expect("an end")["digest"].as_str().expect("a digest").to_string()
    }

    /// Returns the losses of all steps.
    pub fn losses(&self, out: &str) -> Vec<f64> {
        let steps = events(&self.out(out), "step");
        steps.iter().map(|line| line["loss"].as_f64().expect("a loss")).collect()
    }

    /// Returns the content of `model.h5`.
    #[track_caller]
    pub fn model(&self, out: &str) -> Vec<u8> {
        let path = Path::new(&self.out(out)).join("model.h5");
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}
