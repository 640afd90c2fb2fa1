// NVRTC's options as far as they mean something to g++. An option that NVRTC does not know is an error here too.
#pragma once
#include <string>
#include <vector>

namespace emulator {

struct Options {
    int arch = 75;
    bool virtual_arch = true;
    bool fmad = true;
    std::vector<std::string> includes;
    /// `-D` and `-U`, as g++ takes them.
    std::vector<std::string> macros;
    std::string standard = "c++17";
};

/// Gives the first option that is none, or an empty string.
std::string parse_options(int count, const char* const* texts, Options& to);

}  // namespace emulator
