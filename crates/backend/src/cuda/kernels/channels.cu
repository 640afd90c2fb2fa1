// A range of channels with interleaved groups, and its gradient. Pixels of all images are rows of channels.

// Output channel j is input channel first + j % groups * (count / groups) + j / groups.
extern "C" __global__ void channels_forward(const T* x, T* y, u32 rows, u32 width, u32 first, u32 count, u32 groups) {
    u64 n = (u64)rows * count;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u64 row = i / count;
        u32 j = (u32)(i % count);
        y[i] = x[row * width + first + j % groups * (count / groups) + j / groups];
    }
}

extern "C" __global__ void channels_backward(const T* dy, T* dx, u32 rows, u32 width, u32 first, u32 count, u32 groups) {
    u64 n = (u64)rows * width;
    u32 each = count / groups;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u64 row = i / width;
        u32 c = (u32)(i % width);
        bool read = c >= first && c - first < count;
        u32 k = read ? c - first : 0;
        dx[i] = read ? dy[row * count + k % each * groups + k / each] : rounded(0.0f);
    }
}
