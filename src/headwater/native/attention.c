/* Attention of a few rows to the keys and values in the pages of their slot. See transformer.h. */
#include "transformer.h"

enum { ATTENDED_ROWS = 4, SCRATCH_ROWS = 16 }; /* SCRATCH_ROWS: on tiles, and what `scratch` is for */

/* The result of one head for one row: into the operand, or, if heads divide its groups, to `attended`. */
void deliver_attended(const Target *to, int64_t row, int64_t head, const float *y) {
    const Model *m = to->model;
    if (m->head % SCALE_GROUP) {
        memcpy(m->attended + row * m->padded + head * m->head, y, (size_t)m->head * sizeof *y);
        return;
    }
    for (int64_t d = 0; d < m->head; d += SCALE_GROUP) {
        Row64 part;
        for (int c = 0; c < PARTS; c++) part.part[c] = load_floats(y + d + LANES * c);
        store_operand_as(&to->out, m->kind, row, (head * m->head + d) / SCALE_GROUP, &part);
    }
}

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
    const int64_t stride = m->pages * PAGE + m->stride; /* of the scores of a row, followed by its result */
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
    for (int r = 0; r < R; r++) deliver_attended(to, row + r, head, mixed + r * stride);
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
    float *scores = m->scratch + thread * SCRATCH_ROWS * (m->pages * PAGE + m->stride);
    const int64_t block = item / m->heads, head = item % m->heads;
    const int64_t row = m->blocks[block], rows = m->blocks[block + 1] - row;
    switch (m->kind) {
    case FP32: attend_kind(to, FP32, rows, row, head, scores); break;
    default:
#if !TILES
        attend_kind(to, BF16, rows, row, head, scores);
#endif
        break;
    }
}

/* Blocks of some consecutive positions of one slot, and of each block every head. */
void attention(Target *to, int64_t rows) {
    const Model *m = to->model;
    const int on_tiles = TILES && m->kind != FP32;
    int64_t blocks = 0, start = 0;
    for (int64_t row = 0; row <= rows; row++) {
        if (row > start && row < rows && row - start < (on_tiles ? SCRATCH_ROWS : ATTENDED_ROWS) && to->slots[row] == to->slots[start] &&
            to->positions[row] == to->positions[row - 1] + 1)
            continue;
        if (row > start) m->blocks[blocks++] = (int32_t)start;
        start = row;
    }
    m->blocks[blocks] = (int32_t)rows;
#if TILES
    if (on_tiles) attend_on_tiles(to, blocks);
#endif
    if (!on_tiles) pool_run(attend_item, to, blocks * m->heads);
    if (m->head % SCALE_GROUP) round_rows(to, m->attended, rows);
}
