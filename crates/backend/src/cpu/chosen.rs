//! The table of convolutions as a choice of algorithms: ranks take rank 0's, and a run goes on by that of its checkpoint, although
//! the processors differ.

use super::choices::{Table, VARIABLE};
use super::device::Cpu;
use super::isa::Isa;
use super::onednn;
use crate::{AlgorithmChoice, Algorithms};

/// The one operation, since one table is for all convolutions.
const OF: &str = "convolutions";

impl Cpu {
    /// Where a table's choices are the same: blocks of as many channels, the same library.
    fn on(&self) -> String {
        format!("{}, {}", onednn::version(), self.isa.min(Isa::Avx512).name())
    }
}

impl AlgorithmChoice for Cpu {
    fn used(&self) -> Algorithms {
        let table = [(OF.to_string(), self.table.borrow().in_a_line())];
        Algorithms { on: self.on(), by_operation: table.into() }
    }

    fn adopt(&self, algorithms: &Algorithms) {
        let line = algorithms.by_operation.get(OF).filter(|_| !self.named && algorithms.on == self.on());
        if let Some(table) = line.and_then(|line| Table::from_line(line)) {
            self.table.replace(table);
        }
    }

    fn is_known_before(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let who = if self.named { format!(" (named by {VARIABLE})") } else { String::new() };
        format!("{OF} by {}{who}, for {}", self.table.borrow().describe(), self.on())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_another_rank_is_taken_unless_the_user_has_named_one() {
        let row = "3 64 64 32 32 onednn";
        let other = |on: &str, table: &str| Algorithms::parse(&format!("{on}\n{table}\tconvolutions\n"));
        let cpu = Cpu::new(1).unwrap();
        let (here, own) = (cpu.on(), cpu.used());
        cpu.adopt(&other("another library, another register", "none"));
        cpu.adopt(&other(&here, "of a later version; whatever"));
        assert_eq!(cpu.used(), own);
        let rank_0s = other(&here, &format!("/there/own.txt; {row}"));
        cpu.adopt(&rank_0s);
        assert_eq!(cpu.used(), rank_0s);
        assert!(AlgorithmChoice::describe(&cpu).starts_with("convolutions by table /there/own.txt, for oneDNN"));
        let named = Cpu::new(1).unwrap().by(Table::named("none").unwrap());
        named.adopt(&rank_0s);
        assert_eq!(named.used(), other(&here, "none"));
        let said = AlgorithmChoice::describe(&named);
        assert!(said.starts_with("convolutions by no table (named by TRIREME_CPU_TABLE), for"), "{said}");
    }
}
