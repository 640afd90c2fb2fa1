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
// with its value. It visits 32 cells of the window at a time: first each lane handles a cell, then each lane sums its own
// channels over these cells.

// Maximum channels per head, and channels per lane.
constexpr u32 HEAD = 128;
constexpr u32 OWN = HEAD / 32;
// Warps per block.
constexpr u32 WARPS = 8;
// Marks a cell that the output leaves out.
constexpr u32 OUTSIDE = 0xffffffffu;
// Added to the product of cells from different parts of a window.
constexpr float MASK = -100.0f;
// Factor on the sigmoid of a continuous bias.
constexpr float BIAS_FACTOR = 16.0f;

// Sizes of attention, as in attention.rs.
struct AttentionSizes {
    u32 images, heads, width;
    // Positions of an image in x and in y.
    u32 plane, out_plane;
    // Cells per window, columns per window, and the number of possible differences between two cells.
    u32 area, columns, differences;
};

// A cell of a window, for one image and head.
struct Cell {
    AttentionSizes s;
    const u32* places;
    u32 image, head, cell, first;

    // `item` counts (image, head, window, cell). `places` has, for each window and cell, the position in x, then for
    // each the position in y, then for each the part of the window.
    __device__ Cell(const AttentionSizes& s, const u32* places, u64 item) : s(s), places(places) {
        u32 at = (u32)(item % s.plane);
        head = (u32)(item / s.plane % s.heads);
        image = (u32)(item / s.plane / s.heads);
        cell = at % s.area;
        first = at - cell;
    }

    __device__ u32 position(u32 c) const { return places[first + c]; }
    __device__ u32 out_position(u32 c) const { return places[s.plane + first + c]; }
    __device__ u32 part(u32 c) const { return places[2 * s.plane + first + c]; }
    // Returns the index of a position's query (part 0), key (1) or value (2).
    __device__ u64 input(u32 part, u32 position) const {
        return (((u64)image * s.plane + position) * 3 + part) * s.heads * s.width + head * s.width;
    }
    __device__ u64 output(u32 position) const { return ((u64)image * s.out_plane + position) * s.heads * s.width + head * s.width; }
    // Returns the index of a query's statistics.
    __device__ u64 statistics(u32 c) const { return ((u64)image * s.heads + head) * s.plane + first + c; }

    // Returns 1 / the norm of the query (0) or key (1) at a position, or 1 if the products are not cosines.
    __device__ float inverse_norm(const float* norms, u32 part, u32 position) const {
        u64 each = (u64)s.images * s.heads * s.plane;
        return norms ? norms[part * each + ((u64)image * s.heads + head) * s.plane + position] : 1.0f;
    }

    // Returns the row of the bias table for a query and a key.
    __device__ u32 difference(u32 query, u32 key) const {
        u32 rows = query / s.columns + s.area / s.columns - 1 - key / s.columns;
        u32 columns = query % s.columns + s.columns - 1 - key % s.columns;
        return rows * (2 * s.columns - 1) + columns;
    }

    // Returns what is added to the product of a query and a key.
    __device__ float term(const float* bias, u32 query, u32 key) const {
        float term = bias ? bias[(u64)difference(query, key) * s.heads + head] : 0.0f;
        return part(query) != part(key) ? term + MASK : term;
    }
};

__device__ inline float dot(const float* a, const T* b, u32 width) {
    float sum = 0.0f;
    for (u32 c = 0; c < width; c++) sum = fmaf(a[c], value(b[c]), sum);
    return sum;
}

// Copies a vector, times `factor`, to `room`, which is this warp's shared memory, so that all lanes can read it.
__device__ inline void fetch_vector(const T* from, float factor, float* room, u32 width) {
    for (u32 c = threadIdx.x % 32; c < width; c += 32) room[c] = value(from[c]) * factor;
    __syncwarp();
}

// sums += (weight in lane l) times (row `row` in lane l), for the first `count` lanes. Rows are `step` apart.
__device__ inline void add_rows(float (&sums)[OWN], float weight, u32 row, const T* from, u64 step, u32 count, u32 width) {
    for (u32 l = 0; l < count; l++) {
        float w = __shfl_sync(0xffffffffu, weight, l);
        u32 r = __shfl_sync(0xffffffffu, row, l);
        if (r == OUTSIDE) continue;
        for (u32 k = 0, c = threadIdx.x % 32; c < width; k++, c += 32) sums[k] = fmaf(w, value(from[r * step + c]), sums[k]);
    }
}

__device__ inline void store_vector(const float (&sums)[OWN], float factor, T* to, u32 width) {
    for (u32 k = 0, c = threadIdx.x % 32; c < width; k++, c += 32) to[c] = rounded(sums[k] * factor);
}

// Removes the component along the unit vector `v` from the sums and returns its length.
__device__ inline float remove_along(float (&sums)[OWN], const float* v, u32 width) {
    double own = 0.0;
    for (u32 k = 0, c = threadIdx.x % 32; c < width; k++, c += 32) own += (double)(sums[k] * v[c]);
    float along = (float)warp_sum(own);
    for (u32 k = 0, c = threadIdx.x % 32; c < width; k++, c += 32) sums[k] -= along * v[c];
    return along;
}

// Writes 1 / the norm of each query, then of each key.
extern "C" __global__ void attention_norms(const T* x, float* norms, const AttentionSizes* sizes, u64 queries) {
    AttentionSizes s = *sizes;
    for (u64 i = thread_index(); i < 2 * queries; i += thread_count()) {
        u64 part = i / queries, vector = i % queries;
        u64 image = vector / s.plane / s.heads, head = vector / s.plane % s.heads;
        const T* from = x + ((image * s.plane + vector % s.plane) * 3 + part) * s.heads * s.width + head * s.width;
        float sum = 0.0f;
        for (u32 c = 0; c < s.width; c++) sum = fmaf(value(from[c]), value(from[c]), sum);
        norms[i] = 1.0f / fmaxf(sqrtf(sum), 1e-12f);
    }
}

// Writes the factors of cosines. A learned number is limited to the logarithm of 100.
extern "C" __global__ void attention_scales(const float* learned, float* scales, u32 heads, float most) {
    for (u64 i = thread_index(); i < heads; i += thread_count()) scales[i] = expf(fminf(learned[i], most));
}

// Writes y, and for each query the greatest logit and 1 / the sum of exponentials.
extern "C" __global__ void attention_forward(const T* x, T* y, float* statistics, const AttentionSizes* sizes, const u32* places, const float* scales, const float* bias, const float* norms, u64 queries) {
    __shared__ float rooms[WARPS * HEAD];
    AttentionSizes s = *sizes;
    float* q = rooms + threadIdx.x / 32 * HEAD;
    u32 lane = threadIdx.x % 32;
    u64 step = 3 * (u64)s.heads * s.width;
    for (u64 item = warp_index(); item < queries; item += warp_count()) {
        Cell h(s, places, item);
        u32 own = h.position(h.cell), target = h.out_position(h.cell);
        if (target == OUTSIDE) continue;
        float scale = scales[h.head];
        fetch_vector(x + h.input(0, own), h.inverse_norm(norms, 0, own), q, s.width);
        float most = -__int_as_float(0x7f800000), sum = 0.0f, sums[OWN] = {};
        for (u32 first = 0; first < s.area; first += 32) {
            u32 key = first + lane, count = min(32u, s.area - first), at = 0;
            float logit = -__int_as_float(0x7f800000);
            if (key < s.area) {
                at = h.position(key);
                float product = dot(q, x + h.input(1, at), s.width) * h.inverse_norm(norms, 1, at);
                logit = fmaf(product, scale, h.term(bias, h.cell, key));
            }
            float now = fmaxf(most, warp_max(logit)), before = expf(most - now);
            float power = key < s.area ? expf(logit - now) : 0.0f;
            sum = sum * before + (float)warp_sum((double)power);
            for (u32 k = 0; k < OWN; k++) sums[k] *= before;
            add_rows(sums, power, at, x + h.input(2, 0), step, count, s.width);
            most = now;
        }
        store_vector(sums, 1.0f / sum, y + h.output(target), s.width);
        if (lane == 0) {
            statistics[h.statistics(h.cell)] = most;
            statistics[queries + h.statistics(h.cell)] = 1.0f / sum;
        }
        __syncwarp();
    }
}

// Writes the gradients for the queries. Also writes, for each query, the product of output and gradient (third part of
// `statistics`) and the gradient of the logarithm of its factor (fourth part). With `pairs`, a warp processes all images
// and writes the gradient of the bias for each head, window, query and key.
extern "C" __global__ void attention_queries(const T* x, const T* y, const T* dy, T* dx, float* statistics, const AttentionSizes* sizes, const u32* places, const float* scales, const float* bias, const float* norms, float* pairs, u64 queries, u32 together) {
    __shared__ float rooms[2 * WARPS * HEAD];
    AttentionSizes s = *sizes;
    float* q = rooms + threadIdx.x / 32 * 2 * HEAD;
    float* d = q + HEAD;
    u32 lane = threadIdx.x % 32;
    u64 step = 3 * (u64)s.heads * s.width, of_image = (u64)s.heads * s.plane;
    u64 items = queries / together;
    for (u64 item = warp_index(); item < items; item += warp_count()) {
        for (u32 number = 0; number < together; number++) {
            Cell h(s, places, item + number * of_image);
            u32 own = h.position(h.cell), target = h.out_position(h.cell);
            float scale = scales[h.head], inverse_norm = h.inverse_norm(norms, 0, own), mean = 0.0f, sums[OWN] = {};
            float* pair = pairs ? pairs + item * s.area : nullptr;
            bool inside = target != OUTSIDE;
            fetch_vector(x + h.input(0, own), inverse_norm, q, s.width);
            if (inside) {
                fetch_vector(dy + h.output(target), 1.0f, d, s.width);
                double product = 0.0;
                for (u32 c = lane; c < s.width; c += 32) product += (double)(d[c] * value(y[h.output(target) + c]));
                mean = (float)warp_sum(product);
            }
            // the sum of slopes, which is not exactly 0 because y is rounded, and the mean of the products
            double rest = 0.0, center = 0.0;
            float most = inside ? statistics[h.statistics(h.cell)] : 0.0f;
            float inverse = inside ? statistics[queries + h.statistics(h.cell)] : 0.0f;
            for (u32 first = 0; first < s.area; first += 32) {
                u32 key = first + lane, count = min(32u, s.area - first), at = 0;
                float slope = 0.0f;
                if (key < s.area) {
                    at = h.position(key);
                    if (inside) {
                        float key_norm = h.inverse_norm(norms, 1, at);
                        float product = dot(q, x + h.input(1, at), s.width) * key_norm;
                        float weight = expf(fmaf(product, scale, h.term(bias, h.cell, key)) - most) * inverse;
                        slope = weight * (dot(d, x + h.input(2, at), s.width) - mean);
                        rest += (double)slope;
                        center += (double)(weight * product);
                        if (pair) pair[key] = number == 0 ? slope : pair[key] + slope;
                        slope *= scale * key_norm;
                    } else if (pair && number == 0) {
                        pair[key] = 0.0f;
                    }
                }
                add_rows(sums, slope, at, x + h.input(1, 0), step, count, s.width);
            }
            float along = norms ? remove_along(sums, q, s.width) : 0.0f;
            if (norms) along -= (float)(warp_sum(rest) * warp_sum(center) * (double)scale);
            if (dx) store_vector(sums, inverse_norm, dx + h.input(0, own), s.width);
            if (lane == 0) {
                statistics[2 * queries + h.statistics(h.cell)] = mean;
                statistics[3 * queries + h.statistics(h.cell)] = along;
            }
            __syncwarp();
        }
    }
}

// Writes the gradients for the keys and values. The statistics must be complete.
extern "C" __global__ void attention_keys(const T* x, const T* dy, T* dx, const float* statistics, const AttentionSizes* sizes, const u32* places, const float* scales, const float* bias, const float* norms, u64 queries) {
    __shared__ float rooms[2 * WARPS * HEAD];
    AttentionSizes s = *sizes;
    float* k = rooms + threadIdx.x / 32 * 2 * HEAD;
    float* v = k + HEAD;
    u32 lane = threadIdx.x % 32;
    u64 row = (u64)s.heads * s.width;
    for (u64 item = warp_index(); item < queries; item += warp_count()) {
        Cell h(s, places, item);
        u32 own = h.position(h.cell);
        float scale = scales[h.head], inverse_norm = h.inverse_norm(norms, 1, own);
        fetch_vector(x + h.input(1, own), inverse_norm, k, s.width);
        fetch_vector(x + h.input(2, own), 1.0f, v, s.width);
        float keys[OWN] = {}, values[OWN] = {};
        for (u32 first = 0; first < s.area; first += 32) {
            u32 query = first + lane, count = min(32u, s.area - first), from = OUTSIDE, at = 0;
            float weight = 0.0f, slope = 0.0f;
            if (query < s.area) {
                at = h.position(query);
                from = h.out_position(query);
            }
            if (from != OUTSIDE) {
                u64 own = h.statistics(query);
                float query_norm = h.inverse_norm(norms, 0, at);
                float product = dot(k, x + h.input(0, at), s.width) * query_norm;
                weight = expf(fmaf(product, scale, h.term(bias, query, h.cell)) - statistics[own]) * statistics[queries + own];
                slope = weight * (dot(v, dy + h.output(from), s.width) - statistics[2 * queries + own]) * scale * query_norm;
            }
            add_rows(keys, slope, at, x + h.input(0, 0), 3 * row, count, s.width);
            add_rows(values, weight, from, dy + h.output(0), row, count, s.width);
        }
        if (norms) remove_along(keys, k, s.width);
        store_vector(keys, inverse_norm, dx + h.input(1, own), s.width);
        store_vector(values, 1.0f, dx + h.input(2, own), s.width);
        __syncwarp();
    }
}

// Sums the gradients of the bias over windows and over pairs with the same difference. A warp computes one number.
extern "C" __global__ void attention_differences(const float* pairs, const AttentionSizes* sizes, float* gradient, u32 outputs) {
    AttentionSizes s = *sizes;
    u32 lane = threadIdx.x % 32, window_rows = s.area / s.columns, width = 2 * s.columns - 1;
    for (u64 i = warp_index(); i < outputs; i += warp_count()) {
        u32 head = (u32)(i % s.heads), difference = (u32)(i / s.heads);
        int down = (int)(difference / width) - (int)window_rows + 1, across = (int)(difference % width) - (int)s.columns + 1;
        double sum = 0.0;
        for (u64 j = lane; j < s.plane; j += 32) {
            u32 query = (u32)(j % s.area);
            int row = (int)(query / s.columns) - down, column = (int)(query % s.columns) - across;
            if (row < 0 || row >= (int)window_rows || column < 0 || column >= (int)s.columns) continue;
            sum += (double)pairs[(head * (u64)s.plane + j) * s.area + row * s.columns + column];
        }
        sum = warp_sum(sum);
        if (lane == 0) gradient[i] = (float)sum;
    }
}

// Sums the gradients for the learned logarithms of the cosine factors. Each block handles a head.
extern "C" __global__ void attention_scale_gradients(const float* statistics, const float* learned, const AttentionSizes* sizes, float* gradient, u64 queries, u32 heads, float most) {
    __shared__ double room[SUMMERS];
    AttentionSizes s = *sizes;
    for (u32 head = blockIdx.x; head < heads; head += gridDim.x) {
        double sum = 0.0;
        for (u32 image = 0; image < s.images; image++) {
            const float* from = statistics + 3 * queries + ((u64)image * s.heads + head) * s.plane;
            for (u32 at = threadIdx.x; at < s.plane; at += SUMMERS) sum += (double)from[at];
        }
        sum = block_sum(sum, room);
        if (threadIdx.x == 0) gradient[head] = learned[head] > most ? 0.0f : (float)sum;
    }
}

// Returns a hidden unit of the continuous bias.
__device__ inline float hidden_unit(const float* w1, const float* b1, const float* r, u32 unit) {
    return relu(fmaf(w1[2 * unit], r[0], fmaf(w1[2 * unit + 1], r[1], b1[unit])));
}

// Writes the table of a continuous bias. `coordinates` has two numbers per difference.
extern "C" __global__ void continuous_bias(const float* coordinates, const float* w1, const float* b1, const float* w2, float* table, u32 differences, u32 heads, u32 hidden) {
    for (u64 i = thread_index(); i < (u64)differences * heads; i += thread_count()) {
        u64 difference = i / heads, head = i % heads;
        double sum = 0.0;
        for (u32 j = 0; j < hidden; j++) sum += (double)(w2[head * hidden + j] * hidden_unit(w1, b1, coordinates + 2 * difference, j));
        table[i] = BIAS_FACTOR / (1.0f + expf(-(float)sum));
    }
}

// Writes the gradients of a continuous bias. Each thread computes the gradients for its hidden units.
extern "C" __global__ void continuous_bias_gradients(const float* coordinates, const float* w1, const float* b1, const float* w2, const float* table, const float* dtable, float* dw1, float* db1, float* dw2, u32 differences, u32 heads, u32 hidden) {
    for (u64 j = thread_index(); j < hidden; j += thread_count()) {
        double down = 0.0, across = 0.0, all = 0.0;
        for (u32 i = 0; i < differences; i++) {
            const float* r = coordinates + 2 * i;
            if (hidden_unit(w1, b1, r, (u32)j) <= 0.0f) continue;
            double slope = 0.0;
            for (u32 head = 0; head < heads; head++) {
                float t = table[i * heads + head];
                slope += (double)(dtable[i * heads + head] * t * (1.0f - t / BIAS_FACTOR) * w2[head * hidden + j]);
            }
            down += slope * r[0];
            across += slope * r[1];
            all += slope;
        }
        dw1[2 * j] = (float)down;
        dw1[2 * j + 1] = (float)across;
        db1[j] = (float)all;
        for (u32 head = 0; head < heads; head++) {
            double sum = 0.0;
            for (u32 i = 0; i < differences; i++) {
                float t = table[i * heads + head];
                sum += (double)(dtable[i * heads + head] * t * (1.0f - t / BIAS_FACTOR) * hidden_unit(w1, b1, coordinates + 2 * i, (u32)j));
            }
            dw2[head * hidden + j] = (float)sum;
        }
    }
}
