/* Products of pairs of bfloat16 and of fours of bytes, as each variant has them. */
#ifndef HEADWATER_DOT_H
#define HEADWATER_DOT_H

#include "simd.h"
#include "tiles.h"

#if defined(__AVX512BF16__)
#define BF16_PRODUCTS 1
ALWAYS Floats add_pairs(Floats sum, Words a, Words b) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define BF16_PRODUCTS 1
ALWAYS Floats add_pairs(Floats sum, Words a, Words b) {
    return (Floats)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)b);
}
#else
#define BF16_PRODUCTS 0
ALWAYS Floats add_pairs(Floats sum, Words a, Words b) {
    (void)a, (void)b;
    return sum;
}
#endif

/* sum += four products of bytes in each place: weights as the layout has them, WEIGHT_ZERO added to each, and signed
 * inputs, −127 .. 127. */
#if defined(__AVX512VNNI__)
#define WEIGHT_ZERO 128
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    /* By hand: the compiler's own name for the instruction makes GCC 12 copy every sum twice. */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(weight), "v"(x));
}
#elif defined(__AVXVNNI__)
#define WEIGHT_ZERO 128
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(*sum) : "x"(weight), "x"(x));
}
#elif defined(__AVX512F__)
#define WEIGHT_ZERO 0
/* Two products of 127 · 127 fit 16 bits, two of 255 · 127 would not: the sign goes from the weight to the input. */
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    const __mmask64 negative = _mm512_movepi8_mask((__m512i)weight);
    const __m512i turned = _mm512_mask_sub_epi8((__m512i)x, negative, _mm512_setzero_si512(), (__m512i)x);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)weight), turned);
    *sum += (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
#elif defined(__AVX2__)
#define WEIGHT_ZERO 0
/* Two products of 127 · 127 fit 16 bits, two of 255 · 127 would not: the sign goes from the weight to the input. */
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    const __m256i turned = _mm256_sign_epi8((__m256i)x, (__m256i)weight);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)weight), turned);
    *sum += (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#elif defined(__ARM_FEATURE_DOTPROD)
#define WEIGHT_ZERO 0
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    *sum = (Ints)vdotq_s32((int32x4_t)*sum, (int8x16_t)weight, (int8x16_t)x);
}
#else
#define WEIGHT_ZERO 0
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    for (int shift = 24; shift >= 0; shift -= 8) *sum += (weight << shift >> 24) * (x << shift >> 24);
}
#endif

#if TILES /* these multiply signed weights */
#undef WEIGHT_ZERO
#define WEIGHT_ZERO 0
#endif

ALWAYS Ints load_ints(const void *from) {
    Ints x;
    memcpy(&x, from, sizeof x);
    return x;
}

ALWAYS Ints four_bytes(const void *from) { /* in every place */
    int32_t four;
    memcpy(&four, from, 4);
    return four - (Ints){0};
}

ALWAYS Floats low_half(Ints pairs) { return (Floats)(pairs << 16); }
ALWAYS Floats high_half(Ints pairs) { return (Floats)(pairs & (int32_t)0xffff0000); }

#endif
