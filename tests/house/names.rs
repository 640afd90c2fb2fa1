//! Which file defines the item that a path names: modules, imports, re-exports and globs are followed.

use std::collections::{BTreeMap, BTreeSet};

use crate::syntax::{File, How, Mention, Module, Space};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    Module(Module),
    /// An item of the file with this number.
    Item(usize, Space),
}

/// One module's names.
#[derive(Default)]
struct Scope {
    items: Vec<(String, usize, Space)>,
    children: BTreeSet<String>,
    /// Name and path.
    imports: Vec<(String, Vec<String>)>,
}

/// The names of all modules of one package.
pub struct Names {
    scopes: BTreeMap<Module, Scope>,
    /// The package, as a path names it.
    package: String,
}

impl Names {
    /// Of the files of one package.
    pub fn new(package: &str, files: &[File]) -> Self {
        let mut scopes: BTreeMap<Module, Scope> = BTreeMap::new();
        for (number, file) in files.iter().enumerate() {
            for module in file.inline.iter().chain([&file.module]) {
                scopes.entry(module.clone()).or_default();
                if let Some((name, parent)) = module.split_last() {
                    scopes.entry(parent.to_vec()).or_default().children.insert(name.clone());
                }
            }
            for item in &file.items {
                let scope = scopes.entry(item.module.clone()).or_default();
                scope.items.push((item.name.clone(), number, item.space));
            }
            for mention in &file.mentions {
                if let How::Import { name, .. } = &mention.how {
                    let scope = scopes.entry(mention.module.clone()).or_default();
                    scope.imports.push((name.clone(), mention.path.clone()));
                }
            }
        }
        Self { scopes, package: package.into() }
    }

    /// The files that define what a mention names.
    pub fn files(&self, mention: &Mention) -> Vec<usize> {
        let mut path = mention.path.as_slice();
        if path.last().is_some_and(|last| last == "*") {
            // a glob depends on what the module's words come to mean; an enum's variants are the enum's
            path = &path[..path.len() - 1];
        }
        let found = self.resolve(path, &mention.module, &mut BTreeSet::new());
        found.into_iter().filter_map(|f| if let Found::Item(file, _) = f { Some(file) } else { None }).collect()
    }

    fn root(module: &Module) -> Module {
        if module.first().is_some_and(|first| first == "main") { vec!["main".into()] } else { Vec::new() }
    }

    /// All that a path leads to, in any namespace.
    fn resolve(&self, path: &[String], from: &Module, seen: &mut BTreeSet<(Module, String)>) -> Vec<Found> {
        let Some(first) = path.first() else { return Vec::new() };
        let ups = path.iter().take_while(|part| *part == "super").count();
        let (mut found, rest) = match first.as_str() {
            "crate" => (vec![Found::Module(Self::root(from))], &path[1..]),
            "super" => match from.len().checked_sub(ups) {
                Some(length) => (vec![Found::Module(from[..length].to_vec())], &path[ups..]),
                None => return Vec::new(),
            },
            "self" => (vec![Found::Module(from.clone())], &path[1..]),
            name => {
                let mut found = self.lookup(from, name, seen);
                if found.is_empty() && *name == self.package {
                    found = vec![Found::Module(Vec::new())];
                }
                (found, &path[1..])
            }
        };
        for name in rest {
            found = found
                .into_iter()
                .flat_map(|f| match f {
                    Found::Module(module) => self.lookup(&module, name, seen),
                    // a variant, or an associated item
                    Found::Item(file, Space::Type) => vec![Found::Item(file, Space::Type)],
                    Found::Item(..) => Vec::new(),
                })
                .collect();
        }
        found
    }

    /// All that a name means in a module.
    fn lookup(&self, module: &Module, name: &str, seen: &mut BTreeSet<(Module, String)>) -> Vec<Found> {
        let Some(scope) = self.scopes.get(module) else { return Vec::new() };
        if !seen.insert((module.clone(), name.to_string())) {
            return Vec::new();
        }
        let items = scope.items.iter().filter(|(item, ..)| item == name);
        let mut found: Vec<Found> = items.map(|(_, file, space)| Found::Item(*file, *space)).collect();
        if scope.children.contains(name) {
            found.push(Found::Module([module.as_slice(), &[name.to_string()]].concat()));
        }
        for (_, path) in scope.imports.iter().filter(|(import, _)| import == name) {
            found.extend(self.resolve(path, module, seen));
        }
        if found.is_empty() {
            for (_, path) in scope.imports.iter().filter(|(import, _)| import == "*") {
                for target in self.resolve(&path[..path.len() - 1], module, seen) {
                    if let Found::Module(target) = target {
                        found.extend(self.lookup(&target, name, seen));
                    }
                }
            }
        }
        seen.remove(&(module.clone(), name.to_string()));
        found
    }
}
