// CUDA's arithmetic intrinsics, rounded as their names say. Approximate ones such as `__expf` return the exact
// function, so tests must allow for a device's error.
#pragma once

// max, min and abs are overloaded in CUDA.
#define TRIREME_MIN_MAX(T)                                     \
    inline T max(T a, T b) { return a > b ? a : b; }           \
    inline T min(T a, T b) { return a < b ? a : b; }
TRIREME_MIN_MAX(int)
TRIREME_MIN_MAX(unsigned)
TRIREME_MIN_MAX(long)
TRIREME_MIN_MAX(unsigned long)
TRIREME_MIN_MAX(long long)
TRIREME_MIN_MAX(unsigned long long)
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frsqrt_rn(float x) { return (float)(1.0 / ::sqrt((double)x)); }

// Never contracted to a fused multiply-add, regardless of --fmad.
#define TRIREME_PLAIN __attribute__((noinline, optimize("fp-contract=off")))
TRIREME_PLAIN inline float __fadd_rn(float a, float b) { return a + b; }
TRIREME_PLAIN inline float __fsub_rn(float a, float b) { return a - b; }
TRIREME_PLAIN inline float __fmul_rn(float a, float b) { return a * b; }
TRIREME_PLAIN inline float __fdiv_rn(float a, float b) { return a / b; }
TRIREME_PLAIN inline double __dadd_rn(double a, double b) { return a + b; }
TRIREME_PLAIN inline double __dsub_rn(double a, double b) { return a - b; }
TRIREME_PLAIN inline double __dmul_rn(double a, double b) { return a * b; }
TRIREME_PLAIN inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dsqrt_rn(double a) { return ::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <class To, class From>
inline To trireme_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}
inline unsigned __float_as_uint(float x) { return trireme_bits<unsigned>(x); }
inline int __float_as_int(float x) { return trireme_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return trireme_bits<float>(x); }
inline float __int_as_float(int x) { return trireme_bits<float>(x); }
inline long long __double_as_longlong(double x) { return trireme_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return trireme_bits<double>(x); }
inline int __double2hiint(double x) { return (int)(trireme_bits<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return (int)trireme_bits<uint64_t>(x); }
inline double __hiloint2double(int hi, int lo) { return trireme_bits<double>((uint64_t)(unsigned)hi << 32 | (unsigned)lo); }

// As on the device, values out of range saturate and NaN gives 0, or 0x8000000000000000 for 64 bits.
template <class T>
inline T trireme_to_int(double x) {
    if (x != x) return sizeof(T) == 8 ? (T)(1ull << 63) : 0;
    if (x >= (double)std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
    if (x <= (double)std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
    return (T)x;
}
inline int __float2int_rn(float x) { return trireme_to_int<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return trireme_to_int<int>(truncf(x)); }
inline int __float2int_rd(float x) { return trireme_to_int<int>(floorf(x)); }
inline int __float2int_ru(float x) { return trireme_to_int<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return trireme_to_int<unsigned>(nearbyintf(x)); }
inline unsigned __float2uint_rz(float x) { return trireme_to_int<unsigned>(truncf(x)); }
inline long long __float2ll_rn(float x) { return trireme_to_int<long long>(nearbyintf(x)); }
inline int __double2int_rn(double x) { return trireme_to_int<int>(nearbyint(x)); }
inline int __double2int_rz(double x) { return trireme_to_int<int>(trunc(x)); }
inline long long __double2ll_rn(double x) { return trireme_to_int<long long>(nearbyint(x)); }
inline long long __double2ll_rz(double x) { return trireme_to_int<long long>(trunc(x)); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __ull2float_rn(unsigned long long x) { return (float)x; }
inline double __int2double_rn(int x) { return (double)x; }
inline double __uint2double_rn(unsigned x) { return (double)x; }
inline double __ll2double_rn(long long x) { return (double)x; }
inline double __ull2double_rn(unsigned long long x) { return (double)x; }
inline float __double2float_rn(double x) { return (float)x; }

inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; ++i) y |= (x >> i & 1u) << (31 - i);
    return y;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) {
    return (unsigned)((((uint64_t)hi << 32 | lo) << (s & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { return (unsigned)(((uint64_t)hi << 32 | lo) >> (s & 31)); }

template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldcg(const T* p) { return *p; }
template <class T> inline T __ldca(const T* p) { return *p; }
template <class T> inline void __stcs(T* p, T v) { *p = v; }
template <class T> inline void __stcg(T* p, T v) { *p = v; }
inline long long clock64() { return 0; }
