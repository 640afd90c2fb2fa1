//! The algorithms that this backend's libraries run operations by: those that are in use, and those that another rank or an earlier
//! start would have it use.

use std::cell::RefCell;

use crate::backend::Algorithms;

/// See the module.
pub struct Chosen {
    wanted: RefCell<Algorithms>,
    used: RefCell<Algorithms>,
}

impl Chosen {
    /// None yet, on this card with these libraries.
    pub fn new(on: String) -> Self {
        let none = Algorithms { on, ..Algorithms::default() };
        Self { wanted: RefCell::new(none.clone()), used: RefCell::new(none) }
    }

    /// Has these used, if they are of such a card with such libraries.
    pub fn adopt(&self, wanted: &Algorithms) {
        if wanted.on == self.used.borrow().on {
            *self.wanted.borrow_mut() = wanted.clone();
        }
    }

    /// Those in use.
    pub fn used(&self) -> Algorithms {
        self.used.borrow().clone()
    }

    /// The algorithm of an operation: the one in use for it, else the one wanted, else a new choice. `made` makes it ready, and fails
    /// where it does not run, as for other numbers of images it may not: then a new choice is made for this once.
    pub fn get<T, E>(
        &self,
        of: String,
        made: impl FnOnce(&str) -> Option<T>,
        choose: impl FnOnce() -> Result<(String, T), E>,
    ) -> Result<T, E> {
        let known = |from: &RefCell<Algorithms>| from.borrow().by_operation.get(&of).cloned();
        let known = known(&self.used).or_else(|| known(&self.wanted));
        let (name, algorithm) = match known.and_then(|name| made(&name).map(|algorithm| (name, algorithm))) {
            Some(found) => found,
            None => choose()?,
        };
        self.used.borrow_mut().by_operation.entry(of).or_insert(name);
        Ok(algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_used_where_it_runs() {
        let get = |chosen: &Chosen, of: &str, runs: &dyn Fn(&str) -> bool| {
            let made = |name: &str| runs(name).then(|| name.to_string());
            chosen.get(of.into(), made, || Ok::<_, ()>(("own".into(), "own".into()))).unwrap()
        };
        let wanted = |on: &str| Algorithms::parse(&format!("{on}\nfirst\ta\nsecond\tb\n"));
        let chosen = Chosen::new("card".into());
        chosen.adopt(&wanted("another card"));
        assert_eq!(get(&chosen, "a", &|_| true), "own");
        let chosen = Chosen::new("card".into());
        chosen.adopt(&wanted("card"));
        assert_eq!(get(&chosen, "a", &|_| true), "first");
        // once it does not run: the choice stands
        assert_eq!(get(&chosen, "a", &|_| false), "own");
        assert_eq!(get(&chosen, "a", &|_| true), "first");
        assert_eq!(get(&chosen, "b", &|_| false), "own");
        assert_eq!(get(&chosen, "b", &|_| true), "own");
        assert_eq!(wanted("card").differs(&chosen.used()), Some(("b", 1)));
    }
}
