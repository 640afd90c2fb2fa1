// The shortcut without parameters as an operation of its own.

extern "C" __global__ void shortcut_forward(const T* x, T* y, const Shortcut* shortcut, u64 n) {
    Shortcut s = *shortcut;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        i64 from = shortcut_source(s, i / s.out_c, (u32)(i % s.out_c));
        y[i] = from < 0 ? rounded(0.0f) : x[from];
    }
}

extern "C" __global__ void shortcut_backward(const T* dy, T* dx, const Shortcut* shortcut, u64 n) {
    Shortcut s = *shortcut;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        i64 from = shortcut_target(s, i / s.c, (u32)(i % s.c));
        dx[i] = from < 0 ? rounded(0.0f) : dy[from];
    }
}
