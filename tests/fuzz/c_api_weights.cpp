// Packed weights: made, updated, of codes, read and written.
#include "fuzz/c_api_session.h"

namespace halyard::tests {
namespace {

/** Few, so that matrices fit each other. */
constexpr std::int64_t widths[] = {16, 8, 20};

}  // namespace

void Session::weights_create() {
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    const std::int64_t out = in_.of(widths), in = in_.of(widths);
    halyard_pack_options options{};
    options.layout = value<halyard_weight_layout>(2);
    const Shape shape =
        options.layout == HALYARD_WEIGHT_IN_OUT ? Shape().with(in).with(out) : Shape().with(out).with(in);
    const DLTensor *weight = call.input(shape, type);
    options.up = in_.one_in(3) ? call.input(shape, type) : nullptr;
    options.norm_weight = in_.one_in(3) ? call.input(Shape().with(in), vector_dtype(type)) : nullptr;
    options.norm_bias = in_.one_in(5) ? call.input(Shape().with(in), vector_dtype(type)) : nullptr;
    options.norm_unit_offset = in_.one_in(8);
    options.device = device();
    options.quantization = quantization();
    const bool plain = !options.up && !options.norm_weight && !options.norm_bias;
    const halyard_pack_options *given = plain && in_.one_in(4) ? nullptr : &options;
    if (!call.may_be_made()) {
        return;
    }
    std::int64_t bytes = -77;
    const halyard_status status = halyard_weights_size(weight, given, in_.rarely() ? nullptr : &bytes);
    // Not `call`: it looks at shapes alone, so tensors without data are right.
    returned("halyard_weights_size", status, bytes, INT64_C(-77));
    pack("halyard_weights_pack", call, bytes, [&](void *memory, std::int64_t given_bytes, halyard_weights **made) {
        return halyard_weights_pack(context(), weight, given, memory, given_bytes, made);
    });
}

/** Mostly with a matrix of the weights' form. */
void Session::weights_update() {
    Call call(in_, tensor_memory());
    halyard_weights *weights = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{};
    if (weights) {
        halyard_weights_get_info(weights, &info);
    }
    const DLDataType type = weights && !in_.rarely() ? info.dtype : dtype();
    const std::int64_t in = in_.rarely() ? 8 : info.in_features, out = in_.rarely() ? 8 : info.out_features;
    halyard_pack_options options{};
    options.layout = value<halyard_weight_layout>(2);
    const Shape shape =
        options.layout == HALYARD_WEIGHT_IN_OUT ? Shape().with(in).with(out) : Shape().with(out).with(in);
    const DLTensor *weight = call.input(shape, type);
    options.up = (info.gated != 0) != in_.rarely() ? call.input(shape, type) : nullptr;
    const bool folds_weight = info.norm_folded != 0 && in_.one_in(2),
               folds_bias = info.norm_folded != 0 && in_.one_in(2);
    options.norm_weight = folds_weight ? call.input(Shape().with(in), vector_dtype(type)) : nullptr;
    options.norm_bias = folds_bias ? call.input(Shape().with(in), vector_dtype(type)) : nullptr;
    options.norm_unit_offset = (info.norm_folded != 0) != in_.rarely();
    options.device = device();
    options.quantization = in_.rarely() ? quantization() : halyard_quantization{};
    if (call.may_be_made()) {
        call.returned("halyard_weights_update", halyard_weights_update(context(), weights, weight, &options));
    }
}

/** Makes weights of `bytes` bytes, if they are that many, in memory of the caller or of the library. */
template<typename Pack>
void Session::pack(const char *name, Call &call, std::int64_t bytes, const Pack &pack) {
    const int place = in_.in(0, places - 1);
    halyard_weights_destroy(weights_[place]);
    weights_[place] = nullptr;
    void *memory = nullptr;
    std::int64_t given_bytes = number(INT64_C(0));
    if (bytes > 0 && bytes <= static_cast<std::int64_t>(HandleMemory::piece_bytes) && in_.one_in(2)) {
        // At the end of the piece as far as their alignment allows.
        memory = handle_memory().end(place) - (bytes + 63) / 64 * 64 + (in_.rarely() ? 4 : 0);
        given_bytes = number(bytes);
    }
    make(name, call, weights_[place], [&](halyard_weights **made) { return pack(memory, given_bytes, made); });
}

/** With tensors as the format has them. */
halyard_codes Session::tensors_of(Call &call, const halyard_codes &numbers) {
    halyard_codes codes = numbers;
    const std::int64_t in = numbers.in_features, out = numbers.out_features;
    const auto codes_in = [](std::int64_t count, int bits) { return (count * bits + 31) / 32; };
    const auto tensor = [&](std::int64_t rows, std::int64_t columns, DLDataType type) {
        return call.codes(Shape().with(rows).with(columns), type);
    };
    constexpr DLDataType u8{kDLUInt, 8, 1}, i8{kDLInt, 8, 1}, i32{kDLInt, 32, 1};
    constexpr int block_bytes[] = {34, 18, 20, 22, 24, 144, 176, 210};
    if (codes.format < HALYARD_CODES_INT8) {
        const int block_inputs = codes.format < HALYARD_CODES_Q4_K ? 32 : 256;
        codes.matrix = tensor(out, in / block_inputs * block_bytes[codes.format], u8);
        return codes;
    }
    const int bits = codes.bits != 0 ? codes.bits : 4;
    const bool has_zeros = in_.one_in(2);
    const std::int64_t groups = codes.group > 0 ? (in + codes.group - 1) / codes.group : 1;
    switch (codes.format) {
    case HALYARD_CODES_INT8:
        codes.matrix = tensor(out, in, i8);
        codes.zeros = has_zeros ? tensor(out, groups, i8) : nullptr;
        break;
    case HALYARD_CODES_COMPRESSED_TENSORS:
        codes.matrix = tensor(out, codes_in(in, bits), i32);
        codes.zeros = has_zeros ? tensor(codes_in(out, bits), groups, i32) : nullptr;
        break;
    default:
        codes.matrix = codes.format == HALYARD_CODES_AWQ ? tensor(in, codes_in(out, bits), i32)
                                                         : tensor(codes_in(in, bits), out, i32);
        codes.zeros = has_zeros ? tensor(groups, codes_in(out, bits), i32) : nullptr;
    }
    const bool transposed = codes.format >= HALYARD_CODES_GPTQ;
    const Shape scales = transposed ? Shape().with(groups).with(out) : Shape().with(out).with(groups);
    codes.scales = call.input(scales, dtype());
    codes.g_idx = in_.one_in(4) ? call.indices(Shape().with(in), in_.one_in(2) ? 1 : groups) : nullptr;
    return codes;
}

/** A format whose tensors can be made, where a number is of none. */
halyard_code_format known(halyard_code_format format) {
    return format >= 0 && format <= HALYARD_CODES_AWQ ? format : HALYARD_CODES_INT8;
}

/** All but the tensors, mostly right. */
halyard_codes Session::code_numbers() {
    halyard_codes numbers{};
    numbers.format = value<halyard_code_format>(13);
    const halyard_code_format format = known(numbers.format);
    const bool chosen_bits = format >= HALYARD_CODES_COMPRESSED_TENSORS && format <= HALYARD_CODES_GPTQ_V2;
    numbers.bits = in_.rarely() ? in_.any<int>() % 64 : chosen_bits ? in_.of({4, 8}) : 0;
    numbers.in_features = number(format < HALYARD_CODES_Q4_K   ? INT64_C(32)
                                 : format < HALYARD_CODES_INT8 ? INT64_C(256)
                                                               : in_.of(widths));
    numbers.out_features = in_.of(widths);
    numbers.group = number(format < HALYARD_CODES_INT8 ? INT64_C(0) : in_.of({INT64_C(0), INT64_C(16), INT64_C(48)}));
    return numbers;
}

/** With tensors, as far as there are any for these numbers. */
halyard_codes Session::codes_of(Call &call, const halyard_codes &numbers) {
    halyard_codes shaped = numbers;
    shaped.format = known(numbers.format);
    if (numbers.in_features < 1 || numbers.in_features > 512 || numbers.group < 0 || numbers.group > 512 ||
        (numbers.bits != 0 && numbers.bits != 4 && numbers.bits != 8)) {
        shaped.in_features = 16;
        shaped.group = shaped.bits = 0;
    }
    halyard_codes codes = tensors_of(call, shaped);
    codes.format = numbers.format;
    codes.bits = numbers.bits;
    codes.in_features = numbers.in_features;
    codes.group = numbers.group;
    return codes;
}

void Session::dequantize() {
    Call call(in_, tensor_memory());
    const halyard_codes codes = codes_of(call, code_numbers());
    const halyard_codes *const given = in_.rarely() ? nullptr : &codes;
    const bool shown = codes.in_features > 0 && codes.in_features <= 512;
    DLTensor *y = call.output(Shape().with(codes.out_features).with(shown ? codes.in_features : 16), dtype());
    if (call.may_be_made()) {
        call.returned("halyard_dequantize", halyard_dequantize(context(), given, y));
    }
}

void Session::weights_of_codes() {
    Call call(in_, tensor_memory());
    const halyard_codes numbers = code_numbers();
    const bool has_up = in_.one_in(3);
    const halyard_codes codes = codes_of(call, numbers), up = has_up ? codes_of(call, numbers) : codes;
    const halyard_codes *const first = in_.rarely() ? nullptr : &codes, *const second = has_up ? &up : nullptr;
    if (!call.may_be_made()) {
        return;
    }
    std::int64_t bytes = -77;
    returned("halyard_weights_codes_size", halyard_weights_codes_size(first, second, in_.rarely() ? nullptr : &bytes),
             bytes, INT64_C(-77));
    pack("halyard_weights_pack_codes", call, bytes, [&](void *memory, std::int64_t given, halyard_weights **made) {
        return halyard_weights_pack_codes(context(), first, second, memory, given, made);
    });
}

void Session::weights_other() {
    const int place = in_.in(0, places - 1);
    halyard_weights *&weights = weights_[place];
    halyard_weights_info info, before;
    std::memset(&info, 0x5a, sizeof info);
    before = info;
    switch (in_.in(0, 7)) {
    case 0:
    case 1:
    case 2:
        returned("halyard_weights_get_info", halyard_weights_get_info(weights, in_.rarely() ? nullptr : &info), info,
                 before);
        break;
    case 3:
        if ((halyard_weights_data(weights) == nullptr) != (weights == nullptr)) {
            failed("halyard_weights_data is null for weights");
        }
        count_call("halyard_weights_data", true);
        break;
    case 4: {
        // Weights of another place are put into memory, perhaps with a mistake.
        const halyard_weights *source = weights_[(place + 1) % places];
        char *memory = handle_memory().begin(place);
        std::int64_t bytes = 4096;
        if (weights) {
            halyard_weights_destroy(weights);
            weights = nullptr;
        }
        if (source && halyard_weights_get_info(source, &info) == HALYARD_OK &&
            info.bytes <= static_cast<std::int64_t>(HandleMemory::piece_bytes)) {
            bytes = info.bytes;
            memory = handle_memory().end(place) - (bytes + 63) / 64 * 64;
            std::memcpy(memory, halyard_weights_data(source), static_cast<std::size_t>(bytes));
        }
        if (in_.one_in(4)) {
            memory[in_.any<std::uint16_t>() % bytes] = static_cast<char>(in_.byte());
        }
        std::int64_t given =
            in_.rarely() ? in_.of({INT64_C(-1), INT64_C(0), INT64_C(127), bytes - 1, bytes - 64}) : bytes;
        Call call(in_, tensor_memory());
        make("halyard_weights_from_memory", call, weights, [&](halyard_weights **made) {
            return halyard_weights_from_memory(in_.rarely() ? nullptr : memory, given, made);
        });
        break;
    }
    case 5:
        // Files take long.
        if (in_.one_in(16)) {
            returned("halyard_weights_save",
                     halyard_weights_save(weights, in_.rarely() ? in_.of({static_cast<const char *>(nullptr), "",
                                                                          "/nowhere/weights", folder().path()})
                                                                : folder().file()));
        }
        break;
    case 6:
        if (in_.one_in(8)) {
            halyard_weights_destroy(weights);
            weights = nullptr;
            Call call(in_, tensor_memory());
            make("halyard_weights_load", call, weights, [&](halyard_weights **made) {
                return halyard_weights_load(in_.rarely() ? in_.of({static_cast<const char *>(nullptr), "", "/dev/null",
                                                                   "/proc/self/exe", folder().path()})
                                                         : folder().file(),
                                            made);
            });
        }
        break;
    case 7:
        halyard_weights_destroy(weights);
        weights = nullptr;
        count_call("halyard_weights_destroy", true);
        break;
    }
}

}  // namespace halyard::tests
