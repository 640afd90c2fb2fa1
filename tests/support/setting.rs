//! What a training run needs, in a folder of its own: a recipe and images. The real binary is started with it, and what it left in OUT
//! is read. No expectations of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use loaders::ImageSpec;

use super::images::Images;
use super::program::{Folder, events, trireme};

/// See the module.
pub struct Setting {
    /// For everything; removed when dropped.
    pub folder: Folder,
    /// The recipe's file.
    pub recipe: String,
    /// The data set's folder.
    pub data: String,
}

impl Setting {
    /// With so many images to train on and to score.
    pub fn new(recipe: &str, image: ImageSpec, [train, test]: [u64; 2]) -> Self {
        let folder = Folder::new();
        let data = Images::new(&folder.path().join("data"), image, train, test).arg();
        let recipe = folder.write("recipe.toml", recipe);
        Self { folder, recipe, data }
    }

    /// `trireme train` into OUT of this name on `ranks` ranks, or without mpirun for 0.
    pub fn command(&self, out: &str, ranks: usize, more: &[&str]) -> Command {
        let args = ["train", &self.recipe, "--data", &self.data, "--out", &self.folder.at(out)];
        trireme(ranks, &[&args, more].concat())
    }

    /// Digest of all that the last run into OUT has made.
    #[track_caller]
    pub fn digest(&self, out: &str) -> String {
        let ends = events(&self.folder.at(out), "end");
        ends.last().expect("an end")["digest"].as_str().expect("a digest").to_string()
    }

    /// Losses of all steps.
    pub fn losses(&self, out: &str) -> Vec<f64> {
        let steps = events(&self.folder.at(out), "step");
        steps.iter().map(|line| line["loss"].as_f64().expect("a loss")).collect()
    }

    /// Bytes of the model.
    #[track_caller]
    pub fn model(&self, out: &str) -> Vec<u8> {
        let path = Path::new(&self.folder.at(out)).join("model.h5");
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }
}
