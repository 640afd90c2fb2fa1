# The parts of oneDNN that `make build-bundled` compiles: the primitives that crates/backend/src/cpu/ calls, and the matrix products that
# the inner products need. This is a toolchain file, because CMake reads it before the settings of the project. It does not affect
# libjpeg-turbo, which CMake also builds, because that is C and has none of these options. -O1 is enough, because oneDNN generates the
# kernels at run time.
set(ONEDNN_ENABLE_PRIMITIVE "CONVOLUTION;INNER_PRODUCT;MATMUL;REORDER" CACHE STRING "" FORCE)
set(ONEDNN_CPU_RUNTIME OMP CACHE STRING "" FORCE)
set(ONEDNN_GPU_RUNTIME NONE CACHE STRING "" FORCE)
set(ONEDNN_ENABLE_ITT_TASKS OFF CACHE BOOL "" FORCE)
set(ONEDNN_ENABLE_JIT_PROFILING OFF CACHE BOOL "" FORCE)
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG" CACHE STRING "" FORCE)
