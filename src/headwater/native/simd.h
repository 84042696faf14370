/* Vectors of the processor's own width, under one set of names.
 *
 * A kernel is written once in these names and compiled for each variant: 16 lanes with AVX-512, 8 with AVX2, 4 with
 * NEON or without any of them. Arithmetic operators are the compiler's own on vector types. */
#ifndef HEADWATER_SIMD_H
#define HEADWATER_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#define ALWAYS static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES))); /* bfloat16 */

ALWAYS Floats all(float x) { return x - (Floats){0}; }

ALWAYS Floats load_floats(const float *from) {
    Floats x;
    memcpy(&x, from, sizeof x);
    return x;
}

ALWAYS void store_floats(float *to, Floats x) { memcpy(to, &x, sizeof x); }

/* a b + c, rounded once where the processor can. */
ALWAYS Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* `yes` where the mask, as a comparison gives it, is set. */
ALWAYS Floats choose(Ints mask, Floats yes, Floats no) { return (Floats)(((Ints)yes & mask) | ((Ints)no & ~mask)); }

/* If an element of y is not a number, so is the result's. */
ALWAYS Floats larger(Floats x, Floats y) {
#if defined(__AVX512F__)
    return (Floats)_mm512_max_ps((__m512)x, (__m512)y);
#elif defined(__AVX2__)
    return (Floats)_mm256_max_ps((__m256)x, (__m256)y);
#else
    return choose(x > y, x, y);
#endif
}

ALWAYS Floats smaller(Floats x, Floats y) {
#if defined(__AVX512F__)
    return (Floats)_mm512_min_ps((__m512)x, (__m512)y);
#elif defined(__AVX2__)
    return (Floats)_mm256_min_ps((__m256)x, (__m256)y);
#else
    return choose(x < y, x, y);
#endif
}

ALWAYS Floats square_root(Floats x) {
#if defined(__AVX512F__)
    return (Floats)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (Floats)_mm256_sqrt_ps((__m256)x);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (Floats)vsqrtq_f32((float32x4_t)x);
#else
    for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
    return x;
#endif
}

ALWAYS Floats magnitude(Floats x) { return (Floats)((Ints)x & 0x7fffffff); }

ALWAYS float sum_of(Floats x) {
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) x[i] += x[i + width];
    return x[0];
}

ALWAYS float largest_of(Floats x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* ---- bfloat16 ---- */

ALWAYS Floats load_halves(const uint16_t *from) {
    Halves x;
    memcpy(&x, from, sizeof x);
#if defined(__AVX512F__)
    return (Floats)((Words)_mm512_cvtepu16_epi32((__m256i)x) << 16);
#elif defined(__AVX2__)
    return (Floats)((Words)_mm256_cvtepu16_epi32((__m128i)x) << 16);
#else
    return (Floats)(__builtin_convertvector(x, Words) << 16);
#endif
}

/* Round to the nearest, ties to even. */
ALWAYS void store_halves(uint16_t *to, Floats x) {
#if defined(__AVX512BF16__)
    const __m256i halves = (__m256i)_mm512_cvtneps_pbh((__m512)x);
#else
    const Words bits = ((Words)x + 0x7fff + ((Words)x >> 16 & 1)) >> 16;
#if defined(__AVX512F__)
    const __m256i halves = _mm512_cvtepi32_epi16((__m512i)bits);
#elif defined(__AVX2__)
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)bits, (__m256i)bits), 8);
    const __m128i halves = _mm256_castsi256_si128(packed);
#else
    const Halves halves = __builtin_convertvector(bits, Halves);
#endif
#endif
    memcpy(to, &halves, sizeof halves);
}

/* ---- e^x ---- */

/* e^x = 2^n e^r with |r| <= ln 2 / 2, by a polynomial (Cephes' expf); clamped to float32's normal range. */
ALWAYS Floats exponential(Floats x) {
    const Floats shift = all(12582912.0f); /* 1.5 · 2^23: adding it rounds to a whole number in the low bits */
    x = smaller(all(88.0f), larger(all(-87.3f), x));
    const Floats shifted = multiply_add(x, all(1.44269504f), shift);
    const Floats n = shifted - shift;
    const Floats r = multiply_add(n, all(2.12194440e-4f), multiply_add(n, all(-0.693359375f), x));
    Floats y = multiply_add(all(1.9875691500e-4f), r, all(1.3981999507e-3f));
    y = multiply_add(y, r, all(8.3334519073e-3f));
    y = multiply_add(y, r, all(4.1665795894e-2f));
    y = multiply_add(y, r, all(1.6666665459e-1f));
    y = multiply_add(y, r, all(5.0000001201e-1f));
    y = multiply_add(y * r, r, r + 1.0f);
    return (Floats)((Ints)y + ((Ints)shifted << 23)); /* the shift leaves n alone in the bits of the exponent */
}

/* The same, and 0 below −87: for what a mask has set to −∞. */
ALWAYS Floats exponential_or_zero(Floats x) {
    return choose(x < -87.0f, (Floats){0}, exponential(x));
}

/* The gate of GELU in its tanh form, GELU(x) = x σ(u) with u = 2 √(2/π) (x + 0.044715 x³). */
ALWAYS Floats gelu_gate(Floats x) {
    const Floats u = all(-1.5957691216f) * multiply_add(all(0.044715f) * x * x, x, x);
    return 1.0f / (1.0f + exponential(u));
}

#endif
