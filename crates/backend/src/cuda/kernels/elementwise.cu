// Adds two tensors, converts weights to the activations' type, and copies tensors.

// y and a may be the same array.
extern "C" __global__ void sum_of_two(const T* a, const T* b, T* y, u64 n) {
    map(a, b, y, n, [](float v, float w) { return v + w; });
}

extern "C" __global__ void cast_weights(const float* from, T* to, u64 n) {
    for (u64 i = thread_index(); i < n; i += thread_count()) to[i] = rounded(from[i]);
}

extern "C" __global__ void copy_tensor(const T* x, T* y, u64 n) {
    map(x, y, n, [](float v) { return v; });
}

// Activation functions. `value` computes y from x. `gradient` computes dx from dy and a second argument: y if that is
// enough, otherwise x. The host passes the tensor that the function needs. `a` is the function's parameter.

struct Identity {
    __device__ float value(float x) const { return x; }
    __device__ float gradient(float d, float) const { return d; }
};

struct Relu {
    __device__ float value(float x) const { return relu(x); }
    __device__ float gradient(float d, float y) const { return y <= 0.0f ? 0.0f : d; }
};

struct Relu6 {
    __device__ float value(float x) const { return x <= 0.0f ? 0.0f : x >= 6.0f ? 6.0f : x; }
    __device__ float gradient(float d, float y) const { return y > 0.0f && y < 6.0f ? d : 0.0f; }
};

struct LeakyRelu {
    float a;
    __device__ float value(float x) const { return x < 0.0f ? a * x : x; }
    __device__ float gradient(float d, float x) const { return x > 0.0f ? d : a * d; }
};

struct Scale {
    float a;
    __device__ float value(float x) const { return a * x; }
    __device__ float gradient(float d, float) const { return a * d; }
};

struct Tanh {
    __device__ float value(float x) const { return tanhf(x); }
    __device__ float gradient(float d, float y) const { return d * (1.0f - y * y); }
};

__device__ inline float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

struct Sigmoid {
    __device__ float value(float x) const { return logistic(x); }
    __device__ float gradient(float d, float y) const { return d * (y * (1.0f - y)); }
};

// 0 below -3, 1 above 3, linear between. NaN stays NaN.
__device__ inline float ramp(float x) {
    float v = x * (1.0f / 6.0f) + 0.5f;
    return v <= 0.0f ? 0.0f : v >= 1.0f ? 1.0f : v;
}

__device__ inline bool on_ramp(float x) { return x > -3.0f && x < 3.0f; }

struct HardSigmoid {
    __device__ float value(float x) const { return ramp(x); }
    __device__ float gradient(float d, float x) const { return on_ramp(x) ? d * (1.0f / 6.0f) : 0.0f; }
};

struct HardSwish {
    __device__ float value(float x) const { return x * ramp(x); }
    __device__ float gradient(float d, float x) const { return d * (ramp(x) + (on_ramp(x) ? x * (1.0f / 6.0f) : 0.0f)); }
};

struct Silu {
    __device__ float value(float x) const { return x * logistic(x); }
    __device__ float gradient(float d, float x) const {
        float s = logistic(x);
        return d * (s * (1.0f + x * (1.0f - s)));
    }
};

struct Gelu {
    __device__ static float below(float x) { return 0.5f * erfcf(-0.70710678f * x); }
    __device__ float value(float x) const { return x * below(x); }
    __device__ float gradient(float d, float x) const { return d * (below(x) + x * (0.39894228f * expf(-0.5f * x * x))); }
};

struct GeluTanh {
    // (1 + tanh(u)) / 2 is the logistic function of 2 u
    __device__ static float bent(float x) { return logistic(1.5957691f * x * (1.0f + 0.044715f * x * x)); }
    __device__ float value(float x) const { return x * bent(x); }
    __device__ float gradient(float d, float x) const {
        // For |x| above 16 the slope is 0 or 1 to f32 precision. The clamp avoids an overflow of x^3. NaN stays NaN.
        x = x > 16.0f ? 16.0f : x < -16.0f ? -16.0f : x;
        float s = bent(x);
        return d * (s * (1.0f + x * (1.5957691f * (1.0f + 0.134145f * x * x)) * (1.0f - s)));
    }
};

// Calls f with the activation function that has the number `function` on the host.
template <class F>
__device__ inline void with_function(int function, float a, F f) {
    switch (function) {
        case 0: return f(Identity{});
        case 1: return f(Relu{});
        case 2: return f(Relu6{});
        case 3: return f(LeakyRelu{a});
        case 4: return f(Tanh{});
        case 5: return f(Sigmoid{});
        case 6: return f(HardSigmoid{});
        case 7: return f(HardSwish{});
        case 8: return f(Silu{});
        case 9: return f(Gelu{});
        case 10: return f(GeluTanh{});
        case 11: return f(Scale{a});
    }
}

// x and y may be the same array.
extern "C" __global__ void activation_forward(const T* x, T* y, u64 n, int function, float a) {
    with_function(function, a, [&](auto f) { map(x, y, n, [=](float v) { return f.value(v); }); });
}

extern "C" __global__ void activation_backward(const T* seen, T* dy, u64 n, int function, float a) {
    with_function(function, a, [&](auto f) { map(seen, dy, dy, n, [=](float v, float d) { return f.gradient(d, v); }); });
}

// Multiplies images (n, plane, channels) by a factor per image and channel.

extern "C" __global__ void multiply_forward(const T* x, const T* s, T* y, u32 n, u32 plane, u32 channels) {
    with_pack(channels, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        each_pack<V>((u64)n * plane, channels, [&](u64 row, u32 channel) {
            u32 place;
            u64 image = divided(row, plane, place), at = row * channels + channel;
            float v[V], factor[V];
            load(x + at, v);
            load(s + image * channels + channel, factor);
            for (int j = 0; j < V; j++) v[j] *= factor[j];
            store(y + at, v);
        });
    });
}

// Channels that a block sums at a time. Each channel's positions are shared among threads.
constexpr u32 ABREAST = 32;

// Replaces dy by x's gradient and writes to ds the sum of dy x over an image's positions. Threads sum in f32, and
// their sums are added in f64.
extern "C" __global__ void multiply_backward(const T* x, const T* s, T* dy, T* ds, u32 n, u32 plane, u32 channels) {
    __shared__ double room[SUMMERS];
    u32 tiles = (channels + ABREAST - 1) / ABREAST, line = threadIdx.x / ABREAST, lines = SUMMERS / ABREAST;
    for (u64 item = blockIdx.x; item < (u64)n * tiles; item += gridDim.x) {
        u64 image = item / tiles;
        u32 channel = (u32)(item % tiles) * ABREAST + threadIdx.x % ABREAST;
        double sum = 0.0;
        if (channel < channels) {
            float factor = value(s[image * channels + channel]);
            for (u32 place = line; place < plane; place += lines) {
                u64 at = (image * plane + place) * channels + channel;
                float d = value(dy[at]);
                sum += (double)(d * value(x[at]));
                dy[at] = rounded(d * factor);
            }
        }
        room[threadIdx.x] = sum;
        __syncthreads();
        if (line == 0 && channel < channels && ds) {
            for (u32 other = 1; other < lines; other++) sum += room[other * ABREAST + threadIdx.x];
            ds[image * channels + channel] = rounded((float)sum);
        }
        __syncthreads();
    }
}

// Multiplies each channel of a (rows, channels) matrix by a learned factor.

extern "C" __global__ void layer_scale_forward(const T* x, const float* factors, T* y, u32 rows, u32 channels) {
    with_pack(channels, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        each_pack<V>(rows, channels, [&](u64 row, u32 channel) {
            u64 at = row * channels + channel;
            float v[V], factor[V];
            load(x + at, v);
            take(factors, channel, factor);
            for (int j = 0; j < V; j++) v[j] *= factor[j];
            store(y + at, v);
        });
    });
}

// Replaces dy by dx. The factors' gradients are sums of dy x over the rows. The pointer to them may be null.
extern "C" __global__ void __launch_bounds__(256, 3) layer_scale_backward(const T* __restrict__ x, T* __restrict__ dy, const float* __restrict__ factors, double* partial, u32* arrivals, u32 rows, u32 channels, u32 width, float* gradient) {
    __shared__ Room<1> shared;
    Room<1>& room = shared;
    with_pack(channels, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        Place p = place<V>(channels, width);
        float f[V] = {};
        if (p.inside) take(factors, p.channel, f);
        row_sums<V, 1, 2>(p, rows, room, [&](auto batch, auto& run) {
            constexpr int N = decltype(batch)::count;
            Pack<V> xs[N], dys[N];
            fetch(x, batch, channels, p.channel, xs);
            fetch((const T*)dy, batch, channels, p.channel, dys);
            for (int u = 0; u < N; u++) {
                float v[V], d[V];
                unpack(xs[u], v);
                unpack(dys[u], d);
                for (int i = 0; i < V; i++) {
                    run.of[0][i] = fmaf(d[i], v[i], run.of[0][i]);
                    d[i] *= f[i];
                }
                store(dy + batch.element(u, channels, p.channel), d);
            }
        });
    });
    if (!gradient) return;
    tile_sums<1>(channels, width, partial, arrivals, room, [&](u32 c, double (&sums)[1]) { gradient[c] = (float)sums[0]; });
}

// Inverted dropout with the same draws on every backend. In a sample, element e in (c, h, w) order uses word e mod 4 of
// block e / 4 from Philox4x32-10 with key = seed and counter = (id low, id high, epoch, op << 16 | block mod 2^16). The
// upper 16 bits of the block number are reversed and xored into the epoch (loaders/src/random.rs).

__device__ inline void philox(u32 (&x)[4], u32 k0, u32 k1) {
    for (int round = 0; round < 10; round++) {
        u64 low = (u64)0xd2511f53u * x[0], high = (u64)0xcd9e8d57u * x[2];
        u32 a = (u32)(high >> 32) ^ x[1] ^ k0, b = (u32)high, c = (u32)(low >> 32) ^ x[3] ^ k1, d = (u32)low;
        x[0] = a;
        x[1] = b;
        x[2] = c;
        x[3] = d;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

// to = from * factor, where an element's factor is 0 with probability p, otherwise 1 / (1 - p). The backward pass
// repeats the same draws. `to` and `from` may be the same array.
extern "C" __global__ void dropout(const T* from, T* to, u32 rows, u32 channels, u32 plane, u64 seed, const u32* epoch, const u64* ids, u32 op, float p) {
    u32 elems = channels * plane, blocks = (elems + 3) / 4;
    u64 count = (u64)blocks * rows;
    float kept = 1.0f / (1.0f - p);
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u32 number;
        u64 row = divided(i, blocks, number), id = ids[row];
        u32 words[4] = {(u32)id, (u32)(id >> 32), *epoch ^ __brev(number >> 16), op << 16 | (number & 0xffff)};
        philox(words, (u32)seed, (u32)(seed >> 32));
        for (int j = 0; j < 4; j++) {
            u32 e = number * 4 + j;
            if (e < elems) {
                u64 at = row * elems + e % plane * channels + e / plane;
                float unit = (float)(words[j] >> 8) * (1.0f / 16777216.0f);
                to[at] = rounded(value(from[at]) * (unit < p ? 0.0f : kept));
            }
        }
    }
}

// Computes stochastic depth. The first random word of a sample's first block decides for all its elements. `to` and
// `from` may be the same array.
extern "C" __global__ void drop_path(const T* from, T* to, u32 rows, u32 elems, u64 seed, const u32* epoch, const u64* ids, u32 op, float p) {
    float kept = 1.0f / (1.0f - p);
    with_pack(elems, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        each_pack<V>(rows, elems, [&](u64 row, u32 first) {
            u64 id = ids[row], at = row * elems + first;
            u32 words[4] = {(u32)id, (u32)(id >> 32), *epoch, op << 16};
            philox(words, (u32)seed, (u32)(seed >> 32));
            float factor = (float)(words[0] >> 8) * (1.0f / 16777216.0f) < p ? 0.0f : kept, v[V];
            load(from + at, v);
            for (int j = 0; j < V; j++) v[j] *= factor;
            store(to + at, v);
        });
    });
}

extern "C" __global__ void clear_values(float* values, u32 n) {
    for (u64 i = thread_index(); i < n; i += thread_count()) values[i] = 0.0f;
}
