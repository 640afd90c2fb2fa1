// If preloaded, makes any MPI claim that it supports device memory. The claim is false unless
// `TRIREME_EMULATED_UNIFIED` is set, because the host cannot access the memory of the emulated GPU.

extern "C" int MPIX_Query_cuda_support(void) { return 1; }
