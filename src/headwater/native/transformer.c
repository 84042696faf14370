/* The Transformer's forward pass for a few rows or a block of a prompt.
 *
 * The equations are those of model/transformer.py. What is decided here is the order of every sum: a row's result
 * is accumulated in one order whatever other rows are in the call, so that it is the same to the last bit alone,
 * in a batch, in a prompt's block or token by token. (Compile with -ffp-contract=off: a compiler that joins
 * multiplications and additions as it likes would undo that.)
 *
 * Weights are in panels of 64 outputs, read front to back by the thread that has taken the panel. Inputs and outputs
 * are padded with zeros to a multiple of 64.
 *   float32   [panel][input][64]
 *   bfloat16  [panel][input / 2][64][2]
 *   int8      [panel][input / 4][64][4], a byte w + WEIGHT_ZERO; one scale an output
 *   int4      [panel][input / 32] of { [4][64][4], a byte (w + 8) of input i | (w + 8) of input i + 4 << 4,
 *             where a step has inputs i .. i + 7; [64] scales in bfloat16 }
 * Inputs of a product ("operands") are float32, bfloat16, or int8 in groups of 64 with a scale each, which keeps
 * a few large values from coarsening the others. Without bfloat16 products they are float32 in place of bfloat16.
 * Keys and values are float32 or bfloat16, in pages of 16 positions; a head's dimensions are padded to `stride`:
 *   keys    [page][head][dimension (in pairs for bfloat16)][16]
 *   values  [page][head][16][dimension]
 * A slot is one text: a table of its pages in order. Texts that begin alike may share pages.
 */
#include "calls.h"
#include "pool.h"
#include "simd.h"
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum { FP32, BF16, INT8, INT4 };
enum { QUERY_KEY_VALUE, RESIDUAL, GELU, LOGITS };
enum { GROUP = 64, PART = 32, PAGE = 16, PARTS = GROUP / LANES, PAGE_PARTS = PAGE / LANES };
enum { MOST_ROWS = 6, ATTENDED_ROWS = 4, AHEAD = 4096, INT4_BYTES = PART * GROUP / 2 + 2 * GROUP };

typedef struct {
    const void *weight;
    const float *bias;  /* padded, or NULL */
    const float *scale; /* int8: one an output, padded */
    int64_t kind, inputs, outputs; /* padded */
} Matrix;

typedef struct {
    Matrix query_key_value, projection, expand, contract;
    const float *norm_1_weight, *norm_1_bias, *norm_2_weight, *norm_2_bias; /* padded */
    void *keys, *values;
} Layer;

typedef struct {
    int64_t kind; /* of operands: FP32, BF16, INT8 */
    int64_t layers, width, padded, inner, heads, head, stride; /* head: its dimensions; inner, stride: padded */
    int64_t vocabulary, context, slots, pages, page_count, pre_norm, threads; /* pages: of a slot, at most */
    double epsilon;
    const void *token_table, *position_table; /* padded rows, bfloat16 unless kind is FP32 */
    const float *final_weight, *final_bias;   /* or NULL */
    Matrix output;
    const Layer *layer;
    const int32_t *tables; /* (slots, pages) */
    /* Workspace for as many rows as a call has, zeros at first. Operands have 4 bytes an element, whatever the kind. */
    float *residual;           /* (rows, padded) */
    void *query;               /* (rows, heads, stride), 4 bytes an element */
    void *operand[2];          /* (rows, padded), (rows, inner) */
    float *operand_scale[2];   /* int8: (rows, inputs / 64) */
    int32_t *operand_sum[2];   /* int8: (rows, inputs / 32), of each 32 bytes */
    float *attended;           /* (rows, padded), if `head` is not a multiple of 64 */
    float *scratch;            /* (threads, 4, 16 pages + stride) */
    int32_t *blocks;           /* (rows + 1): where each block of rows for attention begins */
} Model;

typedef struct {
    void *values;
    float *scales;
    int32_t *sums;
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
    float *logits;      /* (rows, outputs) */
    const float *given; /* (rows, inputs), to be rounded */
} Target;

typedef struct {
    Floats part[PARTS];
} Row64; /* 64 columns of one row */

/* ---- products of pairs and of bytes ---- */

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

/* sum += four products of bytes in each place. add_bytes: weights as the layout has them, WEIGHT_ZERO added to each;
 * add_nibbles: weights of 0 .. 15. Inputs are signed, −127 .. 127. */
#if defined(__AVX512VNNI__)
#define WEIGHT_ZERO 128
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    /* By hand: the compiler's own name for the instruction makes GCC 12 copy every sum twice. */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(weight), "v"(x));
}
ALWAYS void add_nibbles(Ints *sum, Ints weight, Ints x) { add_bytes(sum, weight, x); }
#elif defined(__AVXVNNI__)
#define WEIGHT_ZERO 128
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(*sum) : "x"(weight), "x"(x));
}
ALWAYS void add_nibbles(Ints *sum, Ints weight, Ints x) { add_bytes(sum, weight, x); }
#elif defined(__AVX512F__)
#define WEIGHT_ZERO 0
ALWAYS void add_nibbles(Ints *sum, Ints weight, Ints x) {
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)weight, (__m512i)x);
    *sum += (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
/* Two products of 127 · 127 fit 16 bits, two of 255 · 127 would not: the sign goes from the input to the weight. */
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    const __mmask64 negative = _mm512_movepi8_mask((__m512i)x);
    const __m512i turned =
        _mm512_mask_sub_epi8((__m512i)weight, negative, _mm512_setzero_si512(), (__m512i)weight);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)x), turned);
    *sum += (Ints)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
#elif defined(__AVX2__)
#define WEIGHT_ZERO 0
ALWAYS void add_nibbles(Ints *sum, Ints weight, Ints x) {
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)weight, (__m256i)x);
    *sum += (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
/* Two products of 127 · 127 fit 16 bits, two of 255 · 127 would not: the sign goes from the input to the weight. */
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    const __m256i turned = _mm256_sign_epi8((__m256i)weight, (__m256i)x);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)x), turned);
    *sum += (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#elif defined(__ARM_FEATURE_DOTPROD)
#define WEIGHT_ZERO 0
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    *sum = (Ints)vdotq_s32((int32x4_t)*sum, (int8x16_t)weight, (int8x16_t)x);
}
ALWAYS void add_nibbles(Ints *sum, Ints weight, Ints x) { add_bytes(sum, weight, x); }
#else
#define WEIGHT_ZERO 0
ALWAYS void add_bytes(Ints *sum, Ints weight, Ints x) {
    for (int shift = 24; shift >= 0; shift -= 8) *sum += (weight << shift >> 24) * (x << shift >> 24);
}
ALWAYS void add_nibbles(Ints *sum, Ints weight, Ints x) { add_bytes(sum, weight, x); }
#endif

EXPORT int64_t headwater_weight_zero(void) { return WEIGHT_ZERO; }

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

/* ---- operands ---- */

/* Whether operands of this kind are bfloat16 in memory. */
ALWAYS int is_half(int kind) { return kind == BF16 && BF16_PRODUCTS; }

/* Columns [64 group, 64 group + 64) of one row of an operand. */
ALWAYS void store_operand(const Operand *out, int kind, int64_t row, int64_t group, const Row64 *x) {
    const int64_t at = row * out->inputs + group * GROUP;
    if (is_half(kind)) {
        for (int c = 0; c < PARTS; c++) store_halves((uint16_t *)out->values + at + LANES * c, x->part[c]);
    } else if (kind != INT8) {
        for (int c = 0; c < PARTS; c++) store_floats((float *)out->values + at + LANES * c, x->part[c]);
    } else {
        const Floats shift = all(12582912.0f); /* 1.5 · 2^23: adding it rounds to a whole number */
        Floats largest = magnitude(x->part[0]);
        for (int c = 1; c < PARTS; c++) largest = larger(magnitude(x->part[c]), largest);
        const float most = largest_of(largest);
        const Floats inverse = all(most > 0 ? 127.0f / most : 0.0f);
        int8_t *bytes = (int8_t *)out->values + at;
        const int64_t place = row * (out->inputs / GROUP) + group;
        for (int part = 0; part < 2; part++) {
            Ints sum = {0};
            for (int c = part * PARTS / 2; c < (part + 1) * PARTS / 2; c++) {
                const Ints q = (Ints)(x->part[c] * inverse + shift) - (Ints)shift;
                sum += q;
                for (int i = 0; i < LANES; i++) bytes[LANES * c + i] = (int8_t)q[i];
            }
            int32_t whole = 0;
            for (int i = 0; i < LANES; i++) whole += sum[i];
            out->sums[2 * place + part] = whole;
        }
        out->scales[place] = most / 127.0f;
    }
}

static void store_operand_as(const Operand *out, int64_t kind, int64_t row, int64_t group, const Row64 *x) {
    switch (kind) {
    case FP32: store_operand(out, FP32, row, group, x); break;
    case BF16: store_operand(out, BF16, row, group, x); break;
    default: store_operand(out, INT8, row, group, x); break;
    }
}

/* ---- where the outputs of a product go ---- */

/* Where the keys, or values, of one head on a page of a slot begin. */
ALWAYS int64_t page_start(const Model *m, int64_t slot, int64_t page, int64_t head) {
    return (m->tables[slot * m->pages + page] * m->heads + head) * PAGE * m->stride;
}

/* `count` dimensions from `first` of one head: 0 a query, 1 a key, 2 a value. `halves`: y in bfloat16. */
static void deliver_head(const Target *to, int64_t kind, int64_t row, int64_t which, int64_t head, int64_t first,
                         int64_t count, const float *y, const uint16_t *halves) {
    const Model *m = to->model;
    if (which == 0) {
        const int64_t at = (row * m->heads + head) * m->stride + first;
        if (kind == FP32 || !BF16_PRODUCTS) memcpy((float *)m->query + at, y, (size_t)count * sizeof *y);
        else memcpy((uint16_t *)m->query + at, halves, (size_t)count * sizeof *halves);
        return;
    }
    const int64_t lane = to->positions[row] % PAGE;
    const int64_t start = page_start(m, to->slots[row], to->positions[row] / PAGE, head);
    if (which == 2) {
        const int64_t at = start + lane * m->stride + first;
        if (kind == FP32) memcpy((float *)to->layer->values + at, y, (size_t)count * sizeof *y);
        else memcpy((uint16_t *)to->layer->values + at, halves, (size_t)count * sizeof *halves);
    } else if (kind == FP32) {
        float *keys = (float *)to->layer->keys + start + lane;
        for (int64_t i = 0; i < count; i++) keys[(first + i) * PAGE] = y[i];
    } else {
        uint16_t *keys = (uint16_t *)to->layer->keys + start + 2 * lane;
        for (int64_t i = 0; i < count; i++) keys[(first + i) / 2 * 2 * PAGE + (first + i) % 2] = halves[i];
    }
}

/* 64 outputs of one row. */
static void deliver(const Target *to, int purpose, int64_t row, int64_t panel, const float *line) {
    const Model *m = to->model;
    if (purpose == RESIDUAL) {
        float *x = m->residual + row * m->padded + panel * GROUP;
        for (int i = 0; i < GROUP; i += LANES) store_floats(x + i, load_floats(x + i) + load_floats(line + i));
    } else if (purpose == GELU) {
        Row64 y;
        for (int c = 0; c < PARTS; c++) {
            const Floats x = load_floats(line + LANES * c);
            y.part[c] = x * gelu_gate(x);
        }
        store_operand_as(&to->out, m->kind, row, panel, &y);
    } else if (purpose == LOGITS) {
        memcpy(to->logits + row * to->matrix->outputs + panel * GROUP, line, GROUP * sizeof *line);
    } else {
        uint16_t halves[GROUP];
        if (m->kind != FP32)
            for (int i = 0; i < GROUP; i += LANES) store_halves(halves + i, load_floats(line + i));
        for (int64_t i = 0; i < GROUP;) {
            const int64_t output = panel * GROUP + i, which = output / m->width, column = output % m->width;
            if (which > 2) break; /* padding */
            const int64_t first = column % m->head, left = m->head - first;
            const int64_t count = left < GROUP - i ? left : GROUP - i;
            deliver_head(to, m->kind, row, which, column / m->head, first, count, line + i, halves + i);
            i += count;
        }
    }
}

/* ---- matrix products ---- */

/* Vectors of a panel that R rows add up at once: as many as there are registers for. */
ALWAYS int strip(int R) {
#if defined(__AVX512F__)
    return R > 0 ? PARTS : 0;
#elif defined(__aarch64__)
    return R == 1 ? 16 : R <= 3 ? 8 : 4;
#else
    return R == 1 ? 8 : R <= 3 ? 4 : 2;
#endif
}

/* The weights come from memory, and are asked for before their turn: `bytes` from here on, a few lines ahead. */
ALWAYS void ask_ahead(int ahead, const void *from, int bytes) {
    if (ahead)
        for (int at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)from + AHEAD + at, 0, 3);
}

/* Vectors [first, first + C) of one panel for R rows from `row`: each sum runs over the inputs in their order. */
ALWAYS void add_up(const Matrix *a, const Operand *x, int kind, const int R, const int C, const int ahead, int64_t row,
                   int64_t panel, int first, float line[][GROUP]) {
    const int64_t inputs = a->inputs;
    if (kind == FP32) {
        const float *w = (const float *)a->weight + panel * inputs * GROUP + first * LANES;
        const float *in = (const float *)x->values + row * inputs;
        Floats sum[MOST_ROWS][PARTS];
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) sum[r][c] = (Floats){0};
        for (int64_t i = 0; i < inputs; i++, w += GROUP) {
            ask_ahead(ahead, w, 4 * C * LANES);
            for (int c = 0; c < C; c++) {
                const Floats v = load_floats(w + c * LANES);
                for (int r = 0; r < R; r++) sum[r][c] = multiply_add(v, all(in[r * inputs + i]), sum[r][c]);
            }
        }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) store_floats(line[r] + (first + c) * LANES, sum[r][c]);
    } else if (kind == BF16) {
        const uint16_t *w = (const uint16_t *)a->weight + panel * inputs * GROUP + 2 * first * LANES;
        Floats sum[MOST_ROWS][PARTS];
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) sum[r][c] = (Floats){0};
        for (int64_t i = 0; i < inputs; i += 2, w += 2 * GROUP) {
            ask_ahead(ahead, w, 4 * C * LANES);
            for (int c = 0; c < C; c++) {
                const Ints v = load_ints(w + 2 * c * LANES);
                if (BF16_PRODUCTS) {
                    const uint16_t *in = (const uint16_t *)x->values + row * inputs + i;
                    for (int r = 0; r < R; r++)
                        sum[r][c] = add_pairs(sum[r][c], (Words)v, (Words)four_bytes(in + r * inputs));
                } else {
                    const float *in = (const float *)x->values + row * inputs + i;
                    const Floats even = low_half(v), odd = high_half(v);
                    for (int r = 0; r < R; r++) {
                        sum[r][c] = multiply_add(even, all(in[r * inputs]), sum[r][c]);
                        sum[r][c] = multiply_add(odd, all(in[r * inputs + 1]), sum[r][c]);
                    }
                }
            }
        }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) store_floats(line[r] + (first + c) * LANES, sum[r][c]);
    } else {
        /* The registers hold a group's whole numbers; what they add up to stays in the first cache. */
        const int8_t *in = (const int8_t *)x->values + row * inputs;
        const int64_t groups = inputs / GROUP, size = kind == INT8 ? GROUP : PART;
        const uint8_t *w = (const uint8_t *)a->weight + panel * (kind == INT8 ? inputs * GROUP : inputs / PART * INT4_BYTES);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) store_floats(line[r] + (first + c) * LANES, (Floats){0});
        for (int64_t i = 0; i < inputs; i += size) {
            Ints whole[MOST_ROWS][PARTS];
            for (int r = 0; r < R; r++) {
                const int32_t *sums = x->sums + 2 * (row + r) * groups + i / PART;
                const int32_t start = kind == INT8 ? -WEIGHT_ZERO * (sums[0] + sums[1]) : -8 * sums[0];
                for (int c = 0; c < C; c++) whole[r][c] = start - (Ints){0};
            }
            if (kind == INT8) {
                for (int j = 0; j < GROUP; j += 4, w += 4 * GROUP) {
                    ask_ahead(ahead, w + 4 * first * LANES, 4 * C * LANES);
                    for (int c = 0; c < C; c++) {
                        const Ints v = load_ints(w + 4 * (first + c) * LANES);
                        for (int r = 0; r < R; r++) add_bytes(&whole[r][c], v, four_bytes(in + r * inputs + i + j));
                    }
                }
            } else {
                for (int j = 0; j < PART; j += 8, w += 4 * GROUP) {
                    ask_ahead(ahead, w + 4 * first * LANES, 4 * C * LANES);
                    for (int c = 0; c < C; c++) {
                        const Ints v = load_ints(w + 4 * (first + c) * LANES);
                        const Ints low = v & 0x0f0f0f0f, high = (Ints)((Words)v >> 4) & 0x0f0f0f0f;
                        for (int r = 0; r < R; r++) {
                            add_nibbles(&whole[r][c], low, four_bytes(in + r * inputs + i + j));
                            add_nibbles(&whole[r][c], high, four_bytes(in + r * inputs + i + j + 4));
                        }
                    }
                }
            }
            for (int r = 0; r < R; r++) {
                const Floats scale = all(x->scales[(row + r) * groups + i / GROUP]);
                for (int c = 0; c < C; c++) {
                    float *place = line[r] + (first + c) * LANES;
                    const Floats value = __builtin_convertvector(whole[r][c], Floats);
                    const Floats by = kind == INT8 ? scale : scale * load_halves((const uint16_t *)w + (first + c) * LANES);
                    store_floats(place, multiply_add(value, by, load_floats(place)));
                }
            }
            if (kind == INT4) w += 2 * GROUP;
            __asm__ volatile("" : : "r"(line) : "memory"); /* else they are promoted to registers and spilt */
        }
    }
}

/* A whole panel for R rows: one function for each kind, number of rows, and whether to ask ahead. */
typedef void (*AddUp)(const Matrix *a, const Operand *x, int64_t row, int64_t panel, float line[][GROUP]);

#define ADD_UP(KIND, R, AHEAD)                                                                                        \
    static void add_up_##KIND##_##R##_##AHEAD(const Matrix *a, const Operand *x, int64_t row, int64_t panel,          \
                                              float line[][GROUP]) {                                                  \
        for (int first = 0; first < PARTS; first += strip(R))                                                         \
            add_up(a, x, KIND, R, strip(R), AHEAD, row, panel, first, line);                                          \
    }
#define EACH_NUMBER(KIND, AHEAD)                                                                                      \
    ADD_UP(KIND, 1, AHEAD) ADD_UP(KIND, 2, AHEAD) ADD_UP(KIND, 3, AHEAD)                                              \
    ADD_UP(KIND, 4, AHEAD) ADD_UP(KIND, 5, AHEAD) ADD_UP(KIND, 6, AHEAD)
#define EACH_KIND(AHEAD) EACH_NUMBER(FP32, AHEAD) EACH_NUMBER(BF16, AHEAD) EACH_NUMBER(INT8, AHEAD) EACH_NUMBER(INT4, AHEAD)
EACH_KIND(0)
EACH_KIND(1)

#define NAMES(KIND, AHEAD)                                                                                            \
    { add_up_##KIND##_1_##AHEAD, add_up_##KIND##_2_##AHEAD, add_up_##KIND##_3_##AHEAD,                                \
      add_up_##KIND##_4_##AHEAD, add_up_##KIND##_5_##AHEAD, add_up_##KIND##_6_##AHEAD }
static const AddUp ADDERS[2][4][MOST_ROWS] = {
    {NAMES(FP32, 0), NAMES(BF16, 0), NAMES(INT8, 0), NAMES(INT4, 0)},
    {NAMES(FP32, 1), NAMES(BF16, 1), NAMES(INT8, 1), NAMES(INT4, 1)},
};

/* One panel for up to MOST_ROWS rows from `row`. */
static void product(const Target *to, int purpose, int ahead, int64_t rows, int64_t row, int64_t panel) {
    const Matrix *a = to->matrix;
    float line[MOST_ROWS][GROUP] __attribute__((aligned(64)));
    ADDERS[ahead][a->kind][rows - 1](a, &to->in, row, panel, line);
    for (int64_t r = 0; r < rows; r++) {
        for (int i = 0; i < GROUP; i += LANES) {
            Floats y = load_floats(line[r] + i);
            if (a->kind == INT8) y = y * load_floats(a->scale + panel * GROUP + i);
            if (a->bias) y = y + load_floats(a->bias + panel * GROUP + i);
            store_floats(line[r] + i, y);
        }
        deliver(to, purpose, row + r, panel, line[r]);
    }
}

enum { ROWS_OF_AN_ITEM = 96 };

static int64_t row_parts(int64_t rows) { return (rows + ROWS_OF_AN_ITEM - 1) / ROWS_OF_AN_ITEM; }

/* One panel for one part of the rows: as few rounds over the panel as registers allow, of even size. */
static void multiply_item(const Target *to, int purpose, int64_t item) {
    const int64_t parts = row_parts(to->rows), panel = item / parts, part = item % parts;
    const int64_t first = to->rows * part / parts, rows = to->rows * (part + 1) / parts - first;
    const int64_t rounds = (rows + MOST_ROWS - 1) / MOST_ROWS;
    for (int64_t round = 0; round < rounds; round++) {
        const int64_t from = rows * round / rounds, until = rows * (round + 1) / rounds;
        product(to, purpose, round == 0, until - from, first + from, panel);
    }
}

#define MULTIPLY(NAME, PURPOSE)                                                                                       \
    static void NAME(const void *task, int64_t item, int thread) {                                                    \
        (void)thread;                                                                                                 \
        multiply_item(task, PURPOSE, item);                                                                           \
    }
MULTIPLY(to_query_key_value, QUERY_KEY_VALUE)
MULTIPLY(to_residual, RESIDUAL)
MULTIPLY(to_gelu, GELU)
MULTIPLY(to_logits, LOGITS)

static void multiply(Work work, Target *to, const Matrix *matrix, const Operand *in, int64_t rows) {
    to->matrix = matrix, to->in = *in, to->rows = rows;
    pool_run(work, to, matrix->outputs / GROUP * row_parts(rows));
}

/* ---- norms ---- */

ALWAYS Floats load_table(const void *table, int64_t kind, int64_t index) {
    return kind == FP32 ? load_floats((const float *)table + index) : load_halves((const uint16_t *)table + index);
}

/* h_0 = U W_e + W_p for one row. */
static void embed(const Target *to, int64_t row) {
    const Model *m = to->model;
    for (int64_t i = 0; i < m->padded; i += LANES) {
        const Floats token = load_table(m->token_table, m->kind, to->tokens[row] * m->padded + i);
        const Floats position = load_table(m->position_table, m->kind, to->positions[row] * m->padded + i);
        store_floats(m->residual + row * m->padded + i, token + position);
    }
}

/* LayerNorm of a row into an operand; with `keep` into the residual as well. weight NULL: as it is. */
static void normalise_row(const void *task, int64_t row, int thread) {
    const Target *to = task;
    (void)thread;
    if (to->embed) embed(to, row);
    const Model *m = to->model;
    const int64_t width = m->width;
    float *x = m->residual + row * m->padded;
    Floats mean = {0}, inverse = all(1.0f);
    if (to->weight) {
        Floats sum = {0}, squares = {0};
        for (int64_t i = 0; i < m->padded; i += LANES) sum += load_floats(x + i); /* zeros behind the width */
        mean = all(sum_of(sum) / (float)width);
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            const Floats d = load_floats(x + i) - mean;
            squares = multiply_add(d, d, squares);
        }
        if (i < width) {
            Floats d = load_floats(x + i) - mean;
            for (int64_t lane = width - i; lane < LANES; lane++) d[lane] = 0;
            squares = multiply_add(d, d, squares);
        }
        inverse = all(1.0f / sqrtf(sum_of(squares) / (float)width + (float)m->epsilon));
    }
    for (int64_t group = 0; group < m->padded / GROUP; group++) {
        Row64 y;
        for (int c = 0; c < PARTS; c++) {
            const int64_t i = group * GROUP + LANES * c;
            y.part[c] = load_floats(x + i);
            if (to->weight) {
                const Floats scaled = (y.part[c] - mean) * inverse;
                y.part[c] = multiply_add(scaled, load_floats(to->weight + i), load_floats(to->bias + i));
            }
            if (to->keep) store_floats(x + i, y.part[c]);
        }
        store_operand_as(&to->out, m->kind, row, group, &y);
    }
}

static void normalise(Target *to, const float *weight, const float *bias, int keep, int64_t rows) {
    to->weight = weight, to->bias = bias, to->keep = keep;
    pool_run(normalise_row, to, rows);
}

static void round_row(const void *task, int64_t row, int thread) {
    const Target *to = task;
    (void)thread;
    for (int64_t group = 0; group < to->out.inputs / GROUP; group++) {
        Row64 x;
        for (int c = 0; c < PARTS; c++)
            x.part[c] = load_floats(to->given + row * to->out.inputs + group * GROUP + LANES * c);
        store_operand_as(&to->out, to->model->kind, row, group, &x);
    }
}

/* ---- attention ---- */

/* The scores of R rows from `row` with one page of keys. */
ALWAYS void score_page(const Target *to, int kind, const int R, int64_t row, int64_t head, int64_t start,
                       Floats s[][PAGE_PARTS]) {
    const Model *m = to->model;
    const int64_t next = m->heads * m->stride, at = row * next + head * m->stride; /* of the query */
    for (int r = 0; r < R; r++)
        for (int c = 0; c < PAGE_PARTS; c++) s[r][c] = (Floats){0};
    if (kind == FP32) {
        const float *key = (const float *)to->layer->keys + start, *query = (const float *)m->query + at;
        for (int64_t d = 0; d < m->head; d++)
            for (int c = 0; c < PAGE_PARTS; c++) {
                const Floats k = load_floats(key + d * PAGE + c * LANES);
                for (int r = 0; r < R; r++) s[r][c] = multiply_add(k, all(query[r * next + d]), s[r][c]);
            }
        return;
    }
    const uint16_t *key = (const uint16_t *)to->layer->keys + start;
    for (int64_t d = 0; d < m->head; d += 2)
        for (int c = 0; c < PAGE_PARTS; c++) {
            const Ints k = load_ints(key + d * PAGE + 2 * c * LANES);
            if (BF16_PRODUCTS) {
                const uint16_t *query = (const uint16_t *)m->query + at + d;
                for (int r = 0; r < R; r++) s[r][c] = add_pairs(s[r][c], (Words)k, (Words)four_bytes(query + r * next));
            } else {
                const float *query = (const float *)m->query + at + d;
                const Floats even = low_half(k), odd = high_half(k);
                for (int r = 0; r < R; r++) {
                    s[r][c] = multiply_add(even, all(query[r * next]), s[r][c]);
                    s[r][c] = multiply_add(odd, all(query[r * next + 1]), s[r][c]);
                }
            }
        }
}

/* C vectors of the heads' dimensions from `first`: the values of all pages, weighted by e^score. */
ALWAYS void mix_values(const Target *to, int kind, const int R, const int C, int64_t slot, int64_t head, int64_t last,
                       int64_t first, const float *scores, int64_t stride, Floats inverse[], float *mixed) {
    const Model *m = to->model;
    Floats sum[ATTENDED_ROWS][4];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) sum[r][c] = (Floats){0};
    for (int64_t page = 0; page <= last / PAGE; page++) {
        const int64_t start = page_start(m, slot, page, head) + first;
        const int64_t count = page == last / PAGE ? last % PAGE + 1 : PAGE;
        for (int64_t p = 0; p < count; p++)
            for (int c = 0; c < C; c++) {
                const Floats v = load_table(to->layer->values, kind, start + p * m->stride + LANES * c);
                for (int r = 0; r < R; r++)
                    sum[r][c] = multiply_add(all(scores[r * stride + page * PAGE + p]), v, sum[r][c]);
            }
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) store_floats(mixed + r * stride + first + LANES * c, sum[r][c] * inverse[r]);
}

/* One head of R rows from `row`, all of one slot, at rising positions. */
ALWAYS void attend(const Target *to, int kind, const int R, int64_t row, int64_t head, float *scores) {
    const Model *m = to->model;
    const int64_t last = to->positions[row + R - 1], pages = last / PAGE + 1, slot = to->slots[row];
    const int64_t stride = m->pages * PAGE + m->stride; /* of the scores of a row, and behind them its result */
    float *mixed = scores + m->pages * PAGE;
    const Floats scale = all(1.0f / sqrtf((float)m->head)), never = all(-INFINITY);
    Ints lanes;
    for (int i = 0; i < LANES; i++) lanes[i] = i;
    Floats most[ATTENDED_ROWS], inverse[ATTENDED_ROWS];
    for (int r = 0; r < R; r++) most[r] = never;
    for (int64_t page = 0; page < pages; page++) {
        Floats s[ATTENDED_ROWS][PAGE_PARTS];
        score_page(to, kind, R, row, head, page_start(m, slot, page, head), s);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < PAGE_PARTS; c++) {
                const Ints position = lanes + (int32_t)(page * PAGE + c * LANES);
                const Floats x = choose(position <= to->positions[row + r], s[r][c] * scale, never);
                most[r] = larger(x, most[r]);
                store_floats(scores + r * stride + page * PAGE + c * LANES, x);
            }
    }
    for (int r = 0; r < R; r++) {
        const Floats top = all(largest_of(most[r]));
        Floats total = {0};
        for (int64_t at = 0; at < pages * PAGE; at += LANES) {
            float *s = scores + r * stride + at;
            const Floats e = exponential_or_zero(load_floats(s) - top);
            total += e;
            store_floats(s, e);
        }
        inverse[r] = all(1.0f / sum_of(total));
    }
    int64_t first = 0;
    for (; first + 4 * LANES <= m->stride && (LANES == 16 || LANES == 4); first += 4 * LANES)
        mix_values(to, kind, R, 4, slot, head, last, first, scores, stride, inverse, mixed);
    for (; first < m->stride; first += PAGE) mix_values(to, kind, R, PAGE_PARTS, slot, head, last, first, scores, stride, inverse, mixed);
    for (int r = 0; r < R; r++) {
        const float *y = mixed + r * stride;
        if (m->head % GROUP) {
            memcpy(m->attended + (row + r) * m->padded + head * m->head, y, (size_t)m->head * sizeof *y);
            continue;
        }
        for (int64_t d = 0; d < m->head; d += GROUP) {
            Row64 part;
            for (int c = 0; c < PARTS; c++) part.part[c] = load_floats(y + d + LANES * c);
            store_operand_as(&to->out, m->kind, row + r, (head * m->head + d) / GROUP, &part);
        }
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

static void attend_item(const void *task, int64_t item, int thread) {
    const Target *to = task;
    const Model *m = to->model;
    float *scores = m->scratch + thread * ATTENDED_ROWS * (m->pages * PAGE + m->stride);
    const int64_t block = item / m->heads, head = item % m->heads;
    const int64_t row = m->blocks[block], rows = m->blocks[block + 1] - row;
    switch (m->kind) {
    case FP32: attend_kind(to, FP32, rows, row, head, scores); break;
    default: attend_kind(to, BF16, rows, row, head, scores); break;
    }
}

/* Blocks of up to four consecutive positions of one slot, and of each block every head. */
static void attention(Target *to, int64_t rows) {
    const Model *m = to->model;
    int64_t blocks = 0, start = 0;
    for (int64_t row = 0; row <= rows; row++) {
        if (row > start && row < rows && row - start < ATTENDED_ROWS && to->slots[row] == to->slots[start] &&
            to->positions[row] == to->positions[row - 1] + 1)
            continue;
        if (row > start) m->blocks[blocks++] = (int32_t)start;
        start = row;
    }
    m->blocks[blocks] = (int32_t)rows;
    pool_run(attend_item, to, blocks * m->heads);
    if (m->head % GROUP) {
        to->given = m->attended;
        pool_run(round_row, to, rows);
    }
}

/* ---- the whole ---- */

/* Whether every token, slot, position and page of the call is in its range. */
static int in_range(const Model *m, const int32_t *tokens, const int32_t *slots, const int32_t *positions, int64_t rows,
                    int64_t wanted) {
    if (wanted < 0 || wanted > rows) return 0;
    for (int64_t row = 0; row < rows; row++) {
        if (tokens[row] < 0 || tokens[row] >= m->vocabulary) return 0;
        if (slots[row] < 0 || slots[row] >= m->slots) return 0;
        if (positions[row] < 0 || positions[row] >= m->context || positions[row] / PAGE >= m->pages) return 0;
        const int64_t last = positions[row] / PAGE;
        for (int64_t page = row && slots[row] == slots[row - 1] ? last : 0; page <= last; page++) {
            const int32_t place = m->tables[slots[row] * m->pages + page];
            if (place < 0 || place >= m->page_count) return 0;
        }
    }
    return 1;
}

/* Fill the caches at every row's position; of the first `wanted` rows give the logits, (wanted, padded outputs), or,
 * where `logits` is NULL, leave the last hidden states in `residual`. A slot's positions before those of its rows are
 * filled, if need be by other rows of the same call. */
EXPORT int64_t headwater_forward(const Model *m, const int32_t *tokens, const int32_t *slots, const int32_t *positions,
                                 int64_t rows, int64_t wanted, float *logits) {
    if (!in_range(m, tokens, slots, positions, rows, wanted)) return OUT_OF_RANGE;
    const Operand narrow = {m->operand[0], m->operand_scale[0], m->operand_sum[0], m->padded};
    const Operand wide = {m->operand[1], m->operand_scale[1], m->operand_sum[1], m->inner};
    Target to = {.model = m, .tokens = tokens, .slots = slots, .positions = positions, .out = narrow};
    if (!pool_begin(m->threads)) return CLOSED;
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
    pool_end();
    return DONE;
}

/* One matrix by itself: y = x Wᵀ + b for (rows, inputs) float32 -> (rows, outputs), both padded. `values`, `scales`
 * and `sums` are workspace as a model's operands are. */
EXPORT int64_t headwater_product(const Matrix *a, const float *x, int64_t rows, void *values, float *scales,
                                 int32_t *sums, float *y, int64_t threads) {
    const Model m = {.kind = a->kind == INT4 ? INT8 : a->kind, .threads = threads};
    const Operand operand = {values, scales, sums, a->inputs};
    Target to = {.model = &m, .out = operand, .given = x, .logits = y};
    if (!pool_begin(threads)) return CLOSED;
    pool_run(round_row, &to, rows);
    if (rows) multiply(to_logits, &to, a, &operand, rows);
    pool_end();
    return DONE;
}

/* `bytes` of zeros for weights, on huge pages where the system has them: half the time of a step goes into reading
 * them, and ordinary pages add their own lookups. NULL when there is no memory. */
EXPORT void *headwater_allocate(int64_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 2 << 20, (size_t)bytes)) return NULL;
#ifdef __linux__
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
    memset(memory, 0, (size_t)bytes);
    return memory;
}

EXPORT void headwater_free(void *memory) { free(memory); }
