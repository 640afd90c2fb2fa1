//! Help for a recipe that is not where it was looked for.

use std::path::Path;

use loaders::text::nearest;

/// Recipes that are listed, at most.
const LISTED: usize = 8;

/// What to try in place of `path`, where there is no file: one of a similar name, or the recipes in that folder, or below it.
pub fn cure(path: &Path) -> String {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let below = folder.join("recipes");
    let (here, there) = (recipes(folder), recipes(&below));
    let shown = |folder: &Path, name: &str| folder.join(name).display().to_string();
    for (folder, names) in [(folder, &here), (&*below, &there)] {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Some(found) = nearest(&name, &names) {
            return format!("; did you mean {}?", shown(folder, found));
        }
    }
    let (folder, names) = if here.is_empty() { (&*below, there) } else { (folder, here) };
    let listed: Vec<String> = names.iter().take(LISTED).map(|name| shown(folder, name)).collect();
    match names.len() - listed.len() {
        _ if names.is_empty() => "; recipes are TOML files, trireme comes with some in its folder `recipes`".into(),
        0 => format!("; there are {}", listed.join(", ")),
        more => format!("; there are {} and {more} more", listed.join(", ")),
    }
}

/// Names of the recipes in a folder, sorted.
fn recipes(folder: &Path) -> Vec<String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let recipes = entries.filter(|entry| is_recipe(&entry.path()));
    let mut names: Vec<String> = recipes.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Whether a file seems to be a recipe: TOML that names a model.
fn is_recipe(path: &Path) -> bool {
    let names_a_model = |text: String| text.lines().any(|line| line.starts_with("model"));
    path.extension().is_some_and(|extension| extension == "toml")
        && path.is_file()
        && std::fs::read_to_string(path).is_ok_and(names_a_model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const RECIPE: &str = "# LeNet\nmodel = \"lenet\"\n";

    #[test]
    fn similar_names_are_suggested_and_others_listed() {
        let dir = std::env::temp_dir().join(format!("trireme-absent-{}", std::process::id()));
        let below = dir.join("recipes");
        fs::create_dir_all(&below).unwrap();
        let cure_of = |name: &str| cure(&dir.join(name)).replace(&format!("{}/", dir.display()), "");
        assert_eq!(cure_of("x.toml"), "; recipes are TOML files, trireme comes with some in its folder `recipes`");
        for name in ["mnist-lenet.toml", "notes.txt", "cifar10-resnet20.toml"] {
            fs::write(below.join(name), RECIPE).unwrap();
        }
        // TOML, but no recipe
        fs::write(dir.join("rustfmt.toml"), "max_width = 120\n").unwrap();
        assert_eq!(cure_of("mnist_lenet.toml"), "; did you mean recipes/mnist-lenet.toml?");
        assert_eq!(cure_of("else"), "; there are recipes/cifar10-resnet20.toml, recipes/mnist-lenet.toml");
        fs::write(dir.join("mine.toml"), RECIPE).unwrap();
        assert_eq!(cure_of("mine.tml"), "; did you mean mine.toml?");
        assert_eq!(cure_of("something-else.toml"), "; there are mine.toml");
        (0..9).for_each(|i| fs::write(dir.join(format!("run-of-mine-{i}.toml")), RECIPE).unwrap());
        assert!(cure_of("something-else.toml").ends_with("run-of-mine-6.toml and 2 more"));
        fs::remove_dir_all(dir).unwrap();
    }
}
