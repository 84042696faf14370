/* Tiles of AMX: eight matrices of 16 rows of 64 bytes, and their products. A test replaces the instructions: TILE_OPERATIONS is
 * its header.
 *
 * Tiles 0 to 3 hold sums, 4 and 5 inputs (a row is one row of inputs), 6 and 7 weights (a row is the 2 inputs of
 * bfloat16, or 4 of bytes, that are multiplied together, for 16 outputs). */
#ifndef HEADWATER_TILES_H
#define HEADWATER_TILES_H

#include <stdint.h>
#include <string.h>

#if defined(__AMX_BF16__) && defined(__AMX_INT8__) || defined(TILE_OPERATIONS)
#define TILES 1
#else
#define TILES 0
#endif

#if TILES
enum { TILE_ROWS = 16, TILE_LINE = 64, TILE_BYTES = TILE_ROWS * TILE_LINE };

typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t line[16]; /* bytes of a row */
    uint8_t rows[16];
} TileShapes;

/* The shapes for `rows` rows. */
static inline TileShapes tile_shapes(int rows) {
    TileShapes shapes;
    memset(&shapes, 0, sizeof shapes);
    shapes.palette = 1;
    for (int tile = 0; tile < 8; tile++) {
        shapes.line[tile] = TILE_LINE;
        shapes.rows[tile] = (uint8_t)(tile < 6 ? rows : TILE_ROWS);
    }
    return shapes;
}

#if defined(TILE_OPERATIONS)
#include TILE_OPERATIONS
#else
#define tile_begin(shapes) __asm__ volatile("ldtilecfg %0" : : "m"(shapes))
#define tile_end() __asm__ volatile("tilerelease")
#define tile_zero(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define tile_load(tile, from, stride)                                                                                 \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(from), "r"((int64_t)(stride)) : "memory")
#define tile_store(tile, to, stride)                                                                                  \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(to), "r"((int64_t)(stride)) : "memory")
#define tile_add_pairs(sum, inputs, weights)                                                                          \
    __asm__ volatile("tdpbf16ps %%tmm" #weights ", %%tmm" #inputs ", %%tmm" #sum : :)
#define tile_add_bytes(sum, inputs, weights)                                                                          \
    __asm__ volatile("tdpbssd %%tmm" #weights ", %%tmm" #inputs ", %%tmm" #sum : :)

#endif
#endif
#endif
