// GGUF files that a test writes, right or wrong.
#ifndef HALYARD_TESTS_SUPPORT_GGUF_H
#define HALYARD_TESTS_SUPPORT_GGUF_H

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace halyard::tests {

/** The bytes of a value, as they are in a file. */
template<class T>
std::string bytes_of(T value) {
    static_assert(std::is_arithmetic_v<T>);
    return std::string(reinterpret_cast<const char *>(&value), sizeof(value));
}

/** A string with its length before it. */
inline std::string gguf_string(const std::string &text) {
    return bytes_of(std::uint64_t{text.size()}) + text;
}

/** An array: the type of its elements, how many there are, and their bytes. */
inline std::string gguf_array(std::uint32_t type, std::uint64_t count, const std::string &elements) {
    return bytes_of(type) + bytes_of(count) + elements;
}

/** What is in a file, written in this order. */
struct GgufFile {
    struct Entry {
        std::string key;
        std::uint32_t type;
        std::string value;
    };
    struct Tensor {
        std::string name;
        std::vector<std::uint64_t> shape;  // outermost axis first
        std::uint32_t type;
        std::string data;
    };

    void set(const std::string &key, std::uint32_t value) { entries.push_back({key, 4, bytes_of(value)}); }
    void set(const std::string &key, float value) { entries.push_back({key, 6, bytes_of(value)}); }
    void set(const std::string &key, bool value) { entries.push_back({key, 7, bytes_of(value)}); }
    void set(const std::string &key, const char *value) { entries.push_back({key, 8, gguf_string(value)}); }
    void remove(const std::string &key) {
        std::vector<Entry> kept;
        for (const Entry &entry : entries) {
            if (entry.key != key) {
                kept.push_back(entry);
            }
        }
        entries = kept;
    }
    /** All tensors, which the file has no more. */
    std::vector<Tensor> take_tensors() {
        offsets.clear();
        end = 0;
        return std::exchange(tensors, {});
    }
    /** Behind the tensors before it. */
    void add(const Tensor &tensor) {
        tensors.push_back(tensor);
        offsets.push_back(end);
        end += (tensor.data.size() + alignment - 1) / alignment * alignment;
    }

    std::string bytes() const {
        std::string file = magic + bytes_of(version) + bytes_of(std::uint64_t{tensors.size()}) +
                           bytes_of(std::uint64_t{entries.size()});
        for (const Entry &entry : entries) {
            file += gguf_string(entry.key) + bytes_of(entry.type) + entry.value;
        }
        for (std::size_t i = 0; i < tensors.size(); i++) {
            const Tensor &tensor = tensors[i];
            file += gguf_string(tensor.name) + bytes_of(static_cast<std::uint32_t>(tensor.shape.size()));
            for (std::size_t axis = tensor.shape.size(); axis > 0; axis--) {
                file += bytes_of(tensor.shape[axis - 1]);
            }
            file += bytes_of(tensor.type) + bytes_of(offsets[i]);
        }
        for (const Tensor &tensor : tensors) {
            file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
            file += tensor.data;
        }
        return file;
    }

    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::uint64_t alignment = 32, end = 0;
    std::vector<Entry> entries;
    std::vector<Tensor> tensors;
    std::vector<std::uint64_t> offsets;  // of the tensors, as the header says them
};

}  // namespace halyard::tests

#endif
