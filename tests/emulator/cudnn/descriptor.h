// Backend descriptors. The types and counts of attributes are checked against cuDNN's documentation.
#pragma once
#include <memory>

#include "names.h"
#include "problem.h"

struct cudnnContext {
    CUstream stream = nullptr;
};

namespace emulator {

struct Descriptor;

/// The value of an attribute of a descriptor.
struct Value {
    Type type;
    int64_t count;
    std::vector<unsigned char> bytes;
    std::vector<std::shared_ptr<Descriptor>> descriptors;
};

struct Descriptor {
    Kind kind;
    bool final = false;
    std::map<int, Value> values;
    // What `finalize` computes from the attributes. Which fields are used depends on the kind.
    Tensor tensor;
    std::shared_ptr<Problem> problem;
    Engine engine{};
    std::vector<Engine> results;

    template <class T> std::vector<T> get(int name) const {
        auto found = values.find(name);
        if (found == values.end()) return {};
        auto* data = reinterpret_cast<const T*>(found->second.bytes.data());
        return std::vector<T>(data, data + found->second.bytes.size() / sizeof(T));
    }
    template <class T> T one(int name, T otherwise) const {
        auto all = get<T>(name);
        return all.empty() ? otherwise : all[0];
    }
    std::shared_ptr<Descriptor> child(int name) const {
        auto found = values.find(name);
        return found == values.end() || found->second.descriptors.empty() ? nullptr : found->second.descriptors[0];
    }
};

/// Prints a message to stderr and keeps it for cudnnGetLastErrorString. Returns `status`.
Status complain(Status status, const char* format, ...) __attribute__((format(printf, 2, 3)));
const std::string& last_complaint();

/// Checks and interprets the attributes.
Status finalize(Descriptor& descriptor);

}  // namespace emulator
