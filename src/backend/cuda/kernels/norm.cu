// Batch normalisation of a matrix (rows, channels), with residual and ReLU in the same pass.
//
// `statistics` holds C means, then C sums of squared offsets from them, in f64. `affine` holds C means (f32), C scales, C biases:
// y = (x - mean) scale + bias, where the bias makes up for the mean's rounding. `slopes` holds C of a, b, c:
// dx = a g + b (x - mean) + c.

constexpr int NORM_RELU = 1, NORM_RESIDUAL = 2, NORM_SECOND = 4;

// Sums of offsets from the first row, and of their squares: the first row lies within the spread of the data, so nothing cancels.
template <int V>
__device__ inline void moments(const T* x, double* partial, u64 rows, u32 channels) {
    float near[V];
    column_sums<V, 2>(
        rows, channels, partial, [&](u32 channel) { load(x + channel, near); },
        [&](u64 at, float (&sums)[2][V]) {
            float v[V];
            load(x + at, v);
            for (int i = 0; i < V; i++) {
                float d = v[i] - near[i];
                sums[0][i] += d;
                sums[1][i] = fmaf(d, d, sums[1][i]);
            }
        });
}

extern "C" __global__ void __launch_bounds__(256) norm_moments(const T* x, double* partial, u64 rows, u32 channels) {
    if (channels % WIDE == 0) {
        moments<WIDE>(x, partial, rows, channels);
    } else {
        moments<1>(x, partial, rows, channels);
    }
}

__device__ inline void set_affine(float* affine, u32 channels, u32 c, double mean, double variance, float eps, float gamma, float beta) {
    double scale = (double)gamma / sqrt(variance + (double)eps);
    float near = (float)mean;
    affine[c] = near;
    affine[channels + c] = (float)scale;
    affine[2 * channels + c] = (float)((double)beta - (mean - (double)near) * scale);
}

// From the parts that norm_moments left: statistics, here and in memory of the host (`seen`), and the affine map of the forward pass.
extern "C" __global__ void norm_statistics(const T* x, const double* partial, u32 splits, u64 rows, u32 channels, const float* gamma, const float* beta, float eps, double* statistics, double* seen, float* affine) {
    for (u32 c = warp_index(); c < channels; c += warp_count()) {
        double n = (double)rows;
        double offset = joined<2>(partial, splits, channels, 0, c) / n;
        double m2 = joined<2>(partial, splits, channels, 1, c) - n * offset * offset;
        double mean = (double)value(x[c]) + offset;
        // rounding may leave it just below zero; NaN must stay
        m2 = m2 < 0.0 ? 0.0 : m2;
        if (threadIdx.x % 32 == 0) {
            statistics[c] = seen[c] = mean;
            statistics[channels + c] = seen[channels + c] = m2;
            set_affine(affine, channels, c, mean, m2 / n, eps, gamma[c], beta[c]);
        }
    }
}

// The same from given statistics: n = 0 means that they are running means and variances, in f32.
extern "C" __global__ void norm_affine(const double* statistics, const float* running, double n, u32 channels, const float* gamma, const float* beta, float eps, float* affine) {
    for (u64 i = thread_index(); i < channels; i += thread_count()) {
        u32 c = (u32)i;
        bool batch = n > 0.0;
        double mean = batch ? statistics[c] : (double)running[c];
        double variance = batch ? statistics[channels + c] / n : (double)running[channels + c];
        set_affine(affine, channels, c, mean, variance, eps, gamma[c], beta[c]);
    }
}

// mean, scale and bias of V channels
template <int V>
struct Affine {
    float mean[V], scale[V], bias[V];

    __device__ inline void take(const float* affine, u32 channels, u32 c) {
        for (int i = 0; i < V; i++) {
            mean[i] = affine[c + i];
            scale[i] = affine[channels + c + i];
            bias[i] = affine[2 * channels + c + i];
        }
    }

    __device__ inline float of(int i, float x) const { return fmaf(x - mean[i], scale[i], bias[i]); }
};

template <int V>
__device__ inline void normalise(const T* x, const T* residual, T* y, const float* affine, u64 rows, u32 channels, int mode) {
    Affine<V> a;
    each_pack<V>(
        rows, channels, [&](u32 c) { a.take(affine, channels, c); },
        [&](u64 at) {
            float v[V];
            load(x + at, v);
            for (int i = 0; i < V; i++) v[i] = a.of(i, v[i]);
            if (mode & NORM_RESIDUAL) {
                float r[V];
                load(residual + at, r);
                for (int i = 0; i < V; i++) v[i] += r[i];
            }
            if (mode & NORM_RELU)
                for (int i = 0; i < V; i++) v[i] = relu(v[i]);
            store(y + at, v);
        });
}

extern "C" __global__ void norm_forward(const T* x, const T* residual, T* y, const float* affine, u64 rows, u32 channels, int mode) {
    if (channels % WIDE == 0) {
        normalise<WIDE>(x, residual, y, affine, rows, channels, mode);
    } else {
        normalise<1>(x, residual, y, affine, rows, channels, mode);
    }
}

// g = dy, plus its second summand, where ReLU let the value through: without a residual the value is computed again from x by the
// forward pass's own formula, which saves reading y.
template <int V>
__device__ inline void gradient(const Affine<V>& a, const float (&x)[V], const T* y, const T* second, const T* dy, u64 at, int mode, float (&g)[V]) {
    load(dy + at, g);
    if (mode & NORM_SECOND) {
        float s[V];
        load(second + at, s);
        for (int i = 0; i < V; i++) g[i] += s[i];
    }
    if (mode & NORM_RELU) {
        float v[V];
        if (mode & NORM_RESIDUAL) {
            load(y + at, v);
        } else {
            for (int i = 0; i < V; i++) v[i] = a.of(i, x[i]);
        }
        for (int i = 0; i < V; i++) g[i] = v[i] <= 0.0f ? 0.0f : g[i];
    }
}

// Sums of g and of g (x - mean). With a residual input or a second summand g replaces dy in memory; else the next pass makes it
// again.
template <int V>
__device__ inline void reduce(const T* x, const T* y, const T* second, T* dy, const float* affine, double* partial, u64 rows, u32 channels, int mode) {
    Affine<V> a;
    column_sums<V, 2>(
        rows, channels, partial, [&](u32 c) { a.take(affine, channels, c); },
        [&](u64 at, float (&sums)[2][V]) {
            float v[V], g[V];
            load(x + at, v);
            gradient(a, v, y, second, dy, at, mode, g);
            if (mode & (NORM_RESIDUAL | NORM_SECOND)) store(dy + at, g);
            for (int i = 0; i < V; i++) {
                sums[0][i] += g[i];
                sums[1][i] = fmaf(g[i], v[i] - a.mean[i], sums[1][i]);
            }
        });
}

extern "C" __global__ void __launch_bounds__(256) norm_backward_sums(const T* x, const T* y, const T* second, T* dy, const float* affine, double* partial, u64 rows, u32 channels, int mode) {
    if (channels % WIDE == 0) {
        reduce<WIDE>(x, y, second, dy, affine, partial, rows, channels, mode);
    } else {
        reduce<1>(x, y, second, dy, affine, partial, rows, channels, mode);
    }
}

// a = scale, b = -scale S(g (x - mean)) / (n sigma^2), c = -scale S(g) / n; the means in `affine` are rounded, which c makes up for.
__device__ inline void set_slopes(float* slopes, const float* affine, u32 channels, u32 c, double s, double sx, double mean, double variance, double n) {
    double scale = (double)affine[channels + c];
    double b = -scale * sx / (n * variance);
    slopes[c] = (float)scale;
    slopes[channels + c] = (float)b;
    slopes[2 * channels + c] = (float)(-scale * s / n - b * (mean - (double)affine[c]));
}

// From the parts that norm_backward_sums left: the parameters' gradients, the sums themselves, and the slopes of dx.
extern "C" __global__ void norm_gradients(const double* partial, u32 splits, const double* statistics, double n, u32 channels, float eps, const float* affine, float* dgamma, float* dbeta, double* sums, float* slopes) {
    for (u32 c = warp_index(); c < channels; c += warp_count()) {
        double variance = statistics[channels + c] / n + (double)eps, mean = statistics[c];
        double s = joined<2>(partial, splits, channels, 0, c);
        // about the exact mean
        double sx = joined<2>(partial, splits, channels, 1, c) - (mean - (double)affine[c]) * s;
        if (threadIdx.x % 32 == 0) {
            dgamma[c] = (float)(sx / sqrt(variance));
            dbeta[c] = (float)s;
            sums[c] = s;
            sums[channels + c] = sx;
            set_slopes(slopes, affine, channels, c, s, sx, mean, variance, n);
        }
    }
}

// The slopes of dx from given sums.
extern "C" __global__ void norm_slopes(const double* sums, const double* statistics, double n, u32 channels, float eps, const float* affine, float* slopes) {
    for (u64 i = thread_index(); i < channels; i += thread_count()) {
        u32 c = (u32)i;
        double variance = statistics[channels + c] / n + (double)eps;
        set_slopes(slopes, affine, channels, c, sums[c], sums[channels + c], statistics[c], variance, n);
    }
}

// dx from dy (dx may be dy). `mode` says what the gradient in memory still lacks: ReLU's mask, or nothing.
template <int V>
__device__ inline void apply(const T* x, const T* dy, T* dx, const float* affine, const float* slopes, u64 rows, u32 channels, int mode) {
    Affine<V> affine_of, slope;
    each_pack<V>(
        rows, channels,
        [&](u32 c) {
            affine_of.take(affine, channels, c);
            slope.take(slopes, channels, c);
        },
        [&](u64 at) {
            float v[V], g[V];
            load(x + at, v);
            gradient(affine_of, v, dy, dy, dy, at, mode, g);
            // of a slope, mean is a, scale is b, bias is c
            for (int i = 0; i < V; i++) g[i] = fmaf(slope.mean[i], g[i], fmaf(slope.scale[i], v[i] - affine_of.mean[i], slope.bias[i]));
            store(dx + at, g);
        });
}

extern "C" __global__ void norm_backward(const T* x, const T* dy, T* dx, const float* affine, const float* slopes, u64 rows, u32 channels, int mode) {
    if (channels % WIDE == 0) {
        apply<WIDE>(x, dy, dx, affine, slopes, rows, channels, mode);
    } else {
        apply<1>(x, dy, dx, affine, slopes, rows, channels, mode);
    }
}
