// Preloaded, it makes any MPI say that it takes device memory. Whether it does is another matter: the emulated GPU's memory is out of
// the host's reach unless TRIREME_EMULATED_UNIFIED says otherwise.

extern "C" int MPIX_Query_cuda_support(void) { return 1; }
