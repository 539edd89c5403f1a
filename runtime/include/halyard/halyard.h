/** @file
 * halyard: the kernels of transformers, compiled ahead of time.
 *
 * The C interface. Every function takes tensors as DLPack `DLTensor` views, returns a status and never
 * aborts, throws or keeps a pointer beyond the call.
 *
 * @par Tensors
 *   - device kDLCPU, or kDLCUDA where a function and the library have kernels for it (see CUDA below); dtype f32, f16
 *     or bf16 (kDLFloat 32/16, kDLBfloat 16), one lane;
 *   - rank 1 to 4. A *row* is the last axis: it must be contiguous (stride 1). Leading axes may have any
 *     non-negative stride, so a padded pitch or a slice of a larger tensor is fine. `strides == NULL` means
 *     compact row-major, as in DLPack;
 *   - `data + byte_offset` must be aligned to the element; no other alignment is asked for;
 *   - all tensors of one call have one dtype unless the function says otherwise. Arithmetic is in f32 whatever
 *     the storage type, with one rounding (to nearest even) when a result is stored;
 *   - an axis of extent 0 makes the call do nothing, except that row operations (norms, softmax) refuse an
 *     empty last axis: its mean or maximum is not defined.
 *
 * @par In place
 *   An output may be exactly the same view as an input (same data, same strides) where the function says so.
 *   Any other overlap of an output with an input or another output is refused. Views of one allocation overlap if they
 *   share an element: two ranges of its columns do not, whatever its strides. Strides of three axes or more that are
 *   made to be intricate may be refused because the question would take too long to decide; the message says so.
 *
 * @par Errors
 *   Arguments are checked before anything is written. On failure the outputs are untouched, the status says
 *   what kind of failure it was and halyard_last_error() holds a sentence that names the argument.
 *
 * @par Numerics
 *   The result of a row does not depend on the other rows of the call, on the row's place among them or on the
 *   number of threads. f32 results are the same bits on AVX2, AVX-512 and NEON (and every later target with fused
 *   multiply-add). docs/numerics.md has the accuracy of each function. Calls compute in the default floating-point
 *   environment (rounding to nearest, denormals kept, no traps) whatever the caller's, to which they return; they may
 *   raise its exception flags.
 *
 * @par Threads
 *   Every function may be called from any number of threads at once, with the same or different contexts. A call needs
 *   up to 160 KiB of stack.
 *
 * @par fork()
 *   The child may call every function, with the parent's handles too, whatever other threads of the parent were doing.
 *   Their calls end in the middle: what they were writing, outputs and caches, is half written, and memory that they
 *   alone knew is lost to the child. A child that is made inside a callback may not return from it. A process that has
 *   used CUDA keeps it to itself: in its children, calls on CUDA tensors fail with HALYARD_NO_DEVICE, and what is on a
 *   device is not freed.
 *
 * @par Environment variables
 *   Read when the library is loaded: HALYARD_NUM_THREADS, HALYARD_MAX_ISA and HALYARD_PRODUCTS (see the contexts below); HALYARD_VERBOSE=1,
 *   which writes a line for every call to stderr, or to the file that HALYARD_VERBOSE_FILE names, and 2, which writes one
 *   for every kernel besides (docs/verbose.md). An empty one counts as not set, and a value that makes no sense is ignored,
 *   which is said once on stderr.
 */
#ifndef HALYARD_HALYARD_H
#define HALYARD_HALYARD_H

#include <stddef.h>
#include <stdint.h>

#include "dlpack/dlpack.h"

/** What the library exports. */
#if defined(_WIN32)
#define HALYARD_API
#else
#define HALYARD_API __attribute__((visibility("default")))
#endif

/** @cond In C++ too, an enumeration may hold any int: one that is none of its values is refused. */
#ifdef __cplusplus
#define HALYARD_AS_INT : int
extern "C" {
#else
#define HALYARD_AS_INT
#endif
/** @endcond */

/** @defgroup status Status
 *  @{ */

/** What a call returns: HALYARD_OK, or the kind of failure. */
typedef enum halyard_status HALYARD_AS_INT {
    HALYARD_OK = 0,               /**< the outputs are written */
    HALYARD_INVALID_ARGUMENT = 1, /**< null, wrong rank, mismatched shape, overlap, value out of range */
    HALYARD_UNSUPPORTED = 2,      /**< well formed, but a dtype, device or instruction set this library lacks */
    HALYARD_OUT_OF_MEMORY = 3,    /**< memory for intermediates or a handle could not be had */
    HALYARD_NO_DEVICE = 4, /**< no CUDA driver, one that is too old, no GPU or none of this number: see the message */
    HALYARD_DEVICE_ERROR = 5, /**< the CUDA driver refused to load or launch a kernel; the message has its words */
} halyard_status;

/** The name of a status: "ok", "invalid argument", ... Never null. */
HALYARD_API const char *halyard_status_name(halyard_status status);

/** The message of this thread's last failed call, as one sentence naming function and argument; "" if none
 *  failed. Valid until the thread's next failing call. */
HALYARD_API const char *halyard_last_error(void);

/** Version of this header. A later patch has the same interface; before 1.0 a later minor version may have another. */
#define HALYARD_VERSION_MAJOR 0
/** See HALYARD_VERSION_MAJOR. */
#define HALYARD_VERSION_MINOR 1
/** See HALYARD_VERSION_MAJOR. */
#define HALYARD_VERSION_PATCH 0
/** The version as one number to compare: 10203 is 1.2.3. */
#define HALYARD_VERSION_NUMBER (HALYARD_VERSION_MAJOR * 10000 + HALYARD_VERSION_MINOR * 100 + HALYARD_VERSION_PATCH)

/** Version of the library that is linked: "major.minor.patch". */
HALYARD_API const char *halyard_version(void);

/** @} */

/** @defgroup isa Instruction sets
 *  @{ */

/** Variants the kernels are built for, weakest first. A library holds those of one processor. The values stay what they
 *  are; new ones will lie between them. */
typedef enum halyard_isa HALYARD_AS_INT {
    HALYARD_ISA_SSE41 = 10,  /**< "sse41":       x86-64 with SSE4.1 */
    HALYARD_ISA_AVX2 = 20,   /**< "avx2":        AVX2, FMA, F16C */
    HALYARD_ISA_AVX512 = 30, /**< "avx512":      AVX-512 F, BW, CD, DQ, VL (Skylake-SP and later, Zen 4 and later) */
    HALYARD_ISA_AVX512_BF16 = 40, /**< "avx512_bf16": products of bf16 by AVX-512 BF16, else AVX-512 (Zen 4 and later;
                                       also runs on Sapphire Rapids and later, where it is slower than AVX-512) */
    HALYARD_ISA_AMX = 50,   /**< "amx":         products of bf16 by AMX, else AVX-512 (Sapphire Rapids and later) */
    HALYARD_ISA_NEON = 110, /**< "neon":        any 64-bit ARM */
    HALYARD_ISA_NEON_FP16 =
        120, /**< "neon_fp16":   ARMv8.2 with half-precision arithmetic and dot products of bytes (Cortex-A55, A75
                and later) */
    HALYARD_ISA_NEON_BF16 = 130,  /**< "neon_bf16":   products of bf16 by BFMLALT and BFMLALB, else as "neon_fp16"
                                      (Cortex-A510, A710 and X2 and later, Neoverse V1 and N2 and later) */
    HALYARD_ISA_NEON_BFDOT = 140, /**< "neon_bfdot":  the same by BFDOT, with bits of their own (the same processors) */
    HALYARD_ISA_NEON_BFMMLA = 150, /**< "neon_bfmmla": the same by BFMMLA too, with the bits of "neon_bfdot" */
} halyard_isa;

/** Number of values of halyard_isa, those of other processors included. */
HALYARD_API int halyard_isa_count(void);
/** The values of halyard_isa in ascending order, for `index` from 0 to halyard_isa_count() - 1; -1 for others. */
HALYARD_API halyard_isa halyard_isa_at(int index);
/** "sse41", "avx2", "avx512", "avx512_bf16", "amx", "neon", "neon_fp16", "neon_bf16", "neon_bfdot",
 *  "neon_bfmmla"; null if `isa` is not a value of the enumeration. */
HALYARD_API const char *halyard_isa_name(halyard_isa isa);
/** 1 if this library holds the variant and this CPU and operating system can run it, else 0. For HALYARD_ISA_AMX the system is
 *  asked for permission, as it is by the first call that may use it. */
HALYARD_API int halyard_isa_supported(halyard_isa isa);
/** 1 if it is supported and calls may choose it by themselves, else 0: of a supported variant that is slower on this CPU
 *  than a lesser one. */
HALYARD_API int halyard_isa_preferred(halyard_isa isa);

/** 1 if this library was built with the operation, whose name is one of operations.cmake ("layer_norm", "ffn"), else 0: its
 *  functions then answer HALYARD_UNSUPPORTED. halyard/config.h says the same to the preprocessor. */
HALYARD_API int halyard_operation_supported(const char *operation);

/** @} */

/** @defgroup context Context
 *  @{ */

/** What a call needs beside its tensors. A null context means the defaults: all processors this process may
 *  use, the library's own threads, the best instruction set. A context may be shared by threads; the setters
 *  may not run at the same time as calls that use the context. */
typedef struct halyard_context halyard_context;

/** Makes a context with the defaults. */
HALYARD_API halyard_status halyard_context_create(halyard_context **context);
/** Frees it; null is allowed. */
HALYARD_API void halyard_context_destroy(halyard_context *context);

/** Upper bound on the threads one call uses, the caller's included. 1 keeps calls on the calling thread,
 *  0 restores the default; at most 256. Calls too small to gain from a second thread use one whatever the bound.
 *  The default is found out when a context is made and, for the null context, when the library is loaded:
 *  HALYARD_NUM_THREADS (1 to 256) if set; else as many as the processors that the calling thread may run on, but no more
 *  than the CPU quotas of the process' control groups give the time of, rounded up. */
HALYARD_API halyard_status halyard_context_set_num_threads(halyard_context *context, int num_threads);
/** The bound in force. */
HALYARD_API int halyard_context_num_threads(const halyard_context *context);

/** Calls `task(closure, i)` once for every i in [0, count), in any order, on any threads, and returns when all are
 *  done: nothing may leave it by an exception or longjmp. `user` is what was given to halyard_context_set_parallel_for.
 *  A task needs up to 160 KiB of stack. */
typedef void (*halyard_parallel_for)(void *user, int count, void (*task)(void *closure, int index), void *closure);
/** Runs this context's work on the caller's own threads; null restores the library's. The thread bound above
 *  still says into how many tasks a call is split. */
HALYARD_API halyard_status halyard_context_set_parallel_for(halyard_context *context, halyard_parallel_for parallel_for,
                                                            void *user);

/** Caps the instruction set: calls use `isa` itself if it is supported, preferred or not; else the best preferred variant
 *  below it. HALYARD_UNSUPPORTED if it is one of another processor than the library is built for. The environment variable
 *  HALYARD_MAX_ISA (a name as halyard_isa_name gives, read once) caps every context besides. */
HALYARD_API halyard_status halyard_context_set_max_isa(halyard_context *context, halyard_isa isa);
/** The variant that calls with this context (null: the default) use. */
HALYARD_API halyard_isa halyard_context_isa(const halyard_context *context);

/** To what the inputs of products are rounded that no caller sees: what lies between the products of a feed-forward network,
 *  of attention, of a block or a stack; HALYARD_PRODUCTS_INT8 also rounds x itself. Values other than these may come to be used. */
typedef enum halyard_products HALYARD_AS_INT {
    HALYARD_PRODUCTS_STORAGE =
        0, /**< to bf16 where weights and activations are: once before a product, to nearest even, and
                                       never more often than PyTorch does */
    HALYARD_PRODUCTS_FULL = 1, /**< to nothing: they are f32 */
    HALYARD_PRODUCTS_BF16 =
        2, /**< to bf16 where weights, or keys and values, are bf16 or quantized, whatever the activations
                                    are: as fast as bf16 for many rows of quantized weights */
    HALYARD_PRODUCTS_INT8 =
        3, /**< x of every product with quantized weights, of halyard_linear too, to whole numbers in [-127, 127] times a scale
                for each 32 inputs (16 where weights have groups of 16): within max |x| / 254 of x. Faster than f32 where
                it was measured (SSE4.1, AVX2). A row's result is NaN where an x is Inf or
                NaN. All else as HALYARD_PRODUCTS_STORAGE */
} halyard_products;

/** How products of calls with this context are taken: HALYARD_PRODUCTS_STORAGE if neither this nor the environment variable
 *  HALYARD_PRODUCTS ("storage", "full", "bf16" or "int8", read when the library is loaded) says another. docs/numerics.md says what is
 *  rounded. On CUDA devices it changes nothing. */
HALYARD_API halyard_status halyard_context_set_products(halyard_context *context, halyard_products products);
/** What is in force (null: the default context). */
HALYARD_API halyard_products halyard_context_products(const halyard_context *context);

/** Norms, softmax and elementwise calls that read and write at least this many bytes in all write their outputs around the caches,
 *  which saves memory a third of the traffic when the outputs could not stay in cache anyway. -1 restores the default: three
 *  quarters of the last-level cache, on x86; elementwise calls have it from AVX2 on. INT64_MAX turns it off. In-place calls never do so. The
 *  results are the same bits. */
HALYARD_API halyard_status halyard_context_set_streaming_min_bytes(halyard_context *context, int64_t min_bytes);

/** The stream (a CUstream or cudaStream_t) in which calls with this context on CUDA tensors put their work; null is the
 *  default stream. It belongs to the device of those tensors. */
HALYARD_API halyard_status halyard_context_set_cuda_stream(halyard_context *context, void *stream);

/** Frees the memory, on devices too, that calls with this context (null: the default one) keep for the intermediates of linear
 *  layers and feed-forward networks. It grows to what the largest call (for each of several at once) needed and is reused:
 *  calls in steady state allocate nothing. */
HALYARD_API void halyard_context_release_scratch(const halyard_context *context);

/** @} */

/** @defgroup cuda CUDA
 *
 *  Norms, softmax, activations, gated units, add, cast, linear layers, feed-forward networks and what attention.h and
 *  block.h declare, but for gradients and quantized weights, take tensors of a CUDA device, in a library that was built
 *  with HALYARD_CUDA. Such a call checks
 *  its arguments, puts kernels into the stream and returns: it neither waits nor, in steady state, allocates (linear
 *  layers, networks and attention have scratch memory on the device, in the context; a rope has its table there), and
 *  it can be captured in a graph if its kernels have been loaded and such a call has been made before. Products of
 *  linear layers are cuBLASLt's if that is found at run time, unless the environment variable HALYARD_CUBLASLT is
 *  "off", else the library's. A call uses the device's primary context, which is the one of the CUDA runtime and
 *  PyTorch. The driver is opened at the first use; without one, calls say so (HALYARD_NO_DEVICE). Rows are read by 16
 *  bytes where data and pitch are multiples of 16 bytes and the width is whole; other tensors take longer, and give
 *  the same bits.
 *  @{ */

/** Opens the driver and loads all kernels for a device (0 is the first), so that no later call has to. Also the way to ask
 *  whether calls on that device can work: HALYARD_UNSUPPORTED if the library has no CUDA kernels, HALYARD_NO_DEVICE
 *  otherwise. */
HALYARD_API halyard_status halyard_cuda_prepare(int device);

/** @} */

/** @defgroup norms Normalization
 *
 *  x, y: [..., d]; weight, bias: [d] or null, each of the dtype of x or f32. Each row by itself. y may be x.
 *  eps: finite and >= 0. A row of zeros gives bias (or 0), never NaN, even with eps = 0. NaN or Inf in a row
 *  stays in that row.
 *  Squares are summed in f32. A row has its full accuracy where its mean square (LayerNorm: variance) + eps is at
 *  least 2^-126 (1.2e-38) and its sum of squares (of deviations from the mean) is below 2^128 (3.4e38): with eps = 0
 *  features of 1e-18 to 1e19 / sqrt(d). docs/numerics.md says what is beyond.
 *  @{ */

/** y = weight * (x - mean) / sqrt(var + eps) + bias; mean and biased variance (divided by d) over the row
 *  (Ba, Kiros, Hinton 2016). The variance is centred and the mean carried beyond f32, so rows with
 *  |mean| >> deviation keep their accuracy. Finite features whose squared deviations overflow f32 in sum give bias
 *  (or 0); those whose own sum overflows may give NaN. */
HALYARD_API halyard_status halyard_layer_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                              const DLTensor *bias, float eps, DLTensor *y);

/** Options of the RMSNorm functions, combined with |. */
enum {
    HALYARD_RMS_EPS_OUTSIDE_ROOT = 1, /**< divide by sqrt(mean square) + eps, the form printed in many texts */
    HALYARD_RMS_UNIT_OFFSET = 2,      /**< multiply by 1 + weight: Gemma's convention; no change without a weight */
};

/** y = weight * x / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019). A row of finite features whose sum of squares
 *  overflows f32 gives 0; so does, with eps = 0, one whose squares all vanish (features of at most 2^-75). */
HALYARD_API halyard_status halyard_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                            float eps, unsigned flags, DLTensor *y);

/** pRMSNorm: as halyard_rms_norm with the mean square over the first ceil(p * d) features of the row; all d
 *  features are scaled. p in (0, 1], 0.0625 in the paper. p * d is the product in double of the f32 p, so 0.1f and
 *  d = 10 take 2 features: 0.1f is a little more than 0.1. */
HALYARD_API halyard_status halyard_partial_rms_norm(const halyard_context *context, const DLTensor *x,
                                                    const DLTensor *weight, float eps, unsigned flags, float p,
                                                    DLTensor *y);

/** residual_out = x + residual; y = LayerNorm(residual_out): the Pre-LN residual update in one pass over
 *  memory, with the bits of halyard_add followed by halyard_layer_norm. All five tensors [..., d].
 *  residual_out may be x or residual; y may be x or residual if residual_out is not that one. */
HALYARD_API halyard_status halyard_add_layer_norm(const halyard_context *context, const DLTensor *x,
                                                  const DLTensor *residual, const DLTensor *weight,
                                                  const DLTensor *bias, float eps, DLTensor *residual_out, DLTensor *y);

/** residual_out = x + residual; y = RMSNorm(residual_out); as halyard_add_layer_norm. */
HALYARD_API halyard_status halyard_add_rms_norm(const halyard_context *context, const DLTensor *x,
                                                const DLTensor *residual, const DLTensor *weight, float eps,
                                                unsigned flags, DLTensor *residual_out, DLTensor *y);

/** The gradients of halyard_layer_norm, with g = dy * weight and n = (x - mean) / sqrt(var + eps):
 *
 *    dx = (g - mean(g) - n mean(g n)) / sqrt(var + eps) + dresidual_out, dweight = sum of dy n, dbias = sum of dy
 *
 *  x, dy, dx: [..., d]; dx may be x, dy or dresidual_out. dresidual_out is null, or [..., d]: the gradient of what
 *  halyard_add_layer_norm writes as residual_out, which is x here; dx is then that of its x and of its residual. dweight and dbias are
 *  null or f32 [d] whatever x is: sums over rows, by blocks of 32 rows; accumulate not 0: added to what is there. dweight needs a
 *  weight. A row without deviation and with eps = 0 has dx = dresidual_out, or 0. On processors alone. */
HALYARD_API halyard_status halyard_layer_norm_backward(const halyard_context *context, const DLTensor *x,
                                                       const DLTensor *weight, float eps, const DLTensor *dy,
                                                       const DLTensor *dresidual_out, int accumulate, DLTensor *dx,
                                                       DLTensor *dweight, DLTensor *dbias);

/** The gradients of halyard_rms_norm, with g = dy * weight (or dy (1 + weight)) and r = sqrt(mean(x^2) + eps):
 *
 *    dx = (g - x mean(g x) / r^2) / r + dresidual_out, dweight = sum of dy x / r
 *
 *  with eps outside the root, s = sqrt(mean(x^2)) + eps: dx = (g - x mean(g x) / (s sqrt(mean(x^2)))) / s + dresidual_out.
 *  Else as halyard_layer_norm_backward. */
HALYARD_API halyard_status halyard_rms_norm_backward(const halyard_context *context, const DLTensor *x,
                                                     const DLTensor *weight, float eps, unsigned flags,
                                                     const DLTensor *dy, const DLTensor *dresidual_out, int accumulate,
                                                     DLTensor *dx, DLTensor *dweight);

/** The gradients of halyard_partial_rms_norm: the second term of dx belongs to the first ceil(p * d) features alone, and its mean divides the sum
 *  over all features by their number. */
HALYARD_API halyard_status halyard_partial_rms_norm_backward(const halyard_context *context, const DLTensor *x,
                                                             const DLTensor *weight, float eps, unsigned flags, float p,
                                                             const DLTensor *dy, const DLTensor *dresidual_out,
                                                             int accumulate, DLTensor *dx, DLTensor *dweight);

/** y = exp(scale * (x - m)) / sum(exp(scale * (x - m))) over each row, m the feature for which scale * x is largest;
 *  y may be x. scale is finite. The difference is taken first, so that a large mean costs no accuracy; one that
 *  overflows f32 counts as infinite. Where scale * x of a row holds NaN or +Inf, or only -Inf, the row gives NaN
 *  throughout, as in PyTorch; other -Inf give 0. */
HALYARD_API halyard_status halyard_softmax(const halyard_context *context, const DLTensor *x, float scale, DLTensor *y);

/** dx = scale * y * (dy - sum(y * dy)) over each row: the gradient of halyard_softmax from its result y. All three tensors [..., d];
 *  dx may be y or dy. scale is finite. On processors alone. */
HALYARD_API halyard_status halyard_softmax_backward(const halyard_context *context, const DLTensor *y,
                                                    const DLTensor *dy, float scale, DLTensor *dx);

/** @} */

/** @defgroup activations Activations
 *
 *  Element by element, x and y of one shape; y may be x. NaN gives NaN; limits at +-Inf.
 *  @{ */

/** max(0, x) */
HALYARD_API halyard_status halyard_relu(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** max(0, x)^2, squared ReLU (So et al. 2021, Primer) */
HALYARD_API halyard_status halyard_relu2(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x * Phi(x) = x/2 * erfc(-x / sqrt(2)), exact GELU (Hendrycks and Gimpel 2016); +0 at -Inf */
HALYARD_API halyard_status halyard_gelu(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), "gelu_new" or "gelu_pytorch_tanh"
 *  (Hendrycks and Gimpel 2016) */
HALYARD_API halyard_status halyard_gelu_tanh(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x * sigmoid(1.702 x), "quick_gelu" (Hendrycks and Gimpel 2016) */
HALYARD_API halyard_status halyard_gelu_sigmoid(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x * sigmoid(x), also called Swish-1 (Elfwing et al. 2017) */
HALYARD_API halyard_status halyard_silu(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x * sigmoid(beta * x) (Ramachandran et al. 2017); beta is 0, or from 1e-28 to 1e28 in magnitude */
HALYARD_API halyard_status halyard_swish(const halyard_context *context, const DLTensor *x, float beta, DLTensor *y);
/** 1 / (1 + exp(-x)) */
HALYARD_API halyard_status halyard_sigmoid(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** tanh(x) */
HALYARD_API halyard_status halyard_tanh(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** exp(x); overflow gives Inf, underflow is gradual */
HALYARD_API halyard_status halyard_exp(const halyard_context *context, const DLTensor *x, DLTensor *y);

/** @name Derivatives
 *  The derivative of each activation at x.
 *  @{ */

/** The derivative of halyard_relu; 0 at 0, as in PyTorch. */
HALYARD_API halyard_status halyard_relu_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** The derivative of halyard_relu2. */
HALYARD_API halyard_status halyard_relu2_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** The derivative of halyard_gelu. */
HALYARD_API halyard_status halyard_gelu_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** The derivative of halyard_gelu_tanh. */
HALYARD_API halyard_status halyard_gelu_tanh_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** The derivative of halyard_gelu_sigmoid. */
HALYARD_API halyard_status halyard_gelu_sigmoid_derivative(const halyard_context *context, const DLTensor *x,
                                                           DLTensor *y);
/** The derivative of halyard_silu. */
HALYARD_API halyard_status halyard_silu_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** The derivative of halyard_swish with respect to x. */
HALYARD_API halyard_status halyard_swish_derivative(const halyard_context *context, const DLTensor *x, float beta,
                                                    DLTensor *y);
/** The derivative of halyard_sigmoid. */
HALYARD_API halyard_status halyard_sigmoid_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** The derivative of halyard_tanh. */
HALYARD_API halyard_status halyard_tanh_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** The derivative of halyard_exp. */
HALYARD_API halyard_status halyard_exp_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** @} */

/** @name Gradients
 *  dx = dy f'(x), where y = f(x): what a loss changes with x, from what it changes with y. f' is the derivative above, in f32
 *  also where tensors are f16 or bf16. x, dy, dx: one shape; dx may be x or dy. NaN in x or dy gives NaN. Processors alone:
 *  tensors on a CUDA device are refused with HALYARD_UNSUPPORTED.
 *  @{ */

/** The gradient of halyard_relu. */
HALYARD_API halyard_status halyard_relu_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,
                                                 DLTensor *dx);
/** The gradient of halyard_relu2. */
HALYARD_API halyard_status halyard_relu2_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,
                                                  DLTensor *dx);
/** The gradient of halyard_gelu. */
HALYARD_API halyard_status halyard_gelu_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,
                                                 DLTensor *dx);
/** The gradient of halyard_gelu_tanh. */
HALYARD_API halyard_status halyard_gelu_tanh_backward(const halyard_context *context, const DLTensor *x,
                                                      const DLTensor *dy, DLTensor *dx);
/** The gradient of halyard_gelu_sigmoid. */
HALYARD_API halyard_status halyard_gelu_sigmoid_backward(const halyard_context *context, const DLTensor *x,
                                                         const DLTensor *dy, DLTensor *dx);
/** The gradient of halyard_silu. */
HALYARD_API halyard_status halyard_silu_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,
                                                 DLTensor *dx);
/** The gradient of halyard_swish with respect to x; beta as there. */
HALYARD_API halyard_status halyard_swish_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,
                                                  float beta, DLTensor *dx);
/** The gradient of halyard_sigmoid. */
HALYARD_API halyard_status halyard_sigmoid_backward(const halyard_context *context, const DLTensor *x,
                                                    const DLTensor *dy, DLTensor *dx);
/** The gradient of halyard_tanh. */
HALYARD_API halyard_status halyard_tanh_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,
                                                 DLTensor *dx);
/** The gradient of halyard_exp. */
HALYARD_API halyard_status halyard_exp_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,
                                                DLTensor *dx);
/** @} */

/** @} */

/** @defgroup gated_units Gated linear units (Dauphin et al. 2016, Shazeer 2020)
 *
 *  gate, up, y: [..., h], one shape; y may be gate or up. The gate goes through the activation.
 *  @{ */

/** sigmoid(gate) * up */
HALYARD_API halyard_status halyard_glu(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                       DLTensor *y);
/** gate * up */
HALYARD_API halyard_status halyard_bilinear(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                            DLTensor *y);
/** max(0, gate) * up */
HALYARD_API halyard_status halyard_reglu(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                         DLTensor *y);
/** gelu(gate) * up with the exact GELU */
HALYARD_API halyard_status halyard_geglu(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                         DLTensor *y);
/** gelu_tanh(gate) * up */
HALYARD_API halyard_status halyard_geglu_tanh(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                              DLTensor *y);
/** swish(gate, beta) * up; beta = 1 in every published model. beta as for halyard_swish. */
HALYARD_API halyard_status halyard_swiglu(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                          float beta, DLTensor *y);

/** Where gate and up lie in the rows of one tensor [..., 2h]. */
typedef enum halyard_glu_layout HALYARD_AS_INT {
    HALYARD_GLU_GATE_UP = 0,     /**< two halves, gate first: Hugging Face's gate_up_proj */
    HALYARD_GLU_UP_GATE = 1,     /**< two halves, gate second: torch.nn.functional.glu */
    HALYARD_GLU_INTERLEAVED = 2, /**< g0 u0 g1 u1 ... */
} halyard_glu_layout;

/** @name Gate and up in one tensor
 *  The same on one tensor x: [..., 2h] -> y: [..., h]. For the two halved layouts y may be the half of x that
 *  holds the gate or the one that holds up (the same data and strides); otherwise y may not overlap x.
 *  @{ */

/** sigmoid(gate) * up */
HALYARD_API halyard_status halyard_glu_packed(const halyard_context *context, const DLTensor *x,
                                              halyard_glu_layout layout, DLTensor *y);
/** gate * up */
HALYARD_API halyard_status halyard_bilinear_packed(const halyard_context *context, const DLTensor *x,
                                                   halyard_glu_layout layout, DLTensor *y);
/** max(0, gate) * up */
HALYARD_API halyard_status halyard_reglu_packed(const halyard_context *context, const DLTensor *x,
                                                halyard_glu_layout layout, DLTensor *y);
/** gelu(gate) * up */
HALYARD_API halyard_status halyard_geglu_packed(const halyard_context *context, const DLTensor *x,
                                                halyard_glu_layout layout, DLTensor *y);
/** gelu_tanh(gate) * up */
HALYARD_API halyard_status halyard_geglu_tanh_packed(const halyard_context *context, const DLTensor *x,
                                                     halyard_glu_layout layout, DLTensor *y);
/** swish(gate, beta) * up; beta as for halyard_swish */
HALYARD_API halyard_status halyard_swiglu_packed(const halyard_context *context, const DLTensor *x,
                                                 halyard_glu_layout layout, float beta, DLTensor *y);
/** @} */

/** @name Gradients
 *  dgate = dy up f'(gate) and dup = dy f(gate), where y = f(gate) up. gate, up, dy, dgate, dup: [..., h], one shape. Each of
 *  dgate and dup may be gate, up or dy; they may not overlap each other. On one tensor, x and dx: [..., 2h] have dgate and
 *  dup where gate and up are, and dy: [..., h]; dx may be x, and may not overlap dy. Values and derivatives of f are f32 also
 *  where tensors are f16 or bf16. Processors alone: tensors on a CUDA device are refused with HALYARD_UNSUPPORTED.
 *  @{ */

/** The gradients of halyard_glu. */
HALYARD_API halyard_status halyard_glu_backward(const halyard_context *context, const DLTensor *gate,
                                                const DLTensor *up, const DLTensor *dy, DLTensor *dgate, DLTensor *dup);
/** The gradient of halyard_glu_packed. */
HALYARD_API halyard_status halyard_glu_packed_backward(const halyard_context *context, const DLTensor *x,
                                                       halyard_glu_layout layout, const DLTensor *dy, DLTensor *dx);
/** The gradients of halyard_bilinear. */
HALYARD_API halyard_status halyard_bilinear_backward(const halyard_context *context, const DLTensor *gate,
                                                     const DLTensor *up, const DLTensor *dy, DLTensor *dgate,
                                                     DLTensor *dup);
/** The gradient of halyard_bilinear_packed. */
HALYARD_API halyard_status halyard_bilinear_packed_backward(const halyard_context *context, const DLTensor *x,
                                                            halyard_glu_layout layout, const DLTensor *dy,
                                                            DLTensor *dx);
/** The gradients of halyard_reglu. */
HALYARD_API halyard_status halyard_reglu_backward(const halyard_context *context, const DLTensor *gate,
                                                  const DLTensor *up, const DLTensor *dy, DLTensor *dgate,
                                                  DLTensor *dup);
/** The gradient of halyard_reglu_packed. */
HALYARD_API halyard_status halyard_reglu_packed_backward(const halyard_context *context, const DLTensor *x,
                                                         halyard_glu_layout layout, const DLTensor *dy, DLTensor *dx);
/** The gradients of halyard_geglu. */
HALYARD_API halyard_status halyard_geglu_backward(const halyard_context *context, const DLTensor *gate,
                                                  const DLTensor *up, const DLTensor *dy, DLTensor *dgate,
                                                  DLTensor *dup);
/** The gradient of halyard_geglu_packed. */
HALYARD_API halyard_status halyard_geglu_packed_backward(const halyard_context *context, const DLTensor *x,
                                                         halyard_glu_layout layout, const DLTensor *dy, DLTensor *dx);
/** The gradients of halyard_geglu_tanh. */
HALYARD_API halyard_status halyard_geglu_tanh_backward(const halyard_context *context, const DLTensor *gate,
                                                       const DLTensor *up, const DLTensor *dy, DLTensor *dgate,
                                                       DLTensor *dup);
/** The gradient of halyard_geglu_tanh_packed. */
HALYARD_API halyard_status halyard_geglu_tanh_packed_backward(const halyard_context *context, const DLTensor *x,
                                                              halyard_glu_layout layout, const DLTensor *dy,
                                                              DLTensor *dx);
/** The gradients of halyard_swiglu; beta as there. */
HALYARD_API halyard_status halyard_swiglu_backward(const halyard_context *context, const DLTensor *gate,
                                                   const DLTensor *up, const DLTensor *dy, float beta, DLTensor *dgate,
                                                   DLTensor *dup);
/** The gradient of halyard_swiglu_packed; beta as there. */
HALYARD_API halyard_status halyard_swiglu_packed_backward(const halyard_context *context, const DLTensor *x,
                                                          halyard_glu_layout layout, const DLTensor *dy, float beta,
                                                          DLTensor *dx);
/** @} */

/** @} */

/** @defgroup elementwise Elementwise
 *  @{ */

/** y = a + b, one shape; y may be a or b. */
HALYARD_API halyard_status halyard_add(const halyard_context *context, const DLTensor *a, const DLTensor *b,
                                       DLTensor *y);

/** y = x rounded to y's dtype (to nearest even, overflow to Inf, NaN stays NaN). The dtypes may differ; with
 *  equal dtypes this is a strided copy, and y may be x. */
HALYARD_API halyard_status halyard_cast(const halyard_context *context, const DLTensor *x, DLTensor *y);

/** @} */

/** @defgroup weights Weights of linear layers
 *
 *  A weight matrix is packed once into the form the kernels read: panels 16 outputs wide, input by input, in the
 *  dtype of its source (f32, f16 or bf16 stay as they are in memory and are widened in registers), or in codes of 8 or 4
 *  bits, if it is quantized. The packed bytes
 *  are the same on every CPU target, hold no pointers, and are what a file of weights holds.
 *  @{ */

/** A packed weight matrix. May be used by any number of threads. */
typedef struct halyard_weights halyard_weights;

/** How a weight matrix lies in memory. */
typedef enum halyard_weight_layout HALYARD_AS_INT {
    HALYARD_WEIGHT_OUT_IN = 0, /**< [out_features, in_features]: torch.nn.Linear, safetensors */
    HALYARD_WEIGHT_IN_OUT = 1, /**< [in_features, out_features]: GPT-2's Conv1D */
} halyard_weight_layout;

/** Codes in place of a matrix of f32, f16 or bf16, by rounding to nearest. Each group of inputs of an output has a scale d:
 *  - symmetric, 8 bits: d = max |w| / 127, q = round(w / d) + 128; a weight is d (q - 128). As ggml's Q8_0.
 *  - symmetric, 4 bits: d = (the first w of the largest magnitude) / -8, q = min(15, trunc(w / d + 8.5)); d (q - 8). As Q4_0.
 *  - asymmetric: lo and hi being the least and the largest w and 0, d = (hi - lo) / (2^bits - 1), z = round(-lo / d),
 *    q = round(w / d) + z, both within 0 .. 2^bits - 1; d (q - z).
 *
 *  In f32, each operation rounded; w / d is w times 1 / d, halves are rounded away from 0, and a |d| below 2^-126 is 0 and makes
 *  every w / d 0. Scales are stored rounded to scale_dtype, of which codes take no notice. NaN, Inf and numbers too large for
 *  scales (65504, and 2^100 in any dtype) are refused.
 *
 *  Products sum x times the codes of a group before they multiply by its scale: docs/numerics.md has them to the bit, with a bound. */
typedef struct halyard_quantization {
    int bits;               /**< of a code: 8 or 4; 0: no codes, and group and asymmetric are 0 too */
    int group;              /**< inputs that share a scale: 16, 32, 64, 128, 256, or 0: all of them */
    int asymmetric;         /**< not 0: each group has a zero too */
    DLDataType scale_dtype; /**< all zero: f16 */
} halyard_quantization;

/** What halyard_weights_pack does beside packing. All zero (or a null pointer for the whole) means: [out, in], one
 *  matrix, nothing folded. */
typedef struct halyard_pack_options {
    halyard_weight_layout layout; /**< of `weight` and `up` */
    /** Null, or a second matrix of the same shape and dtype: `weight` is then the gate, this one is `up`, and the two
     *  are interleaved so that one pass computes both (a *gated* matrix: halyard_linear then multiplies
     *  activation(gate) by up, and `out_features` counts the columns of one of them). */
    const DLTensor *up;
    /** Null, or [in_features], the dtype of `weight` or f32: the weight of the norm before the layer, folded into the
     *  matrix (row k of x times W is multiplied by norm_weight[k]; one rounding to the dtype). */
    const DLTensor *norm_weight;
    /** Null, or [in_features], of such a dtype too: the bias of the LayerNorm before the layer, kept as the f32
     *  vector norm_bias times W, which halyard_linear adds like a bias. */
    const DLTensor *norm_bias;
    /** Not 0: fold 1 + norm_weight, Gemma's convention; no change without norm_weight. */
    int norm_unit_offset;
    /** Where the packed matrix is to be: all zero: on the device that `weight` is on; else that of a CUDA device, to which a
     *  matrix in the memory of the process is copied. */
    DLDevice device;
    /** For processors, without a norm to be folded. */
    halyard_quantization quantization;
} halyard_pack_options;

/** How quantized weights come of their codes q, scales and the like, of which every group of inputs of an output has its own.
 *  docs/numerics.md says how products with them are rounded. */
typedef enum halyard_scale_kind HALYARD_AS_INT {
    HALYARD_SCALE_PLAIN = 0,      /**< s * (q - 2^(bits - 1)) */
    HALYARD_SCALE_ZERO = 1,       /**< s * (q - z), z from 0 to 255 */
    HALYARD_SCALE_MIN = 2,        /**< s * q + m, s and m f16 or bf16; q below 128 */
    HALYARD_SCALE_TWO_LEVELS = 3, /**< (d * sc) * q - (dmin * mn), d and dmin f16 for 256 inputs, sc and mn u8 for 32 */
    HALYARD_SCALE_TWO_LEVELS_SIGNED = 4, /**< (d * sc) * (q - 128), d f16 for 256 inputs, sc s8 for 16; 8 bits */
} halyard_scale_kind;

/** Where the codes of a matrix w [out, in] come from, and what is in memory: formats of files, whose numbers are taken as they
 *  are. A row of blocks, of 32 inputs or, of Q4_K to Q6_K, 256, has `in` as a multiple of that. g: the group of an input. */
typedef enum halyard_code_format HALYARD_AS_INT {
    /* Blocks of GGUF: ggml-common.h and dequantize_row_... in ggml-quants.c of ggml. */
    HALYARD_CODES_Q8_0 = 0, /**< 34 bytes: d (q - 128) with q as s8 + 128 */
    HALYARD_CODES_Q4_0 = 1, /**< 18 bytes: d (q - 8) */
    HALYARD_CODES_Q4_1 = 2, /**< 20 bytes: d q + m */
    HALYARD_CODES_Q5_0 = 3, /**< 22 bytes: d (q - 16); codes of 8 bits here */
    HALYARD_CODES_Q5_1 = 4, /**< 24 bytes: d q + m; codes of 8 bits here */
    HALYARD_CODES_Q4_K = 5, /**< 144 bytes: (d sc) q - (dmin mn) */
    HALYARD_CODES_Q5_K = 6, /**< 176 bytes: (d sc) q - (dmin mn); codes of 8 bits here */
    HALYARD_CODES_Q6_K = 7, /**< 210 bytes: (d sc) (q - 32); codes of 8 bits here */
    /** s[g] (q - z[g]), codes and zeros int8: int-quantized of compressed-tensors, and whoever has a scale per output. */
    HALYARD_CODES_INT8 = 8,
    /** s[g] (q - z[g]), pack-quantized of compressed-tensors with 4 or 8 bits: pack_to_int32 of its pack_quantized/helpers.py.
     *  Not rounded to the scale's dtype. */
    HALYARD_CODES_COMPRESSED_TENSORS = 9,
    /** s[g] (q - z[g]), 4 or 8 bits, checkpoint_format "gptq" of GPTQ (AutoGPTQ): zeros are stored less 1, modulo 2^bits. */
    HALYARD_CODES_GPTQ = 10,
    /** s[g] (q - z[g]), 4 or 8 bits, checkpoint_format "gptq_v2": zeros as they are. */
    HALYARD_CODES_GPTQ_V2 = 11,
    /** s[g] (q - z[g]), 4 bits, AWQ's version "gemm": of 8 outputs in a word the order is 0, 2, 4, 6, 1, 3, 5, 7. */
    HALYARD_CODES_AWQ = 12,
} halyard_code_format;

/** A matrix of codes. Tensors are rank 2 with a contiguous last axis and any pitch; those with one group may be [out] too. N codes
 *  of 4 or 8 bits take ceil(N) = (N bits + 31) / 32 words, the earliest in the lowest bits.
 *
 *  | format             | matrix                    | scales, f32, f16 or bf16 | zeros                      |
 *  |--------------------|---------------------------|--------------------------|----------------------------|
 *  | Q8_0 ... Q6_K      | uint8 [out, bytes of all] | null                     | null                       |
 *  | INT8               | int8  [out, in]           | [out, groups]            | int8  [out, groups]        |
 *  | COMPRESSED_TENSORS | int32 [out, ceil(in)]     | [out, groups]            | int32 [ceil(out), groups]  |
 *  | GPTQ, GPTQ_V2      | int32 [ceil(in), out]     | [groups, out]            | int32 [groups, ceil(out)]  |
 *  | AWQ                | int32 [in, ceil(out)]     | [groups, out]            | int32 [groups, ceil(out)]  |
 *
 *  In files: the tensor of GGUF; weight, weight_scale, weight_zero_point; weight_packed, weight_scale, weight_zero_point; and
 *  qweight, scales, qzeros, with weight_g_idx or g_idx. */
typedef struct halyard_codes {
    halyard_code_format format; /**< what is in memory */
    int bits;                   /**< of COMPRESSED_TENSORS and GPTQ 4 or 8; of others 0, for they say it themselves */
    int64_t in_features;        /**< inputs */
    int64_t out_features;       /**< outputs */
    /** Inputs that share a scale: a multiple of 16; 0: all, or blocks of GGUF. groups = ceil(in / group). */
    int64_t group;
    const DLTensor *matrix; /**< the codes */
    const DLTensor
        *scales; /**< 0, negative and denormal ones too; NaN, Inf and more than 2^100 in magnitude are refused */
    const DLTensor *zeros; /**< null: symmetric codes, z = 2^(bits - 1), of INT8 0 */
    /** Null, or int32 [in], for all but AWQ and blocks of GGUF: the group of each input. Where it is another than k / group
     *  (desc_act, actorder in groups), packed weights have their inputs sorted by group, and products take x in that order; each
     *  group must have `group` inputs, the last one what is left. */
    const DLTensor *g_idx;
} halyard_codes;

/** What packed weights are. */
typedef struct halyard_weights_info {
    int64_t in_features;  /**< inputs */
    int64_t out_features; /**< outputs: of one matrix, where gate and up are interleaved */
    DLDataType dtype;     /**< of the source; f32 of quantized weights */
    int gated;            /**< 1: gate and up, interleaved */
    int norm_folded;      /**< 1: packed with norm_weight, norm_bias or norm_unit_offset */
    int64_t bytes;        /**< of the packed form: header, column sums, panels */
    int code_bits;        /**< of quantized weights 8 or 4, else 0, as are the fields that follow */
    int code_group; /**< inputs that have one scale, of two levels that of the lower one: 16 to 256; 0: all of them */
    halyard_scale_kind scale_kind; /**< how values follow from codes */
    DLDataType scale_dtype;        /**< of s and m, or of d and dmin */
    int ordered;                   /**< 1: products take x in the order of halyard_codes.g_idx */
} halyard_weights_info;

/* Weights on a CUDA device are for calls on tensors of that device: the matrix row by row, gate and up in one, a norm folded
 * as elsewhere. They are made in the context's stream, for which the call waits; `memory` is memory of the device then,
 * 256-byte aligned, and halyard_weights_data points there. They cannot be saved or loaded. */

/** Bytes that halyard_weights_pack needs. Only shapes, dtypes and devices of the tensors are read; data may be null. */
HALYARD_API halyard_status halyard_weights_size(const DLTensor *weight, const halyard_pack_options *options,
                                                int64_t *bytes);
/** Packs weight: rank 2 with a contiguous last axis and any pitch, at least one row and column. `memory` holds `bytes`
 *  bytes, 64-byte aligned, and must outlive the weights; null lets the library allocate (on huge pages where the
 *  system gives them). A call that fails may have overwritten `memory`, which then holds no weights. The source is not
 *  needed afterwards. */
HALYARD_API halyard_status halyard_weights_pack(const halyard_context *context, const DLTensor *weight,
                                                const halyard_pack_options *options, void *memory, int64_t bytes,
                                                halyard_weights **weights);
/** Packs another matrix into the memory of weights that halyard_weights_pack made, which has the bits of packing it anew: for
 *  training, whose matrices change with every step. Options are those of halyard_weights_pack, the layout being free; features,
 *  dtype, whether there is an `up` and whether a norm is folded must be what they were. Nothing is allocated, but the context's
 *  scratch where one of a norm's vectors is f32 and the other is not. No call may use the weights meanwhile. Refused with HALYARD_UNSUPPORTED: weights that are quantized, are those of a file or of bytes in memory
 *  (halyard_weights_load, halyard_weights_from_memory), or are on a CUDA device. A call that fails leaves the weights as they
 *  were. */
HALYARD_API halyard_status halyard_weights_update(const halyard_context *context, halyard_weights *weights,
                                                  const DLTensor *weight, const halyard_pack_options *options);
/** Bytes that halyard_weights_pack_codes needs. Only shapes and dtypes of the tensors are read; data may be null. */
HALYARD_API halyard_status halyard_weights_codes_size(const halyard_codes *codes, const halyard_codes *up,
                                                      int64_t *bytes);
/** Packs a matrix that is quantized already, for processors, without a loss: codes and scales are kept as they are, and weights are
 *  the values of the format's formula, as halyard_scale_kind says.
 *  `up`: null, or what goes beside `codes`, the gate, in a gated matrix; of the same format, bits, features, group and dtype
 *  of scales, with zeros where `codes` has them, and the same g_idx. `memory` as for halyard_weights_pack. */
HALYARD_API halyard_status halyard_weights_pack_codes(const halyard_context *context, const halyard_codes *codes,
                                                      const halyard_codes *up, void *memory, int64_t bytes,
                                                      halyard_weights **weights);
/** Writes the numbers of a matrix that is quantized already, on processors. y is [out_features, in_features] in f32, f16 or bf16,
 *  with a contiguous last axis and any pitch. In f32 a number is the format's formula, each operation rounded once, as ggml's
 *  dequantize_row_... have it; in 16 bits that is rounded once more. Unlike halyard_weights_pack_codes it takes scales of any
 *  value, so that numbers may be NaN or Inf. Refused are codes as there, another shape of y, and a y that overlaps tensors of
 *  `codes`; nothing is written then. */
HALYARD_API halyard_status halyard_dequantize(const halyard_context *context, const halyard_codes *codes, DLTensor *y);
/** Writes the packed form to a file, which it replaces at once when it is complete, keeping its mode. Nothing but a
 *  regular file is replaced: links are refused too. */
HALYARD_API halyard_status halyard_weights_save(const halyard_weights *weights, const char *path);
/** Maps a file that halyard_weights_save wrote. Header, size and checksum are verified: a truncated or altered file,
 *  another kind of file and one of a later version are refused, each with its own message. The file must not be
 *  changed while the weights are in use. bf16 weights of version 1 are converted into memory of their own, which is
 *  what halyard_weights_data gives then. */
HALYARD_API halyard_status halyard_weights_load(const char *path, halyard_weights **weights);
/** As halyard_weights_load, for packed bytes in memory (64-byte aligned), which must outlive the weights. */
HALYARD_API halyard_status halyard_weights_from_memory(const void *memory, int64_t bytes, halyard_weights **weights);
/** The packed bytes, halyard_weights_info's `bytes` of them; null if `weights` is. */
HALYARD_API const void *halyard_weights_data(const halyard_weights *weights);
/** Describes packed weights. */
HALYARD_API halyard_status halyard_weights_get_info(const halyard_weights *weights, halyard_weights_info *info);
/** Frees what pack and load made; null is allowed. No call that uses the weights may be running. */
HALYARD_API void halyard_weights_destroy(halyard_weights *weights);

/** @} */

/** @defgroup linear Linear layers
 *  @{ */

/** The activations that a linear layer can apply: those above, computed by the same code. */
typedef enum halyard_activation HALYARD_AS_INT {
    HALYARD_IDENTITY = 0,     /**< x */
    HALYARD_RELU = 1,         /**< halyard_relu */
    HALYARD_GELU = 2,         /**< halyard_gelu */
    HALYARD_GELU_TANH = 3,    /**< halyard_gelu_tanh */
    HALYARD_GELU_SIGMOID = 4, /**< halyard_gelu_sigmoid */
    HALYARD_SILU = 5,         /**< halyard_silu */
    HALYARD_SWISH = 6,        /**< halyard_swish, with beta */
    HALYARD_SIGMOID = 7,      /**< halyard_sigmoid */
    HALYARD_TANH = 8,         /**< halyard_tanh */
    HALYARD_EXP = 9,          /**< halyard_exp */
    HALYARD_RELU2 = 10,       /**< halyard_relu2 */
} halyard_activation;

/** The epilogue of a GEMM: what happens to its sums before they are stored, in this order, in f32 without rounding
 *  between the steps. All zero (or a null pointer for the whole): nothing. */
typedef struct halyard_linear_options {
    /** Null, or f32 with the leading shape of x (rank 1 and extent 1 if x has rank 1): each row of sums is
     *  multiplied by its entry. With weights that have a norm folded this is the norm's 1/sqrt(...) of the row. */
    const DLTensor *row_scale;
    /** Null, or like row_scale: the row's mean, for weights with a LayerNorm folded; row_mean times the sums of the
     *  columns of W is subtracted before the row is scaled. */
    const DLTensor *row_mean;
    /** Null, or [out_features], any dtype. For gated weights the gate's. */
    const DLTensor *bias;
    /** Null, or the same for `up` of gated weights. */
    const DLTensor *bias_up;
    /** Applied to the sums; to the gate where weights are gated: sigmoid makes GLU of it, identity Bilinear, relu ReGLU,
     *  gelu GeGLU, silu SwiGLU. */
    halyard_activation activation;
    float beta; /**< of HALYARD_SWISH, as for halyard_swish */
    /** Null, or shape and dtype of y: added last. May be y. */
    const DLTensor *residual;
    /** Null, or f32 with the shape of y, which the call writes: what the activation is applied to, bias and scale included; the gate
     *  where weights are gated. halyard_linear_backward reads it. On processors alone. */
    DLTensor *sums;
    /** Null, or the same of `up` of gated weights. */
    DLTensor *sums_up;
} halyard_linear_options;

/** y = residual + activation(row_scale (x W - row_mean column_sums) + bias), W as packed; for gated weights
 *  residual + activation(gate) * up with both halves scaled, shifted and biased like that.
 *  x: [..., in_features]; y: [..., out_features], the same leading shape; dtypes f32, f16, bf16 of x, y and W in any
 *  combination. y may not overlap x, the weights or any option but `residual`, which it may be; nor may sums. Each element is
 *  accumulated in f32, in one order over the inputs whatever the other rows, the threads and the instruction set:
 *  blocks of 512 in sequence with fused multiply-add, their sums in sequence. in_features and out_features up to 2^31 - 1.
 *  On a CUDA device, with weights packed for it: accumulated in f32 too, in cuBLASLt's order; where x, W and y are of one
 *  16-bit type, sums that are to be scaled, shifted, activated or gated are rounded to it once before (docs/cuda.md). */
HALYARD_API halyard_status halyard_linear(const halyard_context *context, const DLTensor *x,
                                          const halyard_weights *weights, const halyard_linear_options *options,
                                          DLTensor *y);

/** What halyard_linear_backward writes. Null for a gradient that nobody wants; all are f32. */
typedef struct halyard_linear_gradients {
    DLTensor *dx;                 /**< shape of x */
    DLTensor *dweight;            /**< as `layout` says; of the gate where weights are gated */
    DLTensor *dweight_up;         /**< that of `up` */
    DLTensor *dbias;              /**< [out_features]; of the gate where weights are gated */
    DLTensor *dbias_up;           /**< that of `up` */
    halyard_weight_layout layout; /**< of dweight and dweight_up */
    int accumulate;               /**< not 0: all but dx are added to what is there */
} halyard_linear_gradients;

/** The gradients of halyard_linear, from x, W as packed, and dy, the gradient of y: with dz that of the sums before the activation f,
 *
 *    dx = dz W^T, dweight = x^T dz (in [in, out]), dbias = sum of dz over rows
 *
 *  without an activation dz = dy, with one dz = dy f'(sums); for gated weights dgate = dy sums_up f'(sums) and dup = dy f(sums), each with
 *  its dweight and dbias, and dx = dgate Wgate^T + dup Wup^T. The residual's gradient is dy itself.
 *
 *  x: [..., in_features]; dy: [..., out_features], the same leading shape; both and the weights f32. options: those of the forward call,
 *  null if it had none; with an activation or gated weights `sums` (and `sums_up`) hold what that call wrote; bias and residual do not count.
 *  Refused as unsupported: quantized and 16-bit weights, weights with a norm folded, row_scale, row_mean, and gated weights with an
 *  activation that has no gated unit above (relu2, gelu_sigmoid, tanh, exp). No output may overlap an input or another output.
 *
 *  Each element is accumulated in f32 in one order, whatever the threads and the instruction set: dx over outputs as halyard_linear over
 *  inputs, those of gated weights by 16 of the gate and 16 of `up` in turn; dweight over rows, ((g + b0) + b1) + ..., with g what was there
 *  if it accumulates, and the sums of blocks of 512 rows; dbias over blocks of 32 rows. Calls that accumulate, with rows cut at multiples
 *  of 512, so make the bits of one call. On processors alone. */
HALYARD_API halyard_status halyard_linear_backward(const halyard_context *context, const DLTensor *x,
                                                   const halyard_weights *weights, const DLTensor *dy,
                                                   const halyard_linear_options *options,
                                                   const halyard_linear_gradients *gradients);

/** scale = 1/sqrt(mean(x^2) + eps) of each row of x: [..., d], as halyard_rms_norm computes it, in f32 with the leading
 *  shape of x (rank 1 and extent 1 if x has rank 1): `row_scale` for weights with the norm's weight folded.
 *  flags: HALYARD_RMS_EPS_OUTSIDE_ROOT. */
HALYARD_API halyard_status halyard_rms_norm_scale(const halyard_context *context, const DLTensor *x, float eps,
                                                  unsigned flags, DLTensor *scale);
/** mean and scale = 1/sqrt(var + eps) of each row, as halyard_layer_norm computes them: `row_mean` and `row_scale`. */
HALYARD_API halyard_status halyard_layer_norm_scale(const halyard_context *context, const DLTensor *x, float eps,
                                                    DLTensor *mean, DLTensor *scale);

/** @} */

/** @defgroup ffn Feed-forward networks
 *  @{ */

/** The norm before a feed-forward network, and those of a block. */
typedef enum halyard_norm HALYARD_AS_INT {
    HALYARD_NORM_NONE = 0,  /**< none */
    HALYARD_NORM_RMS = 1,   /**< halyard_rms_norm */
    HALYARD_NORM_LAYER = 2, /**< halyard_layer_norm */
} halyard_norm;

/** All zero (or a null pointer for the whole): down(up(x)), no norm, no biases, no activation, no residual. */
typedef struct halyard_ffn_options {
    halyard_norm norm;           /**< of x, before the first GEMM */
    const DLTensor *norm_weight; /**< null or [d_model], dtype of x or f32 */
    const DLTensor *norm_bias;   /**< null or [d_model], dtype of x or f32; LayerNorm only */
    float eps;                   /**< of the norm: finite and >= 0 */
    unsigned norm_flags;         /**< HALYARD_RMS_...; RMSNorm only */
    /** Not 0: `up` was packed with the norm's weight (and bias) folded. The norm then only computes each row's scale (and
     *  mean), which is applied to the sums, and the normalized tensor is never made; norm_weight and norm_bias must
     *  be null. The result is that of the plain form within rounding; the mean of rows with |mean| >> deviation cancels
     *  in the sums' accuracy, as it does in every implementation of this form. */
    int deferred_norm;
    halyard_activation activation; /**< of the first GEMM; of the gate if it is gated */
    float beta;                    /**< of HALYARD_SWISH, as for halyard_swish */
    const DLTensor *bias;          /**< null or [d_ff], any dtype: of the first GEMM; of the gate if it is gated */
    const DLTensor *bias_up;       /**< null or [d_ff]: of `up` where the first GEMM is gated */
    const DLTensor *bias_down;     /**< null or [d_model] */
    int residual;                  /**< not 0: y = x + FFN(Norm(x)); y may be x then */
    /** Null, or f32 [..., d_ff], which the call writes: what the activation is applied to, bias included; the gate where `up` is
     *  gated. halyard_ffn_backward reads it. On processors alone. */
    DLTensor *sums;
    /** Null, or the same of `up` where the first GEMM is gated. */
    DLTensor *sums_up;
} halyard_ffn_options;

/** y = [x +] (activation(N(x) Up + bias) [* (N(x) V + bias_up)]) Down + bias_down.
 *  up: d_model -> d_ff, plain or gated; down: d_ff -> d_model, plain. x: [..., d_model]; y: shape of x, any dtype (that of x
 *  with `residual`). y may not overlap the weights, nor x, which with `residual` it may be. Rows are done in blocks of at most
 *  256. What lies between norm, GEMMs and residual is f32, in the context's scratch: for every 512 inputs, begun or whole, of
 *  d_model and of d_ff 2112 bytes for each row of a block and of 8 more, 4 bytes for each bias, and 1 MB and 8 d_model bytes
 *  per thread at most.
 *  On a CUDA device what lies between is of the one 16-bit type of x and weights, if they have one, else f32, and so many rows
 *  go through at a time that it takes about 512 MB at most. */
HALYARD_API halyard_status halyard_ffn(const halyard_context *context, const DLTensor *x, const halyard_weights *up,
                                       const halyard_weights *down, const halyard_ffn_options *options, DLTensor *y);

/** What halyard_ffn_backward writes. Null for a gradient that nobody wants; all are f32. */
typedef struct halyard_ffn_gradients {
    DLTensor *dx;                 /**< shape of x */
    DLTensor *dweight;            /**< of the first matrix, as `layout` says; of the gate where it is gated */
    DLTensor *dweight_up;         /**< that of `up` where the first GEMM is gated */
    DLTensor *dweight_down;       /**< of the second matrix */
    DLTensor *dbias;              /**< [d_ff]; of the gate where the first GEMM is gated */
    DLTensor *dbias_up;           /**< [d_ff] */
    DLTensor *dbias_down;         /**< [d_model] */
    DLTensor *dnorm_weight;       /**< [d_model]; there must be a norm_weight */
    DLTensor *dnorm_bias;         /**< [d_model]; of LayerNorm */
    halyard_weight_layout layout; /**< of the matrices' gradients */
    int accumulate;               /**< not 0: all but dx are added to what is there */
} halyard_ffn_gradients;

/** The gradients of halyard_ffn, from its x, dy, the gradient of y, and the sums that the forward call wrote: those of the second
 *  layer, whose x is made of the sums again, of the first, whose x is normalized again, and of the norm. With a residual dx has
 *  dy added. Each has the bits of its own function: halyard_linear_backward, halyard_rms_norm_backward or
 *  halyard_layer_norm_backward.
 *  x, dy: [..., d_model], f32, as are both matrices; options: those of the forward call, with `sums` (and `sums_up` where the first
 *  GEMM is gated); its biases do not count. Refused as unsupported is what halyard_linear_backward refuses, and a deferred norm.
 *  No output may overlap an input or another output. Memory in the context's scratch, for each row: 8 bytes for each feature of
 *  d_ff, and 8 for each of d_model. On processors alone. */
HALYARD_API halyard_status halyard_ffn_backward(const halyard_context *context, const DLTensor *x,
                                                const halyard_weights *up, const halyard_weights *down,
                                                const DLTensor *dy, const halyard_ffn_options *options,
                                                const halyard_ffn_gradients *gradients);

/** The width of a gated FFN with the parameters of a standard one of width 4 d_model: 8/3 d_model, rounded down to an
 *  integer and up to a multiple of `multiple_of` (Shazeer 2020; Llama: 4096, 256 -> 11008). 0 if an argument is < 1 or
 *  the result does not fit. */
HALYARD_API int64_t halyard_ffn_hidden_size(int64_t d_model, int64_t multiple_of);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
