// Sequences and multi-head self-attention. A tensor is a (rows, channels) matrix with a row per position.

// Copies each image's `plane` rows and puts the class token before them.
extern "C" __global__ void class_token_forward(const T* x, const float* token, T* y, u32 images, u32 plane, u32 channels) {
    u64 n = (u64)images * (plane + 1) * channels;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 c, p;
        u64 image = divided(divided(i, channels, c), plane + 1, p);
        y[i] = p == 0 ? rounded(token[c]) : x[(image * plane + p - 1) * channels + c];
    }
}

extern "C" __global__ void class_token_backward(const T* dy, T* dx, u32 images, u32 plane, u32 channels) {
    u64 n = (u64)images * plane * channels;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 c, p;
        u64 image = divided(divided(i, channels, c), plane, p);
        dx[i] = dy[(image * (plane + 1) + p + 1) * channels + c];
    }
}

// y = x + vectors, which repeat every `period` values.
extern "C" __global__ void add_vectors(const T* x, const float* vectors, T* y, u32 images, u32 period) {
    u64 n = (u64)images * period;
    for (u64 i = thread_index(); i < n; i += thread_count()) y[i] = rounded(value(x[i]) + vectors[i % period]);
}

// Each image has `stride` values. Sums the first `count` of them over the images.
extern "C" __global__ void sum_images(const T* dy, float* gradient, u32 images, u32 stride, u32 count) {
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        double sum = 0.0;
        for (u32 image = 0; image < images; image++) sum += (double)value(dy[(u64)image * stride + i]);
        gradient[i] = (float)sum;
    }
}

// Copies row `token` from each image.
extern "C" __global__ void token_forward(const T* x, T* y, u32 images, u32 plane, u32 channels, u32 token) {
    u64 n = (u64)images * channels;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 c;
        u64 image = divided(i, channels, c);
        y[i] = x[(image * plane + token) * channels + c];
    }
}

extern "C" __global__ void token_backward(const T* dy, T* dx, u32 images, u32 plane, u32 channels, u32 token) {
    u64 n = (u64)images * plane * channels;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 c, p;
        u64 image = divided(divided(i, channels, c), plane, p);
        dx[i] = p == token ? dy[image * channels + c] : rounded(0.0f);
    }
}

// Attention. A row of x has all heads' queries, then their keys, then their values. A warp processes a query, or a key
// with its value. It visits 32 positions at a time: first each lane handles a position, then each lane sums its own
// channels over these positions.

// Maximum channels per head, and channels per lane.
constexpr u32 HEAD = 128;
constexpr u32 OWN = HEAD / 32;
// Warps per block.
constexpr u32 WARPS = 8;

// Position of a head's vectors in the rows of x and y.
struct Head {
    u64 first;
    u32 position, head, width, heads, positions;

    __device__ Head(u64 item, u32 positions, u32 heads, u32 width) : width(width), heads(heads), positions(positions) {
        position = (u32)(item % positions);
        head = (u32)(item / positions % heads);
        first = item / positions / heads * positions;
    }

    // Returns the index of a position's query (part 0), key (1) or value (2).
    __device__ u64 input(u32 part, u32 p) const { return ((first + p) * 3 + part) * heads * width + head * width; }
    __device__ u64 output(u32 p) const { return (first + p) * heads * width + head * width; }
    // Returns the index of a query's statistics.
    __device__ u64 statistics(u32 p) const { return (first / positions * heads + head) * positions + p; }
};

__device__ inline float dot(const float* a, const T* b, u32 width) {
    float sum = 0.0f;
    for (u32 c = 0; c < width; c++) sum = fmaf(a[c], value(b[c]), sum);
    return sum;
}

// Copies a vector to `room`, which is this warp's shared memory, so that all lanes can read it.
__device__ inline void fetch_vector(const T* from, float* room, u32 width) {
    for (u32 c = threadIdx.x % 32; c < width; c += 32) room[c] = value(from[c]);
    __syncwarp();
}

// sums += (weight in lane l) times (row l of `from`), for the first `count` lanes
__device__ inline void add_rows(float (&sums)[OWN], float weight, const T* from, u64 step, u32 count, u32 width) {
    for (u32 l = 0; l < count; l++) {
        float w = __shfl_sync(0xffffffffu, weight, l);
        for (u32 k = 0, c = threadIdx.x % 32; c < width; k++, c += 32) sums[k] = fmaf(w, value(from[l * step + c]), sums[k]);
    }
}

__device__ inline void store_vector(const float (&sums)[OWN], float factor, T* to, u32 width) {
    for (u32 k = 0, c = threadIdx.x % 32; c < width; k++, c += 32) to[c] = rounded(sums[k] * factor);
}

// Writes y, and for each query the greatest scaled product and 1 / the sum of exponentials.
extern "C" __global__ void attention_forward(const T* x, T* y, float* statistics, u64 queries, u32 positions, u32 heads, u32 width, float scale) {
    __shared__ float rooms[WARPS * HEAD];
    float* q = rooms + threadIdx.x / 32 * HEAD;
    u32 lane = threadIdx.x % 32;
    u64 step = 3 * (u64)heads * width;
    for (u64 item = warp_index(); item < queries; item += warp_count()) {
        Head h(item, positions, heads, width);
        fetch_vector(x + h.input(0, h.position), q, width);
        float most = -INFINITY, sum = 0.0f, sums[OWN] = {};
        for (u32 first = 0; first < positions; first += 32) {
            u32 key = first + lane, count = min(32u, positions - first);
            float product = key < positions ? scale * dot(q, x + h.input(1, key), width) : -INFINITY;
            float now = fmaxf(most, warp_max(product)), before = expf(most - now);
            float power = key < positions ? expf(product - now) : 0.0f;
            sum = sum * before + (float)warp_sum((double)power);
            for (u32 k = 0; k < OWN; k++) sums[k] *= before;
            add_rows(sums, power, x + h.input(2, first), step, count, width);
            most = now;
        }
        store_vector(sums, 1.0f / sum, y + h.output(h.position), width);
        if (lane == 0) {
            statistics[h.statistics(h.position)] = most;
            statistics[queries + h.statistics(h.position)] = 1.0f / sum;
        }
        __syncwarp();
    }
}

// Writes the gradients for the queries. Also writes the product of each query's output and gradient to the last third
// of `statistics`.
extern "C" __global__ void attention_queries(const T* x, const T* y, const T* dy, T* dx, float* statistics, u64 queries, u32 positions, u32 heads, u32 width, float scale) {
    __shared__ float rooms[2 * WARPS * HEAD];
    float* q = rooms + threadIdx.x / 32 * 2 * HEAD;
    float* d = q + HEAD;
    u32 lane = threadIdx.x % 32;
    u64 step = 3 * (u64)heads * width;
    for (u64 item = warp_index(); item < queries; item += warp_count()) {
        Head h(item, positions, heads, width);
        fetch_vector(x + h.input(0, h.position), q, width);
        fetch_vector(dy + h.output(h.position), d, width);
        double own = 0.0;
        for (u32 c = lane; c < width; c += 32) own += (double)(d[c] * value(y[h.output(h.position) + c]));
        float mean = (float)warp_sum(own), sums[OWN] = {};
        float most = statistics[h.statistics(h.position)], inverse = statistics[queries + h.statistics(h.position)];
        for (u32 first = 0; first < positions; first += 32) {
            u32 key = first + lane, count = min(32u, positions - first);
            float slope = 0.0f;
            if (key < positions) {
                float weight = expf(scale * dot(q, x + h.input(1, key), width) - most) * inverse;
                slope = weight * (dot(d, x + h.input(2, key), width) - mean) * scale;
            }
            add_rows(sums, slope, x + h.input(1, first), step, count, width);
        }
        store_vector(sums, 1.0f, dx + h.input(0, h.position), width);
        if (lane == 0) statistics[2 * queries + h.statistics(h.position)] = mean;
        __syncwarp();
    }
}

// Writes the gradients for the keys and values. The statistics must be complete.
extern "C" __global__ void attention_keys(const T* x, const T* dy, T* dx, const float* statistics, u64 queries, u32 positions, u32 heads, u32 width, float scale) {
    __shared__ float rooms[2 * WARPS * HEAD];
    float* k = rooms + threadIdx.x / 32 * 2 * HEAD;
    float* v = k + HEAD;
    u32 lane = threadIdx.x % 32;
    u64 row = (u64)heads * width;
    for (u64 item = warp_index(); item < queries; item += warp_count()) {
        Head h(item, positions, heads, width);
        fetch_vector(x + h.input(1, h.position), k, width);
        fetch_vector(x + h.input(2, h.position), v, width);
        float keys[OWN] = {}, values[OWN] = {};
        for (u32 first = 0; first < positions; first += 32) {
            u32 query = first + lane, count = min(32u, positions - first);
            float weight = 0.0f, slope = 0.0f;
            if (query < positions) {
                u64 at = h.statistics(query);
                weight = expf(scale * dot(k, x + h.input(0, query), width) - statistics[at]) * statistics[queries + at];
                slope = weight * (dot(v, dy + h.output(query), width) - statistics[2 * queries + at]) * scale;
            }
            add_rows(keys, slope, x + h.input(0, first), 3 * row, count, width);
            add_rows(values, weight, dy + h.output(first), row, count, width);
        }
        store_vector(keys, 1.0f, dx + h.input(1, h.position), width);
        store_vector(values, 1.0f, dx + h.input(2, h.position), width);
        __syncwarp();
    }
}
