/* The element-wise kernels of a training step: what is between its matrix products, in one pass over memory each.
 *
 * elementwise.py has the twins in torch. Elements are float32 or bfloat16 ("half"), arithmetic is float32. Threads are
 * those of the OpenMP library that torch has loaded; without one a kernel runs on the caller's thread.
 */
#include "calls.h"
#include "simd.h"

/* ---- threads ---- */

typedef void (*Work)(const void *task, int64_t first, int64_t last);
typedef struct {
    Work work;
    const void *task;
    int64_t items;
} Division;

extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));
extern int omp_get_thread_num(void) __attribute__((weak));
extern int omp_get_num_threads(void) __attribute__((weak));

static void own_part(void *argument) {
    const Division *d = argument;
    const int64_t number = omp_get_thread_num(), count = omp_get_num_threads();
    d->work(d->task, d->items * number / count, d->items * (number + 1) / count);
}

/* `items` divided among `threads`; each item's result is the same whoever computes it. */
static int64_t divide(Work work, const void *task, int64_t items, int64_t threads) {
    Division division = {work, task, items};
    if (!calls_enter()) return CLOSED;
    if (threads > 1 && items > 1 && GOMP_parallel && omp_get_thread_num && omp_get_num_threads)
        GOMP_parallel(own_part, &division, (unsigned)threads, 0);
    else
        work(task, 0, items);
    calls_leave();
    return DONE;
}

/* ---- vectors ---- */

ALWAYS Floats load(const void *from, int64_t at, int half) {
    return half ? load_halves((const uint16_t *)from + at) : load_floats((const float *)from + at);
}

ALWAYS void store(void *to, int64_t at, int half, Floats x) {
    if (half) store_halves((uint16_t *)to + at, x);
    else store_floats((float *)to + at, x);
}

/* The last few of a row, followed by `fill`. */
ALWAYS Floats load_some(const void *from, int64_t at, int half, int64_t count, float fill) {
    Floats x = all(fill);
    for (int64_t i = 0; i < count; i++) {
        if (half) {
            const uint32_t bits = (uint32_t)((const uint16_t *)from)[at + i] << 16;
            float one;
            memcpy(&one, &bits, sizeof one);
            x[i] = one;
        } else {
            x[i] = ((const float *)from)[at + i];
        }
    }
    return x;
}

ALWAYS void store_some(void *to, int64_t at, int half, int64_t count, Floats x) {
    float line[LANES];
    uint16_t halves[LANES];
    store(line, 0, 0, x);
    store(halves, 0, 1, x);
    if (half) memcpy((uint16_t *)to + at, halves, (size_t)count * sizeof *halves);
    else memcpy((float *)to + at, line, (size_t)count * sizeof *line);
}

/* The statements for `at` at every vector of [0, count), where the last may have only `some` elements. */
#define EACH_VECTOR(count, ...)                                   \
    do {                                                          \
        int64_t at = 0;                                           \
        for (; at + LANES <= (count); at += LANES) {              \
            const int64_t some = LANES;                            \
            __VA_ARGS__                                            \
        }                                                         \
        if (at < (count)) {                                       \
            const int64_t some = (count) - at;                    \
            __VA_ARGS__                                            \
        }                                                         \
    } while (0)
#define LOAD(from, half, fill) (some == LANES ? load(from, at, half) : load_some(from, at, half, some, fill))
#define STORE(to, half, x) (some == LANES ? store(to, at, half, x) : store_some(to, at, half, some, x))

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

/* ---- softmax and cross-entropy ---- */

typedef struct {
    void *logits;
    const int64_t *targets;
    const float *weights;
    float *losses;
    int64_t columns, stride, half;
} Loss;

ALWAYS void loss_row(const Loss *l, int64_t row, int half) {
    char *logits = (char *)l->logits + row * l->stride * (half ? 2 : 4);
    Floats most = all(-INFINITY), sum = {0};
    EACH_VECTOR(l->columns, most = larger(LOAD(logits, half, -INFINITY), most););
    const float top = largest_of(most);
    EACH_VECTOR(l->columns, sum += exponential(LOAD(logits, half, -INFINITY) - top);); /* after the end: 1e-38 */
    const float total = sum_of(sum), weight = l->weights[row], factor = weight / total;
    const int64_t target = l->targets[row];
    const float chosen = load_some(logits, target, half, 1, 0)[0] - top;
    l->losses[row] = weight * (logf(total) - chosen);
    EACH_VECTOR(l->columns, STORE(logits, half, factor * exponential(LOAD(logits, half, 0) - top)););
    store_some(logits, target, half, 1, all(factor * exponential(all(chosen))[0] - weight));
}

static void loss_work(const void *task, int64_t first, int64_t last) {
    const Loss *l = task;
    for (int64_t row = first; row < last; row++)
        if (l->half) loss_row(l, row, 1);
        else loss_row(l, row, 0);
}

/* Each row of logits becomes its gradient; losses[row] = weight · −log softmax(row)[target].
 * OUT_OF_RANGE, and nothing is written, if a target is not a column. */
EXPORT int64_t headwater_loss(void *logits, const int64_t *targets, const float *weights, float *losses, int64_t rows,
                    int64_t columns, int64_t stride, int64_t half, int64_t threads) {
    const Loss l = {logits, targets, weights, losses, columns, stride, half};
    for (int64_t row = 0; row < rows; row++)
        if (targets[row] < 0 || targets[row] >= columns) return OUT_OF_RANGE;
    return divide(loss_work, &l, rows, threads);
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
