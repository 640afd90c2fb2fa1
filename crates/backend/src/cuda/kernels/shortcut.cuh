// The parameter-free shortcut of a residual block, from x (n, h, w, c) to y (n, out_h, out_w, out_c). It copies every
// stride-th pixel and adds zero channels before and after. Pixels are numbered consecutively over all images.

struct Shortcut {
    u32 h, w, c, out_h, out_w, out_c, stride, before;
};

// Returns the index in x of the value for this channel of a y pixel, or a negative number if the channel is zero.
__device__ inline i64 shortcut_source(const Shortcut& s, u32 pixel, u32 channel) {
    if (channel < s.before || channel - s.before >= s.c) return -1;
    u32 line = pixel / s.out_w, column = pixel % s.out_w, image = line / s.out_h, row = line % s.out_h;
    return (((i64)image * s.h + row * s.stride) * s.w + column * s.stride) * s.c + (channel - s.before);
}

// Returns the index in y to which this channel of an x pixel is copied, or a negative number if it is not copied.
__device__ inline i64 shortcut_target(const Shortcut& s, u32 pixel, u32 channel) {
    u32 line = pixel / s.w, column = pixel % s.w, image = line / s.h, row = line % s.h;
    if (row % s.stride || column % s.stride) return -1;
    return (((i64)image * s.out_h + row / s.stride) * s.out_w + column / s.stride) * s.out_c + channel + s.before;
}
