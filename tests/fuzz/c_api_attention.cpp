// Rotary embedding, caches, attention and its gradients.
#include "fuzz/c_api_session.h"

namespace halyard::tests {

halyard_rope_options Session::rope_options(std::int64_t head_dim) {
    halyard_rope_options o{};
    o.head_dim = number(head_dim);
    o.rotary_dim = number(in_.one_in(3) ? INT64_C(4) : INT64_C(0));
    o.max_positions = number(INT64_C(20));
    o.rope_theta = static_cast<double>(number(10000.0f));
    o.interleaved = in_.one_in(3);
    o.scaling = value<halyard_rope_scaling>(3);
    o.factor = static_cast<double>(number(8.0f));
    o.low_freq_factor = static_cast<double>(number(1.0f));
    o.high_freq_factor = static_cast<double>(number(4.0f));
    o.original_max_position_embeddings = number(INT64_C(8));
    return o;
}

void Session::ropes() {
    halyard_rope *&rope = ropes_[in_.in(0, places - 1)];
    const int kind = in_.in(0, 7);
    halyard_rope_options options, before;
    std::memset(&options, 0x5a, sizeof options);
    before = options;
    if (kind <= 1) {
        halyard_rope_destroy(rope);
        rope = nullptr;
        if (kind == 1) {
            count_call("halyard_rope_destroy", true);
            return;
        }
        options = rope_options(in_.of({INT64_C(8), INT64_C(4), INT64_C(6), INT64_C(16)}));
        Call call(in_, tensor_memory());
        make("halyard_rope_create", call, rope,
             [&](halyard_rope **made) { return halyard_rope_create(in_.rarely() ? nullptr : &options, made); });
        return;
    }
    const halyard_status status = halyard_rope_get_options(rope, kind == 2 && in_.rarely() ? nullptr : &options);
    returned("halyard_rope_get_options", status, options, before);
    if (kind == 2) {
        return;
    }
    const std::int64_t head_dim = status == HALYARD_OK ? options.head_dim : 8;
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    Shape tokens;
    const bool batched = in_.one_in(2);
    if (batched) {
        tokens = tokens.with(in_.in(0, 3));
    }
    const int count = in_.in(0, 5);
    tokens = tokens.with(count);
    const Shape shape = tokens.with(in_.in(1, 3)).with(head_dim);
    const DLTensor *x = call.input(shape, type);
    const DLTensor *positions =
        in_.one_in(2) ? call.indices(in_.one_in(2) ? tokens : Shape().with(count), 20) : nullptr;
    DLTensor *y = call.output(shape, type);
    if (call.may_be_made()) {
        if (in_.one_in(3)) {
            call.returned("halyard_rope_apply_backward", halyard_rope_apply_backward(context(), rope, x, positions, y));
        } else {
            call.returned("halyard_rope_apply", halyard_rope_apply(context(), rope, x, positions, y));
        }
    }
}

void Session::cache_create() {
    const int place = in_.in(0, places - 1);
    halyard_kv_cache_destroy(caches_[place]);
    caches_[place] = nullptr;
    halyard_kv_cache_options options{};
    options.n_layers = number(static_cast<std::int64_t>(in_.in(1, 3)));
    options.n_sequences = number(static_cast<std::int64_t>(in_.in(1, 3)));
    options.n_kv_heads = number(static_cast<std::int64_t>(in_.in(1, 2)));
    options.head_dim = number(in_.of({INT64_C(8), INT64_C(4), INT64_C(16)}));
    options.max_positions = number(static_cast<std::int64_t>(in_.in(1, 20)));
    options.dtype = in_.rarely() ? in_.any<DLDataType>() : dtype();
    std::int64_t bytes = -77;
    const halyard_status status = halyard_kv_cache_size(&options, in_.rarely() ? nullptr : &bytes);
    returned("halyard_kv_cache_size", status, bytes, INT64_C(-77));
    void *memory = nullptr;
    std::int64_t given_bytes = number(INT64_C(0));
    if (status == HALYARD_OK && bytes > 0 && bytes <= static_cast<std::int64_t>(HandleMemory::piece_bytes) &&
        in_.one_in(2)) {
        memory = handle_memory().end(places + place) - (bytes + 63) / 64 * 64 + (in_.rarely() ? 4 : 0);
        given_bytes = number(bytes);
    }
    Call call(in_, tensor_memory());
    if (in_.one_in(2)) {
        make("halyard_kv_cache_create", call, caches_[place], [&](halyard_kv_cache **made) {
            return halyard_kv_cache_create(in_.rarely() ? nullptr : &options, memory, given_bytes, made);
        });
    } else {
        DLDevice where = device();
        where.device_type = where.device_type == DLDevice{}.device_type ? kDLCPU : where.device_type;
        make("halyard_kv_cache_create_on_device", call, caches_[place], [&](halyard_kv_cache **made) {
            return halyard_kv_cache_create_on_device(&options, where, memory, given_bytes, made);
        });
    }
}

void Session::caches() {
    halyard_kv_cache *&cache = caches_[in_.in(0, places - 1)];
    halyard_kv_cache_options options, before;
    std::memset(&options, 0x5a, sizeof options);
    before = options;
    const int kind = in_.in(0, 9);
    const halyard_status status = halyard_kv_cache_get_options(cache, kind == 0 && in_.rarely() ? nullptr : &options);
    returned("halyard_kv_cache_get_options", status, options, before);
    if (status != HALYARD_OK) {
        options = {1, 1, 1, 8, 16, f32};
    }
    const std::int64_t layer = number(static_cast<std::int64_t>(in_.in(0, 2)) % options.n_layers);
    const std::int64_t sequence = number(static_cast<std::int64_t>(in_.in(0, 2)) % options.n_sequences);
    const Lengths lengths(cache);
    if (kind == 1) {
        const std::int64_t length = halyard_kv_cache_length(cache, layer, sequence);
        if (length < -1 || length > options.max_positions) {
            failed("a cache has the length %lld", static_cast<long long>(length));
        }
        count_call("halyard_kv_cache_length", true);
    } else if (kind == 2) {
        const halyard_status result =
            halyard_kv_cache_truncate(cache, sequence, number(static_cast<std::int64_t>(in_.in(0, 4))));
        returned("halyard_kv_cache_truncate", result);
        lengths.check("halyard_kv_cache_truncate", result, cache);
    } else if (kind == 3) {
        if (in_.one_in(4)) {
            halyard_kv_cache_destroy(cache);
            cache = nullptr;
            count_call("halyard_kv_cache_destroy", true);
        }
    } else if (kind <= 6) {
        Call call(in_, tensor_memory());
        const int batch = in_.in(0, 2);
        const Shape tokens = batch == 0 ? Shape() : Shape().with(batch);
        const Shape shape = tokens.with(in_.in(0, 4)).with(options.n_kv_heads).with(options.head_dim);
        const DLTensor *k = call.input(shape, dtype()), *v = call.input(shape, dtype());
        const std::int64_t *sequences = call.sequences(batch == 0 ? 1 : batch);
        if (call.may_be_made()) {
            const halyard_status result = halyard_kv_cache_append(context(), cache, layer, sequences, k, v);
            call.returned("halyard_kv_cache_append", result);
            lengths.check("halyard_kv_cache_append", result, cache);
        }
    } else if (kind >= 7) {
        Call call(in_, tensor_memory());
        const Shape shape = Shape().with(in_.in(0, 3)).with(options.n_kv_heads).with(options.head_dim);
        DLTensor *k = in_.one_in(4) ? nullptr : call.output(shape, dtype());
        DLTensor *v = in_.one_in(4) ? nullptr : call.output(shape, dtype());
        if (call.may_be_made()) {
            call.returned("halyard_kv_cache_read",
                          halyard_kv_cache_read(context(), cache, layer, sequence,
                                                number(static_cast<std::int64_t>(in_.in(0, 3))), k, v));
        }
    }
}

void Session::attention() {
    Call call(in_, tensor_memory());
    halyard_kv_cache *cache = in_.one_in(2) ? caches_[in_.in(0, places - 1)] : nullptr;
    const bool cached = cache || in_.one_in(8);
    halyard_kv_cache_options of_cache{1, 1, in_.in(1, 2), in_.of({INT64_C(8), INT64_C(4), INT64_C(5)}), 16, f32};
    if (cache) {
        halyard_kv_cache_get_options(cache, &of_cache);
    }
    const int batch = in_.in(0, 2), queries = in_.in(0, 4), group = in_.in(1, 2);
    const int keys = cached ? queries : queries + in_.in(0, 3);
    const Shape first = batch == 0 ? Shape() : Shape().with(batch);
    const Shape shape = first.with(queries).with(of_cache.n_kv_heads * group).with(of_cache.head_dim);
    const Shape kv_shape = first.with(keys).with(of_cache.n_kv_heads).with(of_cache.head_dim);
    const DLTensor *q = call.input(shape, dtype());
    const DLTensor *k = call.input(kv_shape, dtype()), *v = call.input(kv_shape, dtype());
    halyard_attention_options options{};
    options.scale = number(in_.one_in(2) ? 0.0f : 0.5f);
    options.causal = in_.one_in(2);
    options.sliding_window = number(in_.one_in(3) ? INT64_C(3) : INT64_C(0));
    options.softcap = number(in_.one_in(3) ? 30.0f : 0.0f);
    options.q_norm_weight = in_.one_in(4) ? call.input(Shape().with(of_cache.head_dim), dtype()) : nullptr;
    options.k_norm_weight = in_.one_in(4) ? call.input(Shape().with(of_cache.head_dim), dtype()) : nullptr;
    options.qk_norm_eps = number(1e-6f);
    options.qk_norm_flags = in_.one_in(4) ? flags() : 0;
    options.rope = in_.one_in(3) ? ropes_[in_.in(0, places - 1)] : nullptr;
    DLTensor *y = call.output(shape, dtype());
    options.log_sum_exp =
        in_.one_in(4) ? call.output(first.with(queries).with(of_cache.n_kv_heads * group), f32) : nullptr;
    // Without options none of their tensors may be one that a call must refuse.
    const bool plain = !options.q_norm_weight && !options.k_norm_weight && !options.log_sum_exp && in_.one_in(4);
    const halyard_attention_options *given = plain ? nullptr : &options;
    if (!cached) {
        if (call.may_be_made()) {
            call.returned("halyard_attention", halyard_attention(context(), q, k, v, given, y));
        }
        return;
    }
    const std::int64_t *sequences = call.sequences(batch == 0 ? 1 : batch);
    if (call.may_be_made()) {
        const std::int64_t layer = number(static_cast<std::int64_t>(in_.in(0, 2)) % of_cache.n_layers);
        const Lengths lengths(cache);
        const halyard_status status = halyard_attention_cached(context(), q, k, v, cache, layer, sequences, given, y);
        call.returned("halyard_attention_cached", status);
        lengths.check("halyard_attention_cached", status, cache);
    }
}

void Session::attention_gradients() {
    Call call(in_, tensor_memory());
    const int batch = in_.in(0, 2), queries = in_.in(0, 4), heads = in_.in(1, 2), group = in_.in(1, 2);
    const std::int64_t head_dim = in_.of({INT64_C(8), INT64_C(4), INT64_C(5)});
    const Shape first = batch == 0 ? Shape() : Shape().with(batch), before = first.with(queries).with(heads * group);
    const Shape shape = before.with(head_dim);
    const Shape kv_shape = first.with(queries + in_.in(0, 3)).with(heads).with(head_dim);
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    const DLTensor *q = call.input(shape, type), *k = call.input(kv_shape, type), *v = call.input(kv_shape, type);
    const DLTensor *y = call.input(shape, type), *sums = call.input(before, type), *dy = call.input(shape, type);
    halyard_attention_options options{};
    options.scale = number(in_.one_in(2) ? 0.0f : 0.5f);
    options.causal = in_.one_in(2);
    options.sliding_window = number(in_.one_in(3) ? INT64_C(3) : INT64_C(0));
    options.softcap = number(in_.one_in(3) ? 30.0f : 0.0f);
    options.rope = in_.one_in(8) ? ropes_[in_.in(0, places - 1)] : nullptr;
    DLTensor *dq = in_.one_in(3) ? nullptr : call.output(shape, type);
    DLTensor *dk = in_.one_in(3) ? nullptr : call.output(kv_shape, type);
    DLTensor *dv = in_.one_in(3) ? nullptr : call.output(kv_shape, type);
    if (call.may_be_made()) {
        call.returned("halyard_attention_backward",
                      halyard_attention_backward(context(), q, k, v, y, sums, dy, in_.one_in(4) ? nullptr : &options,
                                                 dq, dk, dv));
    }
}

}  // namespace halyard::tests
