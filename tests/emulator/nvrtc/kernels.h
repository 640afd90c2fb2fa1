// Finds the kernels in a preprocessed source.
#pragma once
#include <string>
#include <vector>

namespace emulator {

struct Found {
    std::string name;
    /// The text between the parentheses of `__launch_bounds__`, or empty.
    std::string bounds;
};

/// Returns all `__global__` functions that have a body and are not templates.
std::vector<Found> find_kernels(const std::string& preprocessed);

}  // namespace emulator
