// Blurred downsampling of (n, h, w, c) images, forward and backward. Each position in `to` gathers positions in `from`.
// The host passes a list of rows in `from` with their weights, and where each row of `to` begins in this list. It
// passes the same for columns.

extern "C" __global__ void blur_gather(const T* from, T* to, const u32* row_first, const u32* rows, const float* row_weights, const u32* column_first, const u32* columns, const float* column_weights, u32 n, u32 h, u32 w, u32 c, u32 to_h, u32 to_w) {
    u64 count = (u64)n * to_h * to_w * c;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u64 place = i / c, image = place / ((u64)to_h * to_w);
        u32 row = (u32)(place / to_w % to_h), column = (u32)(place % to_w);
        float sum = 0.0f;
        for (u32 r = row_first[row]; r < row_first[row + 1]; r++) {
            const T* line = from + (image * h + rows[r]) * w * c + i % c;
            for (u32 q = column_first[column]; q < column_first[column + 1]; q++)
                sum = fmaf(row_weights[r] * column_weights[q], value(line[(u64)columns[q] * c]), sum);
        }
        to[i] = rounded(sum);
    }
}
