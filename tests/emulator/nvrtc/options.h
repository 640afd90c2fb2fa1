// NVRTC's options, as far as they matter for g++. An option that NVRTC does not know is an error here too.
#pragma once
#include <string>
#include <vector>

namespace emulator {

struct Options {
    int arch = 75;
    bool virtual_arch = true;
    bool fmad = true;
    std::vector<std::string> includes;
    /// `-D` and `-U` options in g++'s form.
    std::vector<std::string> macros;
    std::string standard = "c++17";
};

/// Returns the first unknown option, or an empty string.
std::string parse_options(int count, const char* const* texts, Options& to);

}  // namespace emulator
