#include "gguf.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "fail.h"
#include "gguf_formats.h"
#include "tensor_table.h"

namespace halyard::models {

namespace {

constexpr std::string_view magic = "GGUF";
constexpr std::uint32_t first_version = 2, last_version = 3;
constexpr std::uint64_t max_key_bytes = 65535, max_tensor_name_bytes = 64;  // of the format
constexpr std::uint32_t max_rank = 4;                                       // of the format
constexpr std::uint64_t default_alignment = 32, max_alignment = 1 << 20;
constexpr const char *alignment_key = "general.alignment";
constexpr const char *number_key = "split.no", *count_key = "split.count", *tensors_key = "split.tensors.count";

/// The types of metadata, numbered as in the format.
enum Type : std::uint32_t { u8, s8, u16, s16, u32, s32, f32, boolean, string, array, u64, s64, f64, types };

constexpr std::uint64_t type_bytes[types] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: each of its own length

template<class T>
T load(const std::byte *bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(value));  // little-endian, as this library's targets are
    return value;
}

template<class T>
Json integer(const std::byte *bytes) {
    const T value = load<T>(bytes);
    if (value < 0) {
        return {static_cast<std::int64_t>(value)};
    }
    return {static_cast<std::uint64_t>(value)};
}

/// What the name of a file of several ends in: gguf-split of llama.cpp counts from 1 on.
std::string part_ending(std::int64_t number, std::int64_t count) {
    const auto five_digits = [](std::int64_t value) {
        const std::string digits = std::to_string(value);
        return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
    };
    return "-" + five_digits(number + 1) + "-of-" + five_digits(count) + ".gguf";
}

Json real(double value) {
    return {Json::Real{value, sentence(value)}};
}

}  // namespace

/// Takes bytes from the front, never more than there are.
class Gguf::Reader {
public:
    Reader(const std::string &file, const std::byte *data, std::size_t size)
        : file_(file), begin_(data), at_(data), end_(data + size) {}

    std::uint64_t left() const { return static_cast<std::uint64_t>(end_ - at_); }
    std::uint64_t position() const { return static_cast<std::uint64_t>(at_ - begin_); }

    const std::byte *bytes(std::uint64_t count) {
        if (count > left()) {
            refuse(file_, "is cut short, or a length in it is wrong: ", where_, " takes ", count, " bytes, and ",
                   left(), " are left");
        }
        return std::exchange(at_, at_ + count);
    }
    template<class T>
    T number() {
        return load<T>(bytes(sizeof(T)));
    }
    std::string_view text() {
        const auto length = number<std::uint64_t>();
        return {reinterpret_cast<const char *>(bytes(length)), static_cast<std::size_t>(length)};
    }
    /// A name that is not empty.
    std::string name(const char *what, std::uint64_t max_bytes) {
        const std::string_view result = text();
        if (result.empty() || result.size() > max_bytes) {
            refuse(file_, "has ", what, " with a name of ", result.size(), " bytes; 1 to ", max_bytes, " are allowed");
        }
        return std::string(result);
    }
    /// The number of things that take `least` bytes each at least; refuses more than the file has room for.
    std::uint64_t count(const std::string &what, std::uint64_t least) {
        const auto result = number<std::uint64_t>();
        if (result > left() / least) {
            refuse(file_, "is cut short, or no GGUF file: it would have ", result, " ", what, " in ", left(), " bytes");
        }
        return result;
    }
    Value value(const std::string &key) {
        const std::byte *const begin = at_;
        Value result = typed_value(key);
        result.stored = {reinterpret_cast<const char *>(begin), static_cast<std::size_t>(at_ - begin)};
        return result;
    }

    /// What is read next, for messages.
    void at(std::string where) { where_ = std::move(where); }

private:
    Value typed_value(const std::string &key) {
        const auto type = number<std::uint32_t>();
        if (type >= types) {
            refuse(file_, ": metadata ", in_quotes(key), " has the unknown type ", type);
        }
        if (type == string) {
            const std::string_view result = text();
            return {type, reinterpret_cast<const std::byte *>(result.data()), result.size()};
        }
        if (type == array) {
            return elements(key);
        }
        const Value result{type, bytes(type_bytes[type]), type_bytes[type]};
        if (type == boolean) {
            check_booleans(key, result);
        }
        return result;
    }
    /// An array, whose strings are passed over by their lengths.
    Value elements(const std::string &key) {
        const auto type = number<std::uint32_t>();
        if (type >= types) {
            refuse(file_, ": metadata ", in_quotes(key), " has elements of the unknown type ", type);
        }
        if (type == array) {
            unsupported(file_, ": metadata ", in_quotes(key), " is an array of arrays");
        }
        const std::byte *const begin = at_;
        const std::uint64_t size = type == string ? sizeof(std::uint64_t) : type_bytes[type];
        const std::uint64_t elements = count("elements of an array in metadata " + in_quotes(key), size);
        if (type != string) {
            const Value result{array, bytes(elements * size), elements * size};
            if (type == boolean) {
                check_booleans(key, result);
            }
            return result;
        }
        for (std::uint64_t i = 0; i < elements; i++) {
            text();
        }
        return {array, begin, static_cast<std::uint64_t>(at_ - begin)};
    }
    void check_booleans(const std::string &key, const Value &value) const {
        for (std::uint64_t i = 0; i < value.bytes; i++) {
            if (std::to_integer<unsigned>(value.data[i]) > 1) {
                refuse(file_, ": metadata ", in_quotes(key), " has a truth value that is neither 0 nor 1");
            }
        }
    }

    const std::string &file_;
    const std::byte *begin_, *at_, *end_;
    std::string where_ = "the header";
};

Gguf Gguf::open(const std::filesystem::path &path) {
    Gguf result = open_one(path);
    if (const Part first = result.part(); first.count > 1) {
        result.add_parts(path, first);
    }
    return result;
}

Gguf Gguf::open_one(const std::filesystem::path &path) {
    MappedFile mapped(path);
    Gguf result(path.string());
    result.read(mapped.data(), mapped.size());
    result.mapped_.push_back(std::move(mapped));
    return result;
}

Gguf Gguf::from_memory(const void *data, std::size_t bytes, const std::string &name) {
    Gguf result(name);
    result.read(static_cast<const std::byte *>(data), bytes);
    if (const Part part = result.part(); part.count > 1) {
        unsupported(name, ": split.count is ", part.count, ", and the other files are not there");
    }
    return result;
}

Gguf::Part Gguf::part() const {
    constexpr std::int64_t most_files = 65535, most_tensors = std::numeric_limits<std::int32_t>::max();
    Json::Object object;
    for (const char *const key : {number_key, count_key, tensors_key}) {
        if (has(key)) {
            object[key] = metadata(key);
        }
    }
    const Fields fields(object, file_);
    const std::int64_t count = fields.integer(count_key, 0, most_files, 1);
    if (count <= 1) {
        return {0, 1, static_cast<std::int64_t>(tensors_.size())};
    }
    return {fields.integer(number_key, 0, count - 1), count, fields.integer(tensors_key, 0, most_tensors)};
}

void Gguf::add_parts(const std::filesystem::path &path, const Part &first) {
    const std::string name = path.filename().string(), ending = part_ending(first.number, first.count);
    const std::size_t stem = name.size() - std::min(name.size(), ending.size());
    if (name.substr(stem) != ending) {
        refuse(path, "is part ", first.number + 1, " of ", first.count,
               ", as split.no and split.count say, and its name does "
               "not end in ",
               in_quotes(ending));
    }
    const auto file_of = [&](std::int64_t number) {
        return path.parent_path() / (name.substr(0, stem) + part_ending(number, first.count));
    };
    if (first.number != 0) {
        refuse(path, "is part ", first.number + 1, " of ", first.count, ": name the first, ",
               in_quotes(file_of(0).filename().string()));
    }
    for (std::int64_t number = 1; number < first.count; number++) {
        std::error_code ignored;
        if (!std::filesystem::exists(file_of(number), ignored)) {
            refuse(path, "is part 1 of ", first.count, ", and ", in_quotes(file_of(number).filename().string()),
                   " is not beside it");
        }
        add_part(file_of(number), {number, first.count, first.tensors});
    }
    if (const auto tensors = static_cast<std::int64_t>(tensors_.size()); tensors != first.tensors) {
        refuse(path, ": ", tensors_key, " is ", first.tensors, ", and the ", first.count, " files have ", tensors,
               " tensors");
    }
    if (const auto twice = sort_by_name(tensors_); twice != tensors_.end()) {
        refuse(twice->file, ": tensor ", in_quotes(twice->name), " is in ", (twice + 1)->file, " as well");
    }
}

void Gguf::add_part(const std::filesystem::path &path, const Part &wanted) {
    Gguf other = open_one(path);
    const Part part = other.part();
    for (const auto &[key, got, want] :
         {std::tuple(count_key, part.count, wanted.count), std::tuple(number_key, part.number, wanted.number),
          std::tuple(tensors_key, part.tensors, wanted.tensors)}) {
        if (got != want) {
            refuse(path, ": ", key, " is ", got, " instead of ", want);
        }
    }
    tensors_.insert(tensors_.end(), std::make_move_iterator(other.tensors_.begin()),
                    std::make_move_iterator(other.tensors_.end()));
    mapped_.push_back(std::move(other.mapped_.front()));
}

void Gguf::read(const std::byte *data, std::size_t size) {
    Reader reader(file_, data, size);
    if (size < magic.size() || std::memcmp(data, magic.data(), magic.size()) != 0) {
        refuse(file_, "is no GGUF file: it does not begin with 'GGUF'");
    }
    reader.bytes(magic.size());
    const auto version = reader.number<std::uint32_t>();
    if (version < first_version || version > last_version) {
        unsupported(file_, "is of version ", version, " of the GGUF format",
                    (version & 0xffff) == 0 ? ", or big-endian" : "",
                    "; supported are little-endian files of versions ", first_version, " and ", last_version);
    }
    // A name of one byte with its length and what is the least behind it.
    constexpr std::uint64_t least_tensor = 8 + 1 + 4 + 8 + 4 + 8, least_entry = 8 + 1 + 4 + 1;
    const std::uint64_t n_tensors = reader.count("tensors", least_tensor);
    const std::uint64_t n_entries = reader.count("entries of metadata", least_entry);

    for (std::uint64_t i = 0; i < n_entries; i++) {
        reader.at("the name of an entry of metadata");
        const std::string key = reader.name("an entry of metadata", max_key_bytes);
        reader.at("metadata " + in_quotes(key));
        if (!metadata_.emplace(key, reader.value(key)).second) {
            refuse(file_, "has two entries of metadata named ", in_quotes(key));
        }
    }
    std::uint64_t alignment = default_alignment;
    if (const auto at = metadata_.find(alignment_key); at != metadata_.end()) {
        if (at->second.type != u32) {
            refuse(file_, ": metadata '", alignment_key, "' is not of type u32");
        }
        alignment = load<std::uint32_t>(at->second.data);
        if (alignment == 0 || alignment > max_alignment || (alignment & (alignment - 1)) != 0) {
            refuse(file_, ": metadata '", alignment_key, "' is ", alignment, ", not a power of two of at most ",
                   max_alignment);
        }
    }

    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < n_tensors; i++) {
        reader.at("the name of a tensor");
        TensorInfo info{reader.name("a tensor", max_tensor_name_bytes), "", {}, nullptr, 0, file_};
        const std::string tensor = ": tensor " + in_quotes(info.name);
        reader.at("the entry of" + tensor.substr(1));
        const auto rank = reader.number<std::uint32_t>();
        if (rank < 1 || rank > max_rank) {
            refuse(file_, tensor, " has rank ", rank, "; 1 to ", max_rank, " are allowed");
        }
        std::int64_t elements = 1;
        bool fits = true;
        for (std::uint32_t axis = 0; axis < rank; axis++) {
            const auto extent = reader.number<std::uint64_t>();
            if (extent == 0) {
                refuse(file_, tensor, " has an axis of extent 0");
            }
            // The format has the innermost axis first.
            info.shape.insert(info.shape.begin(), static_cast<std::int64_t>(extent));
            fits = fits && !__builtin_mul_overflow(elements, extent, &elements);
        }
        const auto type = reader.number<std::uint32_t>();
        const BlockFormat *const format = block_format(type);
        if (format == nullptr) {
            refuse(file_, tensor, " has the unknown type ", type);
        }
        if (format->elements == 0) {
            unsupported(file_, tensor, " is ", format->name, "; supported are ", supported_block_formats());
        }
        info.dtype = format->name;
        if (!fits || __builtin_mul_overflow(elements / format->elements, format->bytes, &info.bytes)) {
            refuse(file_, tensor, " has a shape that is too large");
        }
        if (info.shape.back() % format->elements != 0) {
            refuse(file_, tensor, " of shape ", shape_text(info.shape), " has rows that are not whole blocks of ",
                   format->elements, " elements, which ", format->name, " has");
        }
        const auto offset = reader.number<std::uint64_t>();
        if (offset % alignment != 0) {
            refuse(file_, tensor, " has offset ", offset, ", which is no multiple of the alignment ", alignment);
        }
        offsets.push_back(offset);
        tensors_.push_back(std::move(info));
    }
    if (n_tensors == 0) {
        return;
    }

    // Position and alignment are far below the limits of 64 bits.
    const std::uint64_t begin = (reader.position() + alignment - 1) / alignment * alignment;
    const std::uint64_t available = begin < size ? size - begin : 0;
    for (std::uint64_t i = 0; i < n_tensors; i++) {
        TensorInfo &info = tensors_[i];
        if (offsets[i] > available || static_cast<std::uint64_t>(info.bytes) > available - offsets[i]) {
            refuse(file_, ": tensor ", in_quotes(info.name), " of ", info.bytes, " bytes begins at byte ", offsets[i],
                   " of the data, of which the file has ", available, ": it is cut short, or its header is wrong");
        }
        info.data = data + begin + offsets[i];
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const TensorInfo &a, const TensorInfo &b) { return a.data < b.data; });
    const auto overlap =
        std::adjacent_find(tensors_.begin(), tensors_.end(),
                           [](const TensorInfo &a, const TensorInfo &b) { return a.data + a.bytes > b.data; });
    if (overlap != tensors_.end()) {
        refuse(file_, ": tensors ", in_quotes(overlap->name), " and ", in_quotes((overlap + 1)->name), " overlap");
    }
    if (const auto twice = sort_by_name(tensors_); twice != tensors_.end()) {
        refuse(file_, "has two tensors named ", in_quotes(twice->name));
    }
}

const TensorInfo *Gguf::find(std::string_view name) const noexcept {
    return find_by_name(tensors_, name);
}

std::vector<Gguf::Entry> Gguf::entries() const {
    std::vector<Entry> result;
    for (const auto &[key, value] : metadata_) {
        result.push_back({key, value.stored});
    }
    std::sort(result.begin(), result.end(),
              [](const Entry &a, const Entry &b) { return a.value.data() < b.value.data(); });
    return result;
}

std::vector<std::string> Gguf::keys() const {
    std::vector<std::string> result;
    for (const auto &[key, value] : metadata_) {
        result.push_back(key);
    }
    return result;
}

Json Gguf::metadata(std::string_view key) const {
    const auto at = metadata_.find(key);
    if (at == metadata_.end()) {
        return {};
    }
    const Value &value = at->second;
    switch (value.type) {
    case u8:
        return integer<std::uint8_t>(value.data);
    case s8:
        return integer<std::int8_t>(value.data);
    case u16:
        return integer<std::uint16_t>(value.data);
    case s16:
        return integer<std::int16_t>(value.data);
    case u32:
        return integer<std::uint32_t>(value.data);
    case s32:
        return integer<std::int32_t>(value.data);
    case u64:
        return integer<std::uint64_t>(value.data);
    case s64:
        return integer<std::int64_t>(value.data);
    case f32:
        return real(load<float>(value.data));
    case f64:
        return real(load<double>(value.data));
    case boolean:
        return {load<std::uint8_t>(value.data) != 0};  // also where the file was changed meanwhile
    case string:
        return {std::string(reinterpret_cast<const char *>(value.data), static_cast<std::size_t>(value.bytes))};
    default:
        return {Json::Array()};
    }
}

}  // namespace halyard::models
