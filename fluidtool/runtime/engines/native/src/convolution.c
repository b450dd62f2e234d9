/* Convolution. Included by images.c.

   y[pixel][channels] = activation(bias + residual + sum over segments s, k of x[pixel + offset[s] + k] * w[s][k][channels]) */
typedef struct {
    const float *x, *w, *bias, *residual;
    float *y;
    int64_t x_pixel, y_pixel, y_block, residual_pixel, residual_block;
    const int64_t *offsets;
    int64_t segments, length, last, diagonals;
    int first;
    int narrow; /* whether a row of pixels is one tile */
    int fresh; /* whether the pixels are read for the first time; later they are near, and asking for them only takes time */
    int32_t activation;
    const ft_constants *constants;
    const float *ahead; /* weights that come next, and how many lines of the cache of them to ask for with each segment */
    int64_t ahead_lines;
} tile_work;

/* Activations that are not quick, of what a tile has stored. */
static void finish(const tile_work *t, int64_t pixels, int64_t blocks) {
    for (int64_t b = 0; b < blocks; b++)
        activate_each(t->y + b * t->y_block, t->y_pixel, pixels, t->activation, t->constants);
}

/* One number of each pixel, times the weights that belong to it. */
INLINE void multiply_add(const int PIXELS, const int BLOCKS, const float *x, const int64_t x_pixel, const float *w,
                         vec (*sum)[TILE]) {
    vec weight[2];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) weight[b] = LOAD(w + b * VL);
#pragma GCC unroll 16
    for (int i = 0; i < PIXELS; i++) {
        const vec value = ALL(x[i * x_pixel]);
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; b++) sum[b][i] += weight[b] * value;
    }
}

/* What the sums of a block start from: the bias. */
INLINE vec first_sum(const tile_work *t, int b) { return t->first && t->bias ? LOAD(t->bias + b * VL) : ALL(0); }

/* What comes after the sums: what was there before, or the residual; the activation; the store. */
INLINE void store_tile(const int PIXELS, const int BLOCKS, const tile_work *t, vec (*sum)[TILE]) {
    float *y = t->y;
    const int64_t y_pixel = t->y_pixel, y_block = t->y_block;
    if (!t->first) EACH(PIXELS, BLOCKS, sum[b][i] += LOAD(y + i * y_pixel + b * y_block))
    else if (t->residual)
        EACH(PIXELS, BLOCKS, sum[b][i] += LOAD(t->residual + i * t->residual_pixel + b * t->residual_block))
#define EACH_SUM(work) EACH(PIXELS, BLOCKS, work)
    if (t->last) ACTIVATE_QUICKLY(t->activation, t->constants, EACH_SUM, sum[b][i])
#undef EACH_SUM
    EACH(PIXELS, BLOCKS, STORE(y + i * y_pixel + b * y_block, sum[b][i]))
    if (t->last && !QUICK(t->activation)) finish(t, PIXELS, BLOCKS);
}

/* How the pixels of a tile lie: SPREAD, or next to each other with a block of channels in a segment, of rows of several tiles
   or (NARROW) of one. */
enum { SPREAD, DENSE, NARROW };

/* Each share of the segments is summed from zero, then added: errors grow with its length, not with the whole depth.
   PIXELS pixels of BLOCKS channel blocks, which lie AS one of the above; all are constants wherever this is called, so that
   sums stay in registers. Narrow images have many channels: longer code is worth it only there. */
INLINE void tile(const int PIXELS, const int BLOCKS, const int AS, const tile_work *t) {
    vec sum[2][TILE];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) {
        const vec start = first_sum(t, b);
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS; i++) sum[b][i] = start;
    }
    const float *w = t->w;
    const int64_t x_pixel = AS == SPREAD ? t->x_pixel : VL;
    for (int64_t s = 0; s < t->segments; s++) {
        const float *x = t->x + t->offsets[s];
        const float *const end = x + t->length;
        if (t->fresh)
#pragma GCC unroll 16
            for (int i = 0; i < PIXELS; i += 16 / VL) __builtin_prefetch(x + (PIXELS + i) * x_pixel); /* the next tile's */
        for (int64_t line = 0; line < t->ahead_lines; line++)
            __builtin_prefetch(t->ahead + 16 * (s * t->ahead_lines + line), 0, 2);
        if (AS == NARROW) {
            UNROLLED(UNROLL)
            for (int k = 0; k < VL; k++) multiply_add(PIXELS, BLOCKS, x + k, x_pixel, w + k * BLOCKS * VL, sum);
            w += VL * BLOCKS * VL;
        } else if (AS == DENSE)
#pragma GCC unroll 2
            for (int k = 0; k < VL; k++, w += BLOCKS * VL) multiply_add(PIXELS, BLOCKS, x + k, x_pixel, w, sum);
        else
            for (; x < end; x++, w += BLOCKS * VL) multiply_add(PIXELS, BLOCKS, x, x_pixel, w, sum);
    }
    store_tile(PIXELS, BLOCKS, t, sum);
}

/* One pixel: four sums for each block, since one would wait for itself. */
INLINE void tile_single(const int BLOCKS, const tile_work *t) {
    vec sum[2][4];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) sum[b][0] = first_sum(t, b), sum[b][1] = sum[b][2] = sum[b][3] = ALL(0);
    const float *w = t->w;
    for (int64_t s = 0; s < t->segments; s++) {
        const float *x = t->x + t->offsets[s];
        const float *const end = x + t->length;
        for (; x + 4 <= end; x += 4, w += 4 * BLOCKS * VL)
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
#pragma GCC unroll 2
                for (int b = 0; b < BLOCKS; b++) sum[b][k] += LOAD(w + (k * BLOCKS + b) * VL) * ALL(x[k]);
        for (; x < end; x++, w += BLOCKS * VL)
#pragma GCC unroll 2
            for (int b = 0; b < BLOCKS; b++) sum[b][0] += LOAD(w + b * VL) * ALL(*x);
    }
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) {
        vec value = (sum[b][0] + sum[b][1]) + (sum[b][2] + sum[b][3]);
        if (!t->first) value += LOAD(t->y + b * t->y_block);
        else if (t->residual) value += LOAD(t->residual + b * t->residual_block);
        if (t->last && t->activation == FT_RELU) value = MAX(value, ALL(0));
        STORE(t->y + b * t->y_block, value);
    }
    if (t->last && t->activation > FT_RELU) finish(t, 1, BLOCKS);
}

/* Several groups in a vector, of EACH channels, 2 or 4. A lane of the source meets its weight for each channel of its group in
   a sum of its own: the sum `d` has, at each lane, what belongs to the lane `lane ^ d`. So nothing moves between lanes until all
   sums are done. */
INLINE void diagonal_tile(const int PIXELS, const int EACH, const tile_work *t) {
    vec sum[4][TILE];
#pragma GCC unroll 4
    for (int d = 0; d < EACH; d++)
#pragma GCC unroll 16
        for (int i = 0; i < PIXELS; i++) sum[d][i] = d ? ALL(0) : first_sum(t, 0);
    const float *w = t->w;
    const int64_t x_pixel = t->x_pixel;
    for (int64_t s = 0; s < t->segments; s++) {
        const float *x = t->x + t->offsets[s];
        const float *const end = x + t->length;
        for (; x < end; x += VL, w += EACH * VL) {
            vec value[TILE];
#pragma GCC unroll 16
            for (int i = 0; i < PIXELS; i++) value[i] = LOAD(x + i * x_pixel);
#pragma GCC unroll 4
            for (int d = 0; d < EACH; d++) {
                const vec weight = LOAD(w + d * VL);
#pragma GCC unroll 16
                for (int i = 0; i < PIXELS; i++) sum[d][i] += weight * value[i];
            }
        }
    }
#pragma GCC unroll 2
    for (int half = EACH / 2; half; half /= 2)
#pragma GCC unroll 2
        for (int d = 0; d < half; d++)
#pragma GCC unroll 16
            for (int i = 0; i < PIXELS; i++) sum[d][i] += SHUFFLE(sum[d + half][i], sum[d + half][i], LANES ^ half);
    store_tile(PIXELS, 1, t, sum);
}

/* Pixels at once, for so many channels of a group: as many as there are registers for their sums. */
#if VL == 16
#define DIAGONAL_TILE(each) ((each) == 2 ? 10 : 6)
#else
#define DIAGONAL_TILE(each) ((each) == 2 ? 4 : 3)
#endif

static void diagonal_tile_of(int64_t pixels, const tile_work *t) {
#define CASE(pixels, each) \
    case pixels: diagonal_tile(pixels, each, t); break;
    if (t->diagonals == 4) switch (pixels) {
            CASE(1, 4) CASE(2, 4) CASE(3, 4)
#if VL == 16
            CASE(4, 4) CASE(5, 4) CASE(6, 4)
#endif
        }
    else switch (pixels) {
            CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2)
#if VL == 16
            CASE(5, 2) CASE(6, 2) CASE(7, 2) CASE(8, 2) CASE(9, 2) CASE(10, 2)
#endif
        }
#undef CASE
}

#define CASE(pixels, blocks, as) \
    case pixels: tile(pixels, blocks, as, t); break;
#if TILE > 6
#define CASES(blocks, as)                                                                                       \
    CASE(2, blocks, as) CASE(3, blocks, as) CASE(4, blocks, as) CASE(5, blocks, as) CASE(6, blocks, as) \
    CASE(7, blocks, as) CASE(8, blocks, as) CASE(9, blocks, as) CASE(10, blocks, as)                   \
    CASE(11, blocks, as) CASE(12, blocks, as) CASE(13, blocks, as) CASE(14, blocks, as)
#else
#define CASES(blocks, as) \
    CASE(2, blocks, as) CASE(3, blocks, as) CASE(4, blocks, as) CASE(5, blocks, as) CASE(6, blocks, as)
#endif

static void tile_of_two(int64_t pixels, const tile_work *t) {
    switch (pixels) {
        case 1: tile_single(2, t); break;
        CASES(2, SPREAD)
    }
}

static void dense_tile_of_two(int64_t pixels, const tile_work *t) {
    switch (pixels) {
        case 1: tile_single(2, t); break;
        CASES(2, DENSE)
    }
}

static void narrow_tile_of_two(int64_t pixels, const tile_work *t) {
    switch (pixels) {
        case 1: tile_single(2, t); break;
        CASES(2, NARROW)
    }
}

static void tile_of_one(int64_t pixels, const tile_work *t) {
    switch (pixels) {
        case 1: tile_single(1, t); break;
        CASES(1, SPREAD)
    }
}

/* Pixels next to each other, a block of channels at a time, are worth a loop of their own. */
static void tile_of(int64_t blocks, int64_t pixels, const tile_work *t) {
    if (t->diagonals) diagonal_tile_of(pixels, t);
    else if (blocks == 1) tile_of_one(pixels, t);
    else if (t->length != VL || t->x_pixel != VL) tile_of_two(pixels, t);
    else if (t->narrow) narrow_tile_of_two(pixels, t);
    else dense_tile_of_two(pixels, t);
}

/* A tile whose last block has only `lanes` lanes in memory: computed beside, then moved to its place. */
static void tile_with_edge(int64_t blocks, int64_t pixels, int64_t lanes, const tile_work *t) {
    float beside[TILE * 2 * VL], added[TILE * 2 * VL];
    const size_t width = (size_t)((blocks - 1) * VL + lanes);
    tile_work inner = *t;
    inner.y = beside, inner.y_pixel = inner.residual_pixel = 2 * VL, inner.y_block = inner.residual_block = VL;
    memset(beside, 0, sizeof beside);
    memset(added, 0, sizeof added);
    for (int64_t i = 0; i < pixels; i++) {
        memcpy(beside + i * 2 * VL, t->y + i * t->y_pixel, width * sizeof(float));
        if (t->residual) memcpy(added + i * 2 * VL, t->residual + i * t->residual_pixel, width * sizeof(float));
    }
    if (t->residual) inner.residual = added;
    tile_of(blocks, pixels, &inner);
    for (int64_t i = 0; i < pixels; i++)
        memcpy(t->y + i * t->y_pixel, beside + i * 2 * VL, width * sizeof(float));
}

/* Whether this processor gains from the long loop of narrow images, as Intel's do: on Zen 5 the short one is quicker. */
INLINE int likes_long_loops(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    return !__builtin_cpu_is("amd");
#else
    return 1;
#endif
}

/* Rows [row, row_end) x columns [column, column_end) of one channel block or two, over some of the segments. Rows go on
   from image to image. */
static void sweep(const ft_convolution *s, tile_work *t, const float *x, float *y, const float *residual, int64_t blocks,
                  int64_t lanes, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
    const int64_t most = t->diagonals ? DIAGONAL_TILE(t->diagonals) : TILE;
    const int64_t tiles = (column_end - column + most - 1) / most;
    const int64_t weights = t->segments * t->length * blocks * VL, all = (row_end - row) * tiles * t->segments;
    const float *const next = t->w + weights;
    int64_t asked = 0;
    t->narrow = tiles == 1 && likes_long_loops();
    t->ahead_lines = t->diagonals ? 0 : (weights / 16 + all - 1) / all;
    for (; row < row_end; row++) {
        const int64_t image = row / s->rows, line = row % s->rows;
        for (int64_t i = 0; i < tiles; i++) {
            int64_t from, to;
            part(column_end - column, i, tiles, &from, &to);
            from += column, to += column;
            t->x = x + image * s->source_image + line * s->source_row + from * s->source_pixel;
            t->y = y + image * s->out_image + line * s->out_row + from * s->out_pixel;
            t->ahead = next + asked;
            asked += t->segments * t->ahead_lines * 16;
            if (asked > weights) t->ahead_lines = 0;
            t->residual = residual ? residual + image * s->residual_image + line * s->residual_row + from * s->residual_pixel
                                   : 0;
            if (lanes == VL) tile_of(blocks, to - from, t);
            else tile_with_edge(blocks, to - from, lanes, t);
        }
    }
}

/* A part of the columns: whole tiles, where there are many. */
INLINE void columns_of(int64_t columns, int64_t number, int64_t parts, int64_t *from, int64_t *to) {
    const int64_t tiles = (columns + TILE - 1) / TILE, each = tiles >= 3 * parts ? TILE : 1;
    part(each > 1 ? tiles : columns, number, parts, from, to);
    *from *= each, *to *= each;
    if (*to > columns) *to = columns;
}

static void convolution(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_convolution *s = &call->convolution;
    (void)tasks;
    const int64_t by_block = task % s->block_parts, by_column = task / s->block_parts % s->column_parts,
                  by_row = task / (s->block_parts * s->column_parts) % s->row_parts;
    const int64_t group = task / (s->block_parts * s->column_parts * s->row_parts);
    const int64_t pairs = (s->blocks + 1) / 2;
    int64_t pair, pair_end, row, row_end, column, column_end;
    part(pairs, by_block, s->block_parts, &pair, &pair_end);
    part(s->images * s->rows, by_row, s->row_parts, &row, &row_end);
    columns_of(s->columns, by_column, s->column_parts, &column, &column_end);
    const int64_t whole = s->segments - s->last_segments; /* segments of full length */
    const int64_t depth = whole * s->segment_length + s->last_segments * s->last_length;
    const float *x = s->source + group * s->source_group;
    const int64_t start = pair;
    for (; pair < pair_end; pair++) {
        const int64_t blocks = 2 * pair + 1 < s->blocks ? 2 : 1;
        float *y = s->out + group * s->out_group + 2 * pair * s->out_block;
        const float *residual = s->residual ? s->residual + group * s->out_group + 2 * pair * s->residual_block : 0;
        tile_work t = {.w = s->weights + group * s->weights_group + pair * depth * 2 * VL,
                       .bias = s->bias ? s->bias + group * s->bias_group + 2 * pair * VL : 0,
                       .x_pixel = s->source_pixel,
                       .y_pixel = s->out_pixel,
                       .y_block = s->out_block,
                       .residual_pixel = s->residual_pixel,
                       .residual_block = s->residual_block,
                       .offsets = s->offsets,
                       .activation = s->activation,
                       .constants = &s->constants,
                       .diagonals = s->diagonals,
                       .first = 1,
                       .fresh = pair == start};
        const int64_t lanes = 2 * pair + blocks == s->blocks ? s->last_lanes : VL;
        for (int64_t done = 0; done < s->segments; done += t.segments, t.first = 0) {
            const int full = done < whole;
            t.length = full ? s->segment_length : s->last_length;
            const int64_t room = s->diagonals ? s->segments : WEIGHT_BYTES / (t.length * blocks * VL * 4);
            const int64_t left = full ? whole - done : s->segments - done;
            t.segments = room < 1 ? 1 : room < left ? room : left;
            if (left - t.segments < t.segments / 2) t.segments = left;
            t.last = done + t.segments == s->segments;
            sweep(s, &t, x, y, residual, blocks, lanes, row, row_end, column, column_end);
            t.w += t.segments * t.length * blocks * VL;
            t.offsets += t.segments;
        }
    }
}
