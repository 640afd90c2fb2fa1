// Finds the kernels in a preprocessed source. In the source, special marks replace `__global__` and
// `__launch_bounds__`.
#include "kernels.h"

#include <algorithm>
#include <cctype>

namespace emulator {

static bool word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/// Returns the position after the parenthesis that closes the one at `open`.
static size_t closing(const std::string& text, size_t open) {
    int depth = 0;
    for (size_t at = open; at < text.size(); ++at) {
        if (text[at] == '(') ++depth;
        if (text[at] == ')' && --depth == 0) return at + 1;
    }
    return text.size();
}

std::vector<Found> find_kernels(const std::string& text) {
    static const std::string mark = "__trireme_global__", bounds = "__trireme_bounds__";
    std::vector<Found> found;
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
        size_t before = text.find_last_of(";}", at);
        bool is_template = text.substr(before == std::string::npos ? 0 : before, at - (before == std::string::npos ? 0 : before))
                               .find("template") != std::string::npos;
        at += mark.size();
        Found kernel;
        size_t end = text.size();
        while (at < text.size()) {
            while (at < text.size() && !word(text[at])) ++at;
            size_t from = at;
            while (at < text.size() && word(text[at])) ++at;
            std::string name = text.substr(from, at - from);
            size_t next = text.find_first_not_of(" \t\n", at);
            if (next == std::string::npos || text[next] != '(') continue;
            end = closing(text, next);
            at = end;
            if (name != bounds) {
                kernel.name = name;
                break;
            }
            kernel.bounds = text.substr(next + 1, end - next - 2);
        }
        size_t body = text.find_first_not_of(" \t\n", end);
        bool known = std::any_of(found.begin(), found.end(), [&](const Found& f) { return f.name == kernel.name; });
        if (!is_template && !known && body != std::string::npos && text[body] == '{') found.push_back(kernel);
    }
    return found;
}

}  // namespace emulator
