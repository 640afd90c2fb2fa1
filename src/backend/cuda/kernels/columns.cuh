// Passes over a matrix (rows, channels) in which each thread keeps to its channels: a block takes up to 32 columns of V channels
// and as many rows at once as fill its SUMMERS threads. Grid: x over the columns, y over the rows.

// Rows that a thread adds in f32 before they go into its sums in f64.
constexpr int RUN = 16;

struct Place {
    // first channel of this thread's column, and whether it has one at all
    u32 channel;
    bool inside;
    // its first row, and how far it is to its next
    u64 row, step;
    // columns of the block's tile, and this thread's row within the block
    u32 tile, line, lines;
};

template <int V>
__device__ inline Place place(u32 channels, u32 tile_index) {
    u32 columns = channels / V;
    Place p;
    p.tile = columns < 32 ? columns : 32;
    p.lines = SUMMERS / p.tile;
    u32 column = tile_index * p.tile + threadIdx.x % p.tile;
    p.line = threadIdx.x / p.tile;
    p.channel = column * V;
    p.inside = column < columns && p.line < p.lines;
    p.row = (u64)blockIdx.y * p.lines + p.line;
    p.step = (u64)gridDim.y * p.lines;
    return p;
}

template <int V>
__device__ inline u32 tiles(u32 channels) {
    u32 columns = channels / V, tile = columns < 32 ? columns : 32;
    return (columns + tile - 1) / tile;
}

// f(element, channel) for every pack of V channels; `begin(channel)` comes before the rows of each column.
template <int V, class B, class F>
__device__ inline void each_pack(u64 rows, u32 channels, B begin, F f) {
    for (u32 t = blockIdx.x; t < tiles<V>(channels); t += gridDim.x) {
        Place p = place<V>(channels, t);
        if (!p.inside) continue;
        begin(p.channel);
        for (u64 row = p.row; row < rows; row += p.step) f(row * channels + p.channel);
    }
}

// K sums a channel over all rows: f(element, sums of this run). Block row b of the grid leaves its part in
// partial[(b * K + k) * channels + channel].
template <int V, int K, class B, class F>
__device__ inline void column_sums(u64 rows, u32 channels, double* partial, B begin, F f) {
    __shared__ double room[SUMMERS * V];
    for (u32 t = blockIdx.x; t < tiles<V>(channels); t += gridDim.x) {
        Place p = place<V>(channels, t);
        double sums[K][V] = {};
        if (p.inside) {
            begin(p.channel);
            for (u64 row = p.row; row < rows;) {
                float run[K][V] = {};
                for (int i = 0; i < RUN && row < rows; i++, row += p.step) f(row * channels + p.channel, run);
                for (int k = 0; k < K; k++)
                    for (int v = 0; v < V; v++) sums[k][v] += run[k][v];
            }
        }
        for (int k = 0; k < K; k++) {
            for (int v = 0; v < V; v++) room[threadIdx.x * V + v] = sums[k][v];
            __syncthreads();
            if (p.inside && p.line == 0) {
                for (int v = 0; v < V; v++) {
                    double sum = 0.0;
                    for (u32 line = 0; line < p.lines; line++) sum += room[(line * p.tile + threadIdx.x) * V + v];
                    partial[((u64)blockIdx.y * K + k) * channels + p.channel + v] = sum;
                }
            }
            __syncthreads();
        }
    }
}

// The parts of `splits` block rows, by a whole warp in a fixed order; for all lanes.
template <int K>
__device__ inline double joined(const double* partial, u32 splits, u32 channels, int k, u32 channel) {
    double sum = 0.0;
    for (u32 s = threadIdx.x % 32; s < splits; s += 32) sum += partial[((u64)s * K + k) * channels + channel];
    return warp_sum(sum);
}
