//! Reads the machine code of each kernel for `make test-cuda-check`: registers, spills and shared memory from the
//! assembler's log, instructions and loads from the disassembly.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::kernel::THREADS;
use super::source::{self, Bounds};
use crate::Precision;
use crate::cuda::driver::compile;
use crate::cuda::driver::compile::Target;

/// A multiprocessor's resources, from the table of compute capabilities in the CUDA programming guide.
pub struct Architecture {
    pub capability: (i32, i32),
    threads: u32,
    /// KiB of shared memory, and KiB that the system reserves per block.
    shared: u32,
    reserved: u32,
}

/// The first architecture of each generation since Turing, the oldest that NVRTC 13 supports.
pub const ARCHITECTURES: [Architecture; 5] = [
    Architecture { capability: (7, 5), threads: 1024, shared: 64, reserved: 0 },
    Architecture { capability: (8, 0), threads: 2048, shared: 164, reserved: 1 },
    Architecture { capability: (9, 0), threads: 2048, shared: 228, reserved: 1 },
    Architecture { capability: (10, 0), threads: 2048, shared: 228, reserved: 1 },
    Architecture { capability: (12, 0), threads: 1536, shared: 100, reserved: 1 },
];

/// Registers of a multiprocessor, and the number that a warp allocates at a time.
const REGISTERS: u32 = 65_536;
const GRANULE: u32 = 256;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelFacts {
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Bytes of spill stores per thread.
    pub spills: u32,
    pub instructions: usize,
    /// How many 16-byte loads the kernel issues in a row, at most, before it uses the first of them.
    pub ahead: usize,
}

impl KernelFacts {
    /// Returns the number of blocks for which a multiprocessor has enough registers.
    pub fn by_registers(&self) -> u32 {
        let warp = (self.registers * 32).next_multiple_of(GRANULE).max(GRANULE);
        REGISTERS / (warp * THREADS / 32)
    }

    /// Returns the number of blocks that run on a multiprocessor at the same time.
    pub fn blocks(&self, on: &Architecture) -> u32 {
        let shared = self.shared.div_ceil(1024) + on.reserved;
        self.by_registers().min(on.threads / THREADS).min(on.shared.checked_div(shared).unwrap_or(u32::MAX))
    }
}

/// Returns the number that precedes the word `unit` in a line of the log.
fn number(text: &str, unit: &str) -> Option<u32> {
    let before = text.split(unit).next().filter(|before| before.len() < text.len())?;
    before.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok()
}

/// Reads registers, shared memory and spills of each kernel from the assembler's log.
fn resources(log: &str) -> HashMap<String, KernelFacts> {
    let (mut all, mut kernel) = (HashMap::<String, KernelFacts>::new(), "");
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            kernel = name.trim();
        }
        let facts = all.entry(kernel.into()).or_default();
        facts.spills = facts.spills.max(number(line, " bytes spill stores").unwrap_or(0));
        facts.registers = facts.registers.max(number(line, " registers").unwrap_or(0));
        facts.shared = facts.shared.max(number(line, " bytes smem").unwrap_or(0));
    }
    all.remove("");
    all
}

/// Returns the numbers of the registers that an instruction names.
fn registers(instruction: &str) -> impl Iterator<Item = u32> {
    let words = instruction.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|word| word.strip_prefix('R')?.parse().ok())
}

/// Counts each kernel's instructions and loads in nvdisasm's output. A branch ends a sequence of loads.
fn read(text: &str, all: &mut HashMap<String, KernelFacts>) {
    let (mut kernel, mut pending) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix(".text.") {
            kernel = name.trim_end_matches(':').into();
        }
        let Some((_, instruction)) = line.trim_start().strip_prefix("/*").and_then(|rest| rest.split_once("*/")) else {
            pending.clear();
            continue;
        };
        let Some(facts) = all.get_mut(&kernel) else { continue };
        let instruction = instruction.split(';').next().unwrap_or("").trim();
        facts.instructions += usize::from(!instruction.is_empty());
        if let Some((_, operands)) = instruction.split_once("LDG.E.128") {
            pending.extend(registers(operands).next());
            facts.ahead = facts.ahead.max(pending.len());
        } else if instruction.contains("BRA")
            || registers(instruction).any(|r| pending.iter().any(|p| (*p..p + 4).contains(&r)))
        {
            pending.clear();
        }
    }
}

/// Compiles all kernels and inspects each. `tools` is the folder with NVIDIA's disassembler.
pub fn inspect(precision: Precision, on: &Architecture, tools: &Path) -> HashMap<String, KernelFacts> {
    let target = Target::Gpu(on.capability.0, on.capability.1);
    let made = compile::compile(&source::text(), precision, target, &["--ptxas-options=-v"]);
    let made = made.unwrap_or_else(|e| panic!("{e}"));
    let file = tools.join(format!("kernels-{}-{precision}.cubin", target.architecture()));
    std::fs::write(&file, &made.code).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut disassembler = Command::new(tools.join("nvidia/cu13/bin/nvdisasm"));
    let text = disassembler.arg("-c").arg(&file).output().unwrap_or_else(|e| panic!("nvdisasm: {e}"));
    assert!(text.status.success(), "nvdisasm: {}", String::from_utf8_lossy(&text.stderr));
    let mut all = resources(&made.log);
    read(&String::from_utf8_lossy(&text.stdout), &mut all);
    all
}

/// Lists a kernel's problems. Empty if it has none.
pub fn faults(name: &str, facts: &KernelFacts, bounds: Bounds, on: &Architecture, precision: Precision) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |good: bool, what: String| (!good).then(|| faults.push(what));
    check(facts.instructions > 0 && facts.registers > 0, "is not in the compiled code".into());
    check(facts.spills == 0, format!("spills {} bytes", facts.spills));
    check(
        facts.shared <= 48 << 10,
        format!("uses {} bytes of shared memory, more than a block can have", facts.shared),
    );
    let (threads, blocks) = (bounds.threads.unwrap_or(THREADS), bounds.blocks.unwrap_or(1));
    check(threads == THREADS, format!("is compiled for blocks of {threads} threads, but the host launches {THREADS}"));
    let fit = facts.by_registers();
    check(
        fit >= blocks,
        format!("has registers for {fit} blocks per multiprocessor, but its launch bounds require {blocks}"),
    );
    check(
        facts.blocks(on) >= 2,
        format!("runs {} blocks at a time on a multiprocessor, expected at least 2", facts.blocks(on)),
    );
    let least = if precision == Precision::F16 { 3 } else { 4 };
    let streams = ["norm_moments", "norm_forward", "norm_gradients", "norm_backward", "bias_forward", "bias_backward"];
    let few = format!("has {} loads in flight, expected at least {least}", facts.ahead);
    check(facts.ahead >= least || !streams.contains(&name), few);
    faults
}

/// Formats a table with a row per kernel and columns per architecture.
pub fn table(precision: Precision, columns: &[(&Architecture, HashMap<String, KernelFacts>)]) -> String {
    let mut text =
        format!("{precision}: registers, blocks per multiprocessor, 16-byte loads in flight, instructions\n");
    let _ = write!(text, "{:<22} {:>6}", "kernel", "shared");
    for (on, _) in columns {
        let name = format!("sm_{}{}", on.capability.0, on.capability.1);
        let _ = write!(text, "{name:>18}");
    }
    for name in source::names(&source::text()) {
        let shared = columns.iter().filter_map(|(_, all)| all.get(&name)).map(|facts| facts.shared).max().unwrap_or(0);
        let _ = write!(text, "\n{name:<22} {shared:>6}");
        for (on, all) in columns {
            let f = all.get(&name).cloned().unwrap_or_default();
            let _ = write!(text, "{:>7}{:>3}{:>3}{:>5}", f.registers, f.blocks(on), f.ahead, f.instructions);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 32768 bytes smem
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 129 registers, used 0 barriers";

    const TEXT: &str = ".text.a:
        /*0000*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0010*/              @!P0 LDG.E.128 R8, desc[UR4][R2.64+0x10] ;
        /*0020*/                   IADD3 R1, R2, R12, RZ ;
        /*0030*/                   LDG.E.128 R12, desc[UR4][R2.64+0x20] ;
        /*0040*/                   FADD R20, R6, R20 ;
        /*0050*/                   LDG.E.128 R4, desc[UR4][R2.64+0x10] ;
.L_x_0:
        /*0060*/                   LDG.E.128 R8, desc[UR4][R2.64+0x10] ;
.text.b:
        /*0000*/                   EXIT ;";

    #[test]
    fn resource_use_is_parsed_from_log_and_disassembly() {
        let mut all = resources(LOG);
        read(TEXT, &mut all);
        let a = KernelFacts { registers: 80, shared: 32_768, spills: 12, instructions: 7, ahead: 3 };
        assert_eq!(all["a"], a);
        assert_eq!(all["b"], KernelFacts { registers: 129, instructions: 1, ..KernelFacts::default() });
        assert_eq!(all.len(), 2);
        // 64 KiB are enough for two blocks on Turing. 80 registers allow three blocks on Hopper, and 129 registers one
        // block.
        assert_eq!(ARCHITECTURES.each_ref().map(|on| all["a"].blocks(on)), [2, 3, 3, 3, 3]);
        assert_eq!(all["b"].blocks(&ARCHITECTURES[2]), 1);
        let bounds = Bounds { threads: Some(256), blocks: Some(4) };
        let found = faults("norm_moments", &a, bounds, &ARCHITECTURES[2], Precision::Bf16);
        assert_eq!(found.len(), 3, "spills, bounds, loads: {found:?}");
        assert_eq!(faults("b", &all["b"], Bounds::default(), &ARCHITECTURES[2], Precision::F32).len(), 1);
        assert_eq!(faults("c", &KernelFacts::default(), Bounds::default(), &ARCHITECTURES[2], Precision::F32).len(), 1);
    }
}
