// Writes the network's input (n, h, w, c) from a batch of the host or from pictures on the GPU. The value of a byte
// comes from a table (c, 256) of the host. Other stored values are normalised with IEEE operations. Both have the same
// bits as on the host. One of these kernels is the first of every pass. It also copies `numbers`, the pass's other
// inputs, from host memory to `inbox`.

__device__ inline void bring_numbers(const u64* numbers, u64* inbox, u32 words) {
    for (u64 i = thread_index(); i < words; i += thread_count()) inbox[i] = numbers[i];
}

extern "C" __global__ void input_values(const float* images, T* to, u32 rows, u32 channels, u32 plane, const u64* numbers, u64* inbox, u32 words) {
    bring_numbers(numbers, inbox, words);
    u64 count = (u64)rows * plane;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u32 p;
        u64 row = divided(i, plane, p);
        for (u32 c = 0; c < channels; c++) to[i * channels + c] = rounded(images[(row * channels + c) * plane + p]);
    }
}

extern "C" __global__ void input_bytes(const u8* pixels, const float* tables, T* to, u64 n, u32 channels, const u64* numbers, u64* inbox, u32 words) {
    bring_numbers(numbers, inbox, words);
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 c;
        divided(i, channels, c);
        to[i] = rounded(tables[c * 256 + pixels[i]]);
    }
}

// `pairs` has mean and deviation of each channel. `kind`: 0 u16, 1 i16, 2 f32.
extern "C" __global__ void input_stored(const u8* pixels, const float* pairs, T* to, u64 n, u32 channels, u32 kind, const u64* numbers, u64* inbox, u32 words) {
    bring_numbers(numbers, inbox, words);
    for (u64 i = thread_index(); i < n; i += thread_count()) {
        u32 c;
        divided(i, channels, c);
        float x = kind == 0 ? (float)((const u16*)pixels)[i] : kind == 1 ? (float)((const short*)pixels)[i] : ((const float*)pixels)[i];
        to[i] = rounded(__fdiv_rn(__fsub_rn(x, pairs[2 * c]), pairs[2 * c + 1]));
    }
}

struct CropRect {
    u32 picture;
    int top, left;
    u32 mirrored;
};

// Crops of stored pictures (picture, from_h, from_w, c). Outside a picture every byte is 0.
extern "C" __global__ void input_views(const u8* pictures, u32 from_h, u32 from_w, const CropRect* views, const float* tables, T* to, u32 rows, u32 h, u32 w, u32 channels, const u64* numbers, u64* inbox, u32 words) {
    bring_numbers(numbers, inbox, words);
    u64 count = (u64)rows * h * w;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u32 x, y;
        CropRect view = views[divided(divided(i, w, x), h, y)];
        int row = view.top + (int)y, column = (int)x;
        column = view.left + (view.mirrored ? (int)w - 1 - column : column);
        bool inside = row >= 0 && row < (int)from_h && column >= 0 && column < (int)from_w;
        const u8* from = pictures + (((u64)view.picture * from_h + (inside ? row : 0)) * from_w + (inside ? column : 0)) * channels;
        for (u32 c = 0; c < channels; c++) to[i * channels + c] = rounded(tables[c * 256 + (inside ? from[c] : 0)]);
    }
}

// Mixes row i of n with row n - 1 - i, and vice versa. Exchanges the pixels inside the area. If bottom is 0, each value
// becomes share * own + (1 - share) * other instead, with the same bits as on the host if T is float.
extern "C" __global__ void mix_rows(T* x, u32 rows, u32 h, u32 w, u32 channels, float share, u32 top, u32 bottom, u32 left, u32 right) {
    u32 each = h * w * channels;
    u64 count = (u64)(rows / 2) * each;
    float rest = 1.0f - share;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u32 at;
        u64 row = divided(i, each, at);
        T* own = x + row * each + at;
        T* other = x + (rows - 1 - row) * each + at;
        u32 pixel = at / channels, y = pixel / w, column = pixel % w;
        T a = *own, b = *other;
        if (bottom == 0) {
            *own = rounded(__fadd_rn(__fmul_rn(value(a), share), __fmul_rn(value(b), rest)));
            *other = rounded(__fadd_rn(__fmul_rn(value(b), share), __fmul_rn(value(a), rest)));
        } else if (y >= top && y < bottom && column >= left && column < right) {
            *own = b;
            *other = a;
        }
    }
}
