// Local response normalisation across the channels of a (rows, channels) matrix: y = x base^-beta with
// base = k + alpha * (sum over |j - c| <= radius of x_j^2).

__device__ inline float lrn_base(const T* row, u32 c, u32 channels, u32 radius, float k, float alpha) {
    u32 from = c < radius ? 0 : c - radius, to = min(c + radius + 1, channels);
    float sum = 0.0f;
    for (u32 j = from; j < to; j++) {
        float v = value(row[j]);
        sum = fmaf(v, v, sum);
    }
    return fmaf(alpha, sum, k);
}

extern "C" __global__ void lrn_forward(const T* x, T* y, u64 rows, u32 channels, u32 radius, float k, float alpha, float beta) {
    for (u64 i = thread_index(); i < rows * channels; i += thread_count()) {
        u32 c;
        divided(i, channels, c);
        float base = lrn_base(x + (i - c), c, channels, radius, k, alpha);
        y[i] = rounded(value(x[i]) * powf(base, -beta));
    }
}

// Writes each channel's contribution to its neighbours' gradients, dy x base^(-beta - 1), to `sent`.
extern "C" __global__ void lrn_send(const T* x, const T* dy, float* sent, u64 rows, u32 channels, u32 radius, float k, float alpha, float beta) {
    for (u64 i = thread_index(); i < rows * channels; i += thread_count()) {
        u32 c;
        divided(i, channels, c);
        float base = lrn_base(x + (i - c), c, channels, radius, k, alpha);
        sent[i] = value(dy[i]) * value(x[i]) * powf(base, -beta - 1.0f);
    }
}

// dx = dy base^-beta - 2 alpha beta x * sum of the neighbours' contributions
extern "C" __global__ void lrn_backward(const T* x, const T* dy, const float* sent, T* dx, u64 rows, u32 channels, u32 radius, float k, float alpha, float beta) {
    for (u64 i = thread_index(); i < rows * channels; i += thread_count()) {
        u32 c;
        divided(i, channels, c);
        u32 from = c < radius ? 0 : c - radius, to = min(c + radius + 1, channels);
        float around = 0.0f;
        for (u32 j = from; j < to; j++) around += sent[i - c + j];
        float base = lrn_base(x + (i - c), c, channels, radius, k, alpha);
        dx[i] = rounded(value(dy[i]) * powf(base, -beta) - 2.0f * alpha * beta * value(x[i]) * around);
    }
}
