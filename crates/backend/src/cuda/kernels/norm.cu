// Batch normalisation of a (rows, channels) matrix, with residual and ReLU in the same pass.
//
// `statistics` has C means and C sums of squared deviations in f64. `affine` has C means (f32), C scales and C biases:
// y = (x - mean) scale + bias. The bias corrects for the rounding of the mean. `slopes` has C values of b and C values
// of c: dx = scale g + b (x - mean) + c.
//
// Three blocks share a multiprocessor: 80 registers per thread, and 32 KiB of shared memory for the sums.
//
// With NORM_GROUPS the images are divided into `groups` groups, and each has its own z index in the grid. The
// statistics, affine maps, sums, slopes and parameter gradients have a consecutive part for each group. Without
// NORM_GROUPS there is a single group, and the compiler removes all code for groups.
#ifndef NORM_GROUPS
#define NORM_GROUPS 0
#endif
constexpr bool GROUPED = NORM_GROUPS;

// Bits of `mode`. With NORM_THROUGH the forward pass reads the residual from a shortcut's input, and the backward pass
// reads the second gradient from the gradient of a shortcut's output.
constexpr int NORM_RELU = 1, NORM_RESIDUAL = 2, NORM_SECOND = 4, NORM_THROUGH = 8;

// Rows that a thread loads together. More rows keep more 16-byte loads in flight but need more registers. A thread
// loads four from a single tensor, or two from each of several tensors. With three tensors it loads only one from each
// if registers are scarce: when the kernel recomputes ReLU's mask, reads through a shortcut, or converts f16.
constexpr int OF_ONE = 4, OF_TWO = 2, OF_THREE = 1;

// The rows in this block's group.
struct Group {
    // position in arrays with an element per group
    u32 at;
    // the group's first image, first row and number of rows
    u32 image, row, rows;
};

// Returns this block's group. The images are divided as a step is divided among workers.
__device__ inline Group own_group(u32 rows, u32 images, u32 groups) {
    if (!GROUPED) return {0, 0, 0, rows};
    u32 plane = rows / images, at = blockIdx.z;
    u32 first = (u32)((u64)images * at / groups), end = (u32)((u64)images * (at + 1) / groups);
    return {at, first, first * plane, (end - first) * plane};
}

// Returns the part of an array that belongs to this block's group. The array has `each` elements per group.
template <class E>
__device__ inline E* own_part(E* array, const Group& group, u64 each) {
    return GROUPED && array ? array + group.at * each : array;
}

// Returns the first element that belongs to this block's group, in a tensor with `each` elements per row.
template <class E>
__device__ inline E* own_rows(E* tensor, const Group& group, u64 each) {
    return GROUPED && tensor ? tensor + group.row * each : tensor;
}

__device__ inline void set_affine(float* affine, u32 channels, u32 c, double mean, double variance, float eps, float gamma, float beta) {
    double scale = (double)gamma / sqrt(variance + (double)eps);
    float near = (float)mean;
    affine[c] = near;
    affine[channels + c] = (float)scale;
    affine[2 * channels + c] = (float)fma(-(mean - (double)near), scale, (double)beta);
}

// Sums each value's offset from the first row, and the offset's square. The first row is within the range of the data,
// so there is no cancellation. Computes the affine map of the forward pass and the statistics, with a copy in host
// memory (`seen`).
extern "C" __global__ void __launch_bounds__(256, 3) norm_moments(const T* __restrict__ x, double* partial, u32* arrivals, u32 rows, u32 channels, u32 width, u32 images, u32 groups, const float* gamma, const float* beta, float eps, double* statistics, double* seen, float* affine) {
    __shared__ Room<2> shared;
    Room<2>& room = shared;
    Group group = own_group(rows, images, groups);
    rows = group.rows;
    x = own_rows(x, group, channels);
    partial = own_part(partial, group, 2 * width * gridDim.x * gridDim.y);
    arrivals = own_part(arrivals, group, gridDim.x);
    statistics = own_part(statistics, group, 2 * channels);
    seen = own_part(seen, group, 2 * channels);
    affine = own_part(affine, group, 3 * channels);
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
        // rounding may make m2 slightly negative, and NaN must stay NaN
        m2 = m2 < 0.0 ? 0.0 : m2;
        statistics[c] = seen[c] = mean;
        statistics[channels + c] = seen[channels + c] = m2;
        set_affine(affine, channels, c, mean, m2 / n, eps, gamma ? gamma[c] : 1.0f, beta[c]);
    });
}

// Computes `affine` from existing statistics of n values per channel or, if n is 0, from the means and variances in
// `running`.
extern "C" __global__ void norm_affine(const double* statistics, const float* running, double n, u32 channels, const float* gamma, const float* beta, float eps, float* affine) {
    for (u64 i = thread_index(); i < channels; i += thread_count()) {
        u32 c = (u32)i;
        bool batch = n > 0.0;
        double mean = batch ? statistics[c] : (double)running[c];
        double variance = batch ? statistics[channels + c] / n : (double)running[channels + c];
        set_affine(affine, channels, c, mean, variance, eps, gamma ? gamma[c] : 1.0f, beta[c]);
    }
}

// Mean, scale and bias of V channels.
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

// Returns the index of a mask byte. It has one bit per channel for V channels of a row, set if ReLU let the value
// through. The mask is stored tile by tile, so that a warp's bytes are adjacent.
__device__ inline u64 mask_byte(const Place& p, u32 rows, u32 row) { return ((u64)blockIdx.x * rows + row) * p.tile + p.column; }

// Calls f with the bits of `mode` that tell whether there is a residual and how it is read.
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

// Loads the packs of a batch from the positions element(pixel, channel), see shortcut.cuh. Packs without a position are
// zero.
template <int V, int N, class F>
__device__ inline void fetch_through(const T* from, const Shortcut& shortcut, const Batch<N>& batch, u32 channel, Pack<V> (&to)[N], F element) {
    for (int u = 0; u < N; u++) {
        Shortcut s = shortcut;
        // without this, the compiler keeps constants for the divisions in registers across rows
        asm volatile("" : "+r"(s.w), "+r"(s.h), "+r"(s.out_w), "+r"(s.out_h), "+r"(s.stride));
        i64 at = element(s, batch.row + u * batch.step, channel);
        to[u] = at < 0 ? Pack<V>{} : *reinterpret_cast<const Pack<V>*>(from + at);
    }
}

// Computes y. Goes backward over the rows, because norm_moments has read the last ones most recently.
extern "C" __global__ void __launch_bounds__(256, 3) norm_forward(const T* __restrict__ x, const T* __restrict__ residual, T* __restrict__ y, u8* __restrict__ mask, const float* __restrict__ affine, const Shortcut* shortcut, u32 rows, u32 channels, u32 width, u32 images, u32 groups, int mode) {
    Group group = own_group(rows, images, groups);
    rows = group.rows;
    x = own_rows(x, group, channels);
    y = own_rows(y, group, channels);
    affine = own_part(affine, group, 3 * channels);
    if (GROUPED && mode & NORM_THROUGH) {
        residual += (u64)group.image * shortcut->h * shortcut->w * shortcut->c;
    } else {
        residual = own_rows(residual, group, channels);
    }
    with_pack(channels, [&](auto pack_of) {
        with_residual(mode, [&](auto has_residual) {
            constexpr int V = decltype(pack_of)::value;
            constexpr int RESIDUAL = decltype(has_residual)::value & NORM_RESIDUAL;
            constexpr int THROUGH = decltype(has_residual)::value & NORM_THROUGH;
            Place p = place<V>(channels, width);
            mask = own_rows(mask, group, gridDim.x * p.tile);
            Affine<V> a(affine, channels, p);
            each_batch_backwards<RESIDUAL ? OF_TWO : OF_ONE>(p, rows, [&](auto batch) {
                constexpr int N = decltype(batch)::count;
                Pack<V> packs[N], others[N];
                fetch(x, batch, channels, p.channel, packs);
                if (THROUGH) {
                    fetch_through(residual, *shortcut, batch, p.channel, others, shortcut_source);
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

// b = -scale S(g (x - mean)) / (n sigma^2) and c = -scale S(g) / n, where S is the sum over n values. The means in
// `affine` are rounded, and c corrects for that.
__device__ inline void set_slopes(float* slopes, const float* affine, u32 channels, u32 c, double s, double sx, double mean, double variance, double n) {
    double scale = (double)affine[channels + c];
    double b = -scale * sx / (n * variance);
    slopes[c] = (float)b;
    slopes[channels + c] = (float)fma(-b, mean - (double)affine[c], -scale * s / n);
}

// Calls f with the bits of `mode` that tell which tensors the backward pass reads.
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

// Sums g and g (x - mean). g is dy plus the second gradient where ReLU let the value through, and 0 elsewhere. With a
// residual, the mask tells which values ReLU let through. Without a residual, they are computed from x with the formula
// of the forward pass, which avoids reading y. With a residual or a second gradient, g replaces dy in memory. Without
// both, norm_backward computes g again. From the sums, this kernel computes the parameters' gradients, the sums
// themselves (`sums`), and the coefficients of dx.
extern "C" __global__ void __launch_bounds__(256, 3) norm_gradients(const T* __restrict__ x, const T* __restrict__ second, const u8* __restrict__ mask, T* __restrict__ dy, const float* affine, const Shortcut* shortcut, double* partial, u32* arrivals, u32 rows, u32 channels, u32 width, u32 images, u32 groups, int mode, const double* statistics, double n, float eps, float* dgamma, float* dbeta, double* sums, float* slopes) {
    __shared__ Room<2> shared;
    Room<2>& room = shared;
    Group group = own_group(rows, images, groups);
    rows = group.rows;
    if (GROUPED) n = rows;
    x = own_rows(x, group, channels);
    dy = own_rows(dy, group, channels);
    affine = own_part(affine, group, 3 * channels);
    partial = own_part(partial, group, 2 * width * gridDim.x * gridDim.y);
    arrivals = own_part(arrivals, group, gridDim.x);
    statistics = own_part(statistics, group, 2 * channels);
    dgamma = own_part(dgamma, group, channels);
    dbeta = own_part(dbeta, group, channels);
    sums = own_part(sums, group, 2 * channels);
    slopes = own_part(slopes, group, 2 * channels);
    if (GROUPED && mode & NORM_THROUGH) {
        second += (u64)group.image * shortcut->out_h * shortcut->out_w * shortcut->out_c;
    } else {
        second = own_rows(second, group, channels);
    }
    with_pack(channels, [&](auto pack_of) {
        with_tensors(mode, [&](auto tensors) {
            constexpr int V = decltype(pack_of)::value, RESIDUAL = decltype(tensors)::value & NORM_RESIDUAL;
            constexpr int SECOND = decltype(tensors)::value & NORM_SECOND, THROUGH = decltype(tensors)::value & NORM_THROUGH;
            Place p = place<V>(channels, width);
            mask = own_rows(mask, group, gridDim.x * p.tile);
            Affine<V> a(affine, channels, p);
            row_sums<V, 2, SECOND && (!RESIDUAL || PRECISION == 2 || THROUGH) ? OF_THREE : OF_TWO>(p, rows, room, [&](auto batch, auto& run) {
                constexpr int N = decltype(batch)::count;
                Pack<V> xs[N], dys[N], seconds[N];
                u32 bits[N];
                // load these first, while registers are free
                if (THROUGH) fetch_through(second, *shortcut, batch, p.channel, seconds, shortcut_target);
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
        // the affine's mean is rounded to f32, so correct the sum of g (x - mean) to the exact mean
        double s = total[0], sx = fma(-(mean - (double)affine[c]), s, total[1]);
        if (dgamma) dgamma[c] = (float)(sx / sqrt(variance));
        if (dbeta) dbeta[c] = (float)s;
        sums[c] = s;
        sums[channels + c] = sx;
        set_slopes(slopes, affine, channels, c, s, sx, mean, variance, n);
    });
}

// Sums the gradients over the groups, first for gamma, then for beta. `parts` has the layout (parameter, group,
// channel).
extern "C" __global__ void norm_add_groups(const float* parts, u32 groups, u32 channels, float* dgamma, float* dbeta) {
    for (u64 i = thread_index(); i < channels; i += thread_count()) {
        double sums[2] = {};
        for (u32 k = 0; k < 2 * groups; k++) sums[k / groups] += (double)parts[(u64)k * channels + i];
        if (dgamma) dgamma[i] = (float)sums[0];
        if (dbeta) dbeta[i] = (float)sums[1];
    }
}

// Computes the coefficients of dx from existing sums.
extern "C" __global__ void norm_slopes(const double* sums, const double* statistics, double n, u32 channels, float eps, const float* affine, float* slopes) {
    for (u64 i = thread_index(); i < channels; i += thread_count()) {
        u32 c = (u32)i;
        double variance = statistics[channels + c] / n + (double)eps;
        set_slopes(slopes, affine, channels, c, sums[c], sums[channels + c], statistics[c], variance, n);
    }
}

// Computes dx from dy (dx may be dy). Goes backward over the rows, because norm_gradients has read the last ones most
// recently. If `mode` has NORM_RELU, dy does not include ReLU's mask yet.
extern "C" __global__ void __launch_bounds__(256, 3) norm_backward(const T* __restrict__ x, const T* dy, T* dx, const float* __restrict__ affine, const float* __restrict__ slopes, u32 rows, u32 channels, u32 width, u32 images, u32 groups, int mode) {
    Group group = own_group(rows, images, groups);
    rows = group.rows;
    x = own_rows(x, group, channels);
    dy = own_rows(dy, group, channels);
    dx = own_rows(dx, group, channels);
    affine = own_part(affine, group, 3 * channels);
    slopes = own_part(slopes, group, 2 * channels);
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
