// A learned factor per channel of a (rows, channels) matrix.

extern "C" __global__ void layer_scale_forward(const T* x, const float* factors, T* y, u32 rows, u32 channels) {
    u64 count = (u64)rows * channels;
    for (u64 i = thread_index(); i < count; i += thread_count()) y[i] = rounded(value(x[i]) * factors[i % channels]);
}

// Replaces dy by dx. The gradients of the factors are sums of dy x over the rows. The pointer to them may be null.
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
