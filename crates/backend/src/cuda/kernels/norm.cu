// Batch normalisation of a matrix (rows, channels), with residual and ReLU in the same pass.
//
// `statistics` holds C means, then C sums of squared offsets from them, in f64. `affine` holds C means (f32), C scales, C biases:
// y = (x - mean) scale + bias, where the bias makes up for the mean's rounding. `slopes` holds C of b, then of c:
// dx = scale g + b (x - mean) + c.
//
// Three blocks on a multiprocessor: 80 registers a thread, and 32 KiB of shared memory for the sums.

// With NORM_THROUGH the forward pass reads the residual, and the backward pass the second summand, through a shortcut.
constexpr int NORM_RELU = 1, NORM_RESIDUAL = 2, NORM_SECOND = 4, NORM_THROUGH = 8;

// Rows of a batch: four 16-byte loads of one tensor, two of each of two or more; one of each of three where registers do not
// suffice: with what makes ReLU's mask again, and in f16, whose conversions take more.
constexpr int OF_ONE = 4, OF_TWO = 2, OF_THREE = 1;

__device__ inline void set_affine(float* affine, u32 channels, u32 c, double mean, double variance, float eps, float gamma, float beta) {
    double scale = (double)gamma / sqrt(variance + (double)eps);
    float near = (float)mean;
    affine[c] = near;
    affine[channels + c] = (float)scale;
    affine[2 * channels + c] = (float)fma(-(mean - (double)near), scale, (double)beta);
}

// Sums of offsets from the first row, and of their squares: the first row lies within the spread of the data, so nothing cancels.
// From them the statistics, here and in memory of the host (`seen`), and the affine map of the forward pass.
extern "C" __global__ void __launch_bounds__(256, 3) norm_moments(const T* __restrict__ x, double* partial, u32* arrivals, u32 rows, u32 channels, u32 width, const float* gamma, const float* beta, float eps, double* statistics, double* seen, float* affine) {
    __shared__ Room<2> shared;
    Room<2>& room = shared;
    with_pack(channels, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        Place p = place<V>(channels, width);
        float near[V] = {};
        if (p.inside) load(x + p.channel, near);
        row_sums<V, 2, OF_ONE>(p, rows, room, [&](auto batch, auto& run) {
            constexpr int N = decltype(batch)::count;
            Pack<V> packs[N];
            fetch(x, batch, channels, p.channel, packs);
            for (int u = 0; u < N; u++) {
                float v[V];
                unpack(packs[u], v);
                for (int i = 0; i < V; i++) {
                    float d = v[i] - near[i];
                    run.of[0][i] += d;
                    run.of[1][i] = fmaf(d, d, run.of[1][i]);
                }
            }
        });
    });
    tile_sums<2>(channels, width, partial, arrivals, room, [&](u32 c, double (&sums)[2]) {
        double n = (double)rows, offset = sums[0] / n, mean = (double)value(x[c]) + offset;
        double m2 = fma(-sums[0], offset, sums[1]);
        // rounding may leave it just below zero; NaN must stay
        m2 = m2 < 0.0 ? 0.0 : m2;
        statistics[c] = seen[c] = mean;
        statistics[channels + c] = seen[channels + c] = m2;
        set_affine(affine, channels, c, mean, m2 / n, eps, gamma ? gamma[c] : 1.0f, beta[c]);
    });
}

// The same from given statistics: n = 0 means that they are running means and variances, in f32.
extern "C" __global__ void norm_affine(const double* statistics, const float* running, double n, u32 channels, const float* gamma, const float* beta, float eps, float* affine) {
    for (u64 i = thread_index(); i < channels; i += thread_count()) {
        u32 c = (u32)i;
        bool batch = n > 0.0;
        double mean = batch ? statistics[c] : (double)running[c];
        double variance = batch ? statistics[channels + c] / n : (double)running[channels + c];
        set_affine(affine, channels, c, mean, variance, eps, gamma ? gamma[c] : 1.0f, beta[c]);
    }
}

// mean, scale and bias of V channels
template <int V>
struct Affine {
    float mean[V], scale[V], bias[V];

    __device__ inline Affine(const float* affine, u32 channels, const Place& p) {
        if (!p.inside) return;
        take(affine, p.channel, mean);
        take(affine, channels + p.channel, scale);
        take(affine, 2 * channels + p.channel, bias);
    }

    __device__ inline float of(int i, float x) const { return fmaf(x - mean[i], scale[i], bias[i]); }
};

// A byte of ReLU's mask for V channels of a row, one bit each: tile after tile, so that a warp's bytes lie side by side.
__device__ inline u64 mask_byte(const Place& p, u32 rows, u32 row) { return ((u64)blockIdx.x * rows + row) * p.tile + p.column; }

// f(the bits of `mode` that say whether there is a residual, and how it is read)
template <class F>
__device__ inline void with_residual(int mode, F f) {
    if (mode & NORM_THROUGH) {
        f(Number<NORM_RESIDUAL | NORM_THROUGH>{});
    } else if (mode & NORM_RESIDUAL) {
        f(Number<NORM_RESIDUAL>{});
    } else {
        f(Number<0>{});
    }
}

// The packs of a batch that element(pixel, channel) of shortcut.cuh names; zeros where it names none.
template <int V, int N, class F>
__device__ inline void fetch_through(const T* from, const Shortcut& shortcut, const Batch<N>& batch, u32 channel, Pack<V> (&to)[N], F element) {
    for (int u = 0; u < N; u++) {
        Shortcut s = shortcut;
        // or the compiler keeps in registers, from row to row, what it divides by these with
        asm volatile("" : "+r"(s.w), "+r"(s.h), "+r"(s.out_w), "+r"(s.out_h), "+r"(s.stride));
        i64 at = element(s, batch.row + u * batch.step, channel);
        to[u] = at < 0 ? Pack<V>{} : *reinterpret_cast<const Pack<V>*>(from + at);
    }
}

// Backwards over the rows, of which norm_moments has just read the last.
extern "C" __global__ void __launch_bounds__(256, 3) norm_forward(const T* __restrict__ x, const T* __restrict__ residual, T* __restrict__ y, u8* __restrict__ mask, const float* __restrict__ affine, const Shortcut* shortcut, u32 rows, u32 channels, u32 width, int mode) {
    with_pack(channels, [&](auto pack_of) {
        with_residual(mode, [&](auto has_residual) {
            constexpr int V = decltype(pack_of)::value;
            constexpr int RESIDUAL = decltype(has_residual)::value & NORM_RESIDUAL;
            constexpr int THROUGH = decltype(has_residual)::value & NORM_THROUGH;
            Place p = place<V>(channels, width);
            Affine<V> a(affine, channels, p);
            each_batch_backwards<RESIDUAL ? OF_TWO : OF_ONE>(p, rows, [&](auto batch) {
                constexpr int N = decltype(batch)::count;
                Pack<V> packs[N], others[N];
                fetch(x, batch, channels, p.channel, packs);
                if (THROUGH) {
                    fetch_through(residual, *shortcut, batch, p.channel, others, shortcut_source<u32>);
                } else if (RESIDUAL) {
                    fetch(residual, batch, channels, p.channel, others);
                }
                for (int u = 0; u < N; u++) {
                    float v[V], r[V];
                    unpack(packs[u], v);
                    for (int i = 0; i < V; i++) v[i] = a.of(i, v[i]);
                    if (RESIDUAL) {
                        unpack(others[u], r);
                        for (int i = 0; i < V; i++) v[i] += r[i];
                    }
                    if (mode & NORM_RELU)
                        for (int i = 0; i < V; i++) v[i] = relu(v[i]);
                    Pack<V> to;
                    pack(v, to);
                    *reinterpret_cast<Pack<V>*>(y + batch.element(u, channels, p.channel)) = to;
                    if (RESIDUAL && mask) {
                        u32 bits = 0;
                        for (int i = 0; i < V; i++) bits |= (value(to.at[i]) <= 0.0f ? 0u : 1u) << i;
                        mask[mask_byte(p, rows, batch.row + u * batch.step)] = (u8)bits;
                    }
                }
            });
        });
    });
}

// a = scale, b = -scale S(g (x - mean)) / (n sigma^2), c = -scale S(g) / n; the means in `affine` are rounded, which c makes up for.
__device__ inline void set_slopes(float* slopes, const float* affine, u32 channels, u32 c, double s, double sx, double mean, double variance, double n) {
    double scale = (double)affine[channels + c];
    double b = -scale * sx / (n * variance);
    slopes[c] = (float)b;
    slopes[channels + c] = (float)fma(-b, mean - (double)affine[c], -scale * s / n);
}

// f(the bits of `mode` that say which tensors the backward pass reads)
template <class F>
__device__ inline void with_tensors(int mode, F f) {
    switch (mode & (NORM_RESIDUAL | NORM_SECOND | NORM_THROUGH)) {
        case NORM_RESIDUAL | NORM_SECOND | NORM_THROUGH: return f(Number<NORM_RESIDUAL | NORM_SECOND | NORM_THROUGH>{});
        case NORM_SECOND | NORM_THROUGH: return f(Number<NORM_SECOND | NORM_THROUGH>{});
        case NORM_RESIDUAL | NORM_SECOND: return f(Number<NORM_RESIDUAL | NORM_SECOND>{});
        case NORM_RESIDUAL: return f(Number<NORM_RESIDUAL>{});
        case NORM_SECOND: return f(Number<NORM_SECOND>{});
        default: return f(Number<0>{});
    }
}

// Sums of g and of g (x - mean), where g = dy, plus its second summand, where ReLU let the value through: by the mask, or else by the
// forward pass's own formula from x, which saves reading y. With a residual or a
// second summand g replaces dy in memory; else the next pass makes it again. From the sums the parameters' gradients, the sums themselves (`sums`), and
// the slopes of dx.
extern "C" __global__ void __launch_bounds__(256, 3) norm_gradients(const T* __restrict__ x, const T* __restrict__ second, const u8* __restrict__ mask, T* __restrict__ dy, const float* affine, const Shortcut* shortcut, double* partial, u32* arrivals, u32 rows, u32 channels, u32 width, int mode, const double* statistics, double n, float eps, float* dgamma, float* dbeta, double* sums, float* slopes) {
    __shared__ Room<2> shared;
    Room<2>& room = shared;
    with_pack(channels, [&](auto pack_of) {
        with_tensors(mode, [&](auto tensors) {
            constexpr int V = decltype(pack_of)::value, RESIDUAL = decltype(tensors)::value & NORM_RESIDUAL;
            constexpr int SECOND = decltype(tensors)::value & NORM_SECOND, THROUGH = decltype(tensors)::value & NORM_THROUGH;
            Place p = place<V>(channels, width);
            Affine<V> a(affine, channels, p);
            row_sums<V, 2, SECOND && (!RESIDUAL || PRECISION == 2 || THROUGH) ? OF_THREE : OF_TWO>(p, rows, room, [&](auto batch, auto& run) {
                constexpr int N = decltype(batch)::count;
                Pack<V> xs[N], dys[N], seconds[N];
                u32 bits[N];
                // first, while registers are free
                if (THROUGH) fetch_through(second, *shortcut, batch, p.channel, seconds, shortcut_target<u32>);
                fetch(x, batch, channels, p.channel, xs);
                fetch((const T*)dy, batch, channels, p.channel, dys);
                if (SECOND && !THROUGH) fetch(second, batch, channels, p.channel, seconds);
                if (RESIDUAL && mode & NORM_RELU)
                    for (int u = 0; u < N; u++) bits[u] = mask[mask_byte(p, rows, batch.row + u * batch.step)];
                for (int u = 0; u < N; u++) {
                    float v[V], g[V], s[V];
                    unpack(xs[u], v);
                    unpack(dys[u], g);
                    if (SECOND) {
                        unpack(seconds[u], s);
                        for (int i = 0; i < V; i++) g[i] += s[i];
                    }
                    if (mode & NORM_RELU)
                        for (int i = 0; i < V; i++) g[i] = (RESIDUAL ? (bits[u] >> i & 1) == 0 : a.of(i, v[i]) <= 0.0f) ? 0.0f : g[i];
                    if (RESIDUAL || SECOND) store(dy + batch.element(u, channels, p.channel), g);
                    for (int i = 0; i < V; i++) {
                        run.of[0][i] += g[i];
                        run.of[1][i] = fmaf(g[i], v[i] - a.mean[i], run.of[1][i]);
                    }
                }
            });
        });
    });
    tile_sums<2>(channels, width, partial, arrivals, room, [&](u32 c, double (&total)[2]) {
        double variance = statistics[channels + c] / n + (double)eps, mean = statistics[c];
        // about the exact mean
        double s = total[0], sx = fma(-(mean - (double)affine[c]), s, total[1]);
        if (dgamma) dgamma[c] = (float)(sx / sqrt(variance));
        if (dbeta) dbeta[c] = (float)s;
        sums[c] = s;
        sums[channels + c] = sx;
        set_slopes(slopes, affine, channels, c, s, sx, mean, variance, n);
    });
}

// The slopes of dx from given sums.
extern "C" __global__ void norm_slopes(const double* sums, const double* statistics, double n, u32 channels, float eps, const float* affine, float* slopes) {
    for (u64 i = thread_index(); i < channels; i += thread_count()) {
        u32 c = (u32)i;
        double variance = statistics[channels + c] / n + (double)eps;
        set_slopes(slopes, affine, channels, c, sums[c], sums[channels + c], statistics[c], variance, n);
    }
}

// dx from dy (dx may be dy), backwards over the rows, of which norm_gradients has just read the last. `mode` says what the gradient in
// memory still lacks: ReLU's mask, or nothing.
extern "C" __global__ void __launch_bounds__(256, 3) norm_backward(const T* __restrict__ x, const T* dy, T* dx, const float* __restrict__ affine, const float* __restrict__ slopes, u32 rows, u32 channels, u32 width, int mode) {
    with_pack(channels, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        Place p = place<V>(channels, width);
        Affine<V> a(affine, channels, p);
        float b[V] = {}, c[V] = {};
        if (p.inside) {
            take(slopes, p.channel, b);
            take(slopes, channels + p.channel, c);
        }
        each_batch_backwards<OF_TWO>(p, rows, [&](auto batch) {
            constexpr int N = decltype(batch)::count;
            Pack<V> xs[N], dys[N];
            fetch(x, batch, channels, p.channel, xs);
            fetch(dy, batch, channels, p.channel, dys);
            for (int u = 0; u < N; u++) {
                float v[V], g[V];
                unpack(xs[u], v);
                unpack(dys[u], g);
                for (int i = 0; i < V; i++) {
                    if (mode & NORM_RELU && a.of(i, v[i]) <= 0.0f) g[i] = 0.0f;
                    g[i] = fmaf(a.scale[i], g[i], fmaf(b[i], v[i] - a.mean[i], c[i]));
                }
                store(dx + batch.element(u, channels, p.channel), g);
            }
        });
    });
}
