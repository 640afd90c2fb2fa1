//! The table of convolutions as a choice of algorithms, and the implementations that `trireme bench ops` measures. All
//! ranks use the table of rank 0, and a resumed run uses the table of its checkpoint, even if the processors differ.

use net::{Conv, Op};

use super::choices::{Kernels, Row, Sizes, Table, VARIABLE, merged};
use super::device::Cpu;
use super::isa::Isa;
use super::{affine, conv, linear, onednn, winograd};
use crate::{AlgorithmChoice, Algorithms, Backend, Error, Implementation, Implementations, PlanRequest};

/// The only operation with an entry in [`Algorithms`], because a table covers all convolutions.
const ALGORITHMS_OF: &str = "convolutions";

impl Cpu {
    /// Returns a key that identifies where a table is valid: the oneDNN version and the instruction set. All sets with
    /// AVX-512 count as the same.
    fn on(&self) -> String {
        format!("{}, {}", onednn::version(), self.isa.min(Isa::Avx512).name())
    }
}

impl AlgorithmChoice for Cpu {
    fn used(&self) -> Algorithms {
        let table = [(ALGORITHMS_OF.to_string(), self.table.borrow().to_line())];
        Algorithms { on: self.on(), by_operation: table.into() }
    }

    fn adopt(&self, algorithms: &Algorithms) {
        let line = algorithms.by_operation.get(ALGORITHMS_OF).filter(|_| !self.named && algorithms.on == self.on());
        if let Some(table) = line.and_then(|line| Table::from_line(line)) {
            self.table.replace(table);
        }
    }

    fn is_known_before(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let who = if self.named { format!(" (named by {VARIABLE})") } else { String::new() };
        format!("{ALGORITHMS_OF} by {}{who}, for {}", self.table.borrow().describe(), self.on())
    }
}

impl Implementations<Self> for Cpu {
    fn all(&self, r: &PlanRequest<'_, Self>) -> Result<Vec<Implementation<Self>>, Error> {
        if let Op::Linear(op) = r.op
            && let Some(own) = linear::in_panels(self, r, op)?
        {
            let own = Implementation { name: "panels", plan: Box::new(own) };
            return Ok(vec![own, Implementation { name: "onednn", plan: linear::by_onednn(self, r, op)? }]);
        }
        let Some(op) = choosable(self, r) else {
            return Ok(vec![Implementation { name: "", plan: self.plan(r)? }]);
        };
        let direct = affine::Plan::conv(self, r, op)?;
        let used = if conv::needs_winograd(r, &direct) { Kernels::Winograd } else { conv::choose_kernels(self, r, op) };
        let mut all = vec![Implementation { name: Kernels::OneDnn.name(), plan: Box::new(direct) }];
        if let Some(plan) = winograd::plan(self, r, op) {
            all.push(Implementation { name: Kernels::Winograd.name(), plan: plan? });
        }
        all.sort_by_key(|one| one.name != used.name());
        Ok(all)
    }

    fn row(&self, r: &PlanRequest<'_, Self>, by: &str, ratios: &[f64]) -> Option<String> {
        let (op, by) = (choosable(self, r)?, by.parse().ok()?);
        // Rows are measured only with padding of half the kernel. They apply to other paddings too.
        if op.kernel[0] != 2 * op.pads[0] + 1 {
            return None;
        }
        Some(Row { sizes: Sizes::of(r.x[0].shape, op), by, ratios: ratios.to_vec() }.to_string())
    }

    fn table(&self, before: &str, measured: &str, batches: &[usize], rows: &[String]) -> Result<String, String> {
        merged(before, measured, batches, rows)
    }
}

/// Returns the convolution if the Winograd kernels support it.
fn choosable<'a>(cpu: &Cpu, r: &PlanRequest<'a, Cpu>) -> Option<&'a Conv> {
    match r.op {
        Op::Conv(op) if winograd::fits(cpu, r, op) => Some(op),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopt_uses_the_table_of_rank_0_unless_the_user_set_one() {
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
        let said = AlgorithmChoice::describe(&cpu);
        assert!(said.contains("table /there/own.txt,") && said.contains(&here), "{said}");
        let named = Cpu::new(1).unwrap().with_table(Table::named("none").unwrap());
        named.adopt(&rank_0s);
        assert_eq!(named.used(), other(&here, "none"));
        let said = AlgorithmChoice::describe(&named);
        assert!(said.contains("no table") && said.contains(VARIABLE), "{said}");
    }
}
