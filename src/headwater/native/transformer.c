/* The pass as a whole: embeddings, norms, and the order of the phases. See transformer.h. */
#include "calls.h"
#include "transformer.h"
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

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
        for (int64_t i = 0; i < m->padded; i += LANES) sum += load_floats(x + i); /* zeros after the width */
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
    for (int64_t group = 0; group < m->padded / SCALE_GROUP; group++) {
        Row64 y;
        for (int c = 0; c < PARTS; c++) {
            const int64_t i = group * SCALE_GROUP + LANES * c;
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
        /* If the previous row is of the same slot, the pages up to its own are checked already. */
        const int64_t first = row && slots[row] == slots[row - 1] ? positions[row - 1] / PAGE : 0;
        for (int64_t page = first; page <= last; page++) {
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
        multiply(&to, QUERY_KEY_VALUE, &l->query_key_value, &narrow, rows);
        if (index == m->layers - 1) rows = wanted; /* of the others only these last keys and values count */
        if (rows == 0) break;
        attention(&to, rows);
        multiply(&to, RESIDUAL, &l->projection, &narrow, rows);
        if (m->pre_norm) normalise(&to, l->norm_2_weight, l->norm_2_bias, 0, rows);
        else normalise(&to, l->norm_1_weight, l->norm_1_bias, 1, rows);
        to.out = wide;
        multiply(&to, GELU, &l->expand, &narrow, rows);
        multiply(&to, RESIDUAL, &l->contract, &wide, rows);
        to.out = narrow;
        if (!m->pre_norm) normalise(&to, l->norm_2_weight, l->norm_2_bias, 1, rows);
    }
    if (wanted > 0) {
        if (m->pre_norm || m->final_weight) normalise(&to, m->final_weight, m->final_bias, logits == NULL, wanted);
        to.logits = logits, to.columns = to.stride = m->output.outputs;
        if (logits) multiply(&to, LOGITS, &m->output, &narrow, wanted);
    }
    pool_end();
    return DONE;
}

/* `bytes` on huge pages where the system has them. Half the time of a step goes into reading weights, and ordinary
 * pages add their own lookups; and the first use of an ordinary page costs as much as writing it several times. NULL
 * when there is no memory. */
EXPORT void *headwater_allocate(int64_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 2 << 20, (size_t)bytes)) return NULL;
#ifdef __linux__
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

EXPORT void headwater_free(void *memory) { free(memory); }
