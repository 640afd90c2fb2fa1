// Normalises a (rows, channels) matrix in sets of values that share mean and variance. A set has `plane` rows and a
// group of adjacent channels. There are `groups` groups. Layer normalisation uses a single row and a single group per
// set. `statistics` has each set's mean, then each set's 1 / standard deviation.

// The location of a set's values in the matrix.
struct Set {
    u64 first;
    u32 channel, width, channels, values;

    __device__ Set(u64 set, u32 plane, u32 channels, u32 groups) : channels(channels) {
        width = channels / groups;
        channel = (u32)(set % groups) * width;
        first = set / groups * plane * channels + channel;
        values = plane * width;
    }

    // Returns the index of a value in memory, and its channel.
    __device__ u64 at(u32 i) const { return first + (u64)(i / width) * channels + i % width; }
    __device__ u32 channel_of(u32 i) const { return channel + i % width; }
};

// The threads that share a set: a warp for small sets, otherwise a block. Sums are in a fixed order.
struct Warp {
    static constexpr u32 size = 32;
    __device__ u32 number() const { return threadIdx.x % 32; }
    __device__ u64 first() const { return warp_index(); }
    __device__ u64 step() const { return warp_count(); }
    __device__ double sum(double v) const { return warp_sum(v); }
};

struct Block {
    static constexpr u32 size = SUMMERS;
    double* room;
    __device__ u32 number() const { return threadIdx.x; }
    __device__ u64 first() const { return blockIdx.x; }
    __device__ u64 step() const { return gridDim.x; }
    __device__ double sum(double v) const { return block_sum(v, room); }
};

// A block, not a warp, handles each set with at least this number of values (`LARGE` in kernel.rs).
constexpr u32 LARGE = 4096;

template <class F>
__device__ inline void with_team(u32 values, double* room, F f) {
    if (values >= LARGE) {
        f(Block{room});
    } else {
        f(Warp{});
    }
}

extern "C" __global__ void group_norm_forward(const T* x, T* y, const float* weight, const float* bias, float* statistics, u64 sets, u32 plane, u32 channels, u32 groups, float eps) {
    __shared__ double room[SUMMERS];
    with_team(plane * (channels / groups), room, [&](auto team) {
        for (u64 set = team.first(); set < sets; set += team.step()) {
            Set s(set, plane, channels, groups);
            double sum = 0.0, squares = 0.0;
            for (u32 i = team.number(); i < s.values; i += team.size) sum += (double)value(x[s.at(i)]);
            double mean = team.sum(sum) / s.values;
            for (u32 i = team.number(); i < s.values; i += team.size) {
                double d = (double)value(x[s.at(i)]) - mean;
                squares += d * d;
            }
            float near = (float)mean, inverse = (float)(1.0 / sqrt(team.sum(squares) / s.values + (double)eps));
            for (u32 i = team.number(); i < s.values; i += team.size) {
                u32 c = s.channel_of(i);
                y[s.at(i)] = rounded(fmaf((value(x[s.at(i)]) - near) * inverse, weight[c], bias[c]));
            }
            if (team.number() == 0) {
                statistics[set] = near;
                statistics[sets + set] = inverse;
            }
        }
    });
}

// Replaces dy by dx.
extern "C" __global__ void group_norm_backward(const T* x, T* dy, const float* weight, const float* statistics, u64 sets, u32 plane, u32 channels, u32 groups) {
    __shared__ double room[SUMMERS];
    with_team(plane * (channels / groups), room, [&](auto team) {
        for (u64 set = team.first(); set < sets; set += team.step()) {
            Set s(set, plane, channels, groups);
            float mean = statistics[set], inverse = statistics[sets + set];
            double gradient = 0.0, product = 0.0;
            for (u32 i = team.number(); i < s.values; i += team.size) {
                float d = value(dy[s.at(i)]) * weight[s.channel_of(i)];
                gradient += (double)d;
                product += (double)(d * ((value(x[s.at(i)]) - mean) * inverse));
            }
            float first = (float)(team.sum(gradient) / s.values), second = (float)(team.sum(product) / s.values);
            for (u32 i = team.number(); i < s.values; i += team.size) {
                u64 at = s.at(i);
                float hat = (value(x[at]) - mean) * inverse;
                dy[at] = rounded(inverse * (value(dy[at]) * weight[s.channel_of(i)] - first - hat * second));
            }
        }
    });
}

// Sums the gradients of weight and bias over all rows.
extern "C" __global__ void __launch_bounds__(256, 3) group_norm_weights(const T* __restrict__ x, const T* __restrict__ dy, const float* __restrict__ statistics, u64 sets, u32 plane, u32 groups, double* partial, u32* arrivals, u32 rows, u32 channels, u32 width, float* dweight, float* dbias) {
    __shared__ Room<2> shared;
    Room<2>& room = shared;
    with_pack(channels, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        Place p = place<V>(channels, width);
        row_sums<V, 2, 2>(p, rows, room, [&](auto batch, auto& run) {
            constexpr int N = decltype(batch)::count;
            Pack<V> xs[N], dys[N];
            fetch(x, batch, channels, p.channel, xs);
            fetch(dy, batch, channels, p.channel, dys);
            for (int u = 0; u < N; u++) {
                float v[V], d[V];
                unpack(xs[u], v);
                unpack(dys[u], d);
                u64 first = (u64)((batch.row + u * batch.step) / plane) * groups;
                for (int i = 0; i < V; i++) {
                    u64 set = first + (p.channel + i) / (channels / groups);
                    run.of[0][i] = fmaf(d[i], (v[i] - statistics[set]) * statistics[sets + set], run.of[0][i]);
                    run.of[1][i] += d[i];
                }
            }
        });
    });
    tile_sums<2>(channels, width, partial, arrivals, room, [&](u32 c, double (&sums)[2]) {
        dweight[c] = (float)sums[0];
        dbias[c] = (float)sums[1];
    });
}
