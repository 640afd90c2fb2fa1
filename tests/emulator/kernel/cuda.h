// CUDA's keywords for g++, included before every kernel source: qualifiers, vector types, barriers and warp operations.
// Arithmetic intrinsics are in math.h, half types in half.h.
//
// Anything else does not compile, so that kernels use only features that the emulated driver supports: static
// `__shared__` arrays, atomics on integers only, no PTX, no textures.
#pragma once
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "abi.h"

static const emulator::Thread* trireme_current;

#define threadIdx (trireme_current->thread)
#define blockIdx (trireme_current->block)
#define blockDim (trireme_current->block_dim)
#define gridDim (trireme_current->grid_dim)
#define warpSize 32

#define __device__
#define __host__
#define __constant__ static
// These marks are searched for in the preprocessed text to list the kernels.
#ifdef TRIREME_SCAN
#define __global__ __trireme_global__
#define __launch_bounds__(...) __trireme_bounds__(__VA_ARGS__)
#else
#define __global__ __attribute__((visibility("default")))
#define __launch_bounds__(...)
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// One block runs at a time, and all its threads run on one OS thread. The driver overwrites its thread-local storage
// before each block.
#define __shared__ static thread_local
#define __grid_constant__

#define __syncthreads() ((void)trireme_current->hooks->barrier(__LINE__, 0))
#define __syncthreads_count(predicate) (trireme_current->hooks->barrier(__LINE__, (predicate) ? 1 : 0))
#define __syncthreads_or(predicate) (__syncthreads_count(predicate) != 0)
#define __syncthreads_and(predicate) \
    (__syncthreads_count(predicate) == (int)(blockDim.x * blockDim.y * blockDim.z))
#define __syncwarp(...) trireme_sync(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) trireme_shuffle(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) trireme_shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) trireme_shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) trireme_shuffle_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) trireme_ballot(__LINE__, mask, predicate)
#define __any_sync(mask, predicate) (trireme_ballot(__LINE__, mask, predicate) != 0)
#define __all_sync(mask, predicate) (trireme_ballot(__LINE__, mask, !(predicate)) == 0)

inline void trireme_sync(int line, unsigned mask = 0xffffffffu) {
    trireme_current->hooks->warp(emulator::Warp::Sync, mask, 0, 0, line);
}

inline unsigned trireme_ballot(int line, unsigned mask, int predicate) {
    return (unsigned)trireme_current->hooks->warp(emulator::Warp::Ballot, mask, predicate != 0, 0, line);
}

template <class T>
inline T trireme_exchange(int line, unsigned mask, T value, int source) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "shuffles move up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = trireme_current->hooks->warp(emulator::Warp::Shuffle, mask, bits, source, line);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

template <class T>
inline T trireme_shuffle(int line, unsigned mask, T value, int source, int width = 32) {
    int lane = (int)trireme_current->lane;
    return trireme_exchange(line, mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}

template <class T>
inline T trireme_shuffle_down(int line, unsigned mask, T value, unsigned delta, int width = 32) {
    int lane = (int)trireme_current->lane, to = lane + (int)delta;
    return trireme_exchange(line, mask, value, to > (lane | (width - 1)) ? lane : to);
}

template <class T>
inline T trireme_shuffle_up(int line, unsigned mask, T value, unsigned delta, int width = 32) {
    int lane = (int)trireme_current->lane, to = lane - (int)delta;
    return trireme_exchange(line, mask, value, to < (lane & ~(width - 1)) ? lane : to);
}

template <class T>
inline T trireme_shuffle_xor(int line, unsigned mask, T value, int bits, int width = 32) {
    int lane = (int)trireme_current->lane, to = lane ^ bits;
    return trireme_exchange(line, mask, value, to > (lane | (width - 1)) ? lane : to);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __trap() { trireme_current->hooks->fail("__trap"); }

// Only one thread runs at a time, so atomics are plain operations. They support integers only, because the order of
// float additions would be random.
template <class T, class U, class F>
inline T trireme_atomic(T* to, U value, F f) {
    static_assert(std::is_integral_v<T>, "atomics on integers only: the order of float additions would be chance");
    T old = *to;
    *to = f(old, (T)value);
    return old;
}
template <class T, class U> inline T atomicAdd(T* to, U v) { return trireme_atomic(to, v, [](T a, T b) { return (T)(a + b); }); }
template <class T, class U> inline T atomicSub(T* to, U v) { return trireme_atomic(to, v, [](T a, T b) { return (T)(a - b); }); }
template <class T, class U> inline T atomicMax(T* to, U v) { return trireme_atomic(to, v, [](T a, T b) { return a > b ? a : b; }); }
template <class T, class U> inline T atomicMin(T* to, U v) { return trireme_atomic(to, v, [](T a, T b) { return a < b ? a : b; }); }
template <class T, class U> inline T atomicOr(T* to, U v) { return trireme_atomic(to, v, [](T a, T b) { return (T)(a | b); }); }
template <class T, class U> inline T atomicAnd(T* to, U v) { return trireme_atomic(to, v, [](T a, T b) { return (T)(a & b); }); }
template <class T, class U> inline T atomicXor(T* to, U v) { return trireme_atomic(to, v, [](T a, T b) { return (T)(a ^ b); }); }
template <class T, class U> inline T atomicExch(T* to, U v) { return trireme_atomic(to, v, [](T, T b) { return b; }); }
template <class T, class U, class V> inline T atomicCAS(T* to, U compare, V value) {
    static_assert(std::is_integral_v<T>, "atomics on integers only");
    T old = *to;
    if (old == (T)compare) *to = (T)value;
    return old;
}

#define TRIREME_VECTORS(T, N, ALIGN1, ALIGN2, ALIGN4)                                                                       \
    struct N##1 { T x; };                                                                                                   \
    struct alignas(ALIGN2) N##2 { T x, y; };                                                                                \
    struct N##3 { T x, y, z; };                                                                                             \
    struct alignas(ALIGN4) N##4 { T x, y, z, w; };                                                                          \
    inline N##1 make_##N##1(T x) { return {x}; }                                                                            \
    inline N##2 make_##N##2(T x, T y) { return {x, y}; }                                                                    \
    inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }                                                            \
    inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TRIREME_VECTORS(signed char, char, 1, 2, 4)
TRIREME_VECTORS(unsigned char, uchar, 1, 2, 4)
TRIREME_VECTORS(short, short, 2, 4, 8)
TRIREME_VECTORS(unsigned short, ushort, 2, 4, 8)
TRIREME_VECTORS(int, int, 4, 8, 16)
TRIREME_VECTORS(unsigned int, uint, 4, 8, 16)
TRIREME_VECTORS(long long, longlong, 8, 16, 16)
TRIREME_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
TRIREME_VECTORS(float, float, 4, 8, 16)
TRIREME_VECTORS(double, double, 8, 16, 16)

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

#include "math.h"

namespace emulator {

template <class F> struct Signature;

template <class... P>
struct Signature<void (*)(P...)> {
    static constexpr unsigned count = sizeof...(P);
    static constexpr unsigned sizes[count + 1] = {(unsigned)sizeof(P)..., 0};
    static constexpr bool pointers[count + 1] = {std::is_pointer_v<P>..., false};
    template <auto F, size_t... I> static void call(void** parameters, std::index_sequence<I...>) {
        (void)parameters;
        F(*static_cast<P*>(parameters[I])...);
    }
    template <auto F> static void run(void** parameters) { call<F>(parameters, std::index_sequence_for<P...>()); }
};

template <auto F>
constexpr Kernel describe(const char* name, int max_threads, int = 0, int = 0) {
    using S = Signature<decltype(F)>;
    return {name, max_threads, S::count, S::sizes, S::pointers, &S::template run<F>};
}

}  // namespace emulator

// Appended to the source when its kernels are known.
#define TRIREME_MODULE(...)                                                                                                 \
    static const emulator::Kernel trireme_kernels[] = {__VA_ARGS__};                                                        \
    static thread_local volatile char trireme_shared_anchor;                                                                \
    extern "C" __attribute__((visibility("default"))) const emulator::Module trireme_module = {                             \
        trireme_kernels, sizeof(trireme_kernels) / sizeof(trireme_kernels[0]), &trireme_current,                            \
        [] { trireme_shared_anchor = trireme_shared_anchor; }};
