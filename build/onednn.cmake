# What `cargo build --features bundled-onednn` compiles of oneDNN: the primitives that src/backend/cpu/ calls. CMake reads this file before
# the project's own; other projects of this build know none of these names. -O1, since what computes is made at run time by its assembler.
set(ONEDNN_ENABLE_PRIMITIVE "CONVOLUTION;INNER_PRODUCT;REORDER" CACHE STRING "" FORCE)
set(ONEDNN_CPU_RUNTIME OMP CACHE STRING "" FORCE)
set(ONEDNN_GPU_RUNTIME NONE CACHE STRING "" FORCE)
set(ONEDNN_ENABLE_ITT_TASKS OFF CACHE BOOL "" FORCE)
set(ONEDNN_ENABLE_JIT_PROFILING OFF CACHE BOOL "" FORCE)
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG" CACHE STRING "" FORCE)
