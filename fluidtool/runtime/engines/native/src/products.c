/* Products of matrices, row-major by packed. Included by kernels.c.

   y[i][j] = activation(bias[j] + residual[i][j] + sum over k of x[i][k] * w[k][j])

   Packed weights: for each pair of blocks of VL columns [k][2 * VL], for a single last block [k][VL], zeros behind the last
   column; floats, or bfloat16, of which a panel is made wide before rows are swept by it. Rows are swept in tiles whose sums stay in registers; a panel of weights of PANEL bytes stays in the first cache
   meanwhile, and the next one is asked for. Each share of the depth is summed from zero, then added: errors grow with its
   length, not with the whole depth. */
#define PANEL 24576        /* bytes of a panel of weights: a share of the depth of two blocks */
#define PANEL_ROWS 132     /* rows of x that are swept by one panel after the other, from the second cache */
#define PANELS_TOGETHER 8  /* panels whose results stay in the second cache from share to share */

typedef struct {
    const float *x, *w, *bias, *residual;
    float *y;
    int64_t x_row, y_row, residual_row;
    int64_t depth;        /* of this share */
    int64_t lanes;        /* of the last block that exist */
    int first, last;      /* share */
    int32_t activation;
    const float *f;
    const char *ahead; /* weights that come next, and how many bytes of them to ask for at each step of the depth */
    int64_t ahead_step;
} product_tile;

/* Activations other than ReLU, on what a tile has stored and the first cache still holds. */
INLINE void activate_rows(const product_tile *t, int64_t rows, int64_t columns, const int32_t activation) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += VL) {
            float *at = t->y + i * t->y_row + j;
            give(at, activate(take(at, columns - j), activation, t->f), columns - j);
        }
}

static __attribute__((noinline)) void activate_tile(const product_tile *t, int64_t rows, int64_t columns) {
    if (t->activation == FT_GELU) activate_rows(t, rows, columns, FT_GELU);
    else activate_rows(t, rows, columns, t->activation);
}

/* The end of a tile whose last block has only some lanes in memory. */
static __attribute__((noinline)) void store_edge(const product_tile *t, const vec *sums, int64_t rows, int64_t blocks) {
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t lanes = b + 1 == blocks ? t->lanes : VL;
        for (int64_t i = 0; i < rows; i++) {
            float *to = t->y + i * t->y_row + b * VL;
            vec value = sums[b * TILE + i];
            if (!t->first) value += take(to, lanes);
            else {
                if (t->bias) value += LOAD(t->bias + b * VL);
                if (t->residual) value += take(t->residual + i * t->residual_row + b * VL, lanes);
            }
            if (t->last && t->activation == FT_RELU) value = MAX(value, ALL(0));
            give(to, value, lanes);
        }
    }
}

/* ROWS rows of BLOCKS blocks; both are constants wherever this is called, so that sums stay in registers. */
INLINE void store_product(const int ROWS, const int BLOCKS, const product_tile *t, vec (*sum)[TILE]) {
    if (t->lanes < VL) {
        vec kept[2 * TILE];
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; i++) kept[b * TILE + i] = sum[b][i];
        store_edge(t, kept, ROWS, BLOCKS);
    } else {
        const int relu = t->last && t->activation == FT_RELU;
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; i++) {
                float *to = t->y + i * t->y_row + b * VL;
                vec value = sum[b][i];
                if (!t->first) value += LOAD(to);
                else {
                    if (t->bias) value += LOAD(t->bias + b * VL);
                    if (t->residual) value += LOAD(t->residual + i * t->residual_row + b * VL);
                }
                if (relu) value = MAX(value, ALL(0));
                STORE(to, value);
            }
    }
    if (t->last && t->activation > FT_RELU) activate_tile(t, ROWS, (BLOCKS - 1) * VL + t->lanes);
}

INLINE void product_rows(const int ROWS, const int BLOCKS, const product_tile *t) {
    vec sum[2][TILE];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++) sum[b][i] = ALL(0);
    const float *x = t->x, *w = t->w;
    const char *ahead = t->ahead;
    const int64_t x_row = t->x_row, ahead_step = t->ahead_step;
    for (const float *const end = x + t->depth; x < end; x++, w += BLOCKS * VL, ahead += ahead_step) {
        vec weight[2];
        __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; b++) weight[b] = LOAD(w + b * VL);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++) {
            const vec value = ALL(x[i * x_row]);
#pragma GCC unroll 2
            for (int b = 0; b < BLOCKS; b++) sum[b][i] += weight[b] * value;
        }
    }
    store_product(ROWS, BLOCKS, t, sum);
}

/* One row: four sums for each block, since one would wait for itself. */
INLINE void product_row(const int BLOCKS, const product_tile *t) {
    vec part[2][4], sum[2][TILE];
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) part[b][0] = part[b][1] = part[b][2] = part[b][3] = ALL(0);
    const float *x = t->x, *w = t->w, *const end = x + t->depth;
    for (; x + 4 <= end; x += 4, w += 4 * BLOCKS * VL)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
#pragma GCC unroll 2
            for (int b = 0; b < BLOCKS; b++) part[b][k] += LOAD(w + (k * BLOCKS + b) * VL) * ALL(x[k]);
    for (; x < end; x++, w += BLOCKS * VL)
#pragma GCC unroll 2
        for (int b = 0; b < BLOCKS; b++) part[b][0] += LOAD(w + b * VL) * ALL(*x);
#pragma GCC unroll 2
    for (int b = 0; b < BLOCKS; b++) sum[b][0] = (part[b][0] + part[b][1]) + (part[b][2] + part[b][3]);
    store_product(1, BLOCKS, t, sum);
}

#define ROWS_CASE(rows, blocks) \
    case rows: product_rows(rows, blocks, t); break;

static void product_of_two(int64_t rows, const product_tile *t) {
    switch (rows) {
        case 1: product_row(2, t); break;
        ROWS_CASE(2, 2) ROWS_CASE(3, 2) ROWS_CASE(4, 2) ROWS_CASE(5, 2) ROWS_CASE(6, 2)
#if TILE > 6
        ROWS_CASE(7, 2) ROWS_CASE(8, 2) ROWS_CASE(9, 2) ROWS_CASE(10, 2)
        ROWS_CASE(11, 2) ROWS_CASE(12, 2) ROWS_CASE(13, 2) ROWS_CASE(14, 2)
#endif
    }
}

static void product_of_one(int64_t rows, const product_tile *t) {
    switch (rows) {
        case 1: product_row(1, t); break;
        ROWS_CASE(2, 1) ROWS_CASE(3, 1) ROWS_CASE(4, 1) ROWS_CASE(5, 1) ROWS_CASE(6, 1)
#if TILE > 6
        ROWS_CASE(7, 1) ROWS_CASE(8, 1) ROWS_CASE(9, 1) ROWS_CASE(10, 1)
        ROWS_CASE(11, 1) ROWS_CASE(12, 1) ROWS_CASE(13, 1) ROWS_CASE(14, 1)
#endif
    }
}

/* Rows by a panel. The tiles share the next panel, `ahead`, among them, and ask for it little by little. */
static void product_panel(product_tile *t, int64_t rows, int64_t blocks, const float *ahead) {
    const product_tile panel = *t;
    const int64_t tiles = (rows + TILE - 1) / TILE;
    const int64_t bytes = ahead ? panel.depth * blocks * VL * (int64_t)sizeof(float) / tiles : 0;
    t->ahead_step = (bytes + panel.depth - 1) / panel.depth;
    for (int64_t i = 0; i < tiles; i++) {
        int64_t from, to;
        part(rows, i, tiles, &from, &to);
        t->ahead = (const char *)(ahead ? ahead : panel.w) + i * bytes;
        t->x = panel.x + from * panel.x_row;
        t->y = panel.y + from * panel.y_row;
        t->residual = panel.residual ? panel.residual + from * panel.residual_row : 0;
        if (blocks == 2) product_of_two(to - from, t);
        else product_of_one(to - from, t);
    }
    *t = panel;
}

typedef struct {
    const float *x, *w, *bias, *residual;
    const bf16 *narrow; /* the weights, where they are no floats */
    float *y;
    int64_t rows, depth, columns, x_row, y_row, residual_row;
    int32_t activation;
    const float *f;
} matrix_product;

/* Some rows by the pairs of blocks [pair, pair_end) of the weights. */
static void product_pairs(const matrix_product *m, int64_t row, int64_t row_end, int64_t pair, int64_t pair_end) {
    const int64_t blocks = (m->columns + VL - 1) / VL, most = PANEL / (2 * VL * sizeof(float));
    const int64_t shares = (m->depth + most - 1) / most;
    float wide[PANEL / sizeof(float)] __attribute__((aligned(64)));
    for (int64_t share = 0; share < shares; share++) {
        int64_t from, to;
        part(m->depth, share, shares, &from, &to);
        for (int64_t i = pair; i < pair_end; i++) {
            const int64_t both = 2 * i + 1 < blocks ? 2 : 1, column = 2 * i * VL;
            const float *w = m->narrow ? wide : m->w + m->depth * column + from * both * VL, *ahead = 0;
            if (m->narrow) widen(m->narrow + m->depth * column + from * both * VL, wide, (to - from) * both * VL);
            else if (i + 1 < pair_end) ahead = m->w + m->depth * (column + 2 * VL) + from * (2 * i + 3 < blocks ? 2 : 1) * VL;
            else if (share + 1 < shares) ahead = m->w + m->depth * 2 * pair * VL + to * (2 * pair + 1 < blocks ? 2 : 1) * VL;
            product_tile t = {.x = m->x + row * m->x_row + from, .w = w,
                              .bias = m->bias ? m->bias + column : 0, .y = m->y + row * m->y_row + column,
                              .residual = m->residual ? m->residual + row * m->residual_row + column : 0,
                              .x_row = m->x_row, .y_row = m->y_row, .residual_row = m->residual_row,
                              .depth = to - from, .lanes = 2 * i + both == blocks ? m->columns - (blocks - 1) * VL : VL,
                              .first = !share, .last = share + 1 == shares, .activation = m->activation, .f = m->f};
            product_panel(&t, row_end - row, both, ahead);
        }
    }
}

/* Rows [row, row_end) by the pairs of blocks [pair, pair_end). */
static void product_block(const matrix_product *m, int64_t row, int64_t row_end, int64_t pair, int64_t pair_end) {
    for (; row < row_end; row += PANEL_ROWS)
        for (int64_t i = pair; i < pair_end; i += PANELS_TOGETHER)
            product_pairs(m, row, row + PANEL_ROWS < row_end ? row + PANEL_ROWS : row_end, i,
                          i + PANELS_TOGETHER < pair_end ? i + PANELS_TOGETHER : pair_end);
}

/* p: x, weights, bias or 0, y, residual or 0 (may be y)
   n: 0 rows, 1 depth, 2 columns; 3-5 strides of a row of x, y, residual; 6-7 outer and inner matrices, 8-13 their strides
   in x, weights, y (and residual): outer, inner, outer, …; 14 parts by columns, 15 parts by rows; 16 whether the weights are bfloat16.
   Tasks: n[6] * n[7] * n[14] * n[15]. */
static void product(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, columns = task % n[14], rows = task / n[14] % n[15];
    const int64_t inner = task / (n[14] * n[15]) % n[7], outer = task / (n[14] * n[15] * n[7]);
    const int64_t pairs = (n[2] + 2 * VL - 1) / (2 * VL), y = outer * n[12] + inner * n[13];
    const int64_t weights = outer * n[10] + inner * n[11];
    const matrix_product m = {.x = step->p[0] + outer * n[8] + inner * n[9],
                              .w = n[16] ? 0 : step->p[1] + weights, .bias = step->p[2],
                              .narrow = n[16] ? (const bf16 *)step->p[1] + weights : 0,
                              .residual = step->p[4] ? step->p[4] + y : 0, .y = step->p[3] + y, .rows = n[0],
                              .depth = n[1], .columns = n[2], .x_row = n[3], .y_row = n[4], .residual_row = n[5],
                              .activation = step->activation, .f = step->f};
    int64_t pair, pair_end, row, row_end;
    (void)tasks;
    part(pairs, columns, n[14], &pair, &pair_end);
    part(n[0], rows, n[15], &row, &row_end);
    product_block(&m, row, row_end, pair, pair_end);
}

/* A matrix [K][N] to packed weights: p: x (at any address), scale by column or 0, -, y. n: 0 K, 1 N, 2-3 x strides of K
   and N, 4 matrices, 5 outer of them (the others inner): 6-7 x strides, 8-9 y strides of outer and inner matrices;
   10 whether y becomes bfloat16.
   Some rows of all columns at a time: they are read as they lie. */
#define PACKED_ROWS 32 /* as in lowering/memory.py */
typedef float loose __attribute__((aligned(1), may_alias));

static void pack_rows(const ft_step *step, const loose *x, int64_t y, int64_t from, int64_t to) {
    const int64_t *n = step->n, blocks = (n[1] + VL - 1) / VL;
    for (int64_t block = 0; block < blocks; block += 2) {
        const int64_t width = (block + 1 < blocks ? 2 : 1) * VL, column = block * VL;
        const int64_t there = n[1] - column < width ? n[1] - column : width;
        int64_t at = y + block * n[0] * VL + from * width;
        for (int64_t k = from; k < to; k++, at += width) {
            float wide[2 * VL], *to_here = n[10] ? wide : step->p[3] + at;
            const loose *row = x + k * n[2] + column * n[3];
            if (n[3] == 1 && there == 2 * VL) memcpy(to_here, row, 2 * VL * sizeof(float));
            else
                for (int64_t j = 0; j < there; j++) to_here[j] = row[j * n[3]];
            for (int64_t j = there; j < width; j++) to_here[j] = 0;
            if (step->p[1])
                for (int64_t j = 0; j < there; j++) to_here[j] *= step->p[1][column + j];
            if (n[10])
                for (int64_t j = 0; j < width; j++) ((bf16 *)step->p[3])[at + j] = to_bf16(wide[j]);
        }
    }
}

static void pack(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, inner = n[4] / n[5], pieces = (n[0] + PACKED_ROWS - 1) / PACKED_ROWS;
    int64_t from, to;
    part(n[4] * pieces, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t piece = i % pieces, matrix = i / pieces, row = piece * PACKED_ROWS;
        const loose *x = (const loose *)step->p[0] + matrix / inner * n[6] + matrix % inner * n[7];
        const int64_t y = matrix / inner * n[8] + matrix % inner * n[9];
        pack_rows(step, x, y, row, row + PACKED_ROWS < n[0] ? row + PACKED_ROWS : n[0]);
    }
}
