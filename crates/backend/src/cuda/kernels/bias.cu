// Bias over the channels of a (rows, channels) matrix: the addition, if no library fuses it, and the gradient together
// with ReLU's mask.

extern "C" __global__ void __launch_bounds__(256, 3) bias_forward(T* y, const float* __restrict__ bias, u32 rows, u32 channels, u32 width, int with_relu) {
    with_pack(channels, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        Place p = place<V>(channels, width);
        float b[V] = {};
        if (p.inside) take(bias, p.channel, b);
        each_batch_backwards<4>(p, rows, [&](auto batch) {
            constexpr int N = decltype(batch)::count;
            Pack<V> packs[N];
            fetch((const T*)y, batch, channels, p.channel, packs);
            for (int u = 0; u < N; u++) {
                float v[V];
                unpack(packs[u], v);
                for (int i = 0; i < V; i++) v[i] = with_relu ? relu(v[i] + b[i]) : v[i] + b[i];
                store(y + batch.element(u, channels, p.channel), v);
            }
        });
    });
}

// Sets dy to zero where y is zero (if with_relu is set), and sums dy over the rows.
extern "C" __global__ void __launch_bounds__(256, 3) bias_backward(const T* __restrict__ y, T* __restrict__ dy, double* partial, u32* arrivals, u32 rows, u32 channels, u32 width, int with_relu, float* dbias) {
    __shared__ Room<1> shared;
    Room<1>& room = shared;
    with_pack(channels, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        Place p = place<V>(channels, width);
        row_sums<V, 1, 4>(p, rows, room, [&](auto batch, auto& run) {
            constexpr int N = decltype(batch)::count;
            Pack<V> dys[N], ys[N];
            fetch((const T*)dy, batch, channels, p.channel, dys);
            if (with_relu) fetch(y, batch, channels, p.channel, ys);
            for (int u = 0; u < N; u++) {
                float d[V], v[V];
                unpack(dys[u], d);
                if (with_relu) {
                    unpack(ys[u], v);
                    for (int i = 0; i < V; i++) d[i] = v[i] <= 0.0f ? 0.0f : d[i];
                    store(dy + batch.element(u, channels, p.channel), d);
                }
                for (int i = 0; i < V; i++) run.of[0][i] += d[i];
            }
        });
    });
    tile_sums<1>(channels, width, partial, arrivals, room, [&](u32 c, double (&sums)[1]) { dbias[c] = (float)sums[0]; });
}
