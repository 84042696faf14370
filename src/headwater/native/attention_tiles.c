/* Attention on tiles, of up to 16 rows to the keys and values in the pages of their slot. See transformer.h.
 *
 * Weights are rounded to bfloat16 before they multiply the values; their sum is of those that are not rounded. A row's
 * result does not depend on the other rows: what it does not see has the weight 0. */
#include "transformer.h"

#if TILES

enum { PAGE_LINE = 2 * PAGE }; /* bytes of 16 weights in bfloat16 */

/* Tiles for 32 dimensions (4, 6), for the 16 that may be left (5, 7), and for the 16 positions of a page (5, 7). */
static TileShapes shapes_of(int rows) {
    TileShapes shapes = tile_shapes(rows);
    shapes.line[5] = PAGE_LINE, shapes.rows[7] = TILE_ROWS / 2;
    return shapes;
}

/* Scores of the rows at `query`, `next` bytes apart, with one page of keys. */
static void score_page(const char *query, int64_t next, const char *keys, int64_t stride, float *scores, int64_t apart) {
    tile_zero(0);
    int64_t d = 0;
    for (; d + 32 <= stride; d += 32) {
        tile_load(4, query + 2 * d, next);
        tile_load(6, keys + 2 * d * PAGE, TILE_LINE);
        tile_add_pairs(0, 4, 6);
    }
    if (d < stride) {
        tile_load(5, query + 2 * d, next);
        tile_load(7, keys + 2 * d * PAGE, TILE_LINE);
        tile_add_pairs(0, 5, 7);
    }
    tile_store(0, scores, apart);
}

/* Replace the scores of a row by e^(score − largest), in bfloat16, 0 after `position`; return 1 / their sum. */
static float weigh(float *scores, int64_t length, int32_t position, Floats scale) {
    Ints lanes;
    for (int i = 0; i < LANES; i++) lanes[i] = i;
    Floats most = all(-INFINITY), total = {0};
    for (int64_t at = 0; at < length; at += LANES) {
        const Floats seen = choose(lanes + (int32_t)at <= position, load_floats(scores + at) * scale, all(-INFINITY));
        most = larger(seen, most);
        store_floats(scores + at, seen);
    }
    const Floats top = all(largest_of(most));
    for (int64_t at = 0; at < length; at += LANES) { /* the halves stay behind the floats that are read */
        const Floats e = exponential_or_zero(load_floats(scores + at) - top);
        total += e;
        store_halves((uint16_t *)scores + at, e);
    }
    return 1.0f / sum_of(total);
}

/* Weights times the values of one page, for 64 or, with `last`, the 16 dimensions from `values`. */
ALWAYS void mix_page(const char *weights, int64_t apart, const char *values, int64_t line, int wide) {
    tile_load(5, weights, apart);
    tile_load(7, values, line);
    tile_add_pairs(0, 5, 7);
    if (!wide) return;
    tile_load(7, values + TILE_LINE, line);
    tile_add_pairs(1, 5, 7);
    tile_load(7, values + 2 * TILE_LINE, line);
    tile_add_pairs(2, 5, 7);
    tile_load(7, values + 3 * TILE_LINE, line);
    tile_add_pairs(3, 5, 7);
}

static void attend_tile_item(const void *task, int64_t item, int thread) {
    const Target *to = task;
    const Model *m = to->model;
    const int64_t block = item / m->heads, head = item % m->heads, stride = m->stride;
    const int64_t row = m->blocks[block], rows = m->blocks[block + 1] - row, slot = to->slots[row];
    const int64_t last = to->positions[row + rows - 1], pages = last / PAGE + 1;
    const int64_t apart = (m->pages * PAGE + stride) * 4; /* bytes between rows of scores, each followed by its result */
    char *scores = (char *)m->scratch + thread * TILE_ROWS * apart, *mixed = scores + m->pages * PAGE * 4;
    const uint16_t *keys = to->layer->keys, *values = to->layer->values;
    const int64_t next = 2 * m->heads * stride, line = 4 * stride;
    const char *query = (const char *)m->query + row * next + 2 * head * stride;
    const TileShapes shapes = shapes_of((int)rows);
    tile_begin(shapes);
    for (int64_t page = 0; page < pages; page++)
        score_page(query, next, (const char *)(keys + page_start(m, slot, page, head)), stride,
                   (float *)scores + page * PAGE, apart);
    const Floats scale = all(1.0f / sqrtf((float)m->head));
    float inverse[TILE_ROWS];
    for (int64_t r = 0; r < rows; r++)
        inverse[r] = weigh((float *)(scores + r * apart), pages * PAGE, to->positions[row + r], scale);
    /* The last page without what an earlier text left after the last position: it may not be finite. */
    uint16_t end[PAGE * stride] __attribute__((aligned(64)));
    memcpy(end, values + page_start(m, slot, pages - 1, head), sizeof end);
    for (int64_t p = last % PAGE + 1; p < PAGE; p++)
        for (int64_t d = 0; d < stride; d++) end[(p / 2 * stride + d) * 2 + p % 2] = 0;
    for (int64_t d = 0; d < stride;) {
        const int wide = d + 64 <= stride;
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        for (int64_t page = 0; page < pages; page++) {
            const uint16_t *from = page == pages - 1 ? end : values + page_start(m, slot, page, head);
            if (wide) mix_page(scores + page * PAGE_LINE, apart, (const char *)(from + 2 * d), line, 1);
            else mix_page(scores + page * PAGE_LINE, apart, (const char *)(from + 2 * d), line, 0);
        }
        tile_store(0, mixed + 4 * d, apart);
        if (wide) {
            tile_store(1, mixed + 4 * d + TILE_LINE, apart);
            tile_store(2, mixed + 4 * d + 2 * TILE_LINE, apart);
            tile_store(3, mixed + 4 * d + 3 * TILE_LINE, apart);
        }
        d += wide ? 64 : 16;
    }
    tile_end();
    for (int64_t r = 0; r < rows; r++) {
        float *y = (float *)(mixed + r * apart);
        for (int64_t d = 0; d < stride; d += LANES) store_floats(y + d, load_floats(y + d) * all(inverse[r]));
        deliver_attended(to, row + r, head, y);
    }
}

void attend_on_tiles(Target *to, int64_t blocks) { pool_run(attend_tile_item, to, blocks * to->model->heads); }

#endif
