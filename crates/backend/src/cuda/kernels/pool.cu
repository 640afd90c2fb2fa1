// Pooling of (n, h, w, c) images. For each axis, the host passes two tables. In the first, three entries describe the
// window of each output: its first input cell, the cell after its last one, and the number of cells including padding.
// In the second, two entries describe the windows that contain an input cell: the first such output, and the output
// after the last one.

struct Images {
    u32 n, h, w, c, out_h, out_w;
};

// Kinds of pooling, with the host's numbers.
constexpr int POOL_MAX = 0, POOL_MEAN = 1, POOL_MEAN_PADDED = 2;

// Calls f(image, row, column, channel) for every pack (V channels) of a (n, h, w, c) tensor.
template <int V, class F>
__device__ inline void each_place(u32 n, u32 h, u32 w, u32 c, F f) {
    u32 columns = c / V;
    u64 count = (u64)n * h * w * columns;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u32 column, x, y;
        u64 place = divided(i, columns, column);
        u64 row = divided(place, w, x);
        u32 image = (u32)divided(row, h, y);
        f(image, y, x, column * V);
    }
}

// The winning cells of V channels, accessed together.
template <int V, class I>
struct alignas(V * sizeof(I)) Cells {
    I at[V];
};

// `best` receives the index of the winning cell within its window. Only backward needs it, so it may be null.
template <int V, class I>
__device__ inline void pool_images(const T* x, T* y, I* best, const int* rows, const int* columns, Images s, int kind) {
    each_place<V>(s.n, s.out_h, s.out_w, s.c, [&](u32 n, u32 oh, u32 ow, u32 c) {
        const int *r = rows + 3 * oh, *q = columns + 3 * ow;
        u64 to = (((u64)n * s.out_h + oh) * s.out_w + ow) * s.c + c;
        float out[V];
        Cells<V, I> index;
        double sums[V];
        for (int i = 0; i < V; i++) {
            out[i] = -__int_as_float(0x7f800000);
            index.at[i] = 0;
            sums[i] = 0.0;
        }
        for (int h = r[0]; h < r[1]; h++) {
            float line[V] = {};
            for (int w = q[0]; w < q[1]; w++) {
                float v[V];
                load(x + (((u64)n * s.h + h) * s.w + w) * s.c + c, v);
                I cell = (I)((h - r[0]) * (q[1] - q[0]) + (w - q[0]));
                for (int i = 0; i < V; i++) {
                    // the first of the largest cells wins, and NaN wins over numbers
                    if (kind != POOL_MAX) {
                        line[i] += v[i];
                    } else if (v[i] > out[i] || v[i] != v[i]) {
                        out[i] = v[i];
                        index.at[i] = cell;
                    }
                }
            }
            if (kind != POOL_MAX)
                for (int i = 0; i < V; i++) sums[i] += line[i];
        }
        if (kind == POOL_MAX) {
            if (best) *reinterpret_cast<Cells<V, I>*>(best + to) = index;
        } else {
            int cells = kind == POOL_MEAN_PADDED ? r[2] * q[2] : (r[1] - r[0]) * (q[1] - q[0]);
            for (int i = 0; i < V; i++) out[i] = (float)(sums[i] / (double)cells);
        }
        store(y + to, out);
    });
}

extern "C" __global__ void pool_forward(const T* x, T* y, u8* best, int byte_index, const int* rows, const int* columns, u32 n, u32 h, u32 w, u32 c, u32 out_h, u32 out_w, int kind) {
    Images s = {n, h, w, c, out_h, out_w};
    if (c % WIDE == 0 && byte_index) {
        pool_images<WIDE>(x, y, best, rows, columns, s, kind);
    } else if (byte_index) {
        pool_images<1>(x, y, best, rows, columns, s, kind);
    } else {
        pool_images<1>(x, y, (u32*)best, rows, columns, s, kind);
    }
}

// Each input cell adds the gradients from all windows that contain it, in the order of the outputs.
template <int V, class I>
__device__ inline void pool_gradients(const T* dy, T* dx, const I* best, const int* rows, const int* columns, const int* over_rows, const int* over_columns, Images s, int kind) {
    each_place<V>(s.n, s.h, s.w, s.c, [&](u32 n, u32 h, u32 w, u32 c) {
        float sum[V] = {};
        for (int oh = over_rows[2 * h]; oh < over_rows[2 * h + 1]; oh++) {
            const int* r = rows + 3 * oh;
            for (int ow = over_columns[2 * w]; ow < over_columns[2 * w + 1]; ow++) {
                const int* q = columns + 3 * ow;
                u64 from = (((u64)n * s.out_h + oh) * s.out_w + ow) * s.c + c;
                float d[V];
                load(dy + from, d);
                if (kind == POOL_MAX) {
                    u32 own = ((int)h - r[0]) * (q[1] - q[0]) + ((int)w - q[0]);
                    Cells<V, I> cells = *reinterpret_cast<const Cells<V, I>*>(best + from);
                    for (int i = 0; i < V; i++) sum[i] += cells.at[i] == own ? d[i] : 0.0f;
                } else {
                    int cells = kind == POOL_MEAN_PADDED ? r[2] * q[2] : (r[1] - r[0]) * (q[1] - q[0]);
                    for (int i = 0; i < V; i++) sum[i] += d[i] / (float)cells;
                }
            }
        }
        store(dx + (((u64)n * s.h + h) * s.w + w) * s.c + c, sum);
    });
}

extern "C" __global__ void pool_backward(const T* dy, T* dx, const u8* best, int byte_index, const int* rows, const int* columns, const int* over_rows, const int* over_columns, u32 n, u32 h, u32 w, u32 c, u32 out_h, u32 out_w, int kind) {
    Images s = {n, h, w, c, out_h, out_w};
    if (c % WIDE == 0 && byte_index) {
        pool_gradients<WIDE>(dy, dx, best, rows, columns, over_rows, over_columns, s, kind);
    } else if (byte_index) {
        pool_gradients<1>(dy, dx, best, rows, columns, over_rows, over_columns, s, kind);
    } else {
        pool_gradients<1>(dy, dx, (const u32*)best, rows, columns, over_rows, over_columns, s, kind);
    }
}

// Blurred downsampling for (n, h, w, c) images, forward and backward. Each position in `to` is a weighted sum of
// positions in `from`. For each row of `to`, the host passes a list of rows in `from` and their weights. The lists are
// concatenated, and `row_first` has the start of each. Columns are passed in the same way.

extern "C" __global__ void blur_gather(const T* from, T* to, const u32* row_first, const u32* rows, const float* row_weights, const u32* column_first, const u32* columns, const float* column_weights, u32 n, u32 h, u32 w, u32 c, u32 to_h, u32 to_w) {
    with_pack(c, [&](auto pack) {
        constexpr int V = decltype(pack)::value;
        each_place<V>(n, to_h, to_w, c, [&](u32 image, u32 row, u32 column, u32 channel) {
            float sum[V] = {};
            for (u32 r = row_first[row]; r < row_first[row + 1]; r++) {
                const T* line = from + ((u64)image * h + rows[r]) * w * c + channel;
                for (u32 q = column_first[column]; q < column_first[column + 1]; q++) {
                    float v[V], weight = row_weights[r] * column_weights[q];
                    load(line + (u64)columns[q] * c, v);
                    for (int i = 0; i < V; i++) sum[i] = fmaf(weight, v[i], sum[i]);
                }
            }
            store(to + (((u64)image * to_h + row) * to_w + column) * c + channel, sum);
        });
    });
}
