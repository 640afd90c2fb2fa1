// Channel bias for a (rows, channels) matrix: the addition, if no library fuses it, and the gradient together with
// ReLU's mask.

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

// Sets dy to zero where y is zero (if with_relu is set), and sums dy over the rows. Without ReLU, y may be null.
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

// Computes all gradients of a linear layer with few weights in one kernel. The gradients of the weights and the bias
// are sums over the batch, and the gradient of the input is a sum over the outputs. The order of each sum depends only
// on the sizes.

// A block computes the gradients for LANES weights of an output at a time. SHARES threads divide the rows among
// themselves for each weight.
constexpr u32 LANES = 32, SHARES = SUMMERS / LANES;

// Returns the sum of a * b over first, first + step, ... below `end`. factors(i, a, b) sets both factors. Groups of RUN
// products are added in f32, and the sums of the groups in f64.
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

// x (rows, inputs), w (outputs, inputs), y and dy (rows, outputs). With ReLU, dy counts only where y is above zero.
// Without ReLU, y may be null. dx and dbias may be null. dw may be null if dbias is.
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
