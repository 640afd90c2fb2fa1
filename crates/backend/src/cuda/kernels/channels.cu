// The parameter-free shortcut of a residual block, computed as a separate operation.

extern "C" __global__ void shortcut_forward(const T* x, T* y, const Shortcut* shortcut, u64 n) {
    Shortcut s = *shortcut;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 channel;
        u64 pixel = divided(i, s.out_c, channel);
        i64 from = shortcut_source(s, (u32)pixel, channel);
        y[i] = from < 0 ? rounded(0.0f) : x[from];
    }
}

extern "C" __global__ void shortcut_backward(const T* dy, T* dx, const Shortcut* shortcut, u64 n) {
    Shortcut s = *shortcut;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 channel;
        u64 pixel = divided(i, s.c, channel);
        i64 from = shortcut_target(s, (u32)pixel, channel);
        dx[i] = from < 0 ? rounded(0.0f) : dy[from];
    }
}

// Copies columns from a matrix to another with its own width. Used to concatenate channels and to split them again.

template <int V>
__device__ inline void copy_packs(const T* from, T* to, u32 rows, u32 columns, u32 from_width, u32 from_first, u32 to_width, u32 to_first) {
    each_pack<V>(rows, columns, [&](u64 row, u32 column) {
        *reinterpret_cast<Pack<V>*>(to + row * to_width + to_first + column) =
            *reinterpret_cast<const Pack<V>*>(from + row * from_width + from_first + column);
    });
}

extern "C" __global__ void copy_columns(const T* from, T* to, u32 rows, u32 columns, u32 from_width, u32 from_first, u32 to_width, u32 to_first) {
    if ((columns | from_width | from_first | to_width | to_first) % WIDE == 0) {
        copy_packs<WIDE>(from, to, rows, columns, from_width, from_first, to_width, to_first);
    } else {
        copy_packs<1>(from, to, rows, columns, from_width, from_first, to_width, to_first);
    }
}

// Copies a range of channels and interleaves their groups (channel shuffle), and computes the gradient. Each pixel is a
// row.

// Output channel j is input channel first + j % groups * (count / groups) + j / groups.
extern "C" __global__ void channels_forward(const T* x, T* y, u32 rows, u32 width, u32 first, u32 count, u32 groups) {
    u64 n = (u64)rows * count;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 j;
        u64 row = divided(i, count, j);
        y[i] = x[row * width + first + j % groups * (count / groups) + j / groups];
    }
}

extern "C" __global__ void channels_backward(const T* dy, T* dx, u32 rows, u32 width, u32 first, u32 count, u32 groups) {
    u64 n = (u64)rows * width;
    u32 each = count / groups;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 c;
        u64 row = divided(i, width, c);
        bool read = c >= first && c - first < count;
        u32 k = read ? c - first : 0;
        dx[i] = read ? dy[row * count + k % each * groups + k / each] : rounded(0.0f);
    }
}

// Copies the pixels of each square of `size` x `size` to the channels of one pixel, column by column, and copies the
// gradients back. Pixels beyond the image are 0.

extern "C" __global__ void space_to_depth(const T* x, T* y, u32 images, u32 h, u32 w, u32 channels, u32 size, u64 out) {
    u32 rows = (h + size - 1) / size, columns = (w + size - 1) / size;
    for (u64 i = thread_index(); i < out; i += thread_count()) {
        u32 c, pixel, column, row;
        u64 image = divided(divided(divided(divided(i, channels, c), size * size, pixel), columns, column), rows, row);
        row = row * size + pixel % size;
        column = column * size + pixel / size;
        y[i] = row < h && column < w ? x[((image * h + row) * w + column) * channels + c] : rounded(0.0f);
    }
}

extern "C" __global__ void depth_to_space(const T* dy, T* dx, u32 images, u32 h, u32 w, u32 channels, u32 size, u64 out) {
    u32 rows = (h + size - 1) / size, columns = (w + size - 1) / size;
    u64 n = (u64)images * h * w * channels;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 c, column, row;
        u64 image = divided(divided(divided(i, channels, c), w, column), h, row);
        u32 pixel = column % size * size + row % size;
        u64 from = (((image * rows + row / size) * columns + column / size) * size * size + pixel) * channels + c;
        if (from < out) dx[i] = dy[from];
    }
}
