/* halyard: the kernels between the matrix products of a transformer, compiled ahead of time.
 *
 * The C interface. Every function takes tensors as DLPack `DLTensor` views, returns a status and never
 * aborts, throws or keeps a pointer beyond the call.
 *
 * Tensors
 *   - device kDLCPU; dtype f32, f16 or bf16 (kDLFloat 32/16, kDLBfloat 16), one lane;
 *   - rank 1 to 4. A *row* is the last axis: it must be contiguous (stride 1). Leading axes may have any
 *     non-negative stride, so a padded pitch or a slice of a larger tensor is fine. `strides == NULL` means
 *     compact row-major, as in DLPack;
 *   - `data + byte_offset` must be aligned to the element; no other alignment is asked for;
 *   - all tensors of one call have one dtype unless the function says otherwise. Arithmetic is in f32 whatever
 *     the storage type, with one rounding (to nearest even) when a result is stored;
 *   - an axis of extent 0 makes the call do nothing, except that row operations (norms, softmax) refuse an
 *     empty last axis: its mean or maximum is not defined.
 *
 * In place
 *   An output may be exactly the same view as an input (same data, same strides) where the function says so.
 *   Any other overlap of an output with an input or another output is refused.
 *
 * Errors
 *   Arguments are checked before anything is written. On failure the outputs are untouched, the status says
 *   what kind of failure it was and halyard_last_error() holds a sentence that names the argument.
 *
 * Numerics
 *   The result of a row does not depend on the other rows of the call, on the row's place among them or on the
 *   number of threads. f32 results are the same bits on AVX2 and AVX-512 (and every later target with fused
 *   multiply-add). docs/numerics.md has the accuracy of each function.
 *
 * Threads
 *   Every function may be called from any number of threads at once, with the same or different contexts.
 */
#ifndef HALYARD_HALYARD_H
#define HALYARD_HALYARD_H

#include <stddef.h>
#include <stdint.h>

#include "dlpack/dlpack.h"

#if defined(_WIN32)
#define HALYARD_API
#else
#define HALYARD_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------------------- */

typedef enum halyard_status {
    HALYARD_OK = 0,
    HALYARD_INVALID_ARGUMENT = 1, /* null, wrong rank, mismatched shape, overlap, value out of range */
    HALYARD_UNSUPPORTED = 2,      /* well formed, but a dtype, device or instruction set this library lacks */
    HALYARD_OUT_OF_MEMORY = 3,
} halyard_status;

/** The name of a status: "ok", "invalid argument", ... Never null. */
HALYARD_API const char *halyard_status_name(halyard_status status);

/** The message of this thread's last failed call, as one sentence naming function and argument; "" if none
 *  failed. Valid until the thread's next failing call. */
HALYARD_API const char *halyard_last_error(void);

/** Version of the library: "major.minor.patch". */
HALYARD_API const char *halyard_version(void);

/* ---- Instruction sets --------------------------------------------------------------------------------- */

/** Variants the kernels are built for, weakest first. */
typedef enum halyard_isa {
    HALYARD_ISA_SSE41 = 0,  /* "sse41":  x86-64 with SSE4.1 */
    HALYARD_ISA_AVX2 = 1,   /* "avx2":   AVX2, FMA, F16C */
    HALYARD_ISA_AVX512 = 2, /* "avx512": AVX-512 F, BW, CD, DQ, VL (Skylake-SP and later, Zen 4 and later) */
} halyard_isa;

/** Number of values of halyard_isa: the valid ones are 0 to halyard_isa_count() - 1. */
HALYARD_API int halyard_isa_count(void);
/** "sse41", "avx2", "avx512"; null if `isa` is not a value of the enumeration. */
HALYARD_API const char *halyard_isa_name(halyard_isa isa);
/** 1 if this library holds the variant and this CPU and operating system can run it, else 0. */
HALYARD_API int halyard_isa_supported(halyard_isa isa);

/* ---- Context ------------------------------------------------------------------------------------------ */

/** What a call needs beside its tensors. A null context means the defaults: all processors this process may
 *  use, the library's own threads, the best instruction set. A context may be shared by threads; the setters
 *  may not run at the same time as calls that use the context. */
typedef struct halyard_context halyard_context;

/** Makes a context with the defaults. */
HALYARD_API halyard_status halyard_context_create(halyard_context **context);
/** Frees it; null is allowed. */
HALYARD_API void halyard_context_destroy(halyard_context *context);

/** Upper bound on the threads one call uses, the caller's included. 1 keeps calls on the calling thread,
 *  0 restores the default (the processors this process may run on, or HALYARD_NUM_THREADS if set); at most
 *  256. Calls too small to gain from a second thread use one whatever the bound. */
HALYARD_API halyard_status halyard_context_set_num_threads(halyard_context *context, int num_threads);
/** The bound in force. */
HALYARD_API int halyard_context_num_threads(const halyard_context *context);

/** Calls `task(closure, i)` for every i in [0, count), in any order, on any threads, and returns when all are
 *  done. `user` is what was given to halyard_context_set_parallel_for. A task needs up to 160 KiB of stack. */
typedef void (*halyard_parallel_for)(void *user, int count, void (*task)(void *closure, int index),
                                     void *closure);
/** Runs this context's work on the caller's own threads; null restores the library's. The thread bound above
 *  still says into how many tasks a call is split. */
HALYARD_API halyard_status halyard_context_set_parallel_for(halyard_context *context,
                                                            halyard_parallel_for parallel_for, void *user);

/** Caps the instruction set: calls use the best supported variant not above `isa`. The environment variable
 *  HALYARD_MAX_ISA (a name as halyard_isa_name gives, read once) caps every context besides. */
HALYARD_API halyard_status halyard_context_set_max_isa(halyard_context *context, halyard_isa isa);
/** The variant that calls with this context (null: the default) use. */
HALYARD_API halyard_isa halyard_context_isa(const halyard_context *context);

/** Norms, add and cast that read and write at least this many bytes in all write their outputs around the caches, which
 *  saves memory a third of the traffic when the outputs could not stay in cache anyway. -1 restores the default, the size of
 *  the last-level cache; INT64_MAX turns it off. In-place calls never do so. The results are the same bits. */
HALYARD_API halyard_status halyard_context_set_streaming_min_bytes(halyard_context *context, int64_t min_bytes);

/* ---- Normalization ------------------------------------------------------------------------------------
 * x, y: [..., d]; weight, bias: [d] or null. Each row by itself. y may be x.
 * eps: finite and >= 0. A row of zeros gives bias (or 0), never NaN, even with eps = 0. NaN or Inf in a row
 * stays in that row. */

/** y = weight * (x - mean) / sqrt(var + eps) + bias; mean and biased variance (divided by d) over the row
 *  (Ba, Kiros, Hinton 2016). The variance is centred and the mean carried beyond f32, so rows with
 *  |mean| >> deviation keep their accuracy. */
HALYARD_API halyard_status halyard_layer_norm(const halyard_context *context, const DLTensor *x,
                                              const DLTensor *weight, const DLTensor *bias, float eps,
                                              DLTensor *y);

/** Options of the RMSNorm functions, combined with |. */
enum {
    HALYARD_RMS_EPS_OUTSIDE_ROOT = 1, /* divide by sqrt(mean square) + eps, the form printed in many texts */
    HALYARD_RMS_UNIT_OFFSET = 2,      /* multiply by 1 + weight: Gemma's convention */
};

/** y = weight * x / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019). A row of finite features whose sum of squares
 *  overflows f32 gives 0. */
HALYARD_API halyard_status halyard_rms_norm(const halyard_context *context, const DLTensor *x,
                                            const DLTensor *weight, float eps, unsigned flags, DLTensor *y);

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
                                                  const DLTensor *bias, float eps, DLTensor *residual_out,
                                                  DLTensor *y);

/** residual_out = x + residual; y = RMSNorm(residual_out); as halyard_add_layer_norm. */
HALYARD_API halyard_status halyard_add_rms_norm(const halyard_context *context, const DLTensor *x,
                                                const DLTensor *residual, const DLTensor *weight, float eps,
                                                unsigned flags, DLTensor *residual_out, DLTensor *y);

/** y = exp(scale * x - max) / sum(exp(scale * x - max)) over each row; y may be x. scale is finite. A row that
 *  holds NaN or +Inf, or only -Inf, gives NaN throughout, as in PyTorch; other -Inf give 0. */
HALYARD_API halyard_status halyard_softmax(const halyard_context *context, const DLTensor *x, float scale,
                                           DLTensor *y);

/* ---- Activations --------------------------------------------------------------------------------------
 * Element by element, x and y of one shape; y may be x. NaN gives NaN; limits at +-Inf. */

/** max(0, x) */
HALYARD_API halyard_status halyard_relu(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x * Phi(x) = x/2 * erfc(-x / sqrt(2)), exact GELU (Hendrycks and Gimpel 2016); +0 at -Inf */
HALYARD_API halyard_status halyard_gelu(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), "gelu_new" or "gelu_pytorch_tanh" */
HALYARD_API halyard_status halyard_gelu_tanh(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x * sigmoid(1.702 x), "quick_gelu" */
HALYARD_API halyard_status halyard_gelu_sigmoid(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x * sigmoid(x), also called Swish-1 */
HALYARD_API halyard_status halyard_silu(const halyard_context *context, const DLTensor *x, DLTensor *y);
/** x * sigmoid(beta * x) (Ramachandran et al. 2017); beta is finite */
HALYARD_API halyard_status halyard_swish(const halyard_context *context, const DLTensor *x, float beta,
                                         DLTensor *y);
/** 1 / (1 + exp(-x)) */
HALYARD_API halyard_status halyard_sigmoid(const halyard_context *context, const DLTensor *x, DLTensor *y);
HALYARD_API halyard_status halyard_tanh(const halyard_context *context, const DLTensor *x, DLTensor *y);
HALYARD_API halyard_status halyard_exp(const halyard_context *context, const DLTensor *x, DLTensor *y);

/* The derivative of each at x. relu's is 0 at 0, as in PyTorch. */
HALYARD_API halyard_status halyard_relu_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
HALYARD_API halyard_status halyard_gelu_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
HALYARD_API halyard_status halyard_gelu_tanh_derivative(const halyard_context *context, const DLTensor *x,
                                                        DLTensor *y);
HALYARD_API halyard_status halyard_gelu_sigmoid_derivative(const halyard_context *context, const DLTensor *x,
                                                           DLTensor *y);
HALYARD_API halyard_status halyard_silu_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
HALYARD_API halyard_status halyard_swish_derivative(const halyard_context *context, const DLTensor *x, float beta,
                                                    DLTensor *y);
HALYARD_API halyard_status halyard_sigmoid_derivative(const halyard_context *context, const DLTensor *x,
                                                      DLTensor *y);
HALYARD_API halyard_status halyard_tanh_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);
HALYARD_API halyard_status halyard_exp_derivative(const halyard_context *context, const DLTensor *x, DLTensor *y);

/* ---- Gated linear units (Dauphin et al. 2016, Shazeer 2020) ---------------------------------------------
 * gate, up, y: [..., h], one shape; y may be gate or up. The gate goes through the activation. */

/** sigmoid(gate) * up */
HALYARD_API halyard_status halyard_glu(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                       DLTensor *y);
/** gate * up */
HALYARD_API halyard_status halyard_bilinear(const halyard_context *context, const DLTensor *gate,
                                            const DLTensor *up, DLTensor *y);
/** max(0, gate) * up */
HALYARD_API halyard_status halyard_reglu(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                         DLTensor *y);
/** gelu(gate) * up with the exact GELU */
HALYARD_API halyard_status halyard_geglu(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                         DLTensor *y);
/** gelu_tanh(gate) * up */
HALYARD_API halyard_status halyard_geglu_tanh(const halyard_context *context, const DLTensor *gate,
                                              const DLTensor *up, DLTensor *y);
/** swish(gate, beta) * up; beta = 1 in every published model. beta is finite. */
HALYARD_API halyard_status halyard_swiglu(const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                          float beta, DLTensor *y);

/** Where gate and up lie in the rows of one tensor [..., 2h]. */
typedef enum halyard_glu_layout {
    HALYARD_GLU_GATE_UP = 0,     /* two halves, gate first: Hugging Face's gate_up_proj */
    HALYARD_GLU_UP_GATE = 1,     /* two halves, gate second: torch.nn.functional.glu */
    HALYARD_GLU_INTERLEAVED = 2, /* g0 u0 g1 u1 ... */
} halyard_glu_layout;

/* The same on one tensor x: [..., 2h] -> y: [..., h]. For the two halved layouts y may be the half of x that
 * holds the gate or the one that holds up (the same data and strides); otherwise y may not overlap x. */
HALYARD_API halyard_status halyard_glu_packed(const halyard_context *context, const DLTensor *x,
                                              halyard_glu_layout layout, DLTensor *y);
HALYARD_API halyard_status halyard_bilinear_packed(const halyard_context *context, const DLTensor *x,
                                                   halyard_glu_layout layout, DLTensor *y);
HALYARD_API halyard_status halyard_reglu_packed(const halyard_context *context, const DLTensor *x,
                                                halyard_glu_layout layout, DLTensor *y);
HALYARD_API halyard_status halyard_geglu_packed(const halyard_context *context, const DLTensor *x,
                                                halyard_glu_layout layout, DLTensor *y);
HALYARD_API halyard_status halyard_geglu_tanh_packed(const halyard_context *context, const DLTensor *x,
                                                     halyard_glu_layout layout, DLTensor *y);
HALYARD_API halyard_status halyard_swiglu_packed(const halyard_context *context, const DLTensor *x,
                                                 halyard_glu_layout layout, float beta, DLTensor *y);

/* ---- Elementwise ---------------------------------------------------------------------------------------*/

/** y = a + b, one shape; y may be a or b. */
HALYARD_API halyard_status halyard_add(const halyard_context *context, const DLTensor *a, const DLTensor *b,
                                       DLTensor *y);

/** y = x rounded to y's dtype (to nearest even, overflow to Inf, NaN stays NaN). The dtypes may differ; with
 *  equal dtypes this is a strided copy, and y may be x. */
HALYARD_API halyard_status halyard_cast(const halyard_context *context, const DLTensor *x, DLTensor *y);

#ifdef __cplusplus
}
#endif

#endif
