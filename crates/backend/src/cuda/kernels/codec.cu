// The codecs of crates/comm/src/codec on the GPU. They produce the same bits as on the host.

// A range of consecutive elements of a tensor. The range starts at `from` in the bucket and at `place` in the array of
// encoded gradients. `first` elements of the tensor come before it.
struct Run {
    u64 from;
    u64 place;
    u64 first;
    u32 len;
    u32 tensor;
    u32 parameter;
    u32 in_lanes;
};

// Adding this to a number below 2^31 leaves the nearest integer, with ties to even, in the low bits of the sum.
constexpr double RINT = 6755399441055744.0;

// Words in a block of packed codes. Each word has several codes (lanes).
constexpr u32 WORDS = 64;

// Returns the exponent of the scale for the codec `exact`. The scale is 2^30 divided by the next power of two above the
// largest |g|, reduced by `room` bits so that the sum over workers fits.
__device__ inline int scale_exponent(u32 largest, u32 room) {
    u64 bits = (u64)__double_as_longlong((double)__uint_as_float(largest));
    return 30 - (int)room - ((int)(bits >> 52) - 1023 + 1);
}

__device__ inline double power_of_two(int k) { return __longlong_as_double((long long)(k + 1023) << 52); }

// Measures each run: the largest |g| as bits (NaN > infinity > finite) and, unless `moments` is null, the sum of g and
// of its squares. The scale of the run's tensor is computed from these values. Each lane of the warp computes one of
// the partial sums of crates/base/src/code_spec.rs, and they are added in the order given there. If there is a
// residual, it is added to g first.
extern "C" __global__ void codec_measure(float* g, const Run* runs, u32 count, const float* residual, u32* largest, double* moments) {
    u32 lane = threadIdx.x % 32;
    for (u32 p = warp_index(); p < count; p += warp_count()) {
        Run run = runs[p];
        bool feeds = residual && run.in_lanes;
        u32 most = 0;
        double sum = 0.0, squares = 0.0;
        for (u32 i = lane; i < run.len; i += 32) {
            u64 at = run.from + i;
            float v = g[at];
            if (feeds) {
                v += residual[at];
                g[at] = v;
            }
            u32 bits = __float_as_uint(v) & 0x7fffffffu;
            most = bits > most ? bits : most;
            if (moments) {
                double wide = (double)v;
                sum += wide;
                // the product is exact in f64, so a fused multiply-add rounds like separate operations
                squares += wide * wide;
            }
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            u32 other = __shfl_xor_sync(0xffffffffu, most, lanes);
            most = other > most ? other : most;
        }
        if (lane == 0) largest[p] = most;
        if (moments) {
            sum = warp_sum(sum);
            squares = warp_sum(squares);
            if (lane < 2) moments[2 * p + lane] = lane == 0 ? sum : squares;
        }
    }
}

// A tensor. Its runs begin at index `first`. Its scale is `clip` standard deviations, or its largest |g| if `clip` is
// 0.
struct Span {
    double elems;
    u32 first;
    u32 runs;
    float clip;
    u32 zero;
};

constexpr u32 INFINITE = 0x7f800000u, NOT_A_NUMBER = 0x7fc00000u;

// The same as `Moments::scale` in crates/base/src/code_spec.rs.
__device__ inline u32 scale_bits(u32 largest, double sum, double squares, double elems, float clip) {
    if (clip == 0.0f || largest >= INFINITE) return largest;
    double mean = sum / elems, variance = __dsub_rn(squares / elems, __dmul_rn(mean, mean));
    double deviation = sqrt(variance > 0.0 ? variance : 0.0);
    if (deviation <= 1e-6 * (double)__uint_as_float(largest)) return largest;
    return __float_as_uint(fminf((float)((double)clip * deviation), 3.402823466e38f));
}

// Computes each tensor's largest scale over `shares` workers, which have `count` measured runs each. One warp handles a
// tensor and adds the moments in the order of the runs.
extern "C" __global__ void codec_scales(const u32* largest, const double* moments, const Span* spans, u32 tensors, u32 count, u32 shares, u32* scales) {
    u32 lane = threadIdx.x % 32;
    for (u32 t = warp_index(); t < tensors; t += warp_count()) {
        Span span = spans[t];
        u32 scale = 0;
        for (u32 share = 0; share < shares; share++) {
            u64 begin = (u64)share * count + span.first;
            u32 most = 0;
            for (u32 i = lane; i < span.runs; i += 32) most = largest[begin + i] > most ? largest[begin + i] : most;
            for (int lanes = 16; lanes > 0; lanes /= 2) {
                u32 other = __shfl_xor_sync(0xffffffffu, most, lanes);
                most = other > most ? other : most;
            }
            double sum = 0.0, squares = 0.0;
            if (span.clip > 0.0f) {
                for (u32 i = 0; i < span.runs; i++) {
                    sum += moments[2 * (begin + i)];
                    squares += moments[2 * (begin + i) + 1];
                }
            }
            u32 own = scale_bits(most, sum, squares, span.elems, span.clip);
            scale = own > scale ? own : scale;
        }
        if (lane == 0) scales[t] = scale;
    }
}

// Computes codes = rint(g scale), or adds rint(g scale) to the codes if `add` is set.
extern "C" __global__ void codec_integers(const float* g, const Run* runs, u32 count, const u32* scales, u32 room, u32 add, u32* codes) {
    for (u32 p = blockIdx.x; p < count; p += gridDim.x) {
        Run run = runs[p];
        u32 largest = scales[run.tensor];
        double scale = largest ? power_of_two(scale_exponent(largest, room)) : 0.0;
        for (u32 i = threadIdx.x; i < run.len; i += blockDim.x) {
            // the product is exact in f64, so a fused multiply-add rounds like separate operations
            u32 code = (u32)__double_as_longlong((double)g[run.from + i] * scale + RINT);
            codes[run.place + i] = add ? codes[run.place + i] + code : code;
        }
    }
}

extern "C" __global__ void codec_integers_back(const int* codes, const Run* runs, u32 count, const u32* scales, u32 room, float* g) {
    for (u32 p = blockIdx.x; p < count; p += gridDim.x) {
        Run run = runs[p];
        u32 largest = scales[run.tensor];
        double step = largest ? power_of_two(-scale_exponent(largest, room)) : 0.0;
        for (u32 i = threadIdx.x; i < run.len; i += blockDim.x) {
            float sum = largest ? (float)((double)codes[run.place + i] * step) : 0.0f;
            g[run.from + i] = largest < INFINITE ? sum : __uint_as_float(NOT_A_NUMBER);
        }
    }
}

// Computes packed codes. With m = |g| / scale * steps, limited to `steps` and rounded stochastically, a code is steps +
// m, or steps - m if g is negative. Adds the codes to the codes in `words` if `add` is set, otherwise replaces them.
// The random draws are the same as in crates/comm/src/codec/philox.rs. Unless `residual` is null, it receives the
// difference between g and g clamped to [-scale, scale].
extern "C" __global__ void codec_lanes(const float* g, const Run* runs, u32 count, const u32* scales, u32 bits, u32 per_word, u32 steps, u32 worker, u32 step, u64 seed, u32 op, float* residual, u32 add, u64* words) {
    for (u64 t = thread_index(); t < (u64)count * WORDS; t += thread_count()) {
        Run run = runs[t / WORDS];
        u32 j = (u32)(t % WORDS), width = (run.len + per_word - 1) / per_word;
        if (j >= width) continue;
        float scale = __uint_as_float(scales[run.tensor]);
        u64 word = add ? words[run.place + j] : 0;
        for (u32 lane = 0; lane < per_word; lane++) {
            u32 i = lane * width + j;
            if (i >= run.len) break;
            float v = g[run.from + i];
            if (residual) residual[run.from + i] = v - (v < -scale ? -scale : (v > scale ? scale : v));
            if (scale == 0.0f) continue;
            u64 element = run.first + i;
            u32 draws[4] = {worker, (u32)(element / 32 * 8 + element % 8), step, op | run.parameter};
            philox(draws, (u32)seed, (u32)(seed >> 32));
            float most = (float)steps;
            // __fmul_rn rounds the product to f32, so that the compiler cannot fuse it with the subtraction of the
            // floor
            float size = fminf(__fmul_rn(fabsf(v) / scale, most), most), below = floorf(size);
            float draw = (float)(draws[element / 8 % 4] >> 8);
            u32 magnitude = (u32)below + (draw < (size - below) * 16777216.0f ? 1u : 0u);
            u32 code = __float_as_uint(v) >> 31 ? steps - magnitude : steps + magnitude;
            word += (u64)code << (lane * bits);
        }
        words[run.place + j] = word;
    }
}

extern "C" __global__ void codec_lanes_back(const u64* words, const Run* runs, u32 count, const u32* scales, u32 bits, u32 per_word, u32 steps, int zero, float* g) {
    u64 mask = ((u64)1 << bits) - 1;
    for (u64 t = thread_index(); t < (u64)count * WORDS; t += thread_count()) {
        Run run = runs[t / WORDS];
        u32 j = (u32)(t % WORDS), width = (run.len + per_word - 1) / per_word;
        if (j >= width) continue;
        u32 bits_of_scale = scales[run.tensor];
        float scale = __uint_as_float(bits_of_scale);
        u64 word = words[run.place + j];
        for (u32 lane = 0; lane < per_word; lane++) {
            u32 i = lane * width + j;
            if (i >= run.len) break;
            int sum = (int)((word >> (lane * bits)) & mask) - zero;
            float decoded = scale > 0.0f ? (float)sum / (float)steps * scale : 0.0f;
            g[run.from + i] = bits_of_scale < INFINITE ? decoded : __uint_as_float(NOT_A_NUMBER);
        }
    }
}

// Rounds to the nearest bf16, with ties to even. NaN stays NaN.
__device__ inline u32 nearest_half(float v) {
    u32 bits = __float_as_uint(v);
    return (v != v ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

extern "C" __global__ void codec_halves(const float* g, u64 n, u16* halves) {
    for (u64 i = thread_index(); i < n; i += thread_count()) halves[i] = (u16)nearest_half(g[i]);
}

// Rounds gradient plus residual to bf16. The residual becomes the rounding error, but keeps its value if the result is
// not finite.
extern "C" __global__ void codec_halves_split(float* g, u64 n, float* residual) {
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        float v = g[i] + residual[i], rounded = __uint_as_float(nearest_half(v) << 16);
        if (isfinite(rounded)) residual[i] = v - rounded;
        g[i] = rounded;
    }
}

extern "C" __global__ void codec_halves_back(const u16* halves, u64 n, float* g) {
    for (u64 i = thread_index(); i < n; i += thread_count()) g[i] = __uint_as_float((u32)halves[i] << 16);
}
