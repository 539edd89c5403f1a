// What the instructions of PTX compute.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <cuda_fp16.h>

#include "ptx_program.h"

namespace halyard::tests::ptx {
namespace {

template<typename To, typename From>
To as(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

std::uint32_t low(Bits a) {
    return static_cast<std::uint32_t>(a);
}
std::int32_t integer(Bits a) {
    return as<std::int32_t>(low(a));
}
float real(Bits a) {
    return as<float>(low(a));
}
Bits word(std::int64_t a) {
    return static_cast<std::uint32_t>(a);
}
/** What arithmetic makes: its NaN is one and the same. */
Bits result(float a) {
    return std::isnan(a) ? 0x7fffffffu : as<std::uint32_t>(a);
}
float half(Bits a) {
    return __half2float(__half(__half_raw{static_cast<unsigned short>(a)}));
}
Bits half_result(float a) {
    return std::isnan(a) ? 0x7fffu : static_cast<__half_raw>(__float2half_rn(a)).x;
}
Bits permuted(Bits a, Bits b, Bits selector) {
    const Bits bytes = low(a) | static_cast<Bits>(low(b)) << 32;
    Bits made = 0;
    for (int i = 0; i < 4; i++) {
        const Bits choice = selector >> (4 * i) & 15;
        if (choice > 7) {
            stop("prmt of a sign");
        }
        made |= (bytes >> (8 * choice) & 255) << (8 * i);
    }
    return made;
}

const std::map<std::string, Function> functions = {
    {"fma.rn.f32", [](Bits a, Bits b, Bits c) { return result(std::fma(real(a), real(b), real(c))); }},
    {"add.f32", [](Bits a, Bits b, Bits) { return result(real(a) + real(b)); }},
    {"sub.f32", [](Bits a, Bits b, Bits) { return result(real(a) - real(b)); }},
    {"mul.f32", [](Bits a, Bits b, Bits) { return result(real(a) * real(b)); }},
    {"mul.rn.f32", [](Bits a, Bits b, Bits) { return result(real(a) * real(b)); }},
    {"div.rn.f32", [](Bits a, Bits b, Bits) { return result(real(a) / real(b)); }},
    {"rcp.rn.f32", [](Bits a, Bits, Bits) { return result(1.0f / real(a)); }},
    {"sqrt.rn.f32", [](Bits a, Bits, Bits) { return result(std::sqrt(real(a))); }},
    {"neg.f32", [](Bits a, Bits, Bits) { return a ^ 0x80000000u; }},
    {"abs.f32", [](Bits a, Bits, Bits) { return a & 0x7fffffffu; }},
    // A number rather than NaN, and +0 above -0.
    {"max.f32",
     [](Bits a, Bits b, Bits) {
         return std::isnan(real(a))   ? result(real(b))
                : std::isnan(real(b)) ? a
                : real(a) == real(b)  ? a & b
                : real(a) > real(b)   ? a
                                      : b;
     }},
    {"add.f16", [](Bits a, Bits b, Bits) { return half_result(half(a) + half(b)); }},
    {"abs.f16", [](Bits a, Bits, Bits) { return a & 0x7fffu; }},
    {"cvt.f32.f16", [](Bits a, Bits, Bits) { return result(half(a)); }},
    {"cvt.rn.f16.f32", [](Bits a, Bits, Bits) { return half_result(real(a)); }},
    {"cvt.rn.f16x2.f32", [](Bits a, Bits b, Bits) { return half_result(real(a)) << 16 | half_result(real(b)); }},

    {"setp.eq.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) == real(b)}; }},
    {"setp.ne.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) < real(b) || real(a) > real(b)}; }},
    {"setp.neu.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) != real(b)}; }},
    {"setp.lt.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) < real(b)}; }},
    {"setp.le.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) <= real(b)}; }},
    {"setp.gt.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) > real(b)}; }},
    {"setp.ge.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) >= real(b)}; }},
    {"setp.num.f32", [](Bits a, Bits b, Bits) { return Bits{!std::isnan(real(a)) && !std::isnan(real(b))}; }},
    {"setp.nan.f32", [](Bits a, Bits b, Bits) { return Bits{std::isnan(real(a)) || std::isnan(real(b))}; }},
    {"setp.lt.f16", [](Bits a, Bits b, Bits) { return Bits{half(a) < half(b)}; }},
    {"setp.gt.f16", [](Bits a, Bits b, Bits) { return Bits{half(a) > half(b)}; }},
    {"setp.ge.f16", [](Bits a, Bits b, Bits) { return Bits{half(a) >= half(b)}; }},
    {"setp.nan.f16", [](Bits a, Bits b, Bits) { return Bits{std::isnan(half(a)) || std::isnan(half(b))}; }},

    {"add.s32", [](Bits a, Bits b, Bits) { return word(a + b); }},
    {"sub.s32", [](Bits a, Bits b, Bits) { return word(a - b); }},
    {"mul.lo.s32", [](Bits a, Bits b, Bits) { return word(a * b); }},
    {"mad.lo.s32", [](Bits a, Bits b, Bits c) { return word(a * b + c); }},
    {"div.s32", [](Bits a, Bits b, Bits) { return word(std::int64_t{integer(a)} / integer(b)); }},
    {"rem.s32", [](Bits a, Bits b, Bits) { return word(std::int64_t{integer(a)} % integer(b)); }},
    {"neg.s32", [](Bits a, Bits, Bits) { return word(-a); }},
    {"min.s32", [](Bits a, Bits b, Bits) { return word(std::min(integer(a), integer(b))); }},
    {"max.s32", [](Bits a, Bits b, Bits) { return word(std::max(integer(a), integer(b))); }},
    {"min.u32", [](Bits a, Bits b, Bits) { return Bits{std::min(low(a), low(b))}; }},
    {"max.u32", [](Bits a, Bits b, Bits) { return Bits{std::max(low(a), low(b))}; }},
    {"shl.b32", [](Bits a, Bits b, Bits) { return b > 31 ? 0 : word(a << b); }},
    {"shr.u32", [](Bits a, Bits b, Bits) { return b > 31 ? 0 : Bits{low(a) >> b}; }},
    {"shr.s32", [](Bits a, Bits b, Bits) { return word(integer(a) >> std::min<Bits>(b, 31)); }},
    {"bfe.u32", [](Bits a, Bits b, Bits c) { return low(a) >> b & ((Bits{1} << c) - 1); }},
    {"prmt.b32", permuted},
    {"not.b32", [](Bits a, Bits, Bits) { return word(~a); }},
    {"add.s64", [](Bits a, Bits b, Bits) { return a + b; }},
    {"shl.b64", [](Bits a, Bits b, Bits) { return b > 63 ? 0 : a << b; }},
    {"shr.u64", [](Bits a, Bits b, Bits) { return b > 63 ? 0 : a >> b; }},
    {"mul.wide.s32",
     [](Bits a, Bits b, Bits) { return static_cast<Bits>(std::int64_t{integer(a)} * std::int64_t{integer(b)}); }},
    {"mul.wide.u32", [](Bits a, Bits b, Bits) { return Bits{low(a)} * low(b); }},

    {"setp.lt.s16",
     [](Bits a, Bits b, Bits) { return Bits{static_cast<std::int16_t>(a) < static_cast<std::int16_t>(b)}; }},
    {"setp.lt.s32", [](Bits a, Bits b, Bits) { return Bits{integer(a) < integer(b)}; }},
    {"setp.le.s32", [](Bits a, Bits b, Bits) { return Bits{integer(a) <= integer(b)}; }},
    {"setp.gt.s32", [](Bits a, Bits b, Bits) { return Bits{integer(a) > integer(b)}; }},
    {"setp.ge.s32", [](Bits a, Bits b, Bits) { return Bits{integer(a) >= integer(b)}; }},
    {"setp.lt.u32", [](Bits a, Bits b, Bits) { return Bits{low(a) < low(b)}; }},
    {"setp.gt.u32", [](Bits a, Bits b, Bits) { return Bits{low(a) > low(b)}; }},
    {"setp.ge.u32", [](Bits a, Bits b, Bits) { return Bits{low(a) >= low(b)}; }},
    {"setp.eq.b32", [](Bits a, Bits b, Bits) { return Bits{low(a) == low(b)}; }},
    {"setp.ne.b32", [](Bits a, Bits b, Bits) { return Bits{low(a) != low(b)}; }},
    {"setp.ne.b16", [](Bits a, Bits b, Bits) { return Bits{(a & 0xffffu) != (b & 0xffffu)}; }},
    {"not.pred", [](Bits a, Bits, Bits) { return a ^ 1; }},

    {"cvt.u64.u32", [](Bits a, Bits, Bits) { return Bits{low(a)}; }},
    {"cvt.u32.u64", [](Bits a, Bits, Bits) { return Bits{low(a)}; }},
    {"cvt.u32.u16", [](Bits a, Bits, Bits) { return a & 0xffffu; }},
    {"cvt.u16.u32", [](Bits a, Bits, Bits) { return a & 0xffffu; }},
    {"cvt.u16.u64", [](Bits a, Bits, Bits) { return a & 0xffffu; }},
    {"cvta.to.global.u64", [](Bits a, Bits, Bits) { return a; }},
};

// What is alike for every type.
const std::map<std::string, Function> untyped = {
    {"and", [](Bits a, Bits b, Bits) { return a & b; }},
    {"or", [](Bits a, Bits b, Bits) { return a | b; }},
    {"xor", [](Bits a, Bits b, Bits) { return a ^ b; }},
    {"selp", [](Bits a, Bits b, Bits c) { return c != 0 ? a : b; }},
};

}  // namespace

Function function_of(const std::string &code) {
    const auto found = functions.find(code);
    if (found != functions.end()) {
        return found->second;
    }
    const auto any_type = untyped.find(code.substr(0, code.find('.')));
    return any_type != untyped.end() ? any_type->second : nullptr;
}

}  // namespace halyard::tests::ptx
