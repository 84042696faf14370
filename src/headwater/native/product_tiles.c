/* Matrix products on tiles. See transformer.h for the layouts, tiles.h for the instructions.
 *
 * A thread takes a panel of 64 outputs for up to 256 rows. The panel's weights are read in blocks that fit the first
 * cache; partial sums are kept in `line`. A tile adds up 32 inputs of bfloat16 (64 of bytes) at a time, in
 * their order and apart for each row, so that a row's result does not depend on the others. */
#include "transformer.h"

#if TILES

/* BLOCK: inputs of a block, ROUND: rows that pass over it together, LINE: bytes of 64 weights of one input or more,
 * HALF: of 32. */
enum { ITEM_ROWS = 256, BLOCK = 256, ROUND = 2 * TILE_ROWS, LINE = 4 * PANEL, HALF = LINE / 2 };
enum { TILE_PARTS = 16 / LANES };

typedef float Line[PANEL];

/* What passes over a block prefetch of the next one: so many lines at each step. */
typedef struct {
    const char *at;
    int64_t lines;
} Ahead;

ALWAYS void prefetch(Ahead *ahead) {
    for (int64_t i = 0; i < ahead->lines; i++) __builtin_prefetch(ahead->at + 64 * i, 0, 2);
    ahead->at += 64 * ahead->lines;
}

/* ---- bfloat16 ---- */

/* 32 rows by 32 outputs. `a`: their tiles of inputs, `next` bytes between those of the first and the last 16 rows. */
static void add_round(const char *a, int64_t next, const char *w, Line *line, int64_t steps, int begins,
                      Ahead *ahead) {
    if (begins) {
        tile_zero(0); tile_zero(1); tile_zero(2); tile_zero(3);
    } else {
        tile_load(0, line[0], LINE); tile_load(1, line[0] + 16, LINE);
        tile_load(2, line[TILE_ROWS], LINE); tile_load(3, line[TILE_ROWS] + 16, LINE);
    }
    for (int64_t step = 0; step < steps; step++, a += TILE_BYTES, w += TILE_ROWS * HALF) {
        prefetch(ahead);
        tile_load(4, a, TILE_LINE);
        tile_load(6, w, HALF);
        tile_load(7, w + TILE_LINE, HALF);
        tile_add_pairs(0, 4, 6);
        tile_add_pairs(1, 4, 7);
        tile_load(5, a + next, TILE_LINE);
        tile_add_pairs(2, 5, 6);
        tile_add_pairs(3, 5, 7);
    }
    tile_store(0, line[0], LINE); tile_store(1, line[0] + 16, LINE);
    tile_store(2, line[TILE_ROWS], LINE); tile_store(3, line[TILE_ROWS] + 16, LINE);
}

/* Up to 16 rows by 64 outputs: `w` and `half` are weights of 32. */
static void add_few(const char *a, const char *w, int64_t half, Line *line, int64_t steps, int begins, Ahead *ahead) {
    if (begins) {
        tile_zero(0); tile_zero(1); tile_zero(2); tile_zero(3);
    } else {
        tile_load(0, line[0], LINE); tile_load(1, line[0] + 16, LINE);
        tile_load(2, line[0] + 32, LINE); tile_load(3, line[0] + 48, LINE);
    }
    for (int64_t step = 0; step < steps; step++, a += TILE_BYTES, w += TILE_ROWS * HALF) {
        prefetch(&ahead[0]);
        prefetch(&ahead[1]);
        tile_load(4, a, TILE_LINE);
        tile_load(6, w, HALF);
        tile_add_pairs(0, 4, 6);
        tile_load(7, w + TILE_LINE, HALF);
        tile_add_pairs(1, 4, 7);
        tile_load(6, w + half, HALF);
        tile_add_pairs(2, 4, 6);
        tile_load(7, w + half + TILE_LINE, HALF);
        tile_add_pairs(3, 4, 7);
    }
    tile_store(0, line[0], LINE); tile_store(1, line[0] + 16, LINE);
    tile_store(2, line[0] + 32, LINE); tile_store(3, line[0] + 48, LINE);
}

/* ---- bytes ---- */

/* One group of inputs: the bytes are in tiles, the scales apart. */
typedef struct {
    const char *a, *w;    /* the tiles of inputs and weights; those of the next 16 outputs are 64 bytes further */
    const float *scale;   /* of the first row's inputs; that of the next row is `stride` further */
    int64_t stride;
} Group;

/* sum += the whole numbers of a row, times the scales. */
ALWAYS Floats add_scaled(Floats sum, const int32_t *whole, Floats scale) {
    return multiply_add(__builtin_convertvector(load_ints(whole), Floats), scale, sum);
}

ALWAYS Group group_at(const Operand *x, int64_t row, int64_t input, const char *w) {
    const int64_t groups = x->inputs / SCALE_GROUP, group = input / SCALE_GROUP;
    return (Group){(const char *)x->values + (row / TILE_ROWS * groups + group) * TILE_BYTES, w,
                   x->scales + row * groups + group, groups};
}

/* A block of the panel: `w` as tiles. */
typedef struct {
    const Operand *x;
    const char *w;
    int64_t input, inputs;
} Bytes;

/* 16 rows by 64 outputs, with the sums of 16 outputs in registers. */
ALWAYS void add_sixteen(const Bytes *b, int64_t row, Line *line, Ahead *ahead) {
    for (int tile = 0; tile < 4; tile++) {
        Floats sum[TILE_ROWS][TILE_PARTS];
        for (int r = 0; r < TILE_ROWS; r++)
            for (int c = 0; c < TILE_PARTS; c++) sum[r][c] = load_floats(line[r] + 16 * tile + LANES * c);
        int32_t whole[2][TILE_ROWS][16] __attribute__((aligned(64)));
        for (int64_t i = 0, n = 0; i < b->inputs; i += SCALE_GROUP, n++) {
            const Group g = group_at(b->x, row, b->input + i, b->w + i * PANEL);
            prefetch(ahead);
            tile_zero(0);
            tile_load(4, g.a, TILE_LINE);
            tile_load(6, g.w + TILE_LINE * tile, LINE);
            tile_add_bytes(0, 4, 6);
            tile_store(0, whole[n % 2], TILE_LINE);
            for (int r = 0; r < TILE_ROWS; r++)
                for (int c = 0; c < TILE_PARTS; c++)
                    sum[r][c] = add_scaled(sum[r][c], whole[n % 2][r] + LANES * c, all(g.scale[r * g.stride]));
        }
        for (int r = 0; r < TILE_ROWS; r++)
            for (int c = 0; c < TILE_PARTS; c++) store_floats(line[r] + 16 * tile + LANES * c, sum[r][c]);
    }
}

/* Fewer rows, with the sums in memory. */
ALWAYS void add_fewer(const Bytes *b, int64_t row, int64_t rows, Line *line, Ahead *ahead) {
    int32_t whole[TILE_ROWS][PANEL] __attribute__((aligned(64)));
    for (int64_t i = 0; i < b->inputs; i += SCALE_GROUP) {
        const Group g = group_at(b->x, row, b->input + i, b->w + i * PANEL);
        prefetch(ahead);
        tile_load(4, g.a, TILE_LINE);
        tile_load(6, g.w, LINE); tile_load(7, g.w + TILE_LINE, LINE);
        tile_zero(0); tile_zero(1); tile_zero(2); tile_zero(3);
        tile_add_bytes(0, 4, 6); tile_add_bytes(1, 4, 7);
        tile_store(0, whole[0], LINE); tile_store(1, whole[0] + 16, LINE);
        tile_load(6, g.w + 2 * TILE_LINE, LINE); tile_load(7, g.w + 3 * TILE_LINE, LINE);
        tile_add_bytes(2, 4, 6); tile_add_bytes(3, 4, 7);
        tile_store(2, whole[0] + 32, LINE); tile_store(3, whole[0] + 48, LINE);
        for (int64_t r = 0; r < rows; r++)
            for (int c = 0; c < PANEL; c += LANES) {
                const Floats sum = load_floats(line[r] + c);
                store_floats(line[r] + c, add_scaled(sum, whole[r] + c, all(g.scale[r * g.stride])));
            }
    }
}

/* ---- a panel for one part of the rows ---- */

static int64_t row_parts(int64_t rows) { return (rows + ITEM_ROWS - 1) / ITEM_ROWS; }

/* What a pass of `steps` steps prefetches: `bytes` from `at`. */
ALWAYS Ahead ahead_of(const char *at, int64_t bytes, int64_t steps) {
    return (Ahead){at, (bytes / 64 + steps - 1) / steps};
}

static void bf16_panel(const Target *to, int64_t panel, int64_t row, int64_t rows) {
    const int64_t inputs = to->matrix->inputs, half = inputs * HALF / 2, next = inputs / 32 * TILE_BYTES;
    const char *w = (const char *)to->matrix->weight + panel * 2 * half;
    const char *x = (const char *)to->in.values + row / TILE_ROWS * next;
    Line line[ITEM_ROWS] __attribute__((aligned(64)));
    for (int64_t done = 0; done < inputs; done += BLOCK) {
        const int64_t left = inputs - done, count = left < BLOCK ? left : BLOCK, block = count * HALF / 2;
        const int64_t steps = count / 32, rounds = rows > TILE_ROWS ? rows / ROUND + (rows % ROUND > TILE_ROWS) : 1;
        /* After the last block: the thread's next panel, probably. */
        const char *after = w + block + (count == left ? half + (to->model->threads - 1) * 2 * half : 0);
        Ahead ahead[2] = {ahead_of(after, block, steps * rounds), ahead_of(after + half, block, steps * rounds)};
        for (int64_t r = 0; r + TILE_ROWS < rows; r += ROUND)
            add_round(x + r / TILE_ROWS * next, next, w, line + r, steps, done == 0, &ahead[0]);
        for (int64_t r = 0; r < rows; r += ROUND) {
            const int64_t some = rows - r < ROUND ? rows - r : ROUND;
            const char *from = x + r / TILE_ROWS * next;
            if (some > TILE_ROWS) add_round(from, next, w + half, (Line *)(line[r] + 32), steps, done == 0, &ahead[1]);
            else add_few(from, w, half, line + r, steps, done == 0, ahead);
            if (count == left) deliver(to, row + r, some, panel, line + r);
        }
        w += block, x += steps * TILE_BYTES;
    }
}

static void bytes_panel(const Target *to, int64_t panel, int64_t row, int64_t rows) {
    const int64_t inputs = to->matrix->inputs, size = inputs * PANEL;
    const char *w = (const char *)to->matrix->weight + panel * size;
    Line line[ITEM_ROWS] __attribute__((aligned(64)));
    memset(line, 0, (size_t)rows * sizeof *line);
    for (int64_t done = 0; done < inputs; done += BLOCK) {
        const int64_t left = inputs - done, count = left < BLOCK ? left : BLOCK, block = count * PANEL;
        const int64_t steps = count / SCALE_GROUP, sixteens = (rows + TILE_ROWS - 1) / TILE_ROWS;
        Ahead ahead = ahead_of(w + block + (count == left ? (to->model->threads - 1) * size : 0), block,
                               steps * (rows < TILE_ROWS ? 1 : 4 * sixteens));
        const Bytes b = {&to->in, w, done, count};
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {
            const int64_t some = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
            if (some == TILE_ROWS) add_sixteen(&b, row + r, line + r, &ahead);
            else add_fewer(&b, row + r, some, line + r, &ahead);
            if (count == left) deliver(to, row + r, some, panel, line + r);
        }
        w += block;
    }
}

static void tile_item(const void *task, int64_t item, int thread) {
    (void)thread;
    const Target *to = task;
    /* The panels of one part after the other: its inputs stay in the second cache. */
    const int64_t parts = row_parts(to->rows), panels = to->matrix->outputs / PANEL;
    const int64_t panel = item % panels, part = item / panels;
    const int64_t each = (to->rows + parts * ROUND - 1) / (parts * ROUND) * ROUND, row = part * each;
    const int64_t rows = to->rows - row < each ? to->rows - row : each;
    if (rows <= 0) return;
    const TileShapes shapes = tile_shapes(rows < TILE_ROWS ? (int)rows : TILE_ROWS);
    tile_begin(shapes);
    if (to->matrix->kind == BF16) bf16_panel(to, panel, row, rows);
    else bytes_panel(to, panel, row, rows);
    tile_end();
}

void multiply_on_tiles(Target *to) { pool_run(tile_item, to, to->matrix->outputs / PANEL * row_parts(to->rows)); }

#endif
