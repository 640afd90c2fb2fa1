// ReLU, tanh, SiLU, sum of two tensors, weights in the type of activations.

extern "C" __global__ void relu_forward(const T* x, T* y, u64 n) {
    map(x, y, n, [](float v) { return relu(v); });
}

extern "C" __global__ void relu_backward(const T* y, T* dy, u64 n) {
    map(y, dy, dy, n, [](float v, float d) { return v <= 0.0f ? 0.0f : d; });
}

extern "C" __global__ void tanh_forward(const T* x, T* y, u64 n) {
    map(x, y, n, [](float v) { return tanhf(v); });
}

extern "C" __global__ void tanh_backward(const T* y, T* dy, u64 n) {
    map(y, dy, dy, n, [](float v, float d) { return d * (1.0f - v * v); });
}

extern "C" __global__ void silu_forward(const T* x, T* y, u64 n) {
    map(x, y, n, [](float v) { return v / (1.0f + expf(-v)); });
}

extern "C" __global__ void silu_backward(const T* x, T* dy, u64 n) {
    map(x, dy, dy, n, [](float v, float d) {
        float s = 1.0f / (1.0f + expf(-v));
        return d * (s * (1.0f + v * (1.0f - s)));
    });
}

// y may be a.
extern "C" __global__ void sum_of_two(const T* a, const T* b, T* y, u64 n) {
    map(a, b, y, n, [](float v, float w) { return v + w; });
}

extern "C" __global__ void cast_weights(const float* from, T* to, u64 n) {
    for (u64 i = thread_index(); i < n; i += thread_count()) to[i] = rounded(from[i]);
}

extern "C" __global__ void copy_tensor(const T* x, T* y, u64 n) {
    map(x, y, n, [](float v) { return v; });
}
