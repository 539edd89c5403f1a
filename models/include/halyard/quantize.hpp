/** @file
 * quantize.hpp: the weights of a model in other formats, written as a GGUF file or a folder.
 *
 *     halyard::QuantizeOptions options;
 *     options.format = "Q4_K_M";
 *     halyard::quantize_model("some/folder", "some/file.gguf", options);
 *     options.format = "gptq-4";
 *     halyard::quantize_model("some/folder", "other/folder", options);
 *
 * Part of the library halyard::models. Failures throw `halyard::Error` with one sentence that names the file or the
 * option. docs/models.md has the formats and the rules.
 */
#ifndef HALYARD_QUANTIZE_HPP
#define HALYARD_QUANTIZE_HPP

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "halyard/halyard.hpp"

namespace halyard {

/// Which formats tensors get, and how they are encoded.
///
/// In a GGUF file a format is F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K. Only matrices have one:
/// vectors and tables of positions become F32. A matrix whose rows are not whole blocks of its format gets Q8_0 if they are
/// multiples of 32, else F16.
///
/// In a folder it is F32, F16 or BF16, which all tensors get, or a method with the bits of its codes, which the matrices of
/// blocks get: compressed-tensors-4, compressed-tensors-8, int8, gptq-4, gptq-8, gptq_v2-4, gptq_v2-8 or awq-4. Codes are
/// those of halyard_quantization. Other tensors keep their dtype then, and those that are quantized become `scales`.
struct QuantizeOptions {
    /// The format of matrices that nothing below names. In a GGUF file it may be a mix: Q4_K_M or Q5_K_M.
    std::string format = "Q4_K_M";
    /// For a GGUF file: patterns of its names, as fnmatch(3) takes them ("blk.*.ffn_down.weight"), and their formats. The
    /// first that matches counts, before all else. One that matches no matrix is refused.
    std::vector<std::pair<std::string, std::string>> tensors;
    /// The format of the embedding, in a folder F32, F16 or BF16; empty: as the others, or, beside codes, as it was.
    std::string embedding;
    /// The format of lm_head, in a folder F32, F16, BF16 or `format`; empty: as the others, or, beside codes, as it was.
    std::string output;
    std::int64_t group = 128;    ///< for codes of a folder: inputs that share a scale, multiples of 16; 0 or -1: all
    bool asymmetric = false;     ///< for codes of a folder: groups have zeros; those of awq-4 always do
    std::string scales = "F16";  ///< for codes of a folder: F16, BF16 or F32
    int threads = 0;             ///< 0 to 256; 0: as many as a `Context` has by default
    bool dry_run = false;        ///< encodes everything and writes nothing; `out` and the metadata are not checked then
    /// Called after each tensor with the bytes that are read, of those there are, and its name.
    std::function<void(std::int64_t done, std::int64_t total, const std::string &what)> progress;
};

/// What became of a tensor.
struct QuantizedTensor {
    std::string name;                 ///< in the output; a folder's matrix in codes as it is called without them
    std::vector<std::int64_t> shape;  ///< in the output, outermost axis first
    std::string from;                 ///< its format before: "F32", "Q4_K", "GPTQ 4 bits"
    std::string wanted;               ///< the format that the options ask for
    std::string to;                   ///< the format that it has now
    std::int64_t bytes_before = 0;    ///< in the input, with scales and zeros
    std::int64_t bytes_after = 0;     ///< in the output
    /// Root of the sum of squared errors over that of squared values; 0 of a tensor that is copied.
    double relative_rms_error = 0;
    double largest_error = 0;  ///< of a value, in its units
};

/// Reads what `Model::load` reads at `in`, a folder or a GGUF file, and writes `out`, which takes its name when it is complete; if
/// anything fails, what was there stays. A tensor that has its format already is copied byte for byte, others are
/// converted by way of f32. Takes memory for one tensor in f32 and encoded.
///
/// An `out` that ends in .gguf is a GGUF file, which is replaced if it is there. Metadata of a GGUF file is copied, but that
/// general.file_type and general.quantization_version are set.
///
/// Any other `out` is a folder, which must not be there, with config.json and model.safetensors. From a folder config.json
/// is copied but for quantization_config and the dtype, and files of the tokenizer and of generation are copied; from a GGUF file
/// config.json is made from the metadata.
///
/// Refused are formats of the other kind of output, architectures that GGUF cannot express here, codes of GPT-2, tensors to be
/// converted that hold NaN, Inf or numbers too large for their format, and an `out` that is one of the files read, or is there
/// and no regular file. The bytes of the output do not depend on the number of threads.
std::vector<QuantizedTensor> quantize_model(const std::filesystem::path &in, const std::filesystem::path &out,
                                            const QuantizeOptions &options = {});

}  // namespace halyard

#endif
