//! The instruction set that oneDNN uses, and its consequences: the number of channels in a block, and whether bf16
//! factors make products faster.

use super::{onednn, sys};

/// Instruction sets for which trireme behaves differently. Each includes all sets before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    Sse41,
    /// ARM's NEON, which every processor of aarch64 has.
    Neon,
    Avx2,
    /// AVX-512 as in server processors (`avx512_core`).
    Avx512,
    /// Also has products of bf16 pairs.
    Avx512Bf16,
    /// Also has tile instructions (AMX).
    Amx,
}

impl Isa {
    /// Returns the set that oneDNN uses: the processor's, unless an environment variable restricts it.
    pub fn effective() -> Self {
        if cfg!(target_arch = "aarch64") {
            return Self::Neon;
        }
        // SAFETY: the function has no arguments and only reads.
        Self::of(unsafe { sys::dnnl_get_effective_cpu_isa() })
    }

    fn of(isa: sys::dnnl_cpu_isa_t) -> Self {
        // The value of an instruction set also has the bits of the instruction sets included in it.
        let has = |set: sys::dnnl_cpu_isa_t| isa & set == set;
        let known = [
            (sys::dnnl_cpu_isa_avx512_core_amx, Self::Amx),
            (sys::dnnl_cpu_isa_avx512_core_bf16, Self::Avx512Bf16),
            (sys::dnnl_cpu_isa_avx512_core, Self::Avx512),
            (sys::dnnl_cpu_isa_avx2, Self::Avx2),
        ];
        known.into_iter().find(|(set, _)| has(*set)).map_or(Self::Sse41, |(_, isa)| isa)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Sse41 => "sse4.1",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::Amx => "avx512-bf16 and amx",
        }
    }

    /// Returns the channels per block: the f32 lanes in a vector register.
    pub fn block(self) -> usize {
        if self >= Self::Avx512 { 16 } else { 8 }
    }

    /// Returns true if the set has fused multiply-add, which our own kernels need.
    pub fn has_fma(self) -> bool {
        self >= Self::Neon
    }

    /// Returns true if products of bf16 factors use tile instructions.
    pub fn has_tiles(self) -> bool {
        self >= Self::Amx
    }

    /// Returns an error with the reason if products of bf16 factors are not faster than f32 products.
    pub fn bf16(self) -> Result<(), String> {
        if self >= Self::Avx512Bf16 {
            return Ok(());
        }
        #[cfg(target_arch = "x86_64")]
        let has = is_x86_feature_detected!("avx512bf16");
        #[cfg(not(target_arch = "x86_64"))]
        let has = false;
        Err(format!(
            "bf16 is faster than f32 only with AVX512-BF16 (Intel: Cooper Lake, and Xeons since Sapphire Rapids; AMD: since Zen 4), \
             but {} uses {} on this machine{}",
            onednn::version(),
            self.name(),
            if has { ", although the processor has it: unset ONEDNN_MAX_CPU_ISA" } else { "" },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_native_only_on_cpus_with_bf16_dot_products() {
        let known = [
            (sys::dnnl_cpu_isa_sse41, Isa::Sse41, 8, false),
            (sys::dnnl_cpu_isa_avx, Isa::Sse41, 8, false),
            (sys::dnnl_cpu_isa_avx2, Isa::Avx2, 8, false),
            (sys::dnnl_cpu_isa_avx2_vnni, Isa::Avx2, 8, false),
            (sys::dnnl_cpu_isa_avx512_core, Isa::Avx512, 16, false),
            (sys::dnnl_cpu_isa_avx512_core_vnni, Isa::Avx512, 16, false),
            (sys::dnnl_cpu_isa_avx512_core_bf16, Isa::Avx512Bf16, 16, true),
            (sys::dnnl_cpu_isa_avx512_core_amx, Isa::Amx, 16, true),
        ];
        for (theirs, isa, block, takes) in known {
            assert_eq!((Isa::of(theirs), isa.block(), isa.bf16().is_ok()), (isa, block, takes), "{theirs:#x}");
        }
        let why = Isa::Avx512.bf16().unwrap_err();
        assert!(why.contains("AVX512-BF16") && why.contains("uses avx512 "), "{why}");
    }
}
