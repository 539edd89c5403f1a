// Files of tensors in the safetensors format: eight bytes with the length of a header, the header, which is JSON, and
// the tensors' bytes. Nothing of a file is believed: every number is checked before it is used.
#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "fail.h"
#include "halyard/model.hpp"
#include "json.h"
#include "mapped_file.h"
#include "tensor_table.h"

namespace halyard {

using models::in_quotes;
using models::Json;
using models::refuse;
using models::shape_text;
using models::unsupported;

namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t max_header_bytes = 100'000'000;  // the limit that the format's own library has
constexpr std::int64_t max_int64 = std::numeric_limits<std::int64_t>::max();
constexpr std::string_view metadata_name = "__metadata__";

/// Bits of an element; 0 for a name that the format does not know.
int element_bits(std::string_view dtype) {
    // Constant: nothing is made at the first call, in which a fork could come.
    static constexpr std::pair<std::string_view, int> known[] = {
        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},        {"U8", 8},          {"I8", 8},
        {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},
        {"I16", 16},    {"F16", 16},    {"BF16", 16},   {"U32", 32},        {"I32", 32},        {"F32", 32},
        {"U64", 64},    {"I64", 64},    {"F64", 64},    {"C64", 64},
    };
    for (const auto &[name, bits] : known) {
        if (name == dtype) {
            return bits;
        }
    }
    return 0;
}

/// A tensor as the header describes it.
struct Entry {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> offsets;
    bool has_dtype = false, has_shape = false, has_offsets = false;
};

/// Takes the header's JSON token by token. Anything that a header does not have, such as a third level of objects, is
/// refused where it begins, so what is kept is some ten times the header at most.
class HeaderReader {
public:
    explicit HeaderReader(const std::filesystem::path &file) : file_(file) {}

    std::vector<Entry> entries;

    bool start_object(std::size_t) {
        switch (place_) {
        case Place::start:
            place_ = Place::tensors;
            return true;
        case Place::metadata:
            place_ = Place::metadata_values;
            return true;
        case Place::tensor:
            place_ = Place::fields;
            return true;
        default:
            unexpected("an object");
        }
    }
    bool key(std::string &name) {
        switch (place_) {
        case Place::tensors:
            if (!names_.insert(name).second) {
                refuse(file_, "has two entries named ", in_quotes(name));
            }
            if (name == metadata_name) {
                place_ = Place::metadata;
            } else {
                entries.emplace_back().name = name;
                place_ = Place::tensor;
            }
            return true;
        case Place::fields:
            return field(name);
        default:  // metadata
            if (!metadata_keys_.insert(name).second) {
                refuse(file_, "has two metadata entries named ", in_quotes(name));
            }
            return true;
        }
    }
    bool end_object() {
        if (place_ == Place::metadata_values || place_ == Place::fields) {
            if (place_ == Place::fields) {
                const Entry &entry = entries.back();
                if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) {
                    refuse(file_, tensor(), "has no ",
                           !entry.has_dtype   ? "dtype"
                           : !entry.has_shape ? "shape"
                                              : "data_offsets");
                }
            }
            place_ = Place::tensors;
        } else {
            place_ = Place::end;
        }
        return true;
    }
    bool start_array(std::size_t) {
        if (place_ == Place::shape) {
            place_ = Place::shape_values;
        } else if (place_ == Place::offsets) {
            place_ = Place::offset_values;
        } else {
            unexpected("an array");
        }
        return true;
    }
    bool end_array() {
        place_ = Place::fields;
        return true;
    }
    bool string(std::string &value) {
        if (place_ == Place::dtype) {
            entries.back().dtype = value;
            place_ = Place::fields;
        } else if (place_ != Place::metadata_values) {
            unexpected("a string");
        }
        return true;
    }
    bool number_unsigned(std::uint64_t value) {
        if (place_ != Place::shape_values && place_ != Place::offset_values) {
            unexpected("a number");
        }
        if (value > static_cast<std::uint64_t>(max_int64)) {
            refuse(file_, tensor(), "has the number ", value, ", which is too large");
        }
        Entry &entry = entries.back();
        if (place_ == Place::offset_values && entry.offsets.size() == 2) {
            refuse(file_, tensor(), "has data_offsets with more than a begin and an end");
        }
        (place_ == Place::shape_values ? entry.shape : entry.offsets).push_back(static_cast<std::int64_t>(value));
        return true;
    }
    bool number_integer(std::int64_t) { unexpected("a negative number"); }
    bool number_float(double, const std::string &) { unexpected("a number that is no 64-bit integer"); }
    bool boolean(bool) { unexpected("a truth value"); }
    bool null() { unexpected("null"); }
    bool binary(nlohmann::json::binary_t &) { return false; }  // not in JSON
    bool parse_error(std::size_t position, const std::string &, const nlohmann::json::exception &) {
        refuse(file_, "has a header that is not valid JSON, at its byte ", position);
    }

private:
    /// What the next token belongs to.
    enum class Place {
        start,
        tensors,
        metadata,
        metadata_values,
        tensor,
        fields,
        dtype,
        shape,
        shape_values,
        offsets,
        offset_values,
        end,
    };

    bool field(const std::string &name) {
        Entry &entry = entries.back();
        bool *const seen = name == "dtype"          ? &entry.has_dtype
                           : name == "shape"        ? &entry.has_shape
                           : name == "data_offsets" ? &entry.has_offsets
                                                    : nullptr;
        if (seen == nullptr) {
            refuse(file_, tensor(), "has an unknown field ", in_quotes(name));
        }
        if (std::exchange(*seen, true)) {
            refuse(file_, tensor(), "has the field ", name, " twice");
        }
        place_ = seen == &entry.has_dtype ? Place::dtype : seen == &entry.has_shape ? Place::shape : Place::offsets;
        return true;
    }

    std::string tensor() const { return ": tensor " + in_quotes(entries.back().name) + " "; }

    [[noreturn]] void unexpected(const char *what) const {
        switch (place_) {
        case Place::start:
            refuse(file_, "has a header that is ", what, " instead of an object");
        case Place::metadata:
        case Place::metadata_values:
            refuse(file_, "has ", what, " in its metadata, which may hold strings only");
        case Place::tensor:
            refuse(file_, tensor(), "is ", what, " instead of an object");
        case Place::dtype:
            refuse(file_, tensor(), "has ", what, " as dtype instead of a string");
        default:
            refuse(file_, tensor(), "has ", what, " in its ",
                   place_ == Place::shape || place_ == Place::shape_values ? "shape" : "data_offsets",
                   ", which is an array of non-negative integers");
        }
    }

    const std::filesystem::path &file_;
    Place place_ = Place::start;
    std::set<std::string> names_, metadata_keys_;
};

/// Bytes of the elements, all checked for overflow.
std::int64_t bytes_of(const std::filesystem::path &file, const Entry &entry) {
    const int bits = element_bits(entry.dtype);
    if (bits == 0) {
        refuse(file, ": tensor ", in_quotes(entry.name), " has the unknown dtype ", in_quotes(entry.dtype));
    }
    // An axis of extent 0 leaves no elements, whatever the others are; their product must fit all the same.
    std::int64_t elements = 1, total_bits = 0;
    bool overflow = false, empty = false;
    for (const std::int64_t extent : entry.shape) {
        empty |= extent == 0;
        overflow |= extent > 0 && __builtin_mul_overflow(elements, extent, &elements);
    }
    if (overflow || __builtin_mul_overflow(elements, bits, &total_bits)) {
        refuse(file, ": tensor ", in_quotes(entry.name), " has a shape ", shape_text(entry.shape),
               " that is too large");
    }
    if (empty) {
        return 0;
    }
    if (total_bits % 8 != 0) {
        refuse(file, ": tensor ", in_quotes(entry.name), " of shape ", shape_text(entry.shape), " in ", entry.dtype,
               " does not fill whole bytes");
    }
    return total_bits / 8;
}

/// The tensors of one file. Throws unless header and bytes agree in everything.
std::vector<SafeTensors::Info> read_header(const std::filesystem::path &file, const std::byte *data, std::size_t size) {
    if (size < length_bytes) {
        refuse(file, "is cut short or no safetensors file: it has ", size, " bytes");
    }
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, data, length_bytes);  // little-endian, as this library's targets are
    if (header_bytes > max_header_bytes) {
        refuse(file, "is no safetensors file: its header would have ", header_bytes, " bytes, above the limit of ",
               max_header_bytes);
    }
    if (header_bytes > size - length_bytes) {
        refuse(file, "is cut short: its header has ", header_bytes, " bytes and the file ", size);
    }
    const auto *const text = reinterpret_cast<const char *>(data + length_bytes);
    // The format wants '{' first. A zero byte would be taken for the end of the text.
    if (header_bytes == 0 || *text != '{') {
        refuse(file, "is no safetensors file: its header does not begin with '{'");
    }
    if (std::memchr(text, 0, header_bytes) != nullptr) {
        refuse(file, "has a header with a zero byte in it");
    }
    HeaderReader header(file);
    nlohmann::json::sax_parse(text, text + header_bytes, &header);

    const std::byte *const tensors = data + length_bytes + header_bytes;
    const auto available = static_cast<std::int64_t>(size - length_bytes - header_bytes);
    std::vector<SafeTensors::Info> result;
    result.reserve(header.entries.size());
    for (Entry &entry : header.entries) {
        const std::int64_t bytes = bytes_of(file, entry);
        if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1]) {
            refuse(file, ": tensor ", in_quotes(entry.name), " has data_offsets ", shape_text(entry.offsets),
                   ", which are not a begin and an end");
        }
        const std::int64_t begin = entry.offsets[0], end = entry.offsets[1];
        if (end > available) {
            refuse(file, ": tensor ", in_quotes(entry.name), " ends at byte ", end,
                   " of the data, of which the file has ", available, ": it is cut short, or its header is wrong");
        }
        if (end - begin != bytes) {
            refuse(file, ": tensor ", in_quotes(entry.name), " has ", end - begin, " bytes, and its shape ",
                   shape_text(entry.shape), " in ", entry.dtype, " takes ", bytes);
        }
        result.push_back({std::move(entry.name), std::move(entry.dtype), std::move(entry.shape), tensors + begin, bytes,
                          file.string()});
    }

    // Every byte belongs to one tensor. Those without bytes come first where they stand beside others.
    std::vector<const SafeTensors::Info *> in_order;
    for (const SafeTensors::Info &info : result) {
        in_order.push_back(&info);
    }
    std::sort(in_order.begin(), in_order.end(),
              [](const auto *a, const auto *b) { return std::pair(a->data, a->bytes) < std::pair(b->data, b->bytes); });
    const std::byte *covered = tensors;
    const SafeTensors::Info *previous = nullptr;
    for (const SafeTensors::Info *info : in_order) {
        if (info->data < covered) {
            refuse(file, ": tensors ", in_quotes(previous->name), " and ", in_quotes(info->name), " overlap");
        }
        if (info->data > covered) {
            refuse(file, "has ", info->data - covered, " bytes that belong to no tensor before ",
                   in_quotes(info->name));
        }
        covered += info->bytes;
        previous = info;
    }
    if (covered != tensors + available) {
        refuse(file, "has ", tensors + available - covered, " bytes that belong to no tensor at its end");
    }
    return result;
}

}  // namespace

struct SafeTensors::Files {
    std::vector<models::MappedFile> mapped;
};

SafeTensors::SafeTensors() noexcept = default;
SafeTensors::~SafeTensors() = default;
SafeTensors::SafeTensors(SafeTensors &&) noexcept = default;
SafeTensors &SafeTensors::operator=(SafeTensors &&) noexcept = default;

void SafeTensors::add(std::vector<Info> tensors) {
    tensors_.insert(tensors_.end(), std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
    if (const auto twice = models::sort_by_name(tensors_); twice != tensors_.end()) {
        refuse(twice->file, ": tensor ", in_quotes(twice->name), " is in ", (twice + 1)->file, " as well");
    }
}

void SafeTensors::map(const std::filesystem::path &file) {
    models::MappedFile mapped(file);
    add(read_header(file, mapped.data(), mapped.size()));
    files_->mapped.push_back(std::move(mapped));
}

SafeTensors SafeTensors::open(const std::filesystem::path &path) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
        SafeTensors result;
        result.files_ = std::make_unique<Files>();
        result.map(path);
        return result;
    }
    const std::filesystem::path single = path / "model.safetensors", index = path / "model.safetensors.index.json";
    if (std::filesystem::exists(single, ignored)) {
        return open(single);
    }
    if (!std::filesystem::exists(index, ignored)) {
        refuse(path, "holds neither model.safetensors nor model.safetensors.index.json");
    }
    return open_index(index);
}

SafeTensors SafeTensors::open_index(const std::filesystem::path &index) {
    // Room for several hundred thousand tensors.
    constexpr std::size_t max_bytes = 50'000'000;
    const Json::Object root = models::parse_json(models::MappedFile(index).text(), index, max_bytes);
    const auto field = root.find("weight_map");
    const auto *const weight_map = field != root.end() ? field->second.as<Json::Object>() : nullptr;
    if (weight_map == nullptr) {
        refuse(index, "has no object named weight_map");
    }
    std::set<std::string> names;
    for (const auto &[tensor, file] : *weight_map) {
        const auto *const name = file.as<std::string>();
        if (name == nullptr) {
            refuse(index, ": tensor ", in_quotes(tensor), " has ", models::shown(file),
                   " instead of the name of a file");
        }
        // A file of the same folder, and nothing else.
        if (name->empty() || *name == "." || *name == ".." ||
            name->find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
            refuse(index, ": tensor ", in_quotes(tensor), " has ", in_quotes(*name),
                   ", which is not the name of a file in the folder");
        }
        names.insert(*name);
    }
    SafeTensors result;
    result.files_ = std::make_unique<Files>();
    for (const std::string &name : names) {
        result.map(index.parent_path() / name);
    }
    for (const Info &info : result.tensors_) {
        const auto entry = weight_map->find(info.name);
        if (entry == weight_map->end()) {
            refuse(index, "does not list tensor ", in_quotes(info.name), " of ", info.file);
        }
        const auto &name = *entry->second.as<std::string>();
        if (index.parent_path() / name != std::filesystem::path(info.file)) {
            refuse(index, ": tensor ", in_quotes(info.name), " is not in ", in_quotes(name), " but in ", info.file);
        }
    }
    for (const auto &[tensor, file] : *weight_map) {
        if (result.find(tensor) == nullptr) {
            refuse(index, ": tensor ", in_quotes(tensor), " is not in ", in_quotes(*file.as<std::string>()));
        }
    }
    return result;
}

SafeTensors SafeTensors::from_memory(const void *data, std::size_t bytes, const std::string &name) {
    SafeTensors result;
    result.add(read_header(name, static_cast<const std::byte *>(data), bytes));
    return result;
}

const SafeTensors::Info *SafeTensors::find(std::string_view name) const noexcept {
    return models::find_by_name(tensors_, name);
}

DLTensor SafeTensors::view(const Info &info) {
    DLTensor tensor{};
    tensor.device = DLDevice{kDLCPU, 0};
    if (info.dtype == "F32") {
        tensor.dtype = DLDataType{kDLFloat, 32, 1};
    } else if (info.dtype == "F16") {
        tensor.dtype = DLDataType{kDLFloat, 16, 1};
    } else if (info.dtype == "BF16") {
        tensor.dtype = DLDataType{kDLBfloat, 16, 1};
    } else {
        unsupported(info.file, ": tensor ", in_quotes(info.name), " is ", info.dtype,
                    "; F32, F16 and BF16 are supported");
    }
    if (info.shape.size() > Extents::max_rank) {
        unsupported(info.file, ": tensor ", in_quotes(info.name), " has rank ", info.shape.size(), ", above ",
                    static_cast<int>(Extents::max_rank));
    }
    // DLPack has no const; who gets a view only reads it.
    tensor.data = const_cast<std::byte *>(info.data);
    tensor.ndim = static_cast<int>(info.shape.size());
    tensor.shape = const_cast<std::int64_t *>(info.shape.data());
    return tensor;
}

void SafeTensors::read_ahead(const Info &info) const noexcept {
    if (files_ != nullptr) {
        models::read_ahead(info.data, static_cast<std::size_t>(info.bytes));
    }
}

void SafeTensors::let_go(const Info &info) const noexcept {
    if (files_ != nullptr) {
        models::let_go(info.data, static_cast<std::size_t>(info.bytes));
    }
}

}  // namespace halyard
