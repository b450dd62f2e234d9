/* Matrices in the registers of AMX: of up to 16 rows of 64 bytes. Tiles 0 to 3 hold sums, of two groups of pixels (0 and 1; 2 and
   3) by two blocks of 16 outputs; 4 and 5 the pixels of the groups, 6 and 7 the weights of the blocks. */
#ifndef FLUIDTOOL_TILES_H
#define FLUIDTOOL_TILES_H

#include <immintrin.h>

#define TILE_ROWS 16
#define TILE_BYTES 64  /* of a row */
#define LEAST_CHUNK 16 /* bytes of a pixel in a tile, and */
#define LEAST_PIXELS 4 /* pixels, below which vectors are faster */

typedef struct {
    uint8_t palette, start, unused[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Tiles for so many pixels of a group, and so many bytes of each: in 4 and 6, and in 5 and 7. All become zero. */
INLINE void shape_tiles(int64_t pixels, int64_t bytes, int64_t others) {
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        const int64_t depth = i % 2 ? others : bytes;
        shapes.rows[i] = (uint8_t)(i < 6 ? pixels : depth / 4);
        shapes.bytes[i] = (uint16_t)(i == 4 || i == 5 ? depth : TILE_BYTES);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); /* GCC 12's own function takes the structure to be 8 bytes long */
}

/* AddressSanitizer does not see what tiles read: a build with it looks first. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
INLINE void look_at(const void *from, int64_t stride, int64_t rows, int64_t bytes) {
    for (int64_t row = 0; row < rows; row++) {
        const volatile char *bad = __asan_region_is_poisoned((char *)from + row * stride, (size_t)bytes);
        if (bad) (void)*bad;
    }
}
#else
#define look_at(from, stride, rows, bytes) (void)0
#endif
#define LOAD_TILE(number, from, stride, rows, bytes)   \
    do {                                               \
        look_at(from, stride, rows, bytes);            \
        _tile_loadd(number, from, stride);             \
    } while (0)

INLINE void release_tiles(void) { __asm__ volatile("tilerelease"); }

/* The largest part of a segment, in bytes, of which the segment is a multiple, and which a tile holds. */
INLINE int64_t chunk_of(int64_t length) {
    int64_t chunk = length < TILE_BYTES ? length : TILE_BYTES;
    while (length % chunk || chunk % 4) chunk--;
    return chunk;
}

/* Groups in a row of pixels, and the size of each: the last one reaches back over pixels of the one before it. */
INLINE int64_t groups_of(int64_t pixels) { return (pixels + TILE_ROWS - 1) / TILE_ROWS; }
INLINE int64_t tile_pixels(int64_t pixels) { return (pixels + groups_of(pixels) - 1) / groups_of(pixels); }

#endif
