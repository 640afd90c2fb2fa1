# What `make build-bundled` compiles of oneDNN: the primitives that crates/backend/src/cpu/ calls, and the matrix products that its inner products
# are made of. A toolchain file, since CMake reads it before the project's own; libjpeg-turbo, which is built by CMake too, knows none of
# these names and is C. -O1, since what computes is made at run time by oneDNN's assembler.
set(ONEDNN_ENABLE_PRIMITIVE "CONVOLUTION;INNER_PRODUCT;MATMUL;REORDER" CACHE STRING "" FORCE)
set(ONEDNN_CPU_RUNTIME OMP CACHE STRING "" FORCE)
set(ONEDNN_GPU_RUNTIME NONE CACHE STRING "" FORCE)
set(ONEDNN_ENABLE_ITT_TASKS OFF CACHE BOOL "" FORCE)
set(ONEDNN_ENABLE_JIT_PROFILING OFF CACHE BOOL "" FORCE)
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG" CACHE STRING "" FORCE)
