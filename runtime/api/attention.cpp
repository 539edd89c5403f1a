// Attention: the public functions.
#include "core/calls/attention.h"

#include <cmath>
#include <initializer_list>

#include "api/attention_shapes.h"
#include "core/backend.h"
#include "core/check_shapes.h"

namespace halyard {
namespace {

void check_options(Checker &check, const halyard_attention_options &o, AttentionCall &call) {
    check.finite_not_negative("scale", o.scale);
    check.softcap("softcap", o.softcap);
    check.finite_not_negative("qk_norm_eps", o.qk_norm_eps);
    check_window(check, "sliding_window", o.sliding_window);
    call.rms = rms_norm_scalars(check, "qk_norm_flags", call.q.view, o.qk_norm_eps, o.qk_norm_flags, 1.0f);
    call.q_norm_weight = check_vector(check, "q_norm_weight", o.q_norm_weight, call.q.head_dim);
    call.k_norm_weight = check_vector(check, "k_norm_weight", o.k_norm_weight, call.q.head_dim);
    if (!check.failed() && o.rope && o.rope->options.head_dim != call.q.head_dim) {
        check.fail(HALYARD_INVALID_ARGUMENT, "rope was made for heads of %lld features, but q has %lld",
                   static_cast<long long>(o.rope->options.head_dim), static_cast<long long>(call.q.head_dim));
    }
    if (o.causal || o.sliding_window > 0 || o.rope) {
        check_queries_are_last(check, call.q, call.k);
    }
    call.scale = scale_of_scores(o, call.q);
    call.softcap = o.softcap;
    call.causal = o.causal != 0;
    call.sliding_window = o.sliding_window;
    call.rope = o.rope;
}

void check_positions(Checker &check, const AttentionCall &call) {
    const halyard_rope *rope = call.rope;
    for (int64_t b = 0; b < call.q.batch && rope && !check.failed(); b++) {
        if (call.keys(b) > rope->options.max_positions) {
            check.fail(HALYARD_INVALID_ARGUMENT, "rope has %lld positions, but k reaches to position %lld",
                       static_cast<long long>(rope->options.max_positions), static_cast<long long>(call.keys(b) - 1));
        }
    }
}

/** Whether the new keys and values are such as the cache holds, and fit it. */
void check_cache(Checker &check, const AttentionCall &call) {
    const halyard_kv_cache &cache = *call.cache;
    const Heads &k = call.k;
    if (k.tokens != call.q.tokens) {
        check.fail(HALYARD_INVALID_ARGUMENT, "k has %lld tokens, but must have as many as q, %lld",
                   static_cast<long long>(k.tokens), static_cast<long long>(call.q.tokens));
    }
    if (!check.failed() && (k.heads != cache.n_kv_heads || k.head_dim != cache.layout.head_dim)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "k has %lld heads of %lld features, but the cache has %lld of %lld",
                   static_cast<long long>(k.heads), static_cast<long long>(k.head_dim),
                   static_cast<long long>(cache.n_kv_heads), static_cast<long long>(cache.layout.head_dim));
    }
    for (const Heads *tensor : {&call.q, &call.k, &call.v, &call.y}) {
        check_clear_of_cache(check, tensor->view, cache);
    }
    check_append(check, {call.cache, call.sequences, k.batch}, call.layer, k.tokens);
}

void check_overlaps(Checker &check, const AttentionCall &call) {
    const View &y = call.y.view;
    check.no_overlap(y, call.q.view, true);
    for (const View *input : {&call.k.view, &call.v.view, &call.q_norm_weight, &call.k_norm_weight}) {
        check.no_overlap(y, *input, false);
    }
}

/** f32, of the shape of q without its features, on processors, and apart from all else. */
void check_log_sum_exp(Checker &check, const halyard_attention_options *options, AttentionCall &call) {
    if (check.failed() || !options || !options->log_sum_exp) {
        return;
    }
    call.log_sum_exp = check.output("log_sum_exp", options->log_sum_exp);
    const View &sums = call.log_sum_exp;
    if (check.failed()) {
        return;
    }
    if (sums.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "log_sum_exp is not made on CUDA devices: it must be null there");
    }
    check_log_sum_exp_form(check, sums, call.q);
    for (const View *tensor :
         {&call.y.view, &call.q.view, &call.k.view, &call.v.view, &call.q_norm_weight, &call.k_norm_weight}) {
        check.no_overlap(sums, *tensor, false);
    }
    if (call.cache) {
        check_clear_of_cache(check, sums, *call.cache);
    }
}

AttentionCall check_attention(Checker &check, const DLTensor *q, const DLTensor *k, const DLTensor *v,
                              const halyard_attention_options *options, DLTensor *y) {
    AttentionCall call;
    const halyard_attention_options none = {};
    const View views[] = {check.tensor("q", q), check.tensor("k", k), check.tensor("v", v), check.output("y", y)};
    call.q = Heads(check, views[0]);
    call.k = Heads(check, views[1]);
    call.v = Heads(check, views[2]);
    call.y = Heads(check, views[3]);
    check_heads(check, call.q, call.k, call.v.view, call.y.view);
    if (!check.failed()) {
        check_options(check, options ? *options : none, call);
    }
    return call;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_attention(const halyard_context *context, const DLTensor *q, const DLTensor *k,
                                 const DLTensor *v, const halyard_attention_options *options, DLTensor *y) {
    Checker check("halyard_attention", Devices::cpu_or_cuda);
    AttentionCall call = check_attention(check, q, k, v, options, y);
    if (!check.failed()) {
        check_positions(check, call);
        check_overlaps(check, call);
        check_log_sum_exp(check, options, call);
        call.rounded = call.k.view.dtype == call.v.view.dtype &&
                       rounds_between(context_or_default(context), call.k.view.dtype, call.q.view.dtype);
    }
    return run_call(check, context, &Backend::attention, call);
}

halyard_status halyard_attention_cached(const halyard_context *context, const DLTensor *q, const DLTensor *k,
                                        const DLTensor *v, halyard_kv_cache *cache, int64_t layer,
                                        const int64_t *sequences, const halyard_attention_options *options,
                                        DLTensor *y) {
    Checker check("halyard_attention_cached", Devices::cpu_or_cuda);
    AttentionCall call = check_attention(check, q, k, v, options, y);
    check.not_null("cache", cache);
    if (!check.failed()) {
        call.cache = cache;
        call.layer = layer;
        call.sequences = sequences;
        check_cache(check, call);
        check_positions(check, call);
        check_overlaps(check, call);
        check_log_sum_exp(check, options, call);
        call.rounded = rounds_between(context_or_default(context), cache->layout.dtype, call.q.view.dtype);
    }
    CacheAppend append({cache, sequences, call.k.batch}, layer, 1);
    append.run(check, layer, call.k.tokens, [&] { run_call(check, context, &Backend::attention, call); });
    return check.status();
}
