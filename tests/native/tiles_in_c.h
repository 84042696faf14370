/* The operations of tiles.h in plain C, for the sources of the kernels compiled with TILE_OPERATIONS. */
#include <math.h>

typedef union {
    int8_t bytes[TILE_LINE];
    uint16_t halves[TILE_LINE / 2];
    float floats[TILE_LINE / 4];
    int32_t ints[TILE_LINE / 4];
    uint32_t words[TILE_LINE / 4];
} TileRow;

static _Thread_local TileRow tile_memory[8][TILE_ROWS];
static _Thread_local TileShapes tile_now;

static inline void tile_begin(TileShapes shapes) {
    tile_now = shapes;
    memset(tile_memory, 0, sizeof tile_memory);
}
static inline void tile_end(void) { memset(&tile_now, 0, sizeof tile_now); }
static inline void tile_zero(int tile) { memset(tile_memory[tile], 0, sizeof *tile_memory); }

static inline void tile_load(int tile, const void *from, int64_t stride) {
    tile_zero(tile);
    for (int row = 0; row < tile_now.rows[tile]; row++)
        memcpy(&tile_memory[tile][row], (const char *)from + row * stride, tile_now.line[tile]);
}

static inline void tile_store(int tile, void *to, int64_t stride) {
    for (int row = 0; row < tile_now.rows[tile]; row++)
        memcpy((char *)to + row * stride, &tile_memory[tile][row], tile_now.line[tile]);
}

/* A number too small for its exponent is zero, before and after every operation. */
static inline float tile_flushed(uint32_t bits) {
    float x;
    if ((bits & 0x7f800000) == 0) bits &= 0x80000000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float tile_rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return tile_flushed(bits);
}

static inline void tile_add_pairs(int sum, int inputs, int weights) {
    for (int row = 0; row < tile_now.rows[sum]; row++)
        for (int column = 0; column < tile_now.line[sum] / 4; column++) {
            float part[2] = {0, 0};
            for (int k = 0; k < tile_now.line[inputs] / 4; k++)
                for (int half = 0; half < 2; half++) {
                    const float x = tile_flushed((uint32_t)tile_memory[inputs][row].halves[2 * k + half] << 16);
                    const float w = tile_flushed((uint32_t)tile_memory[weights][k].halves[2 * column + half] << 16);
                    part[half] = tile_rounded(fmaf(x, w, part[half]));
                }
            float *total = &tile_memory[sum][row].floats[column];
            *total = tile_rounded(tile_rounded(*total) + tile_rounded(part[0] + part[1]));
        }
}

static inline void tile_add_bytes(int sum, int inputs, int weights) {
    for (int row = 0; row < tile_now.rows[sum]; row++)
        for (int column = 0; column < tile_now.line[sum] / 4; column++)
            for (int k = 0; k < tile_now.line[inputs] / 4; k++)
                for (int four = 0; four < 4; four++)
                    tile_memory[sum][row].ints[column] += tile_memory[inputs][row].bytes[4 * k + four] *
                                                          tile_memory[weights][k].bytes[4 * column + four];
}
