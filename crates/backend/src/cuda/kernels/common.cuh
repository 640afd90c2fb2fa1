// Shared by all kernels: the type of activations, 16-byte accesses, loops for any grid, and sums in a fixed order. The
// host puts this text before all other files and sets PRECISION to the type of activations (0: f32, 1: bf16, 2: f16).
//
// Every kernel is correct for any grid. The order of sums depends only on sizes and grid, never on timing, so there are
// no float atomics. Arithmetic is in f32. Sums over many values are in f64.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#if PRECISION == 0

typedef float T;
__device__ inline float value(T v) { return v; }
__device__ inline T rounded(float v) { return v; }

#elif PRECISION == 1

struct T {
    u16 bits;
};
__device__ inline float value(T v) { return __uint_as_float((u32)v.bits << 16); }
// Rounds to nearest, ties to even. NaN keeps its sign and becomes quiet.
__device__ inline T rounded(float v) {
    u32 bits = __float_as_uint(v);
    u32 up = bits + 0x7fffu + ((bits >> 16) & 1u);
    T to;
    to.bits = (u16)((v != v ? (bits | 0x400000u) : up) >> 16);
    return to;
}

#else

struct T {
    u16 bits;
};
// A multiplication adjusts the exponent, because that also converts subnormals. Exponents above the range for finite
// f16 values stand for Inf or NaN.
__device__ inline float value(T v) {
    u32 magnitude = (u32)(v.bits & 0x7fff) << 13;
    float moved = __uint_as_float(magnitude) * __uint_as_float(0x77800000u);
    u32 bits = __float_as_uint(moved) | (magnitude >= 0x0f800000u ? 0x7f800000u : 0u);
    return __uint_as_float(bits | (u32)(v.bits & 0x8000) << 16);
}
// Rounds to nearest, ties to even. Values from 65520 on become Inf.
__device__ inline T rounded(float v) {
    u32 bits = __float_as_uint(v), sign = bits & 0x80000000u;
    bits ^= sign;
    u32 to;
    if (bits >= 0x47800000u) {
        to = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (bits < 0x38800000u) {
        // adding 0.5 leaves the rounded digits of the subnormal in the lowest bits
        to = __float_as_uint(__uint_as_float(bits) + 0.5f) - 0x3f000000u;
    } else {
        to = (bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13;
    }
    T half;
    half.bits = (u16)(to | sign >> 16);
    return half;
}

#endif

// Number of elements in 16 bytes.
constexpr int WIDE = 16 / (int)sizeof(T);

template <int V>
struct alignas(V * sizeof(T)) Pack {
    T at[V];
};

template <int V>
__device__ inline void unpack(const Pack<V>& pack, float (&to)[V]) {
    for (int i = 0; i < V; i++) to[i] = value(pack.at[i]);
}

// 16 bytes in four registers.
struct alignas(16) Words {
    u32 at[4];
};

// Loads a pack with a single access. Without the assembly statement the compiler may load its elements one by one where
// they are used.
template <int V>
__device__ inline void load(const T* from, float (&to)[V]) {
    if constexpr (sizeof(Pack<V>) == sizeof(Words)) {
        Words words = *reinterpret_cast<const Words*>(from);
#ifdef __CUDA_ARCH__
        asm volatile("" : "+r"(words.at[0]), "+r"(words.at[1]), "+r"(words.at[2]), "+r"(words.at[3]));
#endif
        unpack(*reinterpret_cast<const Pack<V>*>(&words), to);
    } else {
        unpack(*reinterpret_cast<const Pack<V>*>(from), to);
    }
}

template <int V>
__device__ inline void pack(const float (&from)[V], Pack<V>& to) {
    for (int i = 0; i < V; i++) to.at[i] = rounded(from[i]);
}

template <int V>
__device__ inline void store(T* to, const float (&from)[V]) {
    Pack<V> packed;
    pack(from, packed);
    *reinterpret_cast<Pack<V>*>(to) = packed;
}

// Loads V f32 values, starting at `channel`.
template <int V>
__device__ inline void take(const float* from, u32 channel, float (&to)[V]) {
    for (int i = 0; i < V; i++) to[i] = from[channel + i];
}

__device__ inline u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline u64 thread_count() { return (u64)gridDim.x * blockDim.x; }

// Returns a / b and the remainder. The compiler calls a function for a 64-bit division but generates inline code for a
// 32-bit division.
__device__ inline u64 divided(u64 a, u32 b, u32& rest) {
    if (a >> 32) {
        rest = (u32)(a % b);
        return a / b;
    }
    rest = (u32)a % b;
    return (u32)a / b;
}

// y[i] = f(a[i], b[i]) for n elements: 16 bytes at a time, then one by one. The arrays may be the same.
template <class F>
__device__ inline void map(const T* a, const T* b, T* y, u64 n, F f) {
    u64 packs = n / WIDE;
    for (u64 i = thread_index(); i < packs; i += thread_count()) {
        float v[WIDE], w[WIDE];
        load(a + i * WIDE, v);
        load(b + i * WIDE, w);
        for (int j = 0; j < WIDE; j++) v[j] = f(v[j], w[j]);
        store(y + i * WIDE, v);
    }
    for (u64 i = packs * WIDE + thread_index(); i < n; i += thread_count()) y[i] = rounded(f(value(a[i]), value(b[i])));
}

// y[i] = f(x[i])
template <class F>
__device__ inline void map(const T* x, T* y, u64 n, F f) {
    u64 packs = n / WIDE;
    for (u64 i = thread_index(); i < packs; i += thread_count()) {
        float v[WIDE];
        load(x + i * WIDE, v);
        for (int j = 0; j < WIDE; j++) v[j] = f(v[j]);
        store(y + i * WIDE, v);
    }
    for (u64 i = packs * WIDE + thread_index(); i < n; i += thread_count()) y[i] = rounded(f(value(x[i])));
}

// max(v, 0), except that NaN stays NaN.
__device__ inline float relu(float v) { return v <= 0.0f ? 0.0f : v; }

// Threads per block in kernels that compute sums. The host always launches this number.
constexpr int SUMMERS = 256;

// Adds one value per thread and returns the sum to all threads of the block. The order is a tree over halves of the
// threads. `room` has SUMMERS values.
__device__ inline double block_sum(double v, double* room) {
    room[threadIdx.x] = v;
    __syncthreads();
    for (int half = SUMMERS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) room[threadIdx.x] += room[threadIdx.x + half];
        __syncthreads();
    }
    double sum = room[0];
    __syncthreads();
    return sum;
}

// Returns the sum over all lanes of a warp to all lanes, in a fixed order.
__device__ inline double warp_sum(double v) {
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
    return v;
}

__device__ inline int warp_sum(int v) {
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(0xffffffffu, v, lanes);
    return v;
}

__device__ inline float warp_max(float v) {
    for (int lanes = 16; lanes > 0; lanes /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lanes));
    return v;
}

// The index of this thread's warp, and the number of warps in the grid.
__device__ inline u32 warp_index() { return (u32)(thread_index() / 32); }
__device__ inline u32 warp_count() { return (u32)(thread_count() / 32); }
