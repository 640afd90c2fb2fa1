// Modules, functions and launches. A module is a shared library that the emulated NVRTC compiled. It is loaded from
// memory.
#include <atomic>
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "device.h"

struct CUfunc_st {
    CUmodule module;
    const emulator::Kernel* kernel;
};

struct CUmod_st {
    void* handle;
    /// Stays open, because the dynamic loader treats two libraries with the same path as one.
    int file;
    const emulator::Module* module;
    size_t shared_bytes;
    std::vector<std::unique_ptr<CUfunc_st>> functions;
};

namespace emulator {

/// Copies memory that may not exist, because an image is passed without its length. Returns false on failure.
static bool peek(const void* from, void* to, size_t bytes) {
    iovec local{to, bytes}, remote{const_cast<void*>(from), bytes};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

/// Decodes the image in emulated PTX.
static bool decode_ptx(const char* text, std::vector<char>& image) {
    text += sizeof PTX_HEAD - 1;
    auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
    for (char pair[2]; peek(text, pair, 2) && digit(pair[0]) >= 0 && digit(pair[1]) >= 0; text += 2)
        image.push_back((char)(digit(pair[0]) << 4 | digit(pair[1])));
    return image.size() >= sizeof(Image);
}

static CUresult read_image(const void* from, Image& head, std::vector<char>& library) {
    char begin[sizeof PTX_HEAD] = {};
    std::vector<char> decoded;
    bool ptx = peek(from, begin, sizeof PTX_HEAD - 1) && !memcmp(begin, PTX_HEAD, sizeof PTX_HEAD - 1);
    if (ptx) {
        if (!decode_ptx(static_cast<const char*>(from), decoded)) return CUDA_ERROR_INVALID_PTX;
        from = decoded.data();
    }
    CUresult broken = ptx ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
    if (!peek(from, &head, sizeof head) || memcmp(head.magic, IMAGE_MAGIC, 8)) return broken;
    if (head.size > (1u << 30) || (ptx && head.size > decoded.size() - sizeof head)) return broken;
    library.resize(head.size);
    if (!peek(static_cast<const char*>(from) + sizeof head, library.data(), head.size)) return broken;
    if (fnv(library.data(), library.size()) != head.hash) return broken;
    int device = settings().capability, arch = (int)head.arch;
    // A cubin runs on the same or a later GPU of its own generation, PTX on all later GPUs.
    if (arch > device || (!ptx && arch / 10 != device / 10)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return CUDA_SUCCESS;
}

static int find_shared(dl_phdr_info* info, size_t, void* data) {
    auto* search = static_cast<std::pair<ElfW(Addr), size_t>*>(data);
    if (info->dlpi_addr != search->first) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_TLS) search->second = info->dlpi_phdr[i].p_memsz;
    return 1;
}

static CUresult load(const std::vector<char>& library, CUmodule* to) {
    int file = memfd_create("emulated-module", MFD_CLOEXEC);
    size_t written = 0;
    while (file >= 0 && written < library.size()) {
        ssize_t n = write(file, library.data() + written, library.size() - written);
        if (n <= 0) break;
        written += (size_t)n;
    }
    // The loader treats two libraries with the same path as one, and a library that it cannot unload keeps its path, so
    // each gets a unique path.
    static std::atomic<unsigned> count{0};
    std::string path = "/proc/self/";
    for (unsigned i = count++; i > 0; --i) path += "./";
    path += "fd/" + std::to_string(file);
    void* handle = written == library.size() ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle) close(file);
    if (!handle) return refuse(CUDA_ERROR_INVALID_IMAGE, "a module does not load: %s", dlerror());
    auto* module = static_cast<const Module*>(dlsym(handle, "trireme_module"));
    if (!module) return refuse(CUDA_ERROR_INVALID_IMAGE, "a module without trireme_module");
    link_map* map = nullptr;
    dlinfo(handle, RTLD_DI_LINKMAP, &map);
    std::pair<ElfW(Addr), size_t> search{map->l_addr, 0};
    dl_iterate_phdr(find_shared, &search);
    *to = new CUmod_st{handle, file, module, search.second, {}};
    return CUDA_SUCCESS;
}

/// Checks that every pointer parameter points to existing memory.
static CUresult check_pointers(const Kernel& kernel, void** parameters) {
    for (unsigned i = 0; i < kernel.parameters; ++i) {
        if (!kernel.pointers[i]) continue;
        CUdeviceptr at;
        memcpy(&at, parameters[i], sizeof at);
        // A pointer to the end of an allocation is allowed.
        if (at && !on_device(at, 0) && !pinned(reinterpret_cast<void*>(at), 0))
            return refuse(CUDA_ERROR_INVALID_VALUE, "kernel %s: parameter %u is %s", kernel.name, i, describe_address(at).c_str());
    }
    return CUDA_SUCCESS;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

CUresult cuModuleLoadData(CUmodule* to, const void* image) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuModuleLoadData")) return e;
    if (CUresult e = unsafe_while_capturing("cuModuleLoadData")) return e;
    Image head;
    std::vector<char> library;
    if (CUresult e = read_image(image, head, library)) return e;
    return load(library, to);
}

CUresult cuModuleUnload(CUmodule module) {
    std::lock_guard guard(lock());
    drain_device(current_device());
    dlclose(module->handle);
    close(module->file);
    delete module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* to, CUmodule module, const char* name) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuModuleGetFunction")) return e;
    // Only names of extern "C" functions are not mangled.
    for (unsigned i = 0; i < module->module->count; ++i) {
        const Kernel& kernel = module->module->kernels[i];
        if (strcmp(kernel.name, name) || !dlsym(module->handle, name)) continue;
        module->functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{module, &kernel}));
        *to = module->functions.back().get();
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void** parameters, void** extra) {
    std::lock_guard guard(lock());
    if (CUresult e = enter("cuLaunchKernel")) return e;
    const Kernel& kernel = *function->kernel;
    size_t threads = (size_t)bx * by * bz;
    if (!threads || !gx || !gy || !gz || gy > 65535 || gz > 65535 || bz > 64)
        return refuse(CUDA_ERROR_INVALID_VALUE, "kernel %s: grid %ux%ux%u of blocks %ux%ux%u", kernel.name, gx, gy, gz, bx, by, bz);
    if (threads > (size_t)kernel.max_threads)
        return refuse(CUDA_ERROR_INVALID_VALUE, "kernel %s: %zu threads, at most %d", kernel.name, threads, kernel.max_threads);
    if (shared || extra) return refuse(CUDA_ERROR_NOT_SUPPORTED, "kernel %s: no dynamic shared memory, no extra parameters", kernel.name);
    if (kernel.parameters && !parameters) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult e = check_pointers(kernel, parameters)) return e;

    auto launch = std::make_shared<Launch>();
    launch->kernel = &kernel;
    launch->module = function->module->module;
    launch->grid = {gx, gy, gz};
    launch->block = {bx, by, bz};
    size_t bytes = 0;
    // Align each parameter for any type.
    for (unsigned i = 0; i < kernel.parameters; ++i) bytes += (kernel.sizes[i] + 31) / 16 * 16;
    launch->bytes.resize(bytes + 16);
    size_t at = (16 - reinterpret_cast<uintptr_t>(launch->bytes.data()) % 16) % 16;
    for (unsigned i = 0; i < kernel.parameters; ++i) {
        memcpy(&launch->bytes[at], parameters[i], kernel.sizes[i]);
        launch->parameters.push_back(&launch->bytes[at]);
        at += (kernel.sizes[i] + 15) / 16 * 16;
    }
    void* handle = function->module->handle;
    launch->shared_bytes = function->module->shared_bytes;
    launch->shared = [handle] {
        void* block = nullptr;
        dlinfo(handle, RTLD_DI_TLS_DATA, &block);
        return block;
    };
    return enqueue(stream, std::string("kernel ") + kernel.name, [launch] { run_launch(*launch); });
}

}  // extern "C"
