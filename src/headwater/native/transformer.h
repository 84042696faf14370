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
 *   bfloat16  [panel][input / 2][64][2], or on tiles [panel][half][input / 2][32][2]
 *   int8      [panel][input / 4][64][4], a byte w + WEIGHT_ZERO; one scale an output
 * Inputs of a product ("operands") are float32, bfloat16, or int8 in groups of 64 with a scale each, which keeps
 * a few large values from coarsening the others. Without bfloat16 products they are float32 in place of bfloat16.
 * Where products run on tiles, bfloat16 and int8 are in tiles: [row / 16][column · size / 64][16][64 bytes].
 * Keys and values are float32 or bfloat16, in pages of 16 positions; a head's dimensions are padded to `stride`:
 *   keys    [page][head][dimension (in pairs for bfloat16)][16]
 *   values  [page][head][16][dimension], or, bfloat16 on tiles, [page][head][16 / 2][dimension][2]
 * A slot is one text: a table of its pages in order. Texts that begin alike may share pages.
 */
#ifndef HEADWATER_TRANSFORMER_H
#define HEADWATER_TRANSFORMER_H

#include "dot.h"
#include "pool.h"
#include "simd.h"
#include "tiles.h"

enum { FP32, BF16, INT8 };
enum { QUERY_KEY_VALUE, RESIDUAL, GELU, LOGITS };
enum { BF16_PANEL = TILES ? 32 : 64 };
enum { PANEL = 64, SCALE_GROUP = 64, PAGE = 16, PARTS = PANEL / LANES, PAGE_PARTS = PAGE / LANES };

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
    /* Workspace for as many rows as a call has, zeros at first. Operands have 4 bytes an element, whatever the kind,
     * and a multiple of 16 rows. */
    float *residual;           /* (rows, padded) */
    void *query;               /* (rows, heads, stride), 4 bytes an element */
    void *operand[2];          /* (rows, padded), (rows, inner) */
    float *operand_scale[2];   /* int8: (rows, inputs / 64) */
    int32_t *operand_sum[2];   /* int8: (rows, inputs / 64), of each 64 bytes */
    float *attended;           /* (rows, padded), if `head` is not a multiple of 64 */
    float *scratch;            /* (threads, 16, 16 pages + stride) */
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
    int purpose; /* of its outputs */
    Operand in, out;
    const float *weight, *bias; /* of a norm */
    int embed, keep;
    float *logits;      /* (rows, columns), `stride` apart */
    int64_t columns, stride;
    const float *given; /* (rows, inputs), to be rounded */
} Target;

typedef struct {
    Floats part[PARTS];
} Row64; /* 64 columns of one row */

/* ---- operands ---- */

/* Whether operands of this kind are bfloat16 in memory. */
ALWAYS int is_half(int kind) { return kind == BF16 && (BF16_PRODUCTS || TILES); }

/* Where bytes [64 line, 64 line + 64) of a row of `lines` such lines are. */
ALWAYS char *operand_line(const Operand *out, int64_t row, int64_t line, int64_t lines) {
    if (TILES) return (char *)out->values + ((row / 16 * lines + line) * 16 + row % 16) * 64;
    return (char *)out->values + (row * lines + line) * 64;
}

/* Columns [64 group, 64 group + 64) of one row of an operand. */
ALWAYS void store_operand(const Operand *out, int kind, int64_t row, int64_t group, const Row64 *x) {
    const int64_t at = row * out->inputs + group * SCALE_GROUP, groups = out->inputs / SCALE_GROUP;
    if (is_half(kind)) {
        for (int c = 0; c < PARTS; c++) {
            char *line = operand_line(out, row, 2 * group + 2 * c / PARTS, 2 * groups);
            store_halves((uint16_t *)line + c % (PARTS / 2) * LANES, x->part[c]);
        }
    } else if (kind != INT8) {
        for (int c = 0; c < PARTS; c++) store_floats((float *)out->values + at + LANES * c, x->part[c]);
    } else {
        const Floats shift = all(12582912.0f); /* 1.5 · 2^23: adding it rounds to a whole number */
        Floats largest = {0}, finite = {0}; /* finite: 0, or NaN if an element is infinite or NaN */
        for (int c = 0; c < PARTS; c++) {
            largest = larger(magnitude(x->part[c]), largest);
            finite += x->part[c] - x->part[c];
        }
        const float most = largest_of(largest);
        const Floats inverse = all(most > 0 ? 127.0f / most : 0.0f);
        int8_t *bytes = (int8_t *)operand_line(out, row, group, groups);
        const int64_t place = row * groups + group;
        Ints sum = {0};
        for (int c = 0; c < PARTS; c++) {
            const Ints q = (Ints)(x->part[c] * inverse + shift) - (Ints)shift;
            sum += q;
            for (int i = 0; i < LANES; i++) bytes[LANES * c + i] = (int8_t)q[i];
        }
        int32_t whole = 0;
        for (int i = 0; i < LANES; i++) whole += sum[i];
        out->sums[place] = whole;
        out->scales[place] = most / 127.0f + sum_of(finite);
    }
}

ALWAYS void store_operand_as(const Operand *out, int64_t kind, int64_t row, int64_t group, const Row64 *x) {
    switch (kind) {
    case FP32: store_operand(out, FP32, row, group, x); break;
    case BF16: store_operand(out, BF16, row, group, x); break;
    default: store_operand(out, INT8, row, group, x); break;
    }
}

ALWAYS Floats load_table(const void *table, int64_t kind, int64_t index) {
    return kind == FP32 ? load_floats((const float *)table + index) : load_halves((const uint16_t *)table + index);
}

/* Where the keys, or values, of one head on a page of a slot begin. */
ALWAYS int64_t page_start(const Model *m, int64_t slot, int64_t page, int64_t head) {
    return (m->tables[slot * m->pages + page] * m->heads + head) * PAGE * m->stride;
}

/* The phases: each takes the pool. `round_rows`: `given` becomes the operand `out`. */
void multiply(Target *to, int purpose, const Matrix *matrix, const Operand *in, int64_t rows);
void round_rows(Target *to, const float *given, int64_t rows);
void attention(Target *to, int64_t rows);

/* The 64 outputs of a panel for rows from `row`: bias, and what else the purpose asks for. */
void deliver(const Target *to, int64_t row, int64_t rows, int64_t panel, float line[][PANEL]);
void deliver_attended(const Target *to, int64_t row, int64_t head, const float *y);
#if TILES
void multiply_on_tiles(Target *to);
void attend_on_tiles(Target *to, int64_t blocks);
#endif

#endif
