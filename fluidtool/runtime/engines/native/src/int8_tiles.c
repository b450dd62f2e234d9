/* Products of 8-bit numbers by AMX: 16 pixels times 16 outputs at once. Part of int8.c, with the same layout, weights and ends. */
#include "tiles.h"

/* The sums of one group of pixels or two, of one block or two, in `sums`: [group][block][APART]. */
INLINE void sum_tiles(const int GROUPS, const int BLOCKS, const byte_tile *t, const byte *second, int64_t pixels, int64_t chunk,
                      veci *sums) {
    LOAD_TILE(0, t->end.starts, 0, 1, TILE_BYTES);
    if (BLOCKS == 2) LOAD_TILE(1, t->end.starts + VL, 0, 1, TILE_BYTES);
    if (GROUPS == 2) LOAD_TILE(2, t->end.starts, 0, 1, TILE_BYTES);
    if (GROUPS == 2 && BLOCKS == 2) LOAD_TILE(3, t->end.starts + VL, 0, 1, TILE_BYTES);
    const int8_t *w = t->w;
    for (int64_t s = 0; s < t->segments; s++)
        for (int64_t k = 0; k < t->length; k += chunk, w += chunk * VL) {
            const int64_t at = t->offsets[s] + k;
            LOAD_TILE(4, t->x + at, t->x_pixel, pixels, chunk);
            LOAD_TILE(6, w, TILE_BYTES, chunk / 4, TILE_BYTES);
            _tile_dpbusd(0, 4, 6);
            if (BLOCKS == 2) {
                LOAD_TILE(7, w + t->w_block, TILE_BYTES, chunk / 4, TILE_BYTES);
                _tile_dpbusd(1, 4, 7);
            }
            if (GROUPS == 2) {
                LOAD_TILE(5, second + at, t->x_pixel, pixels, chunk);
                _tile_dpbusd(2, 5, 6);
                if (BLOCKS == 2) _tile_dpbusd(3, 5, 7);
            }
        }
    _tile_stored(0, sums, TILE_BYTES);
    if (BLOCKS == 2) _tile_stored(1, sums + APART, TILE_BYTES);
    if (GROUPS == 2) _tile_stored(2, sums + 2 * APART, TILE_BYTES);
    if (GROUPS == 2 && BLOCKS == 2) _tile_stored(3, sums + 3 * APART, TILE_BYTES);
}

static void sum_groups(int64_t groups, int64_t blocks, const byte_tile *t, const byte *second, int64_t pixels, int64_t chunk,
                       veci *sums) {
    if (groups == 2 && blocks == 2) sum_tiles(2, 2, t, second, pixels, chunk, sums);
    else if (groups == 2) sum_tiles(2, 1, t, second, pixels, chunk, sums);
    else if (blocks == 2) sum_tiles(1, 2, t, second, pixels, chunk, sums);
    else sum_tiles(1, 1, t, second, pixels, chunk, sums);
}

/* Rows [row, row_end) x columns [column, column_end) of one channel block or two: groups of as many pixels each, two by two,
   whichever rows they are of. */
static void sweep_tiles(const ft_int8_products *s, const byte_tile *first, int64_t blocks, int64_t chunk, int64_t row,
                        int64_t row_end, int64_t column, int64_t column_end) {
    const int64_t pixels = tile_pixels(column_end - column), each = groups_of(column_end - column),
                  all = (row_end - row) * each;
    byte_tile t[2] = {*first, *first};
    veci sums[4 * APART];
    for (int64_t number = 0; number < all; number += 2) {
        const int64_t groups = number + 1 < all ? 2 : 1;
        int64_t again[2]; /* pixels that the group before has computed */
        for (int64_t g = 0; g < groups; g++) {
            const int64_t in_row = (number + g) % each, wanted = column + in_row * pixels;
            const int64_t from = wanted < column_end - pixels ? wanted : column_end - pixels;
            again[g] = wanted - from;
            move_to(s, first, &t[g], row + (number + g) / each, from);
        }
        sum_groups(groups, blocks, &t[0], t[1].x, pixels, chunk, sums);
        for (int64_t g = 0; g < groups; g++) {
            ending *end = &t[g].end;
            if (end->y) end->y += again[g] * end->y_pixel;
            if (end->residual) end->residual += again[g] * end->residual_pixel;
            if (end->z) end->z += again[g] * end->z_pixel;
            end_sums(end, sums + 2 * g * APART + again[g], pixels - again[g], blocks);
        }
    }
}
