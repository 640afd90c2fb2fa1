// Computes all gradients of a linear layer with few weights in one kernel. The gradients of the weights and the bias
// are sums over the batch, and the gradient of the input is a sum over the outputs. The order of each sum depends only
// on the sizes.

// Weights of an output that a block computes at a time, and threads that share the rows of each.
constexpr u32 LANES = 32, SHARES = SUMMERS / LANES;

// Returns the sum of a * b over first, first + step, ... below `end`. factors(i, a, b) sets both factors. Runs are
// added in f32, and their sums in f64.
template <class F>
__device__ inline double product_sum(u32 first, u32 end, u32 step, F factors) {
    double sum = 0.0;
    while (first < end) {
        float run = 0.0f;
        u32 next = first + RUN * step;
        each_batch<4>(first, next < end ? next : end, step, [&](auto batch) {
            constexpr int N = decltype(batch)::count;
            float a[N], b[N];
            for (int u = 0; u < N; u++) factors(batch.row + u * batch.step, a[u], b[u]);
            for (int u = 0; u < N; u++) run = fmaf(a[u], b[u], run);
        });
        first = next;
        sum += run;
    }
    return sum;
}

// x (rows, inputs), w (outputs, inputs), y and dy (rows, outputs). With ReLU, dy counts only where y is above zero. dx
// and dbias may be null. dw may be null if dbias is.
extern "C" __global__ void __launch_bounds__(256) linear_gradients(const T* x, const T* w, const T* y, const T* dy, T* dx, float* dw, float* dbias, u32 rows, u32 inputs, u32 outputs, int with_relu) {
    __shared__ double room[SUMMERS];
    u32 lane = threadIdx.x % LANES, share = threadIdx.x / LANES;
    auto gradient = [&](u32 row, u32 output) {
        u64 at = (u64)row * outputs + output;
        return with_relu && value(y[at]) <= 0.0f ? 0.0f : value(dy[at]);
    };
    // the bias is treated as the weight of an additional input that is always 1
    u32 columns = dw ? inputs + (dbias ? 1 : 0) : 0, tiles = (columns + LANES - 1) / LANES;
    for (u32 item = blockIdx.x; item < outputs * tiles; item += gridDim.x) {
        u32 output = item / tiles, input = item % tiles * LANES + lane;
        auto factors = [&](u32 row, float& a, float& b) {
            a = gradient(row, output);
            b = input < inputs ? value(x[(u64)row * inputs + input]) : 1.0f;
        };
        room[threadIdx.x] = input < columns ? product_sum(share, rows, SHARES, factors) : 0.0;
        for (u32 half = SHARES / 2; half > 0; half /= 2) {
            __syncthreads();
            if (share < half) room[threadIdx.x] += room[threadIdx.x + half * LANES];
        }
        if (share == 0 && input < inputs) dw[output * inputs + input] = (float)room[lane];
        if (share == 0 && input == inputs && dbias) dbias[output] = (float)room[lane];
        __syncthreads();
    }
    if (!dx) return;
    // starts with the last blocks, because the first blocks are busy with weights
    for (u64 i = (u64)(gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x; i < (u64)rows * inputs; i += thread_count()) {
        u32 row = (u32)(i / inputs), input = (u32)(i % inputs);
        auto factors = [&](u32 output, float& a, float& b) {
            a = gradient(row, output);
            b = value(w[output * inputs + input]);
        };
        dx[i] = rounded((float)product_sum(0, outputs, 1, factors));
    }
}
