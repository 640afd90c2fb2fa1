// Passes over a (rows, channels) matrix in which each thread handles the same V channels in all its rows, so that the
// data of these channels stay in registers. A tile has `width` channels: 128 bytes of a row, or 32 bytes if the matrix
// is small. The grid has exactly one x index per tile. Its y index divides the rows. A thread loads all rows of a batch
// before it uses the first, so that several 16-byte loads are in flight.

// Rows that a thread adds in f32 before it adds the result to its f64 sums.
constexpr int RUN = 16;

struct Place {
    // first channel of this thread. `inside` is false if the thread has no channels.
    u32 channel;
    bool inside;
    // first row of this thread, and the distance to its next row
    u32 row, step;
    // number of columns (V channels each) in a tile, this thread's column, its row within the block, and the block's
    // number of rows
    u32 tile, column, line, lines;
};

// A compile-time constant.
template <int N>
struct Number {
    static constexpr int value = N;
};

// Calls f(V) with V = channels in 16 bytes if that divides `channels`, otherwise V = 1.
template <class F>
__device__ inline void with_pack(u32 channels, F f) {
    if (channels % WIDE == 0) {
        f(Number<WIDE>{});
    } else {
        f(Number<1>{});
    }
}

// Calls f(row, channel) for each pack (V channels) of a (rows, channels) matrix.
template <int V, class F>
__device__ inline void each_pack(u64 rows, u32 channels, F f) {
    u32 packs = channels / V;
    for (u64 i = thread_index(); i < rows * packs; i += thread_count()) {
        u32 column;
        u64 row = divided(i, packs, column);
        f(row, column * V);
    }
}

template <int V>
__device__ inline Place place(u32 channels, u32 width) {
    Place p;
    p.tile = width / V;
    p.lines = SUMMERS / p.tile;
    p.column = threadIdx.x % p.tile;
    p.line = threadIdx.x / p.tile;
    p.channel = blockIdx.x * width + p.column * V;
    p.inside = p.channel < channels && p.line < p.lines;
    p.row = blockIdx.y * p.lines + p.line;
    p.step = gridDim.y * p.lines;
    return p;
}

// N rows with distance `step`, starting at `row`.
template <int N>
struct Batch {
    static constexpr int count = N;
    u32 row;
    int step;

    // Returns the index of an element: row u of the batch at this channel.
    __device__ inline i64 element(int u, u32 channels, u32 channel) const { return (i64)(row + u * step) * channels + channel; }
};

// Calls f(batch) for the rows `row`, `row + step`, ... below `end`, in order: U rows at a time, then two, then one.
template <int U, class F>
__device__ inline void each_batch(u32 row, u32 end, u32 step, F f) {
    static_assert(U <= 4, "two and one are all that may be left");
    for (; row + (U - 1) * step < end; row += U * step) f(Batch<U>{row, (int)step});
    if (U > 2 && row + step < end) {
        f(Batch<2>{row, (int)step});
        row += 2 * step;
    }
    if (row < end) f(Batch<1>{row, (int)step});
}

// Calls f(batch) for all rows of a thread, from the last to the first. After a pass that reads forward, the last rows
// are still in the cache.
template <int U, class F>
__device__ inline void each_batch_backwards(const Place& p, u32 rows, F f) {
    if (!p.inside) return;
    each_batch<U>(p.row, rows, p.step, [&](auto batch) { f(decltype(batch){rows - 1 - batch.row, -batch.step}); });
}

// Loads the packs of a batch.
template <int V, int N>
__device__ inline void fetch(const T* from, const Batch<N>& batch, u32 channels, u32 channel, Pack<V> (&to)[N]) {
    for (int u = 0; u < N; u++) to[u] = *reinterpret_cast<const Pack<V>*>(from + batch.element(u, channels, channel));
}

// Computes `items` sums of `count` values value(entry, item) in a fixed order. For each item, SUMMERS / items threads
// add equal shares of the entries one after another. Then a tree adds the results of these threads. The sum of item i
// is in room[i]. `value` may read from `room`, which has at least SUMMERS values.
template <class F>
__device__ inline void item_sums(u32 items, u32 count, double* room, F value) {
    u32 item = threadIdx.x % items, group = threadIdx.x / items, groups = SUMMERS / items;
    double sum = 0.0;
    if (group < groups) {
        u32 entry = group;
        // keeps eight loads in flight
        for (; entry + 7 * groups < count; entry += 8 * groups) {
            double some[8];
            for (int i = 0; i < 8; i++) some[i] = value(entry + i * groups, item);
            for (int i = 0; i < 8; i++) sum += some[i];
        }
#pragma unroll 1
        for (; entry < count; entry += groups) sum += value(entry, item);
    }
    __syncthreads();
    room[threadIdx.x] = sum;
    for (u32 n = groups; n > 1;) {
        u32 half = (n + 1) / 2;
        __syncthreads();
        if (group < n - half) room[threadIdx.x] += room[threadIdx.x + half * items];
        n = half;
    }
    __syncthreads();
}

// Returns true in the block of a tile that calls this last. Only this block is sure to see the partial sums of all
// blocks of the tile. `arrivals` has a counter per tile, which is zero between launches.
__device__ inline bool last_of_tile(u32* arrivals) {
    __threadfence();
    __syncthreads();
    bool last = threadIdx.x == 0 && atomicAdd(&arrivals[blockIdx.x], 1u) == gridDim.y - 1;
    if (last) arrivals[blockIdx.x] = 0;
    last = __syncthreads_or(last);
    if (last) __threadfence();
    return last;
}

// Shared memory for K sums per channel: each thread has room for its own sums.
template <int K>
using Room = double[K * WIDE * SUMMERS];

template <int K, int V>
struct RunSums {
    float of[K][V];
};

// Computes K sums per channel over this thread's rows and leaves them in `room`. A run consists of RUN of these rows,
// and f(batch, run) adds a batch of rows to the sums of its run.
template <int V, int K, int U, class F>
__device__ inline void row_sums(const Place& p, u32 rows, Room<K>& room, F f) {
    // volatile, because otherwise the compiler keeps these 2 * K * V words in registers
    volatile double* own = room + threadIdx.x;
    for (int i = 0; i < K * V; i++) own[i * SUMMERS] = 0.0;
    // the last run may be shorter
    for (u32 row = p.inside ? p.row : rows; row < rows;) {
        RunSums<K, V> run = {};
        u32 next = row + RUN * p.step;
        each_batch<U>(row, next < rows ? next : rows, p.step, [&](auto batch) { f(batch, run); });
        row = next;
        for (int i = 0; i < K * V; i++) own[i * SUMMERS] = own[i * SUMMERS] + run.of[i / V][i % V];
    }
}

// Adds the results of row_sums over all rows. The last block of a tile to finish adds the sums of all blocks of the
// tile with item_sums, so the order depends only on the number of blocks. One of its threads calls finish(channel,
// sums) for each channel. `partial` has room for K * width sums per block.
template <int K, class G>
__device__ inline void tile_sums(u32 channels, u32 width, double* partial, u32* arrivals, Room<K>& room, G finish) {
    u32 pack = channels % WIDE == 0 ? WIDE : 1, tile = width / pack, items = K * width;
    // item = (sum * pack + channel of the pack) * tile + column
    auto at = [&](u32 line, u32 item) { return room[item / tile * SUMMERS + line * tile + item % tile]; };
    __syncthreads();
    item_sums(items, SUMMERS / tile, room, at);
    double* parts = partial + (u64)blockIdx.x * gridDim.y * items;
    if (threadIdx.x < items) parts[(u64)blockIdx.y * items + threadIdx.x] = room[threadIdx.x];
    if (!last_of_tile(arrivals)) return;
    item_sums(items, gridDim.y, room, [&](u32 block, u32 item) { return __ldcg(&parts[(u64)block * items + item]); });
    u32 channel = blockIdx.x * width + threadIdx.x;
    if (threadIdx.x < width && channel < channels) {
        double sums[K];
        for (int k = 0; k < K; k++) sums[k] = room[(k * pack + threadIdx.x % pack) * tile + threadIdx.x / pack];
        finish(channel, sums);
    }
}
