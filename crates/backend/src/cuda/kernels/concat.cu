// Copies columns of one matrix to columns of another. Each matrix has its own width. Used to concatenate channels and
// to split them again.

template <int V>
__device__ inline void copy_packs(const T* from, T* to, u32 rows, u32 columns, u32 from_width, u32 from_first, u32 to_width, u32 to_first) {
    u64 packs = columns / V, count = rows * packs;
    for (u64 i = thread_index(); i < count; i += thread_count()) {
        u64 row = i / packs, column = i % packs * V;
        *reinterpret_cast<Pack<V>*>(to + row * to_width + to_first + column) =
            *reinterpret_cast<const Pack<V>*>(from + row * from_width + from_first + column);
    }
}

extern "C" __global__ void copy_columns(const T* from, T* to, u32 rows, u32 columns, u32 from_width, u32 from_first, u32 to_width, u32 to_first) {
    if ((columns | from_width | from_first | to_width | to_first) % WIDE == 0) {
        copy_packs<WIDE>(from, to, rows, columns, from_width, from_first, to_width, to_first);
    } else {
        copy_packs<1>(from, to, rows, columns, from_width, from_first, to_width, to_first);
    }
}
