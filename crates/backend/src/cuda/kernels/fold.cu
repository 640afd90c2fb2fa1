// Replaces a convolution that has a stride and few input channels by a convolution without a stride. Each block of
// (stride_h, stride_w) pixels of the padded image becomes a single pixel. Its channels are (row in the block, column in
// the block, channel), then zeros up to fold_c.

struct Fold {
    u32 h, w, c;
    u32 kernel_h, kernel_w, stride_h, stride_w, top, left;
    u32 fold_h, fold_w, fold_c, fold_kernel_h, fold_kernel_w;
};

// Computes folded (n, fold_h, fold_w, fold_c) from x (n, h, w, c). A thread writes packs of 16 bytes. fold_c is a
// multiple of the channels in a pack.
extern "C" __global__ void fold_image(const T* x, T* folded, const Fold* fold, u64 n) {
    Fold f = *fold;
    u32 packs = f.fold_c / WIDE, each = f.stride_w * f.c, filled = f.stride_h * each;
    for (u64 i = thread_index(); i < n / WIDE; i += thread_count()) {
        u32 part, column, row;
        u64 line = divided(divided(i, packs, part), f.fold_w, column);
        const T* image = x + divided(line, f.fold_h, row) * f.h * f.w * f.c;
        u32 k = part * WIDE, down = k / each, across = k % each;
        Pack<WIDE> pack;
        for (int j = 0; j < WIDE; j++, across++) {
            if (across == each) {
                across = 0;
                down++;
            }
            // rows and columns before the image wrap around to large numbers, because the type is unsigned
            u32 y = row * f.stride_h + down - f.top, left = column * each + across - f.left * f.c;
            bool inside = k + j < filled && y < f.h && left < f.w * f.c;
            pack.at[j] = inside ? image[(u64)y * f.w * f.c + left] : rounded(0.0f);
        }
        reinterpret_cast<Pack<WIDE>*>(folded)[i] = pack;
    }
}

// Returns the index in a filter (out, kernel_h, kernel_w, c) of an element of the folded filter (out, fold_kernel_h,
// fold_kernel_w, fold_c), or -1 for padding.
__device__ inline i64 unfolded(const Fold& f, u64 i) {
    u32 k = (u32)(i % f.fold_c), across = k % (f.stride_w * f.c);
    u64 cell = i / f.fold_c;
    u32 row = (u32)(cell / f.fold_kernel_w % f.fold_kernel_h) * f.stride_h + k / (f.stride_w * f.c);
    u32 column = (u32)(cell % f.fold_kernel_w) * f.stride_w + across / f.c;
    if (k >= f.stride_h * f.stride_w * f.c || row >= f.kernel_h || column >= f.kernel_w) return -1;
    u64 out = cell / f.fold_kernel_w / f.fold_kernel_h;
    return (i64)(((out * f.kernel_h + row) * f.kernel_w + column) * f.c + across % f.c);
}

extern "C" __global__ void fold_filter(const T* w, T* folded, const Fold* fold, u64 n) {
    Fold f = *fold;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        i64 from = unfolded(f, i);
        folded[i] = from < 0 ? rounded(0.0f) : w[from];
    }
}

// Each element of the filter has exactly one element in the folded filter, so this writes all of dw.
extern "C" __global__ void unfold_filter(const T* folded, T* dw, const Fold* fold, u64 n) {
    Fold f = *fold;
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        i64 to = unfolded(f, i);
        if (to >= 0) dw[to] = folded[i];
    }
}
