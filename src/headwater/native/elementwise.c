/* The element-wise kernels of a training step: what is between its matrix products, in one pass over memory each.
 *
 * tests/native has the twins in torch. Elements are float32 or bfloat16 ("half"), arithmetic is float32. Threads are
 * those of the OpenMP library that torch has loaded; without one a kernel runs on the caller's thread.
 */
#include "elementwise.h"

/* ---- GELU in its tanh form ---- */

typedef struct {
    const void *x, *gradient;
    void *out;
    int64_t count, half;
} Gelu;

enum { PIECE = 4096 }; /* elements of an item */

ALWAYS Floats gelu_slope(Floats x) {
    const Floats gate = gelu_gate(x);
    const Floats slope = all(1.5957691216f) * multiply_add(all(0.134145f) * x, x, all(1.0f));
    return multiply_add(x * gate * (1.0f - gate), slope, gate);
}

ALWAYS void gelu_piece(const Gelu *g, int64_t item, int half) {
    const size_t offset = (size_t)item * PIECE * (half ? 2 : 4);
    const int64_t left = g->count - item * PIECE, count = left < PIECE ? left : PIECE;
    const char *in = (const char *)g->x + offset;
    char *out = (char *)g->out + offset;
    if (g->gradient) {
        const char *gradient = (const char *)g->gradient + offset;
        EACH_VECTOR(count, STORE(out, half, LOAD(gradient, half, 0) * gelu_slope(LOAD(in, half, 0))););
    } else {
        EACH_VECTOR(count, { const Floats x = LOAD(in, half, 0); STORE(out, half, x * gelu_gate(x)); });
    }
}

static void gelu_work(const void *task, int64_t first, int64_t last) {
    const Gelu *g = task;
    for (int64_t item = first; item < last; item++)
        if (g->half) gelu_piece(g, item, 1);
        else gelu_piece(g, item, 0);
}

/* out = GELU(x), or gradient · GELU'(x) where a gradient is given. */
EXPORT int64_t headwater_gelu(const void *x, const void *gradient, void *out, int64_t count, int64_t half, int64_t threads) {
    const Gelu g = {x, gradient, out, count, half};
    return divide(gelu_work, &g, (count + PIECE - 1) / PIECE, threads);
}

/* ---- causal softmax of attention ---- */

typedef struct {
    void *scores;
    const void *weights;
    float scale;
    int64_t queries, columns, half;
} Scores;

ALWAYS void softmax_row(const Scores *s, int64_t row, int half) {
    char *scores = (char *)s->scores + row * s->columns * (half ? 2 : 4);
    const int64_t visible = s->columns - s->queries + row % s->queries + 1;
    const float scale = s->scale;
    Floats most = all(-INFINITY), sum = {0};
    EACH_VECTOR(visible, most = larger(LOAD(scores, half, -INFINITY), most););
    const float top = largest_of(most);
    EACH_VECTOR(visible, sum += exponential(scale * (LOAD(scores, half, -INFINITY) - top)););
    const float inverse = 1.0f / sum_of(sum);
    EACH_VECTOR(visible, STORE(scores, half, inverse * exponential(scale * (LOAD(scores, half, 0) - top))););
    const size_t size = half ? 2 : 4;
    memset(scores + (size_t)visible * size, 0, (size_t)(s->columns - visible) * size);
}

/* scores holds the gradient of the weights, and receives that of the scores. */
ALWAYS void softmax_gradient_row(const Scores *s, int64_t row, int half) {
    const size_t start = (size_t)(row * s->columns) * (half ? 2 : 4);
    char *gradient = (char *)s->scores + start;
    const char *weights = (const char *)s->weights + start;
    Floats sum = {0};
    EACH_VECTOR(s->columns, sum = multiply_add(LOAD(gradient, half, 0), LOAD(weights, half, 0), sum););
    const float mean = sum_of(sum), scale = s->scale;
    EACH_VECTOR(s->columns, STORE(gradient, half, scale * LOAD(weights, half, 0) * (LOAD(gradient, half, 0) - mean)););
}

static void softmax_work(const void *task, int64_t first, int64_t last) {
    const Scores *s = task;
    for (int64_t row = first; row < last; row++)
        if (s->weights && s->half) softmax_gradient_row(s, row, 1);
        else if (s->weights) softmax_gradient_row(s, row, 0);
        else if (s->half) softmax_row(s, row, 1);
        else softmax_row(s, row, 0);
}

/* In place, rows × columns: row r is query r % queries of a block, the last of which sees every column. */
EXPORT int64_t headwater_softmax(void *scores, const void *weights, double scale, int64_t rows, int64_t queries,
                       int64_t columns, int64_t half, int64_t threads) {
    const Scores s = {scores, weights, (float)scale, queries, columns, half};
    return divide(softmax_work, &s, rows, threads);
}

/* ---- LayerNorm, with the addition to the residual stream ---- */

typedef struct {
    const float *x, *weight, *bias;
    float *means, *deviations; /* one a row; deviations are inverse */
    void *out;
    const void *gradient;
    float *grad_x, *sums; /* sums: (parts, 2, width), of the gain's and the bias's gradients */
    float epsilon;
    int64_t rows, width, half, parts;
} Norm;

ALWAYS void norm_row(const Norm *n, int64_t row, int half) {
    const float *x = n->x + row * n->width;
    void *out = (char *)n->out + row * n->width * (half ? 2 : 4);
    Floats sum = {0}, squares = {0};
    EACH_VECTOR(n->width, sum += LOAD(x, 0, 0););
    const float mean = sum_of(sum) / (float)n->width;
    EACH_VECTOR(n->width, { const Floats d = LOAD(x, 0, mean) - mean; squares = multiply_add(d, d, squares); });
    const float inverse = 1.0f / sqrtf(sum_of(squares) / (float)n->width + n->epsilon);
    EACH_VECTOR(n->width, {
        const Floats y = (LOAD(x, 0, 0) - mean) * inverse;
        STORE(out, half, multiply_add(y, LOAD(n->weight, 0, 0), LOAD(n->bias, 0, 0)));
    });
    n->means[row] = mean, n->deviations[row] = inverse;
}

ALWAYS void norm_gradient_row(const Norm *n, int64_t row, int64_t part, int half) {
    const float *x = n->x + row * n->width;
    const char *gradient = (const char *)n->gradient + row * n->width * (half ? 2 : 4);
    float *grad_x = n->grad_x + row * n->width;
    float *to_weight = n->sums + part * 2 * n->width, *to_bias = to_weight + n->width;
    const float mean = n->means[row], inverse = n->deviations[row];
    Floats sum = {0}, along = {0};
    EACH_VECTOR(n->width, {
        const Floats g = LOAD(gradient, half, 0), y = (LOAD(x, 0, mean) - mean) * inverse;
        const Floats weighted = g * LOAD(n->weight, 0, 0);
        STORE(to_weight, 0, multiply_add(g, y, LOAD(to_weight, 0, 0)));
        STORE(to_bias, 0, LOAD(to_bias, 0, 0) + g);
        sum += weighted;
        along = multiply_add(weighted, y, along);
    });
    const float shared = sum_of(sum) / (float)n->width, sloped = sum_of(along) / (float)n->width;
    EACH_VECTOR(n->width, {
        const Floats y = (LOAD(x, 0, mean) - mean) * inverse;
        const Floats weighted = LOAD(gradient, half, 0) * LOAD(n->weight, 0, 0);
        STORE(grad_x, 0, inverse * multiply_add(y, all(-sloped), weighted - shared));
    });
}

static void norm_work(const void *task, int64_t first, int64_t last) {
    const Norm *n = task;
    for (int64_t row = first; row < last; row++)
        if (n->half) norm_row(n, row, 1);
        else norm_row(n, row, 0);
}

static void norm_gradient_work(const void *task, int64_t first, int64_t last) {
    const Norm *n = task;
    for (int64_t part = first; part < last; part++)
        for (int64_t row = n->rows * part / n->parts; row < n->rows * (part + 1) / n->parts; row++)
            if (n->half) norm_gradient_row(n, row, part, 1);
            else norm_gradient_row(n, row, part, 0);
}

EXPORT int64_t headwater_norm(const float *x, const float *weight, const float *bias, double epsilon, void *out, float *means,
                    float *deviations, int64_t rows, int64_t width, int64_t half, int64_t threads) {
    const Norm n = {.x = x, .weight = weight, .bias = bias, .epsilon = (float)epsilon, .out = out, .means = means,
                    .deviations = deviations, .rows = rows, .width = width, .half = half};
    return divide(norm_work, &n, rows, threads);
}

/* `sums`, zeros before, has as many parts as the rows are divided into, whatever the threads. */
EXPORT int64_t headwater_norm_gradient(const void *gradient, const float *x, const float *weight, const float *means,
                             const float *deviations, float *grad_x, float *sums, int64_t parts, int64_t rows,
                             int64_t width, int64_t half, int64_t threads) {
    const Norm n = {.x = x, .weight = weight, .means = (float *)means, .deviations = (float *)deviations,
                    .gradient = gradient, .grad_x = grad_x, .sums = sums, .parts = parts, .rows = rows,
                    .width = width, .half = half};
    return divide(norm_gradient_work, &n, parts, threads);
}

/* ---- sums of float32 and bfloat16 ---- */

typedef struct {
    const float *x;
    const uint16_t *more;
    float *out;
    int64_t count;
} Sum;

static void sum_work(const void *task, int64_t first, int64_t last) {
    const Sum *s = task;
    for (int64_t item = first; item < last; item++) {
        const int64_t start = item * PIECE, left = s->count - start, count = left < PIECE ? left : PIECE;
        const float *x = s->x + start;
        const uint16_t *more = s->more + start;
        EACH_VECTOR(count, STORE(s->out + start, 0, LOAD(x, 0, 0) + LOAD(more, 1, 0)););
    }
}

/* out = x + more: float32 and bfloat16 give float32; `out` may be `x`. */
EXPORT int64_t headwater_sum(const float *x, const uint16_t *more, float *out, int64_t count, int64_t threads) {
    const Sum s = {x, more, out, count};
    return divide(sum_work, &s, (count + PIECE - 1) / PIECE, threads);
}

/* ---- Adam ---- */

typedef struct {
    float *weight, *first, *second;
    const void *gradient;
    void *copy; /* bfloat16, or NULL */
    double *squares;
    float factor, keep, beta1, beta2, rate, correction, epsilon;
    int64_t count, half;
} Adam;

ALWAYS void adam_piece(const Adam *a, int64_t item, int half) {
    const int64_t start = item * PIECE, left = a->count - start, count = left < PIECE ? left : PIECE;
    float *weight = a->weight + start, *first = a->first + start, *second = a->second + start;
    const char *gradient = (const char *)a->gradient + start * (half ? 2 : 4);
    EACH_VECTOR(count, {
        const Floats g = a->factor * LOAD(gradient, half, 0);
        const Floats old = LOAD(first, 0, 0), m = multiply_add(all(1 - a->beta1), g - old, old);
        const Floats v = multiply_add(all(a->beta2), LOAD(second, 0, 0), (1 - a->beta2) * g * g);
        const Floats step = a->rate * m / multiply_add(square_root(v), all(a->correction), all(a->epsilon));
        const Floats w = multiply_add(all(a->keep), LOAD(weight, 0, 0), -step);
        STORE(first, 0, m);
        STORE(second, 0, v);
        STORE(weight, 0, w);
        if (a->copy) STORE((uint16_t *)a->copy + start, 1, w);
    });
}

static void adam_work(const void *task, int64_t first, int64_t last) {
    const Adam *a = task;
    for (int64_t item = first; item < last; item++)
        if (a->half) adam_piece(a, item, 1);
        else adam_piece(a, item, 0);
}

/* One update of a parameter: `keep` = 1 − rate · decay, `rate` over 1 − β1^t, `correction` = 1/√(1 − β2^t). */
EXPORT int64_t headwater_adam(float *weight, const void *gradient, float *first, float *second, void *copy, int64_t count,
                    int64_t half, double factor, double keep, double beta1, double beta2, double rate,
                    double correction, double epsilon, int64_t threads) {
    const Adam a = {weight, first, second, gradient, copy, NULL, (float)factor, (float)keep, (float)beta1,
                    (float)beta2, (float)rate, (float)correction, (float)epsilon, count, half};
    return divide(adam_work, &a, (count + PIECE - 1) / PIECE, threads);
}

static void squares_work(const void *task, int64_t first, int64_t last) {
    const Adam *a = task;
    for (int64_t item = first; item < last; item++) {
        const int64_t start = item * PIECE, left = a->count - start, count = left < PIECE ? left : PIECE;
        const char *gradient = (const char *)a->gradient + start * (a->half ? 2 : 4);
        Floats sum = {0};
        if (a->half) EACH_VECTOR(count, { const Floats g = LOAD(gradient, 1, 0); sum = multiply_add(g, g, sum); });
        else EACH_VECTOR(count, { const Floats g = LOAD(gradient, 0, 0); sum = multiply_add(g, g, sum); });
        a->squares[item] = sum_of(sum);
    }
}

/* squares[i]: the sum of squares of the i-th 4,096 elements. */
EXPORT int64_t headwater_squares(const void *gradient, double *squares, int64_t count, int64_t half, int64_t threads) {
    const Adam a = {.gradient = gradient, .squares = squares, .count = count, .half = half};
    return divide(squares_work, &a, (count + PIECE - 1) / PIECE, threads);
}
