/* The kernels against loops that anyone can read, as a program of its own: for sanitizers, and for emulators of other
 * processors. Prints the checks, exits with 1 if one fails. Buffers have exactly the documented sizes. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transformer.h"

int64_t headwater_product(const Matrix *, const float *, int64_t, void *, float *, int32_t *, float *, int64_t, int64_t,
                          int64_t);
int64_t headwater_weight_zero(void);
int64_t headwater_bf16_panel(void);
int64_t headwater_cpu(void);
int64_t headwater_gelu(const void *, const void *, void *, int64_t, int64_t, int64_t);
int64_t headwater_softmax(void *, const void *, double, int64_t, int64_t, int64_t, int64_t, int64_t);
int64_t headwater_loss(void *, const int64_t *, const float *, float *, int64_t, int64_t, int64_t, int64_t, int64_t);
int64_t headwater_squares(const void *, double *, int64_t, int64_t, int64_t);
int64_t headwater_forward(const Model *, const int32_t *, const int32_t *, const int32_t *, int64_t, int64_t, float *);
int64_t headwater_attend(const void *, const void *, const void *, const void *, void *, void *, void *, void *, void *,
                         const int64_t *, int64_t, int64_t, int64_t, int64_t, int64_t);
void headwater_close(void);

static const char *NAMES[] = {"fp32", "bf16", "int8"};
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

/* Where a bfloat16 weight is. */
static int64_t bf16_place(int64_t output, int64_t input, int64_t inputs) {
    const int64_t panel = headwater_bf16_panel();
    return output / panel * panel * inputs + input / 2 * 2 * panel + output % panel * 2 + input % 2;
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
            const int w = whole[o * inputs + i] = (int)floorf(random_number() * 127);
            const int64_t panel = o / 64 * 64 * inputs, column = o % 64;
            if (kind == FP32) ((float *)packed)[panel + i * 64 + column] = 0.5f * (float)w;
            else if (kind == BF16) ((uint16_t *)packed)[bf16_place(o, i, inputs)] = to_half(0.5f * (float)w);
            else packed[panel + i / 4 * 256 + 4 * column + i % 4] = (uint8_t)(w + zero);
        }
    const Matrix matrix = {packed, bias, scale, kind, inputs, outputs};
    const int64_t columns = outputs - 3;
    float *x = malloc((size_t)(rows * inputs) * 4), *y = malloc((size_t)(rows * columns) * 4);
    void *values = malloc((size_t)((rows + 15) / 16 * 16 * inputs) * 4); /* a multiple of 16 rows */
    float *scales = malloc((size_t)(rows * inputs / 64) * 4);
    int32_t *sums = malloc((size_t)(rows * inputs / 64) * 4);
    for (int64_t i = 0; i < rows * inputs; i++) x[i] = floorf(random_number() * 127); /* exact in bfloat16 and as bytes */
    for (int64_t i = 0; i < rows * inputs; i += 64) x[i] = 127;
    if (headwater_product(&matrix, x, rows, values, scales, sums, y, columns, columns, threads)) failures++, printf("refused\n");
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < columns; o++) {
            double sum = bias[o];
            for (int64_t i = 0; i < inputs; i++) sum += 0.5 * whole[o * inputs + i] * x[r * inputs + i];
            check(NAMES[kind], inputs, y[r * columns + o], sum, 1e-5 * 64 * 127 * (double)inputs);
        }
    free(whole), free(packed), free(scale), free(bias), free(x), free(y), free(values), free(scales), free(sums);
}

static void *kept[64];
static int kept_count;

static void *zeros(int64_t bytes) { /* freed at the end of `forward` */
    void *memory = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
    return memset(kept[kept_count++] = memory, 0, (size_t)bytes);
}

static float *random_numbers(int64_t count, float scale) {
    float *x = zeros(4 * count);
    for (int64_t i = 0; i < count; i++) x[i] = scale * random_number();
    return x;
}

/* A number in the memory of a float32 or bfloat16 matrix or table. */
static float number_at(const void *memory, int64_t kind, int64_t at) {
    return kind == FP32 ? ((const float *)memory)[at] : from_half(((const uint16_t *)memory)[at]);
}

static float weight_at(const Matrix *a, int64_t output, int64_t input) {
    const int64_t at = (output / 64 * a->inputs + input) * 64 + output % 64;
    return number_at(a->weight, a->kind, a->kind == FP32 ? at : bf16_place(output, input, a->inputs));
}

/* A matrix whose padding is zero. */
static Matrix drawn(int64_t kind, int64_t inputs, int64_t outputs) {
    const int64_t in = (inputs + 63) / 64 * 64, out = (outputs + 63) / 64 * 64;
    float *weight = zeros(4 * in * out), *bias = zeros(4 * out);
    for (int64_t o = 0; o < outputs; o++) {
        bias[o] = 0.3f * random_number();
        for (int64_t i = 0; i < inputs; i++) {
            const float w = 0.3f * random_number();
            if (kind == FP32) weight[(o / 64 * in + i) * 64 + o % 64] = w;
            else ((uint16_t *)weight)[bf16_place(o, i, in)] = to_half(w);
        }
    }
    return (Matrix){weight, bias, NULL, kind, in, out};
}

/* Rows of a table whose padding is zero. */
static void *drawn_table(int64_t kind, int64_t rows, int64_t width, int64_t padded) {
    float *table = zeros(4 * rows * padded);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i++) {
            if (kind == FP32) table[row * padded + i] = random_number();
            else ((uint16_t *)table)[row * padded + i] = to_half(random_number());
        }
    return table;
}

static void apply(const Matrix *a, const double *x, double *y) {
    for (int64_t o = 0; o < a->outputs; o++) {
        y[o] = a->bias[o];
        for (int64_t i = 0; i < a->inputs; i++)
            y[o] += weight_at(a, o, i) * x[i];
    }
}

static void norm(const double *x, const float *weight, const float *bias, int64_t width, double *y) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; i++) mean += x[i] / (double)width;
    for (int64_t i = 0; i < width; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)width;
    for (int64_t i = 0; i < width; i++) y[i] = (x[i] - mean) / sqrt(variance + 1e-5) * weight[i] + bias[i];
}

enum { CONTEXT = 40, ROWS = 48, VOCABULARY = 70, TABLES = 2 * ((CONTEXT + PAGE - 1) / PAGE) };

/* One layer, norms first, of a text of CONTEXT tokens: a block of its prompt, then the rest token by token, next to a
 * second text in another slot; against the same in double precision. */
static void forward(int64_t kind, int64_t width, int64_t heads, int64_t threads) {
    const int64_t head = width / heads, stride = (head + 15) / 16 * 16, padded = (width + 63) / 64 * 64;
    const int64_t inner = (4 * width + 63) / 64 * 64, pages = TABLES / 2, cache = TABLES * heads * PAGE * stride;
    Layer layer = {drawn(kind, width, 3 * width), drawn(kind, width, width), drawn(kind, width, 4 * width),
                   drawn(kind, 4 * width, width),
                   random_numbers(padded, 1), random_numbers(padded, 1), random_numbers(padded, 1),
                   random_numbers(padded, 1), zeros(4 * cache), zeros(4 * cache)};
    int32_t tables[TABLES], tokens[CONTEXT], slots[CONTEXT] = {0}, positions[CONTEXT], bad = VOCABULARY;
    for (int i = 0; i < TABLES; i++) tables[i] = TABLES - 1 - i;
    for (int i = 0; i < CONTEXT; i++) tokens[i] = i * 29 % VOCABULARY, positions[i] = i;
    void *token_table = drawn_table(kind, VOCABULARY, width, padded);
    void *position_table = drawn_table(kind, CONTEXT, width, padded);
    float *final_weight = random_numbers(padded, 1), *final_bias = random_numbers(padded, 1);
    for (int64_t i = width; i < padded; i++)
        for (int n = 0; n < 6; n++)
            ((float *[]){(float *)layer.norm_1_weight, (float *)layer.norm_1_bias, (float *)layer.norm_2_weight,
                         (float *)layer.norm_2_bias, final_weight, final_bias})[n][i] = 0;
    Model m = {kind, 1, width, padded, inner, heads, head, stride, VOCABULARY, CONTEXT, 2, pages, TABLES, 1, threads,
               1e-5, token_table, position_table, final_weight, final_bias, drawn(kind, width, VOCABULARY), &layer, tables,
               zeros(4 * (CONTEXT * padded)), zeros(4 * (CONTEXT * heads * stride)),
               {zeros(4 * (ROWS * padded)), zeros(4 * (ROWS * inner))}, {NULL, NULL},
               {NULL, NULL}, zeros(4 * (CONTEXT * padded)),
               zeros(4 * (threads * 16 * (pages * PAGE + stride))), zeros(4 * (CONTEXT + 1))};
    float *logits = zeros(4 * CONTEXT * m.output.outputs);
    check("a token beyond the vocabulary", 0, (double)headwater_forward(&m, &bad, slots, positions, 1, 1, logits), -3, 0);
    int failed = 0;
    failed |= headwater_forward(&m, tokens, slots, positions, 23, 0, NULL) != 0;
    for (int at = 23; at < CONTEXT; at++) { /* the second text begins at this step, a token after the other's */
        const int32_t two[] = {tokens[at], tokens[at - 23]}, places[] = {at, at - 23}, both[] = {0, 1};
        failed |= headwater_forward(&m, two, both, places, 2, 1, logits + at * m.output.outputs) != 0;
    }
    check("the forward pass is refused", width, failed, 0, 0);
    double *fused = zeros(8 * CONTEXT * layer.query_key_value.outputs), x[512], y[512], z[512], wide[2048];
    for (int t = 0; t < CONTEXT; t++) {
        memset(x, 0, sizeof x), memset(y, 0, sizeof y), memset(z, 0, sizeof z), memset(wide, 0, sizeof wide);
        for (int64_t i = 0; i < width; i++) 
            x[i] = number_at(token_table, kind, tokens[t] * padded + i) + number_at(position_table, kind, t * padded + i);
        norm(x, layer.norm_1_weight, layer.norm_1_bias, width, y);
        double *now = fused + t * layer.query_key_value.outputs;
        apply(&layer.query_key_value, y, now);
        for (int64_t h = 0; h < heads; h++) {
            double score[CONTEXT], top = -INFINITY, all = 0;
            for (int s = 0; s <= t; s++) {
                score[s] = 0;
                for (int64_t d = h * head; d < (h + 1) * head; d++)
                    score[s] += now[d] * fused[s * layer.query_key_value.outputs + width + d] / sqrt((double)head);
                top = score[s] > top ? score[s] : top;
            }
            for (int s = 0; s <= t; s++) all += exp(score[s] - top);
            for (int64_t d = h * head; d < (h + 1) * head; d++) {
                z[d] = 0;
                for (int s = 0; s <= t; s++)
                    z[d] += exp(score[s] - top) / all * fused[s * layer.query_key_value.outputs + 2 * width + d];
            }
        }
        apply(&layer.projection, z, y);
        for (int64_t i = 0; i < width; i++) x[i] += y[i];
        norm(x, layer.norm_2_weight, layer.norm_2_bias, width, y);
        apply(&layer.expand, y, wide);
        for (int64_t i = 0; i < inner; i++)
            wide[i] *= 0.5 * (1 + tanh(0.7978845608 * (wide[i] + 0.044715 * wide[i] * wide[i] * wide[i])));
        apply(&layer.contract, wide, y);
        for (int64_t i = 0; i < width; i++) x[i] += y[i];
        norm(x, final_weight, final_bias, width, y);
        apply(&m.output, y, z);
        for (int o = 0; o < VOCABULARY && t >= 23; o++)
            check("forward", width, logits[t * m.output.outputs + o], z[o], kind == FP32 ? 1e-3 : 0.1);
    }
    while (kept_count > 0) free(kept[--kept_count]);
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

/* Attention over whole texts and its gradient, two heads of `size` dimensions. */
static void whole(int64_t time, int64_t size, int64_t threads) {
    enum { HEADS = 2 };
    const int64_t count = time * HEADS * size, width = HEADS * size;
    const int64_t strides[] = {count, size, width, count, size, width};
    uint16_t *numbers[8];
    for (int i = 0; i < 8; i++) {
        numbers[i] = malloc((size_t)count * 2);
        for (int64_t j = 0; j < count; j++) numbers[i][j] = to_half(2 * random_number());
    }
    uint16_t *query = numbers[0], *key = numbers[1], *value = numbers[2], *gradient = numbers[3], *out = numbers[4];
    float *sums = malloc((size_t)(HEADS * time) * 4);
    if (headwater_attend(query, key, value, NULL, out, sums, NULL, NULL, NULL, strides, 1, HEADS, time, size, threads) < 0) {
        for (int i = 0; i < 8; i++) free(numbers[i]);
        free(sums);
        return; /* no tiles */
    }
    headwater_attend(query, key, value, gradient, out, sums, numbers[5], numbers[6], numbers[7], strides, 1, HEADS, time,
                     size, threads);
    double *grads = calloc((size_t)(3 * count), sizeof *grads), *weights = malloc((size_t)time * sizeof *weights);
#define NUMBER(array, t, d) from_half((array)[(t) * width + head * size + (d)])
    for (int64_t head = 0; head < HEADS; head++)
        for (int64_t t = 0; t < time; t++) {
            double sum = 0, mean = 0;
            for (int64_t s = 0; s <= t; s++) {
                double score = 0;
                for (int64_t d = 0; d < size; d++) score += NUMBER(query, t, d) * NUMBER(key, s, d);
                sum += weights[s] = exp(score / sqrt((double)size));
            }
            check("log sum", time, sums[head * time + t], log(sum), 1e-4);
            for (int64_t d = 0; d < size; d++) {
                double y = 0;
                for (int64_t s = 0; s <= t; s++) y += weights[s] / sum * NUMBER(value, s, d);
                check("attention", time, NUMBER(out, t, d), y, 0.02);
                mean += y * NUMBER(gradient, t, d);
            }
            for (int64_t s = 0; s <= t; s++) {
                double change = 0;
                for (int64_t d = 0; d < size; d++) change += NUMBER(gradient, t, d) * NUMBER(value, s, d);
                const double slope = weights[s] / sum * (change - mean) / sqrt((double)size);
                for (int64_t d = 0; d < size; d++) {
                    grads[t * width + head * size + d] += slope * NUMBER(key, s, d);
                    grads[count + s * width + head * size + d] += slope * NUMBER(query, t, d);
                    grads[2 * count + s * width + head * size + d] += weights[s] / sum * NUMBER(gradient, t, d);
                }
            }
        }
    for (int which = 0; which < 3; which++)
        for (int64_t i = 0; i < count; i++)
            check("gradient of attention", time, from_half(numbers[5 + which][i]), grads[which * count + i], 0.1);
    for (int i = 0; i < 8; i++) free(numbers[i]);
    free(sums), free(grads), free(weights);
}

/* A number of what a bfloat16 product of any inputs, tiny ones too, gives to the last bit. */
static uint64_t digest(void) {
    enum { ROWS_OF_IT = 37, INPUTS = 320, OUTPUTS = 128 };
    uint16_t *weight = aligned_alloc(64, 2 * INPUTS * OUTPUTS);
    float *x = malloc(4 * ROWS_OF_IT * INPUTS), *y = malloc(4 * ROWS_OF_IT * OUTPUTS);
    void *values = malloc(4 * ROWS * INPUTS);
    const Matrix matrix = {weight, NULL, NULL, BF16, INPUTS, OUTPUTS};
    for (int i = 0; i < INPUTS * OUTPUTS; i++) weight[i] = to_half(ldexpf(random_number(), i % 7 ? -3 : -80 - i % 60));
    for (int i = 0; i < ROWS_OF_IT * INPUTS; i++) x[i] = ldexpf(random_number(), i % 5 ? 0 : -20 - i % 50 * 2);
    uint64_t found = 14695981039346656037u;
    if (headwater_product(&matrix, x, ROWS_OF_IT, values, NULL, NULL, y, OUTPUTS, OUTPUTS, 1)) return 0;
    for (int i = 0; i < 4 * ROWS_OF_IT * OUTPUTS; i++) found = (found ^ ((uint8_t *)y)[i]) * 1099511628211u;
    free(weight), free(x), free(y), free(values);
    return found;
}

int main(int count, char **options) {
    headwater_cpu(); /* asks the system for tiles */
    if (count > 1 && !strcmp(options[1], "digest")) {
        printf("%016llx\n", (unsigned long long)digest());
        return 0;
    }
    const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 19, 25, 100}; /* each number of rounds, and two parts */
    for (int kind = FP32; kind <= INT8; kind++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (int64_t threads = 1; threads <= 3; threads += 2) product(kind, rows[i], 128 + 64 * (rows[i] > 6), 192, threads);
    const int64_t counts[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 63, 300, 4097};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) elementwise(counts[i], 0), elementwise(counts[i], 1);
    for (int64_t kind = FP32; kind <= BF16; kind++)
        for (int64_t threads = 1; threads <= 3; threads += 2)
            forward(kind, 128, 2, threads), forward(kind, 96, 3, threads), forward(kind, 80, 1, threads),
                forward(kind, 60, 3, threads);
    whole(1, 32, 1), whole(33, 96, 2), whole(70, 64, 3);
    headwater_close();
    check("a call after the end", 0, (double)headwater_squares(NULL, NULL, 0, 0, 1), -2, 0);
    printf(failures ? "%d failed\n" : "all agree\n", failures);
    return failures != 0;
}
