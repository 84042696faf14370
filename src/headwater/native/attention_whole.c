/* Causal attention over whole texts and its gradient, on tiles, for training in bfloat16. See tiles.h.
 *
 * An item is one head of one text. Weights are rounded to bfloat16 before they multiply; the logarithms of their sums
 * are kept, and the gradient computes the weights again from them, a block of keys by a block of queries at a time. In
 * the gradient, scores are transposed, one row a key, so that sums over queries are products as they are. */
#include "elementwise.h"
#include "tiles.h"

#include <stdlib.h>

typedef struct {
    const uint16_t *query, *key, *value, *gradient; /* (text, head, time, dimension), the last without gaps */
    int64_t input[3], upstream[3];                  /* elements between texts, heads and times */
    uint16_t *out, *grads[3];                       /* (text, time, head, dimension) */
    float *sums;                                    /* (text, head, time): log Σ e^(scale · score) */
    int64_t heads, time, size;                      /* size: dimensions of a head */
    int *failed;
} Whole;

#if TILES

enum { EDGE = 64, ROUND_ROWS = 2 * TILE_ROWS, ROUND_LINE = 2 * TILE_LINE };

/* C = A B, or += with `add`: A of rows × 32 · steps in bfloat16, B of pairs of rows, C of rows × columns; rows and
 * columns are multiples of 32, lines are in bytes. */
static void matmul(const void *a, int64_t a_line, const void *b, int64_t b_line, float *c, int64_t c_line,
                     int64_t rows, int64_t columns, int64_t steps, int add) {
    for (int64_t row = 0; row < rows; row += ROUND_ROWS)
        for (int64_t column = 0; column < columns; column += ROUND_ROWS) {
            char *upper = (char *)(c + column) + row * c_line, *lower = upper + TILE_ROWS * c_line;
            if (add) {
                tile_load(0, upper, c_line); tile_load(1, upper + TILE_LINE, c_line);
                tile_load(2, lower, c_line); tile_load(3, lower + TILE_LINE, c_line);
            } else {
                tile_zero(0); tile_zero(1); tile_zero(2); tile_zero(3);
            }
            const char *x = (const char *)a + row * a_line, *w = (const char *)b + 4 * column;
            for (int64_t step = 0; step < steps; step++, x += TILE_LINE, w += TILE_ROWS * b_line) {
                tile_load(4, x, a_line);
                tile_load(6, w, b_line);
                tile_add_pairs(0, 4, 6);
                tile_load(7, w + TILE_LINE, b_line);
                tile_add_pairs(1, 4, 7);
                tile_load(5, x + TILE_ROWS * a_line, a_line);
                tile_add_pairs(2, 5, 6);
                tile_add_pairs(3, 5, 7);
            }
            tile_store(0, upper, c_line); tile_store(1, upper + TILE_LINE, c_line);
            tile_store(2, lower, c_line); tile_store(3, lower + TILE_LINE, c_line);
        }
}

/* ---- layouts ---- */

/* 16 × 16 words; lines are in words. */
static void turn_words(const uint32_t *from, int64_t from_line, uint32_t *to, int64_t to_line) {
#if defined(__AVX512F__)
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(from + i * from_line);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int i = 0; i < 4; i++) { /* a[4 g + i]: word 4 k + i of the rows of group g in lane k */
        const __m512i low = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88), high = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
        const __m512i next = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
        const __m512i last = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);
        _mm512_storeu_si512(to + i * to_line, _mm512_shuffle_i32x4(low, next, 0x88));
        _mm512_storeu_si512(to + (8 + i) * to_line, _mm512_shuffle_i32x4(low, next, 0xdd));
        _mm512_storeu_si512(to + (4 + i) * to_line, _mm512_shuffle_i32x4(high, last, 0x88));
        _mm512_storeu_si512(to + (12 + i) * to_line, _mm512_shuffle_i32x4(high, last, 0xdd));
    }
#else
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) to[j * to_line + i] = from[i * from_line + j];
#endif
}

/* (rows, 2 · words) halves -> (words, rows) words; both counts are multiples of 16. */
static void turn(const uint16_t *from, int64_t rows, int64_t words, uint32_t *to, int64_t to_line) {
    for (int64_t row = 0; row < rows; row += 16)
        for (int64_t word = 0; word < words; word += 16)
            turn_words((const uint32_t *)from + row * words + word, words, to + word * to_line + row, to_line);
}

/* (rows, columns) halves -> (rows / 2, columns) words, each of two rows' halves. */
static void pair_rows(const uint16_t *from, int64_t rows, int64_t columns, uint32_t *to) {
    for (int64_t row = 0; row < rows; row += 2)
        for (int64_t column = 0; column < columns; column += LANES) {
            Halves first, second;
            memcpy(&first, from + row * columns + column, sizeof first);
            memcpy(&second, from + (row + 1) * columns + column, sizeof second);
            const Words words = __builtin_convertvector(first, Words) | __builtin_convertvector(second, Words) << 16;
            memcpy(to + row / 2 * columns + column, &words, sizeof words);
        }
}

/* Rows of a head one after the other, followed by zeros up to `padded` rows. */
static void gather(const uint16_t *from, int64_t apart, int64_t time, int64_t padded, int64_t size, uint16_t *to) {
    for (int64_t t = 0; t < time; t++) memcpy(to + t * size, from + t * apart, (size_t)size * 2);
    memset(to + time * size, 0, (size_t)((padded - time) * size) * 2);
}

static const uint16_t *head_of(const uint16_t *from, const int64_t *strides, const Whole *w, int64_t item) {
    return from + item / w->heads * strides[0] + item % w->heads * strides[1];
}

/* Write rows of a result, each times `factor[row]` if there are factors. */
static void write_rows(const float *rows, int64_t first, int64_t count, const float *factor, uint16_t *out, const Whole *w,
                    int64_t item) {
    const int64_t text = item / w->heads, head = item % w->heads;
    for (int64_t r = 0; r < count && first + r < w->time; r++) {
        uint16_t *to = out + ((text * w->time + first + r) * w->heads + head) * w->size;
        for (int64_t d = 0; d < w->size; d += LANES)
            store_halves(to + d, load_floats(rows + r * w->size + d) * all(factor ? factor[r] : 1.0f));
    }
}

/* ---- attention ---- */

/* Replace a row of scores by e^(scale · (score − largest)) in bfloat16, 0 from `visible` to `count`. */
static float weigh_row(float *scores, int64_t visible, int64_t count, float scale, float *inverse) {
    Ints lanes;
    for (int i = 0; i < LANES; i++) lanes[i] = i;
    Floats most = all(-INFINITY), total = {0};
    for (int64_t at = 0; at < count; at += LANES) {
        const Floats seen = choose(lanes + (int32_t)at < (int32_t)visible, load_floats(scores + at), all(-INFINITY));
        most = larger(seen, most);
        store_floats(scores + at, seen);
    }
    const float top = largest_of(most);
    for (int64_t at = 0; at < count; at += LANES) { /* the halves stay behind the floats that are read */
        const Floats e = exponential_or_zero(all(scale) * (load_floats(scores + at) - top));
        total += e;
        store_halves((uint16_t *)scores + at, e);
    }
    const float sum = sum_of(total);
    *inverse = 1.0f / sum;
    return scale * top + logf(sum);
}

static void *scratch_of(int64_t floats, const Whole *w) {
    void *found = aligned_alloc(64, (size_t)(floats * 4 + 63) / 64 * 64);
    if (!found) __atomic_store_n(w->failed, 1, __ATOMIC_RELAXED);
    return found;
}

static void attend_items(const void *task, int64_t first, int64_t last) {
    const Whole *w = task;
    const int64_t size = w->size, padded = (w->time + EDGE - 1) / EDGE * EDGE, half = padded * size / 2;
    float *scratch = first == last ? NULL : scratch_of(4 * half + ROUND_ROWS * (padded + size), w);
    if (!scratch) return;
    uint16_t *natural = (uint16_t *)scratch, *query = natural + 2 * half;
    uint32_t *keys = (uint32_t *)scratch + 2 * half, *values = keys + half;
    float *scores = scratch + 4 * half, *mixed = scores + ROUND_ROWS * padded;
    const float scale = 1.0f / sqrtf((float)size);
    const TileShapes shapes = tile_shapes(TILE_ROWS);
    tile_begin(shapes);
    for (int64_t item = first; item < last; item++) {
        gather(head_of(w->value, w->input, w, item), w->input[2], w->time, padded, size, natural);
        pair_rows(natural, padded, size, values);
        gather(head_of(w->key, w->input, w, item), w->input[2], w->time, padded, size, natural);
        turn(natural, padded, size / 2, keys, padded);
        gather(head_of(w->query, w->input, w, item), w->input[2], w->time, padded, size, query);
        for (int64_t q = 0; q < w->time; q += ROUND_ROWS) {
            const int64_t seen = q + ROUND_ROWS;
            float inverse[ROUND_ROWS];
            matmul(query + q * size, 2 * size, keys, 4 * padded, scores, 4 * padded, ROUND_ROWS, seen, size / 32, 0);
            for (int64_t r = 0; r < ROUND_ROWS; r++) {
                const float sum = weigh_row(scores + r * padded, q + r + 1, seen, scale, &inverse[r]);
                if (q + r < w->time) w->sums[item * w->time + q + r] = sum;
            }
            matmul(scores, 4 * padded, values, 4 * size, mixed, 4 * size, ROUND_ROWS, size, seen / 32, 0);
            write_rows(mixed, q, ROUND_ROWS, inverse, w->out, w, item);
        }
    }
    tile_end();
    free(scratch);
}

/* ---- its gradient ---- */

typedef struct {
    float scores[EDGE * EDGE], upstream[EDGE * EDGE]; /* one row a key, one column a query */
    uint16_t weights[EDGE * EDGE], slopes[EDGE * EDGE], turned[EDGE * EDGE];
    uint32_t pairs[EDGE * EDGE / 2];
} Square __attribute__((aligned(64)));

/* The weights of a square and the gradient of its scores, in bfloat16. `means`: of each query's upstream gradient. */
static void slope(Square *s, const float *sums, const float *means, float scale, int diagonal) {
    Ints lanes;
    for (int i = 0; i < LANES; i++) lanes[i] = i;
    for (int key = 0; key < EDGE; key++)
        for (int at = 0; at < EDGE; at += LANES) {
            const int64_t i = key * EDGE + at;
            Floats weight = exponential(all(scale) * load_floats(s->scores + i) - load_floats(sums + at));
            if (diagonal) weight = choose(lanes + at >= key, weight, (Floats){0});
            const Floats change = load_floats(s->upstream + i) - load_floats(means + at);
            store_halves(s->weights + i, weight);
            store_halves(s->slopes + i, all(scale) * weight * change);
        }
}

/* Σ gradient · out of each position, which is the mean of the weights' gradient by the weights. */
static void average(const uint16_t *gradient, const Whole *w, int64_t item, float *means) {
    const int64_t text = item / w->heads, head = item % w->heads;
    for (int64_t t = 0; t < w->time; t++) {
        const uint16_t *out = w->out + ((text * w->time + t) * w->heads + head) * w->size;
        Floats sum = {0};
        for (int64_t d = 0; d < w->size; d += LANES)
            sum = multiply_add(load_halves(gradient + t * w->size + d), load_halves(out + d), sum);
        means[t] = sum_of(sum);
    }
}

static void attend_gradient_items(const void *task, int64_t first, int64_t last) {
    const Whole *w = task;
    const int64_t size = w->size, padded = (w->time + EDGE - 1) / EDGE * EDGE, half = padded * size / 2;
    const int64_t line = 4 * size, part = EDGE * size;
    float *scratch = first == last ? NULL : scratch_of(11 * half + 2 * padded + 2 * part + (int64_t)(sizeof(Square) / 4), w);
    if (!scratch) return;
    uint16_t *query = (uint16_t *)scratch, *key = query + 2 * half, *value = key + 2 * half, *gradient = value + 2 * half;
    uint32_t *queries = (uint32_t *)(gradient + 2 * half), *gradients = queries + half; /* turned */
    uint32_t *query_pairs = gradients + half, *gradient_pairs = query_pairs + half, *key_pairs = gradient_pairs + half;
    float *grad_query = (float *)(key_pairs + half), *grad_key = grad_query + 2 * half, *grad_value = grad_key + part;
    Square *square = (Square *)(grad_value + part);
    float *sums = (float *)(square + 1), *means = sums + padded;
    const float scale = 1.0f / sqrtf((float)size);
    const TileShapes shapes = tile_shapes(TILE_ROWS);
    tile_begin(shapes);
    for (int64_t item = first; item < last; item++) {
        gather(head_of(w->query, w->input, w, item), w->input[2], w->time, padded, size, query);
        gather(head_of(w->key, w->input, w, item), w->input[2], w->time, padded, size, key);
        gather(head_of(w->value, w->input, w, item), w->input[2], w->time, padded, size, value);
        gather(head_of(w->gradient, w->upstream, w, item), w->upstream[2], w->time, padded, size, gradient);
        turn(query, padded, size / 2, queries, padded);
        turn(gradient, padded, size / 2, gradients, padded);
        pair_rows(query, padded, size, query_pairs);
        pair_rows(gradient, padded, size, gradient_pairs);
        pair_rows(key, padded, size, key_pairs);
        memset(sums, 0, (size_t)(2 * padded) * 4);
        memcpy(sums, w->sums + item * w->time, (size_t)w->time * 4);
        average(gradient, w, item, means);
        memset(grad_query, 0, (size_t)(padded * line));
        for (int64_t k = 0; k < padded; k += EDGE) {
            for (int64_t q = k; q < padded; q += EDGE) {
                Square *s = square;
                const int64_t edge = 4 * EDGE, half_edge = 2 * EDGE;
                matmul(key + k * size, 2 * size, queries + q, 4 * padded, s->scores, edge, EDGE, EDGE, size / 32, 0);
                matmul(value + k * size, 2 * size, gradients + q, 4 * padded, s->upstream, edge, EDGE, EDGE, size / 32, 0);
                slope(s, sums + q, means + q, scale, q == k);
                matmul(s->weights, half_edge, gradient_pairs + q / 2 * size, line, grad_value, line, EDGE, size, 2, q > k);
                matmul(s->slopes, half_edge, query_pairs + q / 2 * size, line, grad_key, line, EDGE, size, 2, q > k);
                pair_rows(s->slopes, EDGE, EDGE, s->pairs);
                turn((const uint16_t *)s->pairs, EDGE / 2, EDGE, (uint32_t *)s->turned, EDGE / 2);
                matmul(s->turned, half_edge, key_pairs + k / 2 * size, line, grad_query + q * size, line, EDGE, size, 2, 1);
            }
            write_rows(grad_key, k, EDGE, NULL, w->grads[1], w, item);
            write_rows(grad_value, k, EDGE, NULL, w->grads[2], w, item);
        }
        write_rows(grad_query, 0, padded, NULL, w->grads[0], w, item);
    }
    tile_end();
    free(scratch);
}

#endif

/* Attention, or with `gradient` the gradients of query, key and value; strides: texts, heads, times of the inputs, then
 * of the gradient. Only variants with tiles have it. */
EXPORT int64_t headwater_attend(const void *query, const void *key, const void *value, const void *gradient, void *out,
                                void *sums, void *grad_query, void *grad_key, void *grad_value, const int64_t *strides,
                                int64_t texts, int64_t heads, int64_t time, int64_t size, int64_t threads) {
#if TILES
    int failed = 0;
    Whole w = {query, key, value, gradient, {0}, {0}, out, {grad_query, grad_key, grad_value}, sums, heads, time, size, &failed};
    memcpy(w.input, strides, sizeof w.input);
    memcpy(w.upstream, strides + 3, sizeof w.upstream);
    const int64_t code = divide(gradient ? attend_gradient_items : attend_items, &w, texts * heads, threads);
    return failed ? OUT_OF_MEMORY : code;
#else
    (void)query, (void)key, (void)value, (void)gradient, (void)out, (void)sums, (void)grad_query, (void)grad_key;
    (void)grad_value, (void)strides, (void)texts, (void)heads, (void)time, (void)size, (void)threads;
    return OUT_OF_RANGE;
#endif
}
