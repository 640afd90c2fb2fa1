// The parameter-free shortcut: every stride-th pixel, with zero channels before and behind.

extern "C" __global__ void shortcut_forward(const T* x, T* y, u32 n, u32 h, u32 w, u32 c, u32 out_h, u32 out_w, u32 out_c, u32 stride, u32 before) {
    u64 count = (u64)n * out_h * out_w * out_c;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u32 channel = (u32)(i % out_c);
        u64 place = i / out_c;
        u64 row = place / out_w % out_h * stride, column = place % out_w * stride, image = place / ((u64)out_h * out_w);
        bool inside = channel >= before && channel - before < c;
        y[i] = inside ? x[((image * h + row) * w + column) * c + (channel - before)] : rounded(0.0f);
    }
}

extern "C" __global__ void shortcut_backward(const T* dy, T* dx, u32 n, u32 h, u32 w, u32 c, u32 out_h, u32 out_w, u32 out_c, u32 stride, u32 before) {
    u64 count = (u64)n * h * w * c;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u32 channel = (u32)(i % c);
        u64 place = i / c;
        u64 row = place / w % h, column = place % w, image = place / ((u64)h * w);
        bool taken = row % stride == 0 && column % stride == 0;
        dx[i] = taken ? dy[((image * out_h + row / stride) * out_w + column / stride) * out_c + channel + before] : rounded(0.0f);
    }
}
