/* Matrix products, and where their outputs go. See transformer.h.
 *
 * A thread takes a panel of 64 outputs for up to 96 rows. The panel's weights are read in blocks that fit the first
 * cache. As many rows of a block are computed at a time as there are registers for, while the next block is prefetched.
 * Partial sums are kept in `line`, so the size of a block does not change a bit of a result. */
#include "calls.h"
#include "transformer.h"

/* ADDED_ROWS: the most rows that are added up together. STEP: bytes of weights that are multiplied together: 64
 * outputs by 1 (float32), 2 or 4 inputs. */
enum { ADDED_ROWS = 6, ROWS_OF_AN_ITEM = 96, STEP = 4 * PANEL, STEPS = 64, AHEAD = 4096 };

/* ---- outputs ---- */

/* `count` dimensions from `first` of one head: 0 a query, 1 a key, 2 a value. `halves`: y in bfloat16. */
static void deliver_head(const Target *to, int64_t row, int64_t which, int64_t head, int64_t first, int64_t count,
                         const float *y, const uint16_t *halves) {
    const Model *m = to->model;
    if (which == 0) {
        const int64_t at = (row * m->heads + head) * m->stride + first;
        if (m->kind == FP32 || !is_half(BF16)) memcpy((float *)m->query + at, y, (size_t)count * sizeof *y);
        else memcpy((uint16_t *)m->query + at, halves, (size_t)count * sizeof *halves);
        return;
    }
    const int64_t lane = to->positions[row] % PAGE;
    const int64_t start = page_start(m, to->slots[row], to->positions[row] / PAGE, head);
    if (which == 2) {
        const int64_t at = start + lane * m->stride + first;
        if (m->kind == FP32) memcpy((float *)to->layer->values + at, y, (size_t)count * sizeof *y);
        else if (TILES) {
            uint16_t *values = (uint16_t *)to->layer->values + start + (lane / 2 * m->stride + first) * 2 + lane % 2;
            for (int64_t i = 0; i < count; i++) values[2 * i] = halves[i];
        } else memcpy((uint16_t *)to->layer->values + at, halves, (size_t)count * sizeof *halves);
    } else if (m->kind == FP32) {
        float *keys = (float *)to->layer->keys + start + first * PAGE + lane;
        for (int64_t i = 0; i < count; i++) keys[i * PAGE] = y[i];
    } else {
        uint16_t *keys = (uint16_t *)to->layer->keys + start + 2 * lane;
        int64_t i = 0;
        if (first % 2 == 0)
            for (; i + 2 <= count; i += 2) memcpy(keys + (first + i) * PAGE, halves + i, 2 * sizeof *halves);
        for (; i < count; i++) keys[(first + i) / 2 * 2 * PAGE + (first + i) % 2] = halves[i];
    }
}

/* The 64 outputs of a panel for rows from `row`: each goes to the query, key or value of its head. */
static void deliver_heads(const Target *to, int64_t row, int64_t rows, int64_t panel, float line[][PANEL]) {
    const Model *m = to->model;
    uint16_t halves[rows][PANEL];
    for (int64_t r = 0; r < rows && m->kind != FP32; r++)
        for (int i = 0; i < PANEL; i += LANES) store_halves(halves[r] + i, load_floats(line[r] + i));
    int64_t which = panel * PANEL / m->width, column = panel * PANEL % m->width;
    int64_t head = column / m->head, first = column % m->head;
    for (int64_t i = 0; i < PANEL && which < 3;) { /* the rest is padding */
        const int64_t left = m->head - first, count = left < PANEL - i ? left : PANEL - i;
        for (int64_t r = 0; r < rows; r++)
            deliver_head(to, row + r, which, head, first, count, line[r] + i, halves[r] + i);
        i += count, first = 0;
        if (++head == m->heads) which++, head = 0;
    }
}

void deliver(const Target *to, int64_t row, int64_t rows, int64_t panel, float line[][PANEL]) {
    const Model *m = to->model;
    const Matrix *a = to->matrix;
    for (int i = 0; i < PANEL; i += LANES) {
        const Floats scale = a->kind == INT8 ? load_floats(a->scale + panel * PANEL + i) : all(1.0f);
        const Floats bias = a->bias ? load_floats(a->bias + panel * PANEL + i) : (Floats){0};
        for (int64_t r = 0; r < rows; r++) {
            Floats y = load_floats(line[r] + i) * scale + bias;
            if (to->purpose == RESIDUAL) {
                float *x = m->residual + (row + r) * m->padded + panel * PANEL + i;
                store_floats(x, load_floats(x) + y);
            } else {
                if (to->purpose == GELU) y = y * gelu_gate(y);
                store_floats(line[r] + i, y);
            }
        }
    }
    if (to->purpose == QUERY_KEY_VALUE) deliver_heads(to, row, rows, panel, line);
    const int64_t columns = to->columns - panel * PANEL; /* the rest is padding */
    for (int64_t r = 0; r < rows; r++) {
        if (to->purpose == LOGITS && columns > 0)
            memcpy(to->logits + (row + r) * to->stride + panel * PANEL, line[r],
                   (size_t)(columns < PANEL ? columns : PANEL) * sizeof **line);
        if (to->purpose == GELU) {
            Row64 y;
            memcpy(&y, line[r], sizeof y);
            store_operand_as(&to->out, m->kind, row + r, panel, &y);
        }
    }
}

/* ---- sums ---- */

/* A block of one panel for some rows. */
typedef struct {
    const Operand *x;
    const char *weight; /* where the block begins */
    int64_t row, input, steps;
    const char *ahead; /* what a pass over the block prefetches, and how many bytes further at each step */
    int64_t advance;
    float (*line)[PANEL];
} Block;

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

ALWAYS void prefetch_lines(const int lines, const char **ahead, int64_t advance) {
    for (int line = 0; line < lines; line++) __builtin_prefetch(*ahead + 64 * line, 0, 3);
    *ahead += advance;
}

/* Vectors [first, first + C) of the panel for R rows: each sum runs over the inputs in their order. */
ALWAYS void add_up(const Block *b, int kind, const int R, const int C, const int lines, int first) {
    const int64_t inputs = b->x->inputs, row = b->row, advance = b->advance;
    const char *ahead = b->ahead + first / C * b->steps * advance;
    float(*line)[PANEL] = b->line;
    if (kind == FP32 || kind == BF16) {
        const char *w = b->weight + 4 * first * LANES;
        Floats sum[ADDED_ROWS][PARTS];
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) sum[r][c] = load_floats(line[r] + (first + c) * LANES);
        int64_t i = 0;
        do { /* there is a step: a loop that might have none makes GCC copy the sums */
            prefetch_lines(lines, &ahead, advance);
            if (kind == BF16 && BF16_PRODUCTS) {
                const uint16_t *in = (const uint16_t *)b->x->values + row * inputs + b->input + 2 * i;
                Ints v[PARTS];
                for (int c = 0; c < C; c++) v[c] = load_ints(w + 4 * c * LANES);
                for (int r = 0; r < R; r++) {
                    const Words x = (Words)four_bytes(in + r * inputs);
                    for (int c = 0; c < C; c++) sum[r][c] = add_pairs(sum[r][c], (Words)v[c], x);
                }
            }
            for (int half = 0; half < (kind == FP32 ? 1 : BF16_PRODUCTS ? 0 : 2); half++) {
                const float *in = (const float *)b->x->values + row * inputs + b->input + (kind == BF16 ? 2 * i + half : i);
                Floats v[PARTS];
                for (int c = 0; c < C; c++) {
                    const Ints both = load_ints(w + 4 * c * LANES);
                    v[c] = kind == FP32 ? (Floats)both : half ? high_half(both) : low_half(both);
                }
                for (int r = 0; r < R; r++) {
                    const Floats x = all(in[r * inputs]);
                    for (int c = 0; c < C; c++) sum[r][c] = multiply_add(v[c], x, sum[r][c]);
                }
            }
            w += STEP;
        } while (++i < b->steps);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) store_floats(line[r] + (first + c) * LANES, sum[r][c]);
        return;
    }
    /* The registers hold a group's whole numbers; what they add up to stays in the first cache. */
    const int8_t *in = (const int8_t *)b->x->values + row * inputs;
    const int64_t groups = inputs / SCALE_GROUP;
    const char *w = b->weight;
    for (int64_t i = b->input; i < b->input + b->steps * 4; i += SCALE_GROUP) {
        Ints whole[ADDED_ROWS][PARTS];
        for (int r = 0; r < R; r++) {
            const int32_t start = -WEIGHT_ZERO * b->x->sums[(row + r) * groups + i / SCALE_GROUP];
            for (int c = 0; c < C; c++) whole[r][c] = start - (Ints){0};
        }
        for (int j = 0; j < SCALE_GROUP; j += 4, w += STEP) {
            prefetch_lines(lines, &ahead, advance);
            for (int c = 0; c < C; c++) {
                const Ints v = load_ints(w + 4 * (first + c) * LANES);
                for (int r = 0; r < R; r++) add_bytes(&whole[r][c], v, four_bytes(in + r * inputs + i + j));
                if (LANES < 16) __asm__ volatile("" : : : "memory"); /* else sums lose registers to inputs */
            }
        }
        for (int r = 0; r < R; r++) {
            const Floats scale = all(b->x->scales[(row + r) * groups + i / SCALE_GROUP]);
            for (int c = 0; c < C; c++) {
                float *place = line[r] + (first + c) * LANES;
                const Floats value = __builtin_convertvector(whole[r][c], Floats);
                store_floats(place, multiply_add(value, scale, load_floats(place)));
            }
        }
        __asm__ volatile("" : : "r"(line) : "memory"); /* else they are promoted to registers and spilt */
    }
}

/* All 64 outputs of a block for R rows: one function for each kind and number of rows, and for a round that
 * prefetches nothing (0), all of the next block (1) or a part of it (2). */
typedef void (*AddUp)(const Block *b);

#define ADD_UP(KIND, R, ROUNDS)                                                                                       \
    static void add_up_##KIND##_##R##_##ROUNDS(const Block *b) {                                                      \
        const int lines = (ROUNDS == 1 ? 4 : 2) * strip(R) / PARTS;                                                   \
        for (int first = 0; first < PARTS; first += strip(R))                                                         \
            add_up(b, KIND, R, strip(R), ROUNDS == 0 ? 0 : lines > 1 ? lines : 1, first);                             \
    }
#define EACH_NUMBER(KIND, ROUNDS)                                                                                     \
    ADD_UP(KIND, 1, ROUNDS) ADD_UP(KIND, 2, ROUNDS) ADD_UP(KIND, 3, ROUNDS)                                           \
    ADD_UP(KIND, 4, ROUNDS) ADD_UP(KIND, 5, ROUNDS) ADD_UP(KIND, 6, ROUNDS)
#if TILES
#define EACH_KIND(ROUNDS) EACH_NUMBER(FP32, ROUNDS)
#else
#define EACH_KIND(ROUNDS) EACH_NUMBER(FP32, ROUNDS) EACH_NUMBER(BF16, ROUNDS) EACH_NUMBER(INT8, ROUNDS)
#endif
EACH_KIND(0)
EACH_KIND(1)
EACH_KIND(2)

#define NAMES(KIND, ROUNDS)                                                                                           \
    { add_up_##KIND##_1_##ROUNDS, add_up_##KIND##_2_##ROUNDS, add_up_##KIND##_3_##ROUNDS,                             \
      add_up_##KIND##_4_##ROUNDS, add_up_##KIND##_5_##ROUNDS, add_up_##KIND##_6_##ROUNDS }
#if TILES
static const AddUp ADDERS[3][1][ADDED_ROWS] = {{NAMES(FP32, 0)}, {NAMES(FP32, 1)}, {NAMES(FP32, 2)}};
#else
static const AddUp ADDERS[3][3][ADDED_ROWS] = {
    {NAMES(FP32, 0), NAMES(BF16, 0), NAMES(INT8, 0)},
    {NAMES(FP32, 1), NAMES(BF16, 1), NAMES(INT8, 1)},
    {NAMES(FP32, 2), NAMES(BF16, 2), NAMES(INT8, 2)},
};
#endif

static int64_t row_parts(int64_t rows) { return (rows + ROWS_OF_AN_ITEM - 1) / ROWS_OF_AN_ITEM; }

/* Rows from `row` of one panel, in rounds of even size over each block of its weights; the first `prefetching` rounds
 * prefetch the next block. */
static void multiply_panel(const Target *to, int64_t panel, int64_t row, int64_t rows, int64_t rounds,
                           int64_t prefetching) {
    const Matrix *a = to->matrix;
    const int64_t together = a->kind == FP32 ? 1 : a->kind == BF16 ? 2 : 4; /* inputs of a step */
    const int64_t steps = a->inputs / together, strips = PARTS / strip((int)((rows + rounds - 1) / rounds));
    const int64_t longest = rounds > 1 || strips > 1 ? STEPS : steps;
    float line[ROWS_OF_AN_ITEM][PANEL] __attribute__((aligned(64)));
    memset(line, 0, (size_t)rows * sizeof *line);
    Block b = {.x = &to->in, .weight = (const char *)a->weight + panel * steps * STEP};
    b.advance = STEP / strips / (prefetching > 0 ? prefetching : 1);
    for (int64_t done = 0; done < steps; done += b.steps) {
        b.input = done * together, b.steps = steps - done < longest ? steps - done : longest;
        const char *next = b.weight + (b.steps < steps ? b.steps * STEP : AHEAD);
        if (b.steps < steps && done + b.steps == steps) /* the thread's next panel, probably */
            next += (to->model->threads - 1) * steps * STEP;
        for (int64_t round = 0; round < rounds; round++) {
            const int64_t from = rows * round / rounds, count = rows * (round + 1) / rounds - from;
            b.row = row + from, b.line = line + from, b.ahead = next + round * b.steps * b.advance * strips;
            ADDERS[round >= prefetching ? 0 : prefetching > 1 ? 2 : 1][a->kind][count - 1](&b);
        }
        b.weight += b.steps * STEP;
    }
    deliver(to, row, rows, panel, line);
}

/* One panel for one part of the rows. With few registers, or few rounds, blocks stay in the first cache while all
 * rounds pass over them; else each round passes over the whole panel, which the second cache brings fast enough. */
static void multiply_item(const void *task, int64_t item, int thread) {
    (void)thread;
    const Target *to = task;
    const int64_t parts = row_parts(to->rows), panel = item / parts, part = item % parts;
    const int64_t first = to->rows * part / parts, rows = to->rows * (part + 1) / parts - first;
    const int64_t rounds = (rows + ADDED_ROWS - 1) / ADDED_ROWS;
    if (LANES < 16 || rounds <= 4) {
        multiply_panel(to, panel, first, rows, rounds, rounds <= 4 ? rounds : 1);
        return;
    }
    for (int64_t round = 0; round < rounds; round++) {
        const int64_t from = rows * round / rounds;
        multiply_panel(to, panel, first + from, rows * (round + 1) / rounds - from, 1, round == 0);
    }
}

void multiply(Target *to, int purpose, const Matrix *matrix, const Operand *in, int64_t rows) {
    to->matrix = matrix, to->purpose = purpose, to->in = *in, to->rows = rows;
#if TILES
    if (matrix->kind != FP32) {
        multiply_on_tiles(to);
        return;
    }
#endif
    pool_run(multiply_item, to, matrix->outputs / PANEL * row_parts(rows));
}

/* ---- a matrix by itself ---- */

static void round_row(const void *task, int64_t row, int thread) {
    const Target *to = task;
    (void)thread;
    for (int64_t group = 0; group < to->out.inputs / SCALE_GROUP; group++) {
        Row64 x;
        for (int c = 0; c < PARTS; c++)
            x.part[c] = load_floats(to->given + row * to->out.inputs + group * SCALE_GROUP + LANES * c);
        store_operand_as(&to->out, to->model->kind, row, group, &x);
    }
}

void round_rows(Target *to, const float *given, int64_t rows) {
    to->given = given;
    pool_run(round_row, to, rows);
}

EXPORT int64_t headwater_weight_zero(void) { return WEIGHT_ZERO; }
EXPORT int64_t headwater_bf16_panel(void) { return BF16_PANEL; }

/* y = x Wᵀ + b for (rows, inputs) float32, padded -> (rows, columns), `stride` apart. `values`, `scales` and `sums`
 * are workspace as a model's operands are. */
EXPORT int64_t headwater_product(const Matrix *a, const float *x, int64_t rows, void *values, float *scales,
                                 int32_t *sums, float *y, int64_t columns, int64_t stride, int64_t threads) {
    const Model m = {.kind = a->kind, .threads = threads};
    const Operand operand = {values, scales, sums, a->inputs};
    Target to = {.model = &m, .out = operand, .logits = y, .columns = columns, .stride = stride};
    if (!pool_begin(threads)) return CLOSED;
    round_rows(&to, x, rows);
    if (rows) multiply(&to, LOGITS, a, &operand, rows);
    pool_end();
    return DONE;
}
