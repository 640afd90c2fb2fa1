// The emulated NVRTC: g++ compiles the source with the CUDA keywords in ../kernel/cuda.h to a shared library, which the
// emulated driver loads.
//
// Compiled libraries are cached in `TRIREME_EMULATED_CACHE`, or in a folder `cache` next to this library, so that each
// source is compiled only once.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "../kernel/abi.h"
#include "kernels.h"
#include "options.h"

extern char** environ;

typedef int nvrtcResult;
enum : nvrtcResult {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_INTERNAL_ERROR = 11,
};

struct Program {
    std::string source, name, log;
    emulator::Options options;
    std::string library;
};
typedef Program* nvrtcProgram;

namespace emulator {

static std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

static bool write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file.write(text.data(), (std::streamsize)text.size());
    return (bool)file.flush();
}

/// Runs a program with its stdout and stderr in files. Returns its exit status, or -1.
static int run(const std::vector<std::string>& words, const std::string& out, const std::string& err) {
    std::vector<char*> arguments;
    for (const std::string& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    // g++ must not load the emulated libraries or anything else that was preloaded for the program under test.
    std::vector<char*> environment;
    for (char** e = environ; *e; ++e)
        if (strncmp(*e, "LD_", 3)) environment.push_back(*e);
    environment.push_back(nullptr);
    pid_t child;
    int status = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    if (status) return -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Returns the folder of this library.
static std::string home() {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&read_file), &info);
    std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/') + 1);
}

/// Returns the processor's features, for which libraries are compiled.
static std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.compare(0, 5, "flags") == 0) return line;
    return "";
}

/// Checks that CUDA's half headers exist in the include folders. The emulator then uses kernel/half.h instead of them.
static bool headers_found(const Program& program, std::string& log) {
    for (const char* header : {"cuda_fp16.h", "cuda_bf16.h"}) {
        size_t at = program.source.find(header);
        size_t line = at == std::string::npos ? at : program.source.rfind('\n', at);
        if (at == std::string::npos || program.source.find("#include", line == std::string::npos ? 0 : line) > at) continue;
        bool found = false;
        for (const std::string& folder : program.options.includes) found |= access((folder + "/" + header).c_str(), R_OK) == 0;
        if (!found) {
            log = program.name + ": catastrophic error: could not open source file \"" + header + "\" (no directories in search list)\n";
            return false;
        }
    }
    return true;
}

/// Compiler flags for kernels. TLS descriptors (-mtls-dialect=gnu2) are not used: with glibc before 2.40, the first
/// access to shared memory, which is thread-local here, may overwrite vector registers. -fno-gnu-unique gives each
/// module its own copy of equal symbols.
static const char* const FLAGS[] = {"-O2", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing",
                                    "-fvisibility=hidden", "-fno-gnu-unique"};

static nvrtcResult compile(Program& program, const std::string& folder) {
    const std::string kernel = EMULATOR_SOURCE "/kernel";
    std::string source = folder + "/source.cu", library = folder + "/library.so", out = folder + "/out", err = folder + "/err";
    std::string text = "# 1 \"" + program.name + "\"\n" + program.source + "\n";
    if (!write_file(source, text)) return NVRTC_ERROR_INTERNAL_ERROR;
    std::vector<std::string> words = {"g++", "-x", "c++", "-std=gnu++" + program.options.standard.substr(3), "-isystem", kernel + "/cuda"};
    for (const std::string& macro : program.options.macros) words.push_back(macro);
    words.insert(words.end(), {"-D__CUDACC__", "-D__CUDACC_RTC__", "-D__CUDA_ARCH__=" + std::to_string(program.options.arch * 10),
                               "-include", kernel + "/cuda.h", "-w"});
    auto scan = words;
    scan.insert(scan.end(), {"-DTRIREME_SCAN", "-E", source});
    if (run(scan, out, err) != 0) return program.log = read_file(err), NVRTC_ERROR_COMPILATION;
    std::string module = "\nTRIREME_MODULE(";
    auto kernels = find_kernels(read_file(out));
    if (kernels.empty()) return program.log = "no kernel in the source\n", NVRTC_ERROR_COMPILATION;
    for (size_t i = 0; i < kernels.size(); ++i)
        module += (i ? ", " : "") + ("emulator::describe<&" + kernels[i].name) + ">(\"" + kernels[i].name + "\", " +
                  (kernels[i].bounds.empty() ? "1024" : kernels[i].bounds) + ")";
    if (!write_file(source, text + module + ")\n")) return NVRTC_ERROR_INTERNAL_ERROR;
    words.insert(words.end(), std::begin(FLAGS), std::end(FLAGS));
    words.insert(words.end(), {program.options.fmad ? "-ffp-contract=fast" : "-ffp-contract=off", "-fPIC", "-shared",
                               "-Wl,--no-undefined", "-o", library, source});
    if (run(words, out, err) != 0) return program.log = read_file(err), NVRTC_ERROR_COMPILATION;
    program.log = read_file(err);
    program.library = read_file(library);
    return NVRTC_SUCCESS;
}

static nvrtcResult compile_or_recall(Program& program) {
    const char* chosen = getenv("TRIREME_EMULATED_CACHE");
    std::string cache = chosen ? std::string(chosen) + "/" : home() + "cache/", key = program.source + program.options.standard + processor();
    mkdir(cache.c_str(), 0755);
    for (const char* flag : FLAGS) key += flag + std::string("\n");
    for (const std::string& macro : program.options.macros) key += macro + "\n";
    key += std::to_string(program.options.arch) + (program.options.fmad ? "fmad" : "");
    for (const char* header : {"abi.h", "cuda.h", "half.h", "math.h"}) key += read_file(std::string(EMULATOR_SOURCE "/kernel/") + header);
    char name[64];
    snprintf(name, sizeof name, "%016llx.so", (unsigned long long)fnv(key.data(), key.size()));
    program.library = read_file(cache + name);
    if (!program.library.empty()) return NVRTC_SUCCESS;
    std::string folder = cache + "build-XXXXXX";
    if (!mkdtemp(folder.data())) return NVRTC_ERROR_INTERNAL_ERROR;
    nvrtcResult result = compile(program, folder);
    if (result == NVRTC_SUCCESS) rename((folder + "/library.so").c_str(), (cache + name).c_str());
    for (const char* file : {"/source.cu", "/library.so", "/out", "/err"}) unlink((folder + file).c_str());
    rmdir(folder.c_str());
    return result;
}

static std::string image(const Program& program) {
    Image head{};
    memcpy(head.magic, IMAGE_MAGIC, sizeof head.magic);
    head.arch = (uint32_t)program.options.arch;
    head.virtual_arch = program.options.virtual_arch;
    head.size = program.library.size();
    head.hash = fnv(program.library.data(), program.library.size());
    return std::string(reinterpret_cast<char*>(&head), sizeof head) + program.library;
}

static std::string ptx(const Program& program) {
    static const char* digits = "0123456789abcdef";
    std::string text = PTX_HEAD;
    for (unsigned char byte : image(program)) text += digits[byte >> 4], text += digits[byte & 15];
    return text + "\n";
}

}  // namespace emulator

using namespace emulator;

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return NVRTC_SUCCESS;
}

const char* nvrtcGetErrorString(nvrtcResult result) {
    switch (result) {
        case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
        case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
        default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* to, const char* source, const char* name, int headers, const char* const*, const char* const*) {
    if (!to || !source || headers < 0) return NVRTC_ERROR_INVALID_INPUT;
    if (headers > 0) {
        fprintf(stderr, "emulated NVRTC: headers in memory are not supported\n");
        return NVRTC_ERROR_INVALID_INPUT;
    }
    *to = new Program{source, name ? name : "default_program", "", {}, ""};
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
    if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
    if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
    std::string unknown = parse_options(count, options, program->options);
    if (!unknown.empty()) {
        program->log = "nvrtc: error: unrecognized option " + unknown + " found\n";
        return NVRTC_ERROR_INVALID_OPTION;
    }
    if (!headers_found(*program, program->log)) return NVRTC_ERROR_COMPILATION;
    return compile_or_recall(*program);
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
    *size = program->log.size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return NVRTC_SUCCESS;
}

/// As in NVRTC, there is no cubin for a virtual architecture.
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
    if (program->library.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
    *size = program->options.virtual_arch ? 0 : image(*program).size();
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* to) {
    if (program->library.empty() || program->options.virtual_arch) return NVRTC_ERROR_INVALID_PROGRAM;
    std::string bytes = image(*program);
    memcpy(to, bytes.data(), bytes.size());
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
    if (program->library.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
    *size = ptx(*program).size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* to) {
    if (program->library.empty()) return NVRTC_ERROR_INVALID_PROGRAM;
    std::string text = ptx(*program);
    memcpy(to, text.c_str(), text.size() + 1);
    return NVRTC_SUCCESS;
}

}  // extern "C"
