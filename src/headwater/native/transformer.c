/* The Transformer's forward pass for a handful of rows or a block of a prompt, on CPUs with AVX-512.
 *
 * The equations are those of model/transformer.py. What is decided here is the order of every sum: a row's result
 * is accumulated in one order whatever other rows are in the call, so that it is the same to the last bit alone,
 * in a batch, in a prompt's block or token by token. (Compile with -ffp-contract=off: a compiler that joins
 * multiplications and additions as it likes would undo that.)
 *
 * Weights are laid out in panels of 64 outputs, read front to back by the thread that has taken the panel:
 *   float32   [panel][input][64]
 *   bfloat16  [panel][input / 2][64][2]
 *   int8      [panel][input / 4][64][4], a byte w + 128, one scale an output
 * Inputs of a product ("operands") are float32, bfloat16, or int8 in groups of 64 with a scale each, which keeps
 * a few large values from coarsening the others. Keys and values are float32 or bfloat16, in pages of 16 positions:
 *   keys    [page][head][dimension (in pairs for bfloat16)][16]
 *   values  [page][head][16][64]
 * A slot is one text: a table of its pages in order. Texts that begin alike may share pages.
 * A head has 64 dimensions, as in every GPT-1 and GPT-2, and so is one panel and one group.
 */
#include <immintrin.h>
#include "export.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FP32, BF16, INT8 };
enum { QUERY_KEY_VALUE, RESIDUAL, GELU, LOGITS };

#define ALWAYS static inline __attribute__((always_inline))
#define GROUP 64

typedef struct {
    const void *weight;
    const float *bias;  /* padded to whole panels, or NULL */
    const float *scale; /* int8: one an output, padded */
    int64_t inputs, outputs;
} Matrix;

typedef struct {
    Matrix query_key_value, projection, expand, contract;
    const float *norm_1_weight, *norm_1_bias, *norm_2_weight, *norm_2_bias;
    void *keys, *values;
} Layer;

typedef struct {
    int64_t kind, layers, width, heads, pages, pre_norm, threads; /* pages: of a slot, at most */
    double epsilon;
    const void *token_table, *position_table; /* bfloat16 unless kind is FP32 */
    const float *final_weight, *final_bias;   /* or NULL */
    Matrix output;
    const Layer *layer;
    const int32_t *tables; /* (slots, pages) */
    /* Workspace for as many rows as a call has. */
    float *residual;               /* (rows, width) */
    void *query;                   /* (rows, width), bfloat16 unless kind is FP32 */
    void *operand[2];              /* (rows, width), (rows, 4 width): as wide as the kind's operands */
    float *operand_scale[2];       /* int8: (rows, inputs / 64) */
    int32_t *operand_offset[2];    /* int8: −128 times each group's sum */
    float *scores;                 /* (threads, 4, 16 pages) */
    int32_t *blocks;               /* (rows + 1): where each block of rows for attention begins */
} Model;

typedef struct {
    void *values;
    float *scales;
    int32_t *offsets;
    int64_t inputs;
} Operand;

/* One phase of the pass, as every thread sees it. */
typedef struct {
    const Model *model;
    const Layer *layer;
    const int32_t *tokens, *slots, *positions;
    int64_t rows;
    const Matrix *matrix;
    Operand in, out;
    const float *weight, *bias; /* of a norm */
    int embed, keep;
    float *logits; /* (rows, outputs) */
    const float *given; /* (rows, inputs), to be rounded */
} Target;

/* ---- threads ---- */

/* A phase is cut into items that threads take one by one: a thread that the system has put aside holds up no more
 * than the item it is in, where a barrier would wait for it in every phase. `state` is the serial number of the
 * phase (high half) and how many of its items are not yet taken; whoever takes one may read the task until it
 * reports the item done, as the phase cannot end before. */
typedef void (*Work)(const Target *to, int64_t item, int thread);

enum { MOST_THREADS = 256, SPINS_BEFORE_YIELD = 2000, SPINS_BEFORE_SLEEP = 20000 };

static struct {
    _Atomic uint64_t state;
    _Atomic int64_t done;
    Work work;
    const Target *to;
    _Atomic int sleeping;
    int helpers, limit; /* started; how many of them the present call may use */
    pthread_mutex_t call, sleep;
    pthread_cond_t wake;
} pool = {.call = PTHREAD_MUTEX_INITIALIZER, .sleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static int take_item(int thread) {
    uint64_t state = atomic_load_explicit(&pool.state, memory_order_acquire);
    while ((uint32_t)state != 0) {
        if (thread > pool.limit) return 0;
        if (!atomic_compare_exchange_weak(&pool.state, &state, state - 1)) continue;
        pool.work(pool.to, (int64_t)(uint32_t)state - 1, thread);
        atomic_fetch_add_explicit(&pool.done, 1, memory_order_release);
        return 1;
    }
    return 0;
}

static void *help(void *number) {
    const int thread = (int)(intptr_t)number;
    for (int idle = 0;; idle++) {
        if (take_item(thread)) {
            idle = 0;
        } else if (idle < SPINS_BEFORE_SLEEP) {
            _mm_pause();
        } else {
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.sleeping, 1);
            while ((uint32_t)atomic_load(&pool.state) == 0) pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleeping, 1);
            pthread_mutex_unlock(&pool.sleep);
            idle = 0;
        }
    }
    return NULL;
}

static void in_parallel(Work work, const Target *to, int64_t items) {
    if (items <= 1 || pool.limit == 0) {
        for (int64_t item = 0; item < items; item++) work(to, item, 0);
        return;
    }
    pool.work = work, pool.to = to;
    atomic_store(&pool.done, 0);
    const uint64_t serial = (atomic_load(&pool.state) >> 32) + 1;
    atomic_store(&pool.state, serial << 32 | (uint64_t)items);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.sleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep);
    }
    while (take_item(0)) {}
    for (int spins = 0; atomic_load_explicit(&pool.done, memory_order_acquire) < items; spins++) {
        if (spins < SPINS_BEFORE_YIELD) _mm_pause();
        else sched_yield();
    }
}

static void after_fork(void) { /* a child has none of its parent's threads */
    pool.helpers = pool.limit = 0;
    atomic_store(&pool.state, 0);
    atomic_store(&pool.sleeping, 0);
    pthread_mutex_init(&pool.call, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

static void begin_call(int64_t threads) {
    static int registered;
    pthread_mutex_lock(&pool.call);
    if (!registered) registered = 1, pthread_atfork(NULL, NULL, after_fork);
    const int wanted = threads > MOST_THREADS ? MOST_THREADS - 1 : (int)threads - 1;
    while (pool.helpers < wanted) {
        pthread_t helper;
        if (pthread_create(&helper, NULL, help, (void *)(intptr_t)(pool.helpers + 1))) break;
        pthread_detach(helper);
        pool.helpers++;
    }
    pool.limit = pool.helpers < wanted ? pool.helpers : wanted;
}

static void end_call(void) { pthread_mutex_unlock(&pool.call); }

typedef struct { __m512 part[4]; } Row64; /* 64 columns of one row */

enum { PAGE = 16 };

/* Where the keys, or values, of one head on a page of a slot begin. */
ALWAYS int64_t page_start(const Model *m, int64_t slot, int64_t page, int64_t head) {
    return (m->tables[slot * m->pages + page] * m->heads + head) * PAGE * GROUP;
}

/* ---- small pieces ---- */

ALWAYS __m512 from_bf16(const uint16_t *values) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)values)), 16));
}

ALWAYS void to_bf16(uint16_t *values, __m512 x) {
    _mm256_storeu_si256((__m256i *)values, (__m256i)_mm512_cvtneps_pbh(x));
}

ALWAYS __m512 load_table(const void *table, int kind, int64_t index) {
    return kind == FP32 ? _mm512_loadu_ps((const float *)table + index)
                        : from_bf16((const uint16_t *)table + index);
}

/* sum += four products of bytes, a without sign and b with it, in each of 16 places. (By hand: the compiler's own
 * name for the instruction makes GCC 12 copy every sum twice.) */
ALWAYS void add_products(__m512i *sum, __m512i a, __m512i b) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(a), "v"(b));
}

/* e^x for x <= 0 and a little above: 2^n e^r with a polynomial in |r| <= ln 2 / 2; 0 below -87. */
ALWAYS __m512 exponential(__m512 x) {
    const __mmask16 tiny = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_LT_OQ);
    x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-87.0f)), _mm512_set1_ps(88.0f));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 y = _mm512_set1_ps(1.9875691500e-4f);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.3981999507e-3f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(8.3334519073e-3f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(4.1665795894e-2f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.6666665459e-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(5.0000001201e-1f));
    y = _mm512_fmadd_ps(_mm512_mul_ps(y, r), r, _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_mask_mov_ps(_mm512_scalef_ps(y, n), tiny, _mm512_setzero_ps());
}

/* x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), as x / (1 + e^(-2 √(2/π) (x + 0.044715 x³))). */
ALWAYS __m512 gelu(__m512 x) {
    const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    const __m512 inner = _mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715f), x);
    const __m512 e = exponential(_mm512_mul_ps(inner, _mm512_set1_ps(-1.5957691216057308f)));
    return _mm512_div_ps(x, _mm512_add_ps(e, _mm512_set1_ps(1.0f)));
}

/* Columns [64 group, 64 group + 64) of one row of an operand. */
ALWAYS void store_operand(const Operand *out, int kind, int64_t row, int64_t group, Row64 x) {
    const int64_t at = row * out->inputs + group * GROUP;
    if (kind == FP32) {
        for (int c = 0; c < 4; c++) _mm512_storeu_ps((float *)out->values + at + 16 * c, x.part[c]);
    } else if (kind == BF16) {
        for (int c = 0; c < 4; c++) to_bf16((uint16_t *)out->values + at + 16 * c, x.part[c]);
    } else {
        const __m512 largest = _mm512_max_ps(
            _mm512_max_ps(_mm512_abs_ps(x.part[0]), _mm512_abs_ps(x.part[1])),
            _mm512_max_ps(_mm512_abs_ps(x.part[2]), _mm512_abs_ps(x.part[3])));
        const float most = _mm512_reduce_max_ps(largest);
        const __m512 inverse = _mm512_set1_ps(most > 0 ? 127.0f / most : 0.0f);
        __m512i sum = _mm512_setzero_si512();
        for (int c = 0; c < 4; c++) {
            const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x.part[c], inverse));
            sum = _mm512_add_epi32(sum, q);
            _mm_storeu_si128((__m128i *)((int8_t *)out->values + at + 16 * c), _mm512_cvtsepi32_epi8(q));
        }
        const int64_t place = row * (out->inputs / GROUP) + group;
        out->scales[place] = most / 127.0f;
        out->offsets[place] = -128 * _mm512_reduce_add_epi32(sum);
    }
}

/* ---- matrix products ---- */

/* What becomes of 64 outputs of one row. */
ALWAYS void deliver(const Target *to, int purpose, int kind, int64_t row, int64_t panel, Row64 y) {
    const Model *m = to->model;
    if (purpose == RESIDUAL) {
        float *x = m->residual + row * m->width + panel * GROUP;
        for (int c = 0; c < 4; c++)
            _mm512_storeu_ps(x + 16 * c, _mm512_add_ps(_mm512_loadu_ps(x + 16 * c), y.part[c]));
    } else if (purpose == GELU) {
        for (int c = 0; c < 4; c++) y.part[c] = gelu(y.part[c]);
        store_operand(&to->out, kind, row, panel, y);
    } else if (purpose == LOGITS) {
        float *logits = to->logits + row * to->matrix->outputs + panel * GROUP;
        for (int c = 0; c < 4; c++) _mm512_storeu_ps(logits + 16 * c, y.part[c]);
    } else {
        const int64_t head = panel % m->heads, which = panel / m->heads;
        if (which == 0) {
            const int64_t at = row * m->width + head * GROUP;
            for (int c = 0; c < 4; c++)
                if (kind == FP32) _mm512_storeu_ps((float *)m->query + at + 16 * c, y.part[c]);
                else to_bf16((uint16_t *)m->query + at + 16 * c, y.part[c]);
            return;
        }
        const int64_t lane = to->positions[row] % PAGE;
        const int64_t start = page_start(m, to->slots[row], to->positions[row] / PAGE, head);
        if (which == 2) {
            const int64_t at = start + lane * GROUP;
            for (int c = 0; c < 4; c++)
                if (kind == FP32) _mm512_storeu_ps((float *)to->layer->values + at + 16 * c, y.part[c]);
                else to_bf16((uint16_t *)to->layer->values + at + 16 * c, y.part[c]);
            return;
        }
        if (kind == FP32) {
            float line[GROUP];
            for (int c = 0; c < 4; c++) _mm512_storeu_ps(line + 16 * c, y.part[c]);
            for (int d = 0; d < GROUP; d++) ((float *)to->layer->keys)[start + d * PAGE + lane] = line[d];
        } else {
            uint16_t line[GROUP];
            for (int c = 0; c < 4; c++) to_bf16(line + 16 * c, y.part[c]);
            uint32_t *page = (uint32_t *)((uint16_t *)to->layer->keys + start);
            for (int d = 0; d < GROUP / 2; d++) memcpy(page + d * PAGE + lane, line + 2 * d, 4);
        }
    }
}

/* One panel for R rows from `row`: each of the 64 R sums runs over the inputs in their order. `ahead`: the weights
 * come from memory, and are asked for before their turn. */
ALWAYS void product(const Matrix *a, const Operand *x, const Target *to, int kind, int purpose, const int R,
                    const int ahead, int64_t row, int64_t panel) {
    const int64_t inputs = a->inputs;
    __m512 sum[6][4];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 4; c++) sum[r][c] = _mm512_setzero_ps();
    if (kind == FP32) {
        const float *w = (const float *)a->weight + panel * inputs * GROUP;
        const float *in = (const float *)x->values + row * inputs;
        for (int64_t i = 0; i < inputs; i++, w += GROUP) {
            if (ahead)
                for (int c = 0; c < 4; c++) _mm_prefetch((const char *)(w + 16 * GROUP + 16 * c), _MM_HINT_T0);
            __m512 v[4];
            for (int c = 0; c < 4; c++) v[c] = _mm512_load_ps(w + 16 * c);
            for (int r = 0; r < R; r++) {
                const __m512 b = _mm512_set1_ps(in[r * inputs + i]);
                for (int c = 0; c < 4; c++) sum[r][c] = _mm512_fmadd_ps(v[c], b, sum[r][c]);
            }
        }
    } else if (kind == BF16) {
        const uint16_t *w = (const uint16_t *)a->weight + panel * inputs * GROUP;
        const uint16_t *in = (const uint16_t *)x->values + row * inputs;
        for (int64_t i = 0; i < inputs; i += 2, w += 2 * GROUP) {
            if (ahead)
                for (int c = 0; c < 4; c++) _mm_prefetch((const char *)(w + 32 * GROUP + 32 * c), _MM_HINT_T0);
            __m512i v[4];
            for (int c = 0; c < 4; c++) v[c] = _mm512_load_si512(w + 32 * c);
            for (int r = 0; r < R; r++) {
                int32_t pair;
                memcpy(&pair, in + r * inputs + i, 4);
                const __m512i b = _mm512_set1_epi32(pair);
                for (int c = 0; c < 4; c++) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], (__m512bh)v[c], (__m512bh)b);
            }
        }
    } else {
        const uint8_t *w = (const uint8_t *)a->weight + panel * inputs * GROUP;
        const int8_t *in = (const int8_t *)x->values + row * inputs;
        const int64_t groups = inputs / GROUP;
        /* The registers hold a group's whole numbers; what they add up to stays in the first cache. */
        float total[6][GROUP] __attribute__((aligned(64))) = {0};
        for (int64_t g = 0; g < groups; g++) {
            __m512i whole[6][4];
            for (int r = 0; r < R; r++)
                for (int c = 0; c < 4; c++)
                    whole[r][c] = _mm512_set1_epi32(x->offsets[(row + r) * groups + g]);
            for (int i = 0; i < GROUP; i += 4, w += 4 * GROUP) {
                if (ahead)
                    for (int c = 0; c < 4; c++)
                        _mm_prefetch((const char *)(w + 64 * GROUP + 64 * c), _MM_HINT_T0);
                __m512i v[4];
                for (int c = 0; c < 4; c++) v[c] = _mm512_load_si512(w + 64 * c);
                for (int r = 0; r < R; r++) {
                    int32_t four;
                    memcpy(&four, in + r * inputs + g * GROUP + i, 4);
                    const __m512i b = _mm512_set1_epi32(four);
                    for (int c = 0; c < 4; c++) add_products(&whole[r][c], v[c], b);
                }
            }
            for (int r = 0; r < R; r++) {
                const __m512 scale = _mm512_set1_ps(x->scales[(row + r) * groups + g]);
                for (int c = 0; c < 4; c++) {
                    float *place = total[r] + 16 * c;
                    _mm512_store_ps(
                        place, _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[r][c]), scale, _mm512_load_ps(place)));
                }
            }
            __asm__ volatile("" : : "r"(total) : "memory"); /* else they are promoted to registers and spilt */
        }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < 4; c++) sum[r][c] = _mm512_load_ps(total[r] + 16 * c);
    }
    for (int r = 0; r < R; r++) {
        Row64 y;
        for (int c = 0; c < 4; c++) {
            y.part[c] = sum[r][c];
            if (kind == INT8)
                y.part[c] = _mm512_mul_ps(y.part[c], _mm512_loadu_ps(a->scale + panel * GROUP + 16 * c));
            if (a->bias)
                y.part[c] = _mm512_add_ps(y.part[c], _mm512_loadu_ps(a->bias + panel * GROUP + 16 * c));
        }
        deliver(to, purpose, kind, row + r, panel, y);
    }
}

ALWAYS void product_rows(const Matrix *a, const Operand *x, const Target *to, int kind, int purpose, const int ahead,
                         int64_t rows, int64_t row, int64_t panel) {
    switch (rows) {
    case 1: product(a, x, to, kind, purpose, 1, ahead, row, panel); break;
    case 2: product(a, x, to, kind, purpose, 2, ahead, row, panel); break;
    case 3: product(a, x, to, kind, purpose, 3, ahead, row, panel); break;
    case 4: product(a, x, to, kind, purpose, 4, ahead, row, panel); break;
    case 5: product(a, x, to, kind, purpose, 5, ahead, row, panel); break;
    case 6: product(a, x, to, kind, purpose, 6, ahead, row, panel); break;
    }
}

enum { ROWS_OF_AN_ITEM = 96 };

static int64_t row_parts(int64_t rows) { return (rows + ROWS_OF_AN_ITEM - 1) / ROWS_OF_AN_ITEM; }

/* One panel for one part of the rows: as few rounds over the panel as registers allow, of even size. */
ALWAYS void multiply_kind(const Target *to, int kind, int purpose, int64_t item) {
    const int64_t parts = row_parts(to->rows), panel = item / parts, part = item % parts;
    const int64_t first = to->rows * part / parts, rows = to->rows * (part + 1) / parts - first;
    const int64_t rounds = (rows + 5) / 6;
    product_rows(to->matrix, &to->in, to, kind, purpose, 1, rows / rounds, first, panel);
    for (int64_t round = 1; round < rounds; round++) {
        const int64_t from = rows * round / rounds;
        product_rows(to->matrix, &to->in, to, kind, purpose, 0, rows * (round + 1) / rounds - from, first + from,
                     panel);
    }
}

#define MULTIPLY(NAME, PURPOSE)                                                                                       \
    static void NAME(const Target *to, int64_t item, int thread) {                                                    \
        (void)thread;                                                                                                 \
        switch (to->model->kind) {                                                                                    \
        case FP32: multiply_kind(to, FP32, PURPOSE, item); break;                                                     \
        case BF16: multiply_kind(to, BF16, PURPOSE, item); break;                                                     \
        case INT8: multiply_kind(to, INT8, PURPOSE, item); break;                                                     \
        }                                                                                                             \
    }
MULTIPLY(to_query_key_value, QUERY_KEY_VALUE)
MULTIPLY(to_residual, RESIDUAL)
MULTIPLY(to_gelu, GELU)
MULTIPLY(to_logits, LOGITS)

static void multiply(Work work, Target *to, const Matrix *matrix, const Operand *in, int64_t rows) {
    to->matrix = matrix, to->in = *in, to->rows = rows;
    in_parallel(work, to, matrix->outputs / GROUP * row_parts(rows));
}

/* ---- norms ---- */

/* h_0 = U W_e + W_p for one row. */
static void embed(const Target *to, int64_t row) {
    const Model *m = to->model;
    const int table = m->kind == FP32 ? FP32 : BF16;
    for (int64_t i = 0; i < m->width; i += 16) {
        const __m512 token = load_table(m->token_table, table, to->tokens[row] * m->width + i);
        const __m512 position = load_table(m->position_table, table, to->positions[row] * m->width + i);
        _mm512_storeu_ps(m->residual + row * m->width + i, _mm512_add_ps(token, position));
    }
}

/* LayerNorm of a row into an operand; with `keep` into the residual as well. weight NULL: as it is. */
static void normalise_row(const Target *to, int64_t row, int thread) {
    (void)thread;
    if (to->embed) embed(to, row);
    const Model *m = to->model;
    const int64_t width = m->width;
    float *x = m->residual + row * width;
    __m512 mean = _mm512_setzero_ps(), inverse = _mm512_set1_ps(1.0f);
    if (to->weight) {
        __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
        for (int64_t i = 0; i < width; i += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
        mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / (float)width);
        for (int64_t i = 0; i < width; i += 16) {
            const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(x + i), mean);
            squares = _mm512_fmadd_ps(d, d, squares);
        }
        const float variance = _mm512_reduce_add_ps(squares) / (float)width;
        inverse = _mm512_set1_ps(1.0f / sqrtf(variance + (float)m->epsilon));
    }
    for (int64_t group = 0; group < width / GROUP; group++) {
        Row64 y;
        for (int c = 0; c < 4; c++) {
            const int64_t i = group * GROUP + 16 * c;
            y.part[c] = _mm512_loadu_ps(x + i);
            if (to->weight) {
                y.part[c] = _mm512_mul_ps(_mm512_sub_ps(y.part[c], mean), inverse);
                y.part[c] =
                    _mm512_fmadd_ps(y.part[c], _mm512_loadu_ps(to->weight + i), _mm512_loadu_ps(to->bias + i));
            }
            if (to->keep) _mm512_storeu_ps(x + i, y.part[c]);
        }
        switch (m->kind) {
        case FP32: store_operand(&to->out, FP32, row, group, y); break;
        case BF16: store_operand(&to->out, BF16, row, group, y); break;
        case INT8: store_operand(&to->out, INT8, row, group, y); break;
        }
    }
}

static void normalise(Target *to, const float *weight, const float *bias, int keep, int64_t rows) {
    to->weight = weight, to->bias = bias, to->keep = keep;
    in_parallel(normalise_row, to, rows);
}

/* ---- attention ---- */

/* One head of R rows from `row`, all of one slot, at rising positions. */
ALWAYS void attend(const Target *to, int kind, const int R, int64_t row, int64_t head, float *scores) {
    const Model *m = to->model;
    const int64_t last = to->positions[row + R - 1], pages = last / PAGE + 1, slot = to->slots[row];
    const int64_t stride = m->pages * PAGE; /* of the scores of a row */
    const __m512 scale = _mm512_set1_ps(0.125f); /* 1 / √64 */
    const __m512 never = _mm512_set1_ps(-INFINITY);
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512 most[4], total[4];
    for (int r = 0; r < R; r++) most[r] = never, total[r] = _mm512_setzero_ps();
    for (int64_t page = 0; page < pages; page++) {
        const int64_t start = page_start(m, slot, page, head);
        __m512 s[4];
        for (int r = 0; r < R; r++) s[r] = _mm512_setzero_ps();
        if (kind == FP32) {
            const float *key = (const float *)to->layer->keys + start;
            const float *query = (const float *)m->query + row * m->width + head * GROUP;
            for (int d = 0; d < GROUP; d++) {
                const __m512 k = _mm512_loadu_ps(key + d * PAGE);
                for (int r = 0; r < R; r++)
                    s[r] = _mm512_fmadd_ps(k, _mm512_set1_ps(query[r * m->width + d]), s[r]);
            }
        } else {
            const uint16_t *key = (const uint16_t *)to->layer->keys + start;
            const uint16_t *query = (const uint16_t *)m->query + row * m->width + head * GROUP;
            for (int d = 0; d < GROUP; d += 2) {
                const __m512i k = _mm512_loadu_si512(key + d * PAGE);
                for (int r = 0; r < R; r++) {
                    int32_t pair;
                    memcpy(&pair, query + r * m->width + d, 4);
                    s[r] = _mm512_dpbf16_ps(s[r], (__m512bh)k, (__m512bh)_mm512_set1_epi32(pair));
                }
            }
        }
        const __m512i position = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)(page * PAGE)));
        for (int r = 0; r < R; r++) {
            const __mmask16 seen =
                _mm512_cmple_epi32_mask(position, _mm512_set1_epi32(to->positions[row + r]));
            s[r] = _mm512_mask_mul_ps(never, seen, s[r], scale);
            most[r] = _mm512_max_ps(most[r], s[r]);
            _mm512_storeu_ps(scores + r * stride + page * PAGE, s[r]);
        }
    }
    for (int r = 0; r < R; r++) {
        most[r] = _mm512_set1_ps(_mm512_reduce_max_ps(most[r]));
        for (int64_t page = 0; page < pages; page++) {
            float *s = scores + r * stride + page * PAGE;
            const __m512 e = exponential(_mm512_sub_ps(_mm512_loadu_ps(s), most[r]));
            total[r] = _mm512_add_ps(total[r], e);
            _mm512_storeu_ps(s, e);
        }
    }
    __m512 sum[4][4];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < 4; c++) sum[r][c] = _mm512_setzero_ps();
    for (int64_t page = 0; page < pages; page++) {
        const int64_t start = page_start(m, slot, page, head);
        const int64_t count = page == pages - 1 ? last % PAGE + 1 : PAGE;
        for (int64_t p = 0; p < count; p++) {
            __m512 v[4];
            for (int c = 0; c < 4; c++)
                v[c] = load_table(to->layer->values, kind == FP32 ? FP32 : BF16, start + p * GROUP + 16 * c);
            for (int r = 0; r < R; r++) {
                const __m512 e = _mm512_set1_ps(scores[r * stride + page * PAGE + p]);
                for (int c = 0; c < 4; c++) sum[r][c] = _mm512_fmadd_ps(e, v[c], sum[r][c]);
            }
        }
    }
    for (int r = 0; r < R; r++) {
        const __m512 inverse = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(total[r]));
        Row64 y;
        for (int c = 0; c < 4; c++) y.part[c] = _mm512_mul_ps(sum[r][c], inverse);
        store_operand(&to->out, kind, row + r, head, y);
    }
}

ALWAYS void attend_kind(const Target *to, int kind, int64_t rows, int64_t row, int64_t head, float *scores) {
    switch (rows) {
    case 1: attend(to, kind, 1, row, head, scores); break;
    case 2: attend(to, kind, 2, row, head, scores); break;
    case 3: attend(to, kind, 3, row, head, scores); break;
    case 4: attend(to, kind, 4, row, head, scores); break;
    }
}

static void attend_item(const Target *to, int64_t item, int thread) {
    const Model *m = to->model;
    float *scores = m->scores + thread * 4 * m->pages * PAGE;
    const int64_t block = item / m->heads, head = item % m->heads;
    const int64_t row = m->blocks[block], rows = m->blocks[block + 1] - row;
    switch (m->kind) {
    case FP32: attend_kind(to, FP32, rows, row, head, scores); break;
    case BF16: attend_kind(to, BF16, rows, row, head, scores); break;
    case INT8: attend_kind(to, INT8, rows, row, head, scores); break;
    }
}

/* Blocks of up to four consecutive positions of one slot, and of each block every head. */
static void attention(Target *to, int64_t rows) {
    int64_t blocks = 0, start = 0;
    for (int64_t row = 0; row <= rows; row++) {
        if (row > start && row < rows && row - start < 4 && to->slots[row] == to->slots[start] &&
            to->positions[row] == to->positions[row - 1] + 1)
            continue;
        if (row > start) to->model->blocks[blocks++] = (int32_t)start;
        start = row;
    }
    to->model->blocks[blocks] = (int32_t)rows;
    in_parallel(attend_item, to, blocks * to->model->heads);
}

/* ---- the whole ---- */

/* Fill the caches at every row's position; of the first `wanted` rows give the logits, (wanted, padded outputs), or,
 * where `logits` is NULL, leave the last hidden states in `residual`. A slot's positions before those of its rows are
 * filled, if need be by other rows of the same call. */
EXPORT void headwater_forward(const Model *m, const int32_t *tokens, const int32_t *slots, const int32_t *positions,
                       int64_t rows, int64_t wanted, float *logits) {
    const Operand narrow = {m->operand[0], m->operand_scale[0], m->operand_offset[0], m->width};
    const Operand wide = {m->operand[1], m->operand_scale[1], m->operand_offset[1], 4 * m->width};
    Target to = {.model = m, .tokens = tokens, .slots = slots, .positions = positions, .out = narrow};
    begin_call(m->threads);
    to.embed = 1;
    if (m->pre_norm) normalise(&to, m->layer->norm_1_weight, m->layer->norm_1_bias, 0, rows);
    else normalise(&to, NULL, NULL, 0, rows);
    to.embed = 0;
    for (int64_t index = 0; index < m->layers; index++) {
        const Layer *l = to.layer = m->layer + index;
        if (m->pre_norm && index > 0) normalise(&to, l->norm_1_weight, l->norm_1_bias, 0, rows);
        multiply(to_query_key_value, &to, &l->query_key_value, &narrow, rows);
        if (index == m->layers - 1) rows = wanted; /* of the others only these last keys and values count */
        if (rows == 0) break;
        attention(&to, rows);
        multiply(to_residual, &to, &l->projection, &narrow, rows);
        if (m->pre_norm) normalise(&to, l->norm_2_weight, l->norm_2_bias, 0, rows);
        else normalise(&to, l->norm_1_weight, l->norm_1_bias, 1, rows);
        to.out = wide;
        multiply(to_gelu, &to, &l->expand, &narrow, rows);
        multiply(to_residual, &to, &l->contract, &wide, rows);
        to.out = narrow;
        if (!m->pre_norm) normalise(&to, l->norm_2_weight, l->norm_2_bias, 1, rows);
    }
    if (wanted > 0) {
        if (m->pre_norm) normalise(&to, m->final_weight, m->final_bias, logits == NULL, wanted);
        to.logits = logits;
        if (logits) multiply(to_logits, &to, &m->output, &narrow, wanted);
    }
    end_call();
}

static void round_row(const Target *to, int64_t row, int thread) {
    (void)thread;
    for (int64_t group = 0; group < to->out.inputs / GROUP; group++) {
        Row64 x;
        for (int c = 0; c < 4; c++)
            x.part[c] = _mm512_loadu_ps(to->given + row * to->out.inputs + group * GROUP + 16 * c);
        switch (to->model->kind) {
        case FP32: store_operand(&to->out, FP32, row, group, x); break;
        case BF16: store_operand(&to->out, BF16, row, group, x); break;
        case INT8: store_operand(&to->out, INT8, row, group, x); break;
        }
    }
}

/* One matrix by itself: y = x Wᵀ + b for (rows, inputs) float32 -> (rows, padded outputs). */
EXPORT void headwater_product(const Matrix *a, int64_t kind, const float *x, int64_t rows, void *values, float *scales,
                       int32_t *offsets, float *y, int64_t threads) {
    const Model m = {.kind = kind, .threads = threads};
    const Operand operand = {values, scales, offsets, a->inputs};
    Target to = {.model = &m, .out = operand, .given = x, .logits = y};
    begin_call(threads);
    in_parallel(round_row, &to, rows);
    multiply(to_logits, &to, a, &operand, rows);
    end_call();
}

/* `bytes` of zeros for weights, on huge pages where the system has them: half the time of a step goes into reading
 * them, and ordinary pages add their own lookups. NULL when there is no memory. */
EXPORT void *headwater_allocate(int64_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 2 << 20, (size_t)bytes)) return NULL;
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
    memset(memory, 0, (size_t)bytes);
    return memory;
}

EXPORT void headwater_free(void *memory) { free(memory); }
