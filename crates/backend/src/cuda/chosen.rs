//! The choice among the algorithms that NVIDIA's libraries offer for an operation.

use std::cell::RefCell;

use crate::Algorithms;

/// The algorithms of NVIDIA's libraries that are in use, and those that are requested because another rank or an
/// earlier run has used them.
pub struct ChosenAlgorithms {
    requested: RefCell<Algorithms>,
    used: RefCell<Algorithms>,
}

impl ChosenAlgorithms {
    /// Starts with no choices. `on` describes the GPU and its libraries.
    pub fn new(on: String) -> Self {
        let none = Algorithms { on, ..Algorithms::default() };
        Self { requested: RefCell::new(none.clone()), used: RefCell::new(none) }
    }

    /// Requests these algorithms for later choices, unless they are for other GPUs or libraries.
    pub fn adopt(&self, requested: &Algorithms) {
        if requested.on == self.used.borrow().on {
            *self.requested.borrow_mut() = requested.clone();
        }
    }

    /// Returns the algorithms in use.
    pub fn used(&self) -> Algorithms {
        self.used.borrow().clone()
    }

    /// Returns an algorithm for `operation` that runs with `n` images. Tries the algorithm in use, then the requested
    /// algorithm, and then calls `choose`. All batch sizes share an algorithm, but a batch size for which it does not
    /// run gets its own. `prepare` makes an algorithm ready to run, or returns `None` if it does not run. An error of
    /// `prepare` ends the search.
    pub fn get<T, E>(
        &self,
        operation: &str,
        n: usize,
        prepare: impl Fn(&str) -> Result<Option<T>, E>,
        choose: impl FnOnce() -> Result<(String, T), E>,
    ) -> Result<T, E> {
        let for_n = format!("{operation}, {n} images");
        for name in [operation, &for_n] {
            let known = |from: &RefCell<Algorithms>| from.borrow().by_operation.get(name).cloned();
            let Some(algorithm) = known(&self.used).or_else(|| known(&self.requested)) else { continue };
            if let Some(ready) = prepare(&algorithm)? {
                self.used.borrow_mut().by_operation.insert(name.into(), algorithm);
                return Ok(ready);
            }
        }
        let (algorithm, ready) = choose()?;
        let used = &mut self.used.borrow_mut().by_operation;
        let name = if used.contains_key(operation) { &for_n } else { operation };
        used.insert(name.into(), algorithm);
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_uses_the_requested_algorithm_if_it_can_run() {
        let get = |chosen: &ChosenAlgorithms, operation: &str, n: usize, runs: &[&str]| {
            let prepare = |name: &str| Ok::<_, ()>(runs.contains(&name).then(|| name.to_string()));
            chosen.get(operation, n, prepare, || Ok(("own".into(), "own".into()))).unwrap()
        };
        let requested = |on: &str| Algorithms::parse(&format!("{on}\nfirst\ta\nfifth\ta, 5 images\nsecond\tb\n"));
        let chosen = ChosenAlgorithms::new("gpu".into());
        chosen.adopt(&requested("another gpu"));
        assert_eq!(get(&chosen, "a", 9, &["first"]), "own");
        let chosen = ChosenAlgorithms::new("gpu".into());
        chosen.adopt(&requested("gpu"));
        assert_eq!(get(&chosen, "a", 9, &["first"]), "first");
        assert_eq!(get(&chosen, "a", 5, &["fifth"]), "fifth");
        // the shared algorithm does not run for 3 images, so only this batch size gets another one
        assert_eq!(get(&chosen, "a", 3, &[]), "own");
        assert_eq!(get(&chosen, "a", 3, &["own"]), "own");
        assert_eq!(get(&chosen, "a", 9, &["first"]), "first");
        assert_eq!(requested("gpu").differs(&chosen.used()), None);
        // the requested algorithm of `b` never runs, so another one takes its place
        assert_eq!(get(&chosen, "b", 9, &[]), "own");
        assert_eq!(get(&chosen, "b", 3, &["own"]), "own");
        assert_eq!(requested("gpu").differs(&chosen.used()), Some(("b", 1)));
        let all = "gpu\nfirst\ta\nown\ta, 3 images\nfifth\ta, 5 images\nown\tb\n";
        assert_eq!(chosen.used().to_string(), all);
    }
    #[test]
    fn get_returns_the_error_of_the_requested_algorithm() {
        let chosen = ChosenAlgorithms::new("gpu".into());
        chosen.adopt(&Algorithms::parse("gpu\nfirst\ta\n"));
        let never = || -> Result<(String, ()), &str> { panic!("another algorithm was chosen") };
        assert_eq!(chosen.get("a", 9, |_| Err("the GPU is gone"), never), Err("the GPU is gone"));
    }
}
