// Bias over the channels of a matrix (rows, channels): its addition where no library fuses it, and its gradient with ReLU's mask.

template <int V>
__device__ inline void add_bias(T* y, const float* bias, u64 rows, u32 channels, int with_relu) {
    float b[V];
    each_pack<V>(
        rows, channels,
        [&](u32 channel) {
            for (int i = 0; i < V; i++) b[i] = bias[channel + i];
        },
        [&](u64 at) {
            float v[V];
            load(y + at, v);
            for (int i = 0; i < V; i++) v[i] = with_relu ? relu(v[i] + b[i]) : v[i] + b[i];
            store(y + at, v);
        });
}

extern "C" __global__ void bias_forward(T* y, const float* bias, u64 rows, u32 channels, int with_relu) {
    if (channels % WIDE == 0) {
        add_bias<WIDE>(y, bias, rows, channels, with_relu);
    } else {
        add_bias<1>(y, bias, rows, channels, with_relu);
    }
}

// Zeroes dy where y is zero (with_relu), and sums dy over the rows.
template <int V>
__device__ inline void sum_bias(const T* y, T* dy, double* partial, u64 rows, u32 channels, int with_relu) {
    column_sums<V, 1>(
        rows, channels, partial, [](u32) {},
        [&](u64 at, float (&sums)[1][V]) {
            float d[V];
            load(dy + at, d);
            if (with_relu) {
                float v[V];
                load(y + at, v);
                for (int i = 0; i < V; i++) d[i] = v[i] <= 0.0f ? 0.0f : d[i];
                store(dy + at, d);
            }
            for (int i = 0; i < V; i++) sums[0][i] += d[i];
        });
}

extern "C" __global__ void __launch_bounds__(256) bias_backward(const T* y, T* dy, double* partial, u64 rows, u32 channels, int with_relu) {
    if (channels % WIDE == 0) {
        sum_bias<WIDE>(y, dy, partial, rows, channels, with_relu);
    } else {
        sum_bias<1>(y, dy, partial, rows, channels, with_relu);
    }
}

extern "C" __global__ void bias_gradient(const double* partial, u32 splits, float* dbias, u32 channels) {
    for (u32 c = warp_index(); c < channels; c += warp_count()) {
        double sum = joined<1>(partial, splits, channels, 0, c);
        if (threadIdx.x % 32 == 0) dbias[c] = (float)sum;
    }
}
