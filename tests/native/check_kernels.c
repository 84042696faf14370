/* The kernels against loops that anyone can read, as a program of its own: for sanitizers, and for emulators of other
 * processors. Prints the checks, exits with 1 if one fails. Buffers have exactly the documented sizes. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const void *weight;
    const float *bias, *scale;
    int64_t kind, inputs, outputs;
} Matrix;

int64_t headwater_product(const Matrix *, const float *, int64_t, void *, float *, int32_t *, float *, int64_t);
int64_t headwater_weight_zero(void);
int64_t headwater_gelu(const void *, const void *, void *, int64_t, int64_t, int64_t);
int64_t headwater_softmax(void *, const void *, double, int64_t, int64_t, int64_t, int64_t, int64_t);
int64_t headwater_loss(void *, const int64_t *, const float *, float *, int64_t, int64_t, int64_t, int64_t, int64_t);
int64_t headwater_squares(const void *, double *, int64_t, int64_t, int64_t);
void headwater_close(void);

enum { FP32, BF16, INT8, INT4 };
static const char *NAMES[] = {"fp32", "bf16", "int8", "int4"};
static int failures;

static float random_number(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static void check(const char *name, int64_t size, double got, double expected, double tolerance) {
    if (!(fabs(got - expected) <= tolerance)) {
        printf("%s of %lld: %g, expected %g\n", name, (long long)size, got, expected);
        failures++;
    }
}

static uint16_t to_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_half(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* One matrix of a kind for some rows; weights are multiples of what the kind can hold, so that they are exact. */
static void product(int kind, int64_t rows, int64_t inputs, int64_t outputs, int64_t threads) {
    const int64_t zero = headwater_weight_zero(), size = outputs * inputs;
    int *whole = malloc((size_t)size * sizeof *whole);
    uint8_t *packed = aligned_alloc(64, (size_t)(4 * size));
    float *scale = malloc((size_t)outputs * 4), *bias = malloc((size_t)outputs * 4);
    for (int64_t o = 0; o < outputs; o++) scale[o] = 0.5f, bias[o] = random_number();
    for (int64_t o = 0; o < outputs; o++)
        for (int64_t i = 0; i < inputs; i++) {
            const int w = whole[o * inputs + i] = (int)floorf(random_number() * (kind == INT4 ? 8 : 127));
            const int64_t panel = o / 64 * 64 * inputs, column = o % 64;
            if (kind == FP32) ((float *)packed)[panel + i * 64 + column] = 0.5f * (float)w;
            else if (kind == BF16) ((uint16_t *)packed)[panel + i / 2 * 128 + 2 * column + i % 2] = to_half(0.5f * (float)w);
            else if (kind == INT8) packed[panel + i / 4 * 256 + 4 * column + i % 4] = (uint8_t)(w + zero);
            else {
                uint8_t *part = packed + (o / 64 * (inputs / 32) + i / 32) * 1152;
                uint8_t *place = part + i % 32 / 8 * 256 + 4 * column + i % 4;
                *place = i % 8 < 4 ? (uint8_t)((*place & 0xf0) | (w + 8)) : (uint8_t)((*place & 15) | (w + 8) << 4);
                ((uint16_t *)(part + 1024))[column] = to_half(0.5f);
            }
        }
    const Matrix matrix = {packed, bias, scale, kind, inputs, outputs};
    float *x = malloc((size_t)(rows * inputs) * 4), *y = malloc((size_t)(rows * outputs) * 4);
    void *values = malloc((size_t)(rows * inputs) * 4);
    float *scales = malloc((size_t)(rows * inputs / 64) * 4);
    int32_t *sums = malloc((size_t)(rows * inputs / 32) * 4);
    for (int64_t i = 0; i < rows * inputs; i++) x[i] = floorf(random_number() * 127); /* exact in bfloat16 and as bytes */
    for (int64_t i = 0; i < rows * inputs; i += 64) x[i] = 127;
    if (headwater_product(&matrix, x, rows, values, scales, sums, y, threads)) failures++, printf("refused\n");
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < outputs; o++) {
            double sum = bias[o];
            for (int64_t i = 0; i < inputs; i++) sum += 0.5 * whole[o * inputs + i] * x[r * inputs + i];
            check(NAMES[kind], inputs, y[r * outputs + o], sum, 1e-5 * 64 * 127 * (double)inputs);
        }
    free(whole), free(packed), free(scale), free(bias), free(x), free(y), free(values), free(scales), free(sums);
}

static void elementwise(int64_t count, int half) {
    const size_t size = half ? 2 : 4;
    void *x = malloc((size_t)count * size), *out = malloc((size_t)count * size);
    double *squares = malloc((size_t)((count + 4095) / 4096) * sizeof *squares), sum = 0, total = 0;
    float weight = 0.7f, loss;
    for (int64_t i = 0; i < count; i++) {
        const float value = 4 * random_number();
        if (half) ((uint16_t *)x)[i] = to_half(value);
        else ((float *)x)[i] = value;
    }
#define AT(array, i) (half ? from_half(((uint16_t *)(array))[i]) : ((float *)(array))[i])
    headwater_gelu(x, NULL, out, count, half, 1);
    headwater_squares(x, squares, count, half, 1);
    double top = -INFINITY, all = 0;
    for (int64_t i = 0; i < count; i++) {
        const double v = AT(x, i), u = 0.7978845608 * (v + 0.044715 * v * v * v);
        check("gelu", count, AT(out, i), 0.5 * v * (1 + tanh(u)), half ? 0.03 : 1e-5);
        sum += v * v, top = v > top ? v : top;
    }
    for (int64_t i = 0; i < (count + 4095) / 4096; i++) total += squares[i];
    check("squares", count, total, sum, 1e-5 * sum + 1e-6);
    memcpy(out, x, (size_t)count * size);
    headwater_softmax(out, NULL, 0.5, 1, 1, count, half, 1);
    for (int64_t i = 0; i < count; i++) all += exp(0.5 * (AT(x, i) - top));
    for (int64_t i = 0; i < count; i++)
        check("softmax", count, AT(out, i), exp(0.5 * (AT(x, i) - top)) / all, half ? 0.01 : 1e-6);
    int64_t target = count;
    memcpy(out, x, (size_t)count * size);
    check("a target beyond the vocabulary", count, (double)headwater_loss(out, &target, &weight, &loss, 1, count, count, half, 1), -3, 0);
    check("nothing written", count, memcmp(out, x, (size_t)count * size), 0, 0);
    target = count - 1, all = 0;
    headwater_loss(out, &target, &weight, &loss, 1, count, count, half, 1);
    for (int64_t i = 0; i < count; i++) all += exp(AT(x, i) - top);
    check("loss", count, loss, 0.7 * (log(all) + top - AT(x, target)), 1e-4);
    free(x), free(out), free(squares);
}

int main(void) {
    const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 19, 25, 100}; /* each number of rounds, and two parts */
    for (int kind = FP32; kind <= INT4; kind++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (int64_t threads = 1; threads <= 3; threads += 2) product(kind, rows[i], 128 + 64 * (rows[i] > 6), 192, threads);
    const int64_t counts[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 63, 300, 4097};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) elementwise(counts[i], 0), elementwise(counts[i], 1);
    headwater_close();
    check("a call after the end", 0, (double)headwater_squares(NULL, NULL, 0, 0, 1), -2, 0);
    printf(failures ? "%d failed\n" : "all agree\n", failures);
    return failures != 0;
}
