// The options that NVRTC accepts, and their meaning.
#include "options.h"

#include <cstdlib>

namespace emulator {

/// Finds the value of an option that has more than one spelling.
static bool value_of(const std::string& text, std::initializer_list<const char*> names, std::string& value) {
    for (const char* name : names) {
        std::string begin = std::string(name) + "=";
        if (text.compare(0, begin.size(), begin) == 0) return value = text.substr(begin.size()), true;
    }
    return false;
}

static bool flag(const std::string& text, std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (text == name) return true;
    return false;
}

/// Returns the newest architecture for which this NVRTC compiles.
static int newest() {
    const char* text = getenv("TRIREME_EMULATED_NVRTC");
    return text && *text ? atoi(text) : 121;
}

static bool parse_one(const std::string& text, Options& to) {
    std::string value;
    if (value_of(text, {"--gpu-architecture", "-arch"}, value)) {
        to.virtual_arch = value.compare(0, 8, "compute_") == 0;
        if (!to.virtual_arch && value.compare(0, 3, "sm_")) return false;
        to.arch = atoi(value.c_str() + value.find('_') + 1);
        return to.arch >= 75 && to.arch <= newest();
    }
    if (value_of(text, {"--fmad", "-fmad"}, value)) return to.fmad = value == "true", value == "true" || value == "false";
    if (value_of(text, {"--include-path"}, value)) return to.includes.push_back(value), true;
    if (text.size() > 2 && text.compare(0, 2, "-I") == 0) return to.includes.push_back(text.substr(2)), true;
    if (value_of(text, {"--define-macro"}, value)) return to.macros.push_back("-D" + value), true;
    if (value_of(text, {"--undefine-macro"}, value)) return to.macros.push_back("-U" + value), true;
    if (text.size() > 2 && (text.compare(0, 2, "-D") == 0 || text.compare(0, 2, "-U") == 0)) return to.macros.push_back(text), true;
    if (value_of(text, {"--std", "-std"}, value)) return to.standard = value, value == "c++14" || value == "c++17" || value == "c++20";
    if (value_of(text, {"--ftz", "-ftz", "--prec-div", "-prec-div", "--prec-sqrt", "-prec-sqrt", "--maxrregcount", "-maxrregcount",
                        "--ptxas-options", "-Xptxas", "--diag-suppress", "-diag-suppress", "--diag-error", "-diag-error", "--diag-warn",
                        "-diag-warn", "--split-compile", "-split-compile"}, value))
        return true;
    return flag(text, {"--use_fast_math", "-use_fast_math", "--extra-device-vectorization", "-extra-device-vectorization",
                       "--generate-line-info", "-lineinfo", "--device-debug", "-G", "--restrict", "-restrict", "--disable-warnings",
                       "-w", "--device-as-default-execution-space", "-default-device", "--builtin-initializer-list=true", "--minimal",
                       "-minimal", "--no-source-include", "-no-source-include", "--no-cache", "-no-cache"});
}

std::string parse_options(int count, const char* const* texts, Options& to) {
    for (int i = 0; i < count; ++i) {
        std::string text = texts[i];
        // A short option may have its value in the next word.
        if ((text == "-I" || text == "-D") && i + 1 < count) text += texts[++i];
        if (!parse_one(text, to)) return text;
    }
    return "";
}

}  // namespace emulator
