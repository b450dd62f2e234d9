/* Products of matrices, row-major by packed. Included by matrices.c.

   y[i][j] = activation(bias[j] + residual[i][j] + sum over k of x[i][k] * w[k][j])

   Packed weights: for each GROUP of blocks of VL columns [k][GROUP * VL], the same of fewer blocks for what is left, zeros
   behind the last column; floats, or bfloat16, of which a panel is made wide before rows are swept by it. Rows are swept in
   tiles whose sums stay in registers; the panel of weights, a share of the depth of a group, stays in the second cache
   meanwhile, and what is read after it is asked for. Each share is summed from zero, then added: errors grow with its
   length, not with the whole depth. */
#if VL == 16
#define GROUP 3 /* blocks: the more there are, the fewer numbers of x a product has to read */
#else
#define GROUP 2
#endif
#define GROUP_TILE (VL == 16 ? 8 : TILE) /* rows of a tile of a whole group */
#define SHARE 768         /* of the depth, usually: shorter ones carry their sums to y and back more often */
#define NARROW_SHARE 384  /* the same where weights are made wide, panel by panel */
#define PANEL_ROWS 132    /* rows of x that are swept by one panel after the other, from the second cache */
#define TILED_ROWS 1056   /* rows that are copied to tiles at once, where columns of x lie in memory */
#define PANELS_TOGETHER 8 /* panels whose results stay in the second cache from share to share */

typedef struct {
    const float *x, *w, *bias, *residual;
    float *y;
    int64_t x_row, y_row, residual_row;
    int64_t x_column;     /* of x: 1 unless it is in tiles */
    int tiled;            /* whether x is */
    int64_t depth;        /* of this share */
    int64_t lanes;        /* of the last block that exist */
    int first, last;      /* share */
    int32_t activation;
    const ft_constants *constants;
    const char *ahead; /* weights that come next, and how many bytes of them to ask for at each step of the depth */
    int64_t ahead_step;
} product_tile;

/* The end of a tile whose last block has only some lanes in memory, or with another activation than ReLU. */
INLINE void store_sums(const product_tile *t, vec (*sums)[TILE], int64_t rows, int64_t blocks, const int32_t activation) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t lanes = b + 1 == blocks ? t->lanes : VL;
            float *to = t->y + i * t->y_row + b * VL;
            vec value = sums[b][i];
            if (!t->first) value += take(to, lanes);
            else {
                if (t->bias) value += LOAD(t->bias + b * VL);
                if (t->residual) value += take(t->residual + i * t->residual_row + b * VL, lanes);
            }
            give(to, activate(value, activation, t->constants), lanes);
        }
}

static __attribute__((noinline)) void store_apart(const product_tile *t, vec (*sums)[TILE], int64_t rows, int64_t blocks) {
    if (!t->last) store_sums(t, sums, rows, blocks, FT_NONE);
    else if (t->activation == FT_GELU) store_sums(t, sums, rows, blocks, FT_GELU);
    else store_sums(t, sums, rows, blocks, t->activation);
}

/* ROWS rows of BLOCKS blocks; both are constants wherever this is called, so that sums stay in registers. */
INLINE void store_product(const int ROWS, const int BLOCKS, const product_tile *t, vec (*sum)[TILE]) {
    if (t->lanes < VL || (t->last && t->activation > FT_RELU)) {
        vec kept[GROUP][TILE];
#pragma GCC unroll 4
        for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; i++) kept[b][i] = sum[b][i];
        store_apart(t, kept, ROWS, BLOCKS);
    } else {
        float *y = t->y;
        const float *bias = t->bias, *residual = t->residual;
        const int64_t y_row = t->y_row, residual_row = t->residual_row;
        const int relu = t->last && t->activation == FT_RELU;
        if (!t->first) EACH(ROWS, BLOCKS, sum[b][i] += LOAD(y + i * y_row + b * VL))
        else {
            if (bias) EACH(ROWS, BLOCKS, sum[b][i] += LOAD(bias + b * VL))
            if (residual) EACH(ROWS, BLOCKS, sum[b][i] += LOAD(residual + i * residual_row + b * VL))
        }
        if (relu) EACH(ROWS, BLOCKS, sum[b][i] = MAX(sum[b][i], ALL(0)))
        EACH(ROWS, BLOCKS, STORE(y + i * y_row + b * VL, sum[b][i]))
    }
}

INLINE void product_rows(const int ROWS, const int BLOCKS, const product_tile *t) {
    vec sum[GROUP][TILE];
#pragma GCC unroll 4
    for (int b = 0; b < BLOCKS; b++)
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++) sum[b][i] = ALL(0);
    const float *x = t->x, *w = t->w;
    const char *ahead = t->ahead;
    const int64_t x_row = t->x_row, x_column = t->x_column, ahead_step = t->ahead_step;
    for (const float *const end = x + t->depth * x_column; x < end; x += x_column, w += BLOCKS * VL, ahead += ahead_step) {
        vec weight[GROUP];
        __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 4
        for (int b = 0; b < BLOCKS; b++) weight[b] = LOAD(w + b * VL);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++) {
            const vec value = ALL(x[i * x_row]);
#pragma GCC unroll 4
            for (int b = 0; b < BLOCKS; b++) sum[b][i] += weight[b] * value;
        }
    }
    store_product(ROWS, BLOCKS, t, sum);
}

/* One row: four sums for each block, since one would wait for itself. */
INLINE void product_row(const int BLOCKS, const product_tile *t) {
    vec part[GROUP][4], sum[GROUP][TILE];
#pragma GCC unroll 4
    for (int b = 0; b < BLOCKS; b++) part[b][0] = part[b][1] = part[b][2] = part[b][3] = ALL(0);
    const float *x = t->x, *w = t->w, *const end = x + t->depth;
    for (; x + 4 <= end; x += 4, w += 4 * BLOCKS * VL)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
#pragma GCC unroll 4
            for (int b = 0; b < BLOCKS; b++) part[b][k] += LOAD(w + (k * BLOCKS + b) * VL) * ALL(x[k]);
    for (; x < end; x++, w += BLOCKS * VL)
#pragma GCC unroll 4
        for (int b = 0; b < BLOCKS; b++) part[b][0] += LOAD(w + b * VL) * ALL(*x);
#pragma GCC unroll 4
    for (int b = 0; b < BLOCKS; b++) sum[b][0] = (part[b][0] + part[b][1]) + (part[b][2] + part[b][3]);
    store_product(1, BLOCKS, t, sum);
}

#define ROWS_CASE(rows, blocks) \
    case rows: product_rows(rows, blocks, t); break;

#if GROUP == 3
static void product_of_three(int64_t rows, const product_tile *t) {
    switch (rows) {
        case 1: product_row(3, t); break;
        ROWS_CASE(2, 3) ROWS_CASE(3, 3) ROWS_CASE(4, 3) ROWS_CASE(5, 3)
        ROWS_CASE(6, 3) ROWS_CASE(7, 3) ROWS_CASE(8, 3)
    }
}
#endif

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

static void product_of(int64_t blocks, int64_t rows, const product_tile *t) {
    if (blocks == 1) product_of_one(rows, t);
    else if (blocks == 2) product_of_two(rows, t);
#if GROUP == 3
    else product_of_three(rows, t);
#endif
}

/* Rows by a panel, in tiles as even as can be. The tiles share the next panel, `ahead`, among them, and ask for it
   little by little. */
static void product_panel(product_tile *t, int64_t rows, int64_t blocks, const float *ahead) {
    const int64_t most = blocks == GROUP || t->tiled ? GROUP_TILE : TILE, tiles = (rows + most - 1) / most;
    const int64_t bytes = ahead ? t->depth * blocks * VL * (int64_t)sizeof(float) / tiles : 0;
    const int64_t larger = rows % tiles, usual = rows / tiles;
    t->x_column = 1;
    t->ahead = (const char *)(ahead ? ahead : t->w);
    t->ahead_step = (bytes + t->depth - 1) / t->depth;
    for (int64_t i = 0; i < tiles; i++) {
        const int64_t count = usual + (i < larger);
        if (t->tiled) t->x_column = count;
        product_of(blocks, count, t);
        t->ahead += bytes;
        t->x += count * (t->tiled ? t->depth : t->x_row);
        t->y += count * t->y_row;
        if (t->residual) t->residual += count * t->residual_row;
    }
}

typedef struct {
    const float *x, *w, *bias, *residual;
    const bf16 *narrow; /* the weights, where they are no floats */
    float *y;
    const float *after; /* weights that are read next, or 0 */
    int64_t rows, depth, columns, x_row, y_row, residual_row;
    int32_t activation;
    const ft_constants *constants;
} matrix_product;

INLINE int64_t groups_of(int64_t columns) { return (columns + GROUP * VL - 1) / (GROUP * VL); }

/* Blocks of a group of the weights. */
INLINE int64_t blocks_of(const matrix_product *m, int64_t group) {
    const int64_t left = (m->columns + VL - 1) / VL - group * GROUP;
    return left < GROUP ? left : GROUP;
}

/* Where the row `k` of a group of the weights lies. */
INLINE int64_t weights_at(const matrix_product *m, int64_t group, int64_t k) {
    return (m->depth * group * GROUP + k * blocks_of(m, group)) * VL;
}

/* Shares of a depth, as near to the usual length as can be. */
INLINE int64_t shares_of(int64_t depth, int64_t usual) {
    return depth < usual ? depth > 0 : (depth + usual / 2 - 1) / usual;
}

/* Some rows by the groups of blocks [group, group_end) of the weights; `after` are the weights that come then, or 0. */
static void product_groups(const matrix_product *m, int64_t row, int64_t row_end, int64_t group, int64_t group_end,
                           const float *after) {
    const int64_t shares = shares_of(m->depth, m->narrow ? NARROW_SHARE : SHARE);
    float wide[NARROW_SHARE * 3 / 2 * GROUP * VL] __attribute__((aligned(64)));
    for (int64_t share = 0; share < shares; share++) {
        int64_t from, to;
        part(m->depth, share, shares, &from, &to);
        for (int64_t i = group; i < group_end; i++) {
            const int64_t blocks = blocks_of(m, i), column = i * GROUP * VL;
            const float *w = wide, *ahead = 0;
            if (m->narrow) widen(m->narrow + weights_at(m, i, from), wide, (to - from) * blocks * VL);
            else {
                w = m->w + weights_at(m, i, from);
                if (i + 1 < group_end) ahead = m->w + weights_at(m, i + 1, from);
                else ahead = share + 1 < shares ? m->w + weights_at(m, group, to) : after;
            }
            product_tile t = {.x = m->x + row * m->x_row + from,
                              .w = w,
                              .bias = m->bias ? m->bias + column : 0,
                              .y = m->y + row * m->y_row + column,
                              .residual = m->residual ? m->residual + row * m->residual_row + column : 0,
                              .x_row = m->x_row,
                              .y_row = m->y_row,
                              .residual_row = m->residual_row,
                              .depth = to - from,
                              .lanes = m->columns - column >= blocks * VL ? VL : m->columns - column - (blocks - 1) * VL,
                              .first = !share,
                              .last = share + 1 == shares,
                              .activation = m->activation,
                              .constants = m->constants};
            product_panel(&t, row_end - row, blocks, ahead);
        }
    }
}

/* Rows [row, row_end) by the groups of blocks [group, group_end). */
static void product_block(const matrix_product *m, int64_t row, int64_t row_end, int64_t group, int64_t group_end) {
    for (; row < row_end; row += PANEL_ROWS)
        for (int64_t i = group; i < group_end; i += PANELS_TOGETHER) {
            const int64_t end = i + PANELS_TOGETHER < group_end ? i + PANELS_TOGETHER : group_end;
            const float *after = end == group_end || !m->w ? m->after : m->w + weights_at(m, end, 0);
            product_groups(m, row, row + PANEL_ROWS < row_end ? row + PANEL_ROWS : row_end, i, end, after);
        }
}

/* What a thread reads after a task: the weights of its next task, or those of its first one in the next product, which has so
   many groups of `group` floats. */
static const float *weights_after(const float *next, int64_t groups, int64_t group, int64_t task, int64_t tasks,
                                  const float *next_part) {
    const int64_t threads = ft_threads(), thread = ((task + 1) * threads - 1) / tasks;
    if (task + 1 != tasks * (thread + 1) / threads) return next_part;
    return next ? next + groups * thread / threads * group : 0;
}

static void product(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_product *s = &call->product;
    const int64_t columns = task % s->column_parts, rows = task / s->column_parts % s->row_parts;
    const int64_t inner = task / (s->column_parts * s->row_parts) % s->inner,
                  outer = task / (s->column_parts * s->row_parts * s->inner);
    const int64_t groups = groups_of(s->columns), y = outer * s->out_outer + inner * s->out_inner;
    const int64_t weights = outer * s->weights_outer + inner * s->weights_inner;
    matrix_product m = {.x = s->source + outer * s->source_outer + inner * s->source_inner,
                        .w = s->bfloat16 ? 0 : (const float *)s->weights + weights,
                        .bias = s->bias,
                        .narrow = s->bfloat16 ? (const bf16 *)s->weights + weights : 0,
                        .residual = s->residual ? s->residual + y : 0,
                        .y = s->out + y,
                        .rows = s->rows,
                        .depth = s->depth,
                        .columns = s->columns,
                        .x_row = s->source_row,
                        .y_row = s->out_row,
                        .residual_row = s->residual_row,
                        .activation = s->activation,
                        .constants = &s->constants};
    int64_t group, group_end, row, row_end;
    part(groups, columns, s->column_parts, &group, &group_end);
    part(s->rows, rows, s->row_parts, &row, &row_end);
    if (m.w)
        m.after = weights_after(s->next_weights, s->next_groups, s->next_group, task, tasks,
                                group_end < groups ? m.w + weights_at(&m, group_end, 0) : 0);
    product_block(&m, row, row_end, group, group_end);
}

/* A matrix [K][N] to packed weights, or to some columns of them. Some rows of all columns at a time: they are read as they
   lie. */
#define PACKED_ROWS 32 /* as in lowering/packing.py */

/* A square of a matrix whose columns lie in memory, VL rows at a time. */
INLINE void pack_square(const loose *x, int64_t x_column, float *to, int64_t to_row) {
    vec square[VL];
#pragma GCC unroll 16
    for (int j = 0; j < VL; j++) memcpy(square + j, x + j * x_column, sizeof(vec));
    transpose(square);
#pragma GCC unroll 16
    for (int k = 0; k < VL; k++) STORE(to + k * to_row, square[k]);
}

/* A matrix [depth][columns] as packed weights: all of them, or those from the column `first` on. */
typedef struct {
    int64_t depth, columns, x_row, x_column;
    int64_t first, all; /* columns */
    const float *scale; /* by column, or 0 */
    float *y;
    int narrow; /* y is bfloat16 */
} packing;

static void pack_rows(const packing *p, const loose *x, int64_t y, int64_t from, int64_t to) {
    const int64_t whole = (p->all + VL - 1) / VL * VL;
    for (int64_t column = 0, next; column < p->columns; column = next) {
        const int64_t group = (p->first + column) / (GROUP * VL) * (GROUP * VL), start = p->first + column - group;
        const int64_t width = whole - group < GROUP * VL ? whole - group : GROUP * VL;
        next = column + width - start < p->columns ? column + width - start : p->columns;
        const int64_t there = next - column, room = (there + VL - 1) / VL * VL;
        int64_t at = y + group * p->depth + from * width + start;
        int64_t k = from;
        if (p->x_row == 1 && !p->narrow && !p->scale && there == room)
            for (; k + VL <= to; k += VL, at += VL * width)
                for (int64_t j = 0; j < there; j += VL)
                    pack_square(x + k + (column + j) * p->x_column, p->x_column, p->y + at + j, width);
        for (; k < to; k++, at += width) {
            float wide[GROUP * VL], *to_here = p->narrow ? wide : p->y + at;
            const loose *row = x + k * p->x_row + column * p->x_column;
            if (p->x_column == 1 && there == GROUP * VL) memcpy(to_here, row, GROUP * VL * sizeof(float));
            else if (p->x_column == 1) memcpy(to_here, row, (size_t)there * sizeof(float));
            else
                for (int64_t j = 0; j < there; j++) to_here[j] = row[j * p->x_column];
            for (int64_t j = there; j < room; j++) to_here[j] = 0;
            if (p->scale)
                for (int64_t j = 0; j < there; j++) to_here[j] *= p->scale[column + j];
            if (p->narrow)
                for (int64_t j = 0; j < room; j++) ((bf16 *)p->y)[at + j] = to_bf16(wide[j]);
        }
    }
}

static void pack(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pack *s = &call->pack;
    const int64_t inner = s->matrices / s->outer, pieces = (s->depth + PACKED_ROWS - 1) / PACKED_ROWS;
    const packing p = {.depth = s->depth,
                       .columns = s->columns,
                       .x_row = s->source_row,
                       .x_column = s->source_column,
                       .first = s->first_column,
                       .all = s->all_columns,
                       .scale = s->scale,
                       .y = s->out,
                       .narrow = s->bfloat16 != 0};
    int64_t from, to;
    part(s->matrices * pieces, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t piece = i % pieces, matrix = i / pieces, row = piece * PACKED_ROWS;
        const loose *x = (const loose *)s->source + matrix / inner * s->source_outer + matrix % inner * s->source_inner;
        const int64_t y = matrix / inner * s->out_outer + matrix % inner * s->out_inner;
        pack_rows(&p, x, y, row, row + PACKED_ROWS < s->depth ? row + PACKED_ROWS : s->depth);
    }
}

/* ---------------------------------------------------------------- products of matrices as they lie
   A task packs what it needs of both: of `other` the panels of a share of the depth, of `source`, where its columns lie in
   memory, rows. */

#define ASKED 12 /* columns before one is copied, it is asked for: it may lie in a page of its own */

/* Rows of a matrix [rows][depth] whose columns lie in memory, to the tiles of product_panel: of each, column after column. */
static void tile_rows(const float *x, int64_t x_column, int64_t rows, int64_t depth, float *to) {
    const int64_t tiles = (rows + GROUP_TILE - 1) / GROUP_TILE, larger = rows % tiles, usual = rows / tiles;
    for (int64_t k = 0; k < depth; k++) {
        const float *from = x + k * x_column;
        const int64_t soon = k + ASKED < depth ? ASKED * x_column : 0;
        float *tile = to;
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t count = usual + (i < larger);
            __builtin_prefetch(from + soon);
            for (int64_t j = 0; j < count; j += VL) give(tile + k * count + j, take(from + j, count - j), count - j);
            from += count;
            tile += count * depth;
        }
    }
}

typedef struct {
    const ft_multiply *s;
    const float *x, *other;
    float *y, *panels, *tiles;
} multiplication;

/* Rows of a share [from, to) of the depth, which lie at `x`, by the groups [group, group_end). */
static void multiply_share(const multiplication *m, const float *x, int tiled, int64_t row, int64_t row_end, int64_t group,
                           int64_t group_end, int64_t from, int64_t to) {
    const ft_multiply *s = m->s;
    const int64_t first = group * GROUP * VL, left = s->columns - first, depth = to - from;
    const int64_t columns = left < (group_end - group) * GROUP * VL ? left : (group_end - group) * GROUP * VL;
    const packing p = {.depth = depth,
                       .columns = columns,
                       .x_row = s->other_row,
                       .x_column = s->other_column,
                       .all = columns,
                       .y = m->panels};
    const loose *other = (const loose *)m->other + from * s->other_row + first * s->other_column;
    for (int64_t k = 0; k < depth; k += PACKED_ROWS)
        pack_rows(&p, other, 0, k, k + PACKED_ROWS < depth ? k + PACKED_ROWS : depth);
    for (int64_t next; row < row_end; x += (next - row) * (tiled ? depth : s->source_row), row = next) {
        next = row + PANEL_ROWS < row_end ? row + PANEL_ROWS : row_end;
        for (int64_t column = 0; column < columns; column += GROUP * VL) {
            const int64_t there = columns - column < GROUP * VL ? columns - column : GROUP * VL;
            const int64_t blocks = (there + VL - 1) / VL;
            product_tile t = {.x = x,
                              .w = m->panels + column * depth,
                              .y = m->y + row * s->out_row + first + column,
                              .x_row = tiled ? 1 : s->source_row,
                              .tiled = tiled,
                              .y_row = s->out_row,
                              .depth = depth,
                              .lanes = there - (blocks - 1) * VL,
                              .first = !from,
                              .last = to == s->depth,
                              .activation = s->activation,
                              .constants = &s->constants};
            product_panel(&t, next - row, blocks, m->panels + (column + GROUP * VL < columns ? column + GROUP * VL : 0) * depth);
        }
    }
}

/* What a part needs is kept in one place: rows in tiles, then panels. Tiles are made once, for all panels; of so many rows
   that panels are not packed too often. */
static void multiply_part(multiplication *m, int64_t row, int64_t row_end, int64_t group, int64_t group_end) {
    const ft_multiply *s = m->s;
    const int tiled = s->source_column != 1;
    const int64_t shares = shares_of(s->depth, SHARE);
    for (int64_t next; row < row_end; row = next) {
        next = tiled && row + TILED_ROWS < row_end ? row + TILED_ROWS : row_end;
        for (int64_t share = 0, from, to; share < shares; share++) {
            part(s->depth, share, shares, &from, &to);
            const float *x = m->x + row * s->source_row + from * s->source_column;
            for (int64_t i = row; tiled && i < next; i += PANEL_ROWS)
                tile_rows(x + i - row, s->source_column, i + PANEL_ROWS < next ? PANEL_ROWS : next - i, to - from,
                          m->tiles + (i - row) * (to - from));
            for (int64_t i = group; i < group_end; i += PANELS_TOGETHER)
                multiply_share(m, tiled ? m->tiles : x, tiled, row, next, i,
                               i + PANELS_TOGETHER < group_end ? i + PANELS_TOGETHER : group_end, from, to);
        }
    }
}

static void multiply(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_multiply *s = &call->multiply;
    const int64_t cuts = s->column_parts * s->row_parts;
    float *room = s->scratch + task * s->task_scratch;
    int64_t from, to;
    part(s->outer * s->inner * cuts, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t outer = i / cuts / s->inner, inner = i / cuts % s->inner;
        int64_t group, group_end, row, row_end;
        part(groups_of(s->columns), i % s->column_parts, s->column_parts, &group, &group_end);
        part(s->rows, i / s->column_parts % s->row_parts, s->row_parts, &row, &row_end);
        multiplication m = {.s = s,
                            .x = s->source + outer * s->source_outer + inner * s->source_inner,
                            .other = s->other + outer * s->other_outer + inner * s->other_inner,
                            .y = s->out + outer * s->out_outer + inner * s->out_inner,
                            .tiles = room,
                            .panels = room + s->turned};
        multiply_part(&m, row, row_end, group, group_end);
    }
}

/* ---------------------------------------------------------------- few rows by a matrix as it lies */
enum { WIDE = TILE > 6 ? 4 : 2 }; /* vectors of columns at once */

INLINE void few_rows_block(const int ROWS, const ft_few_rows *s, const float *x, const float *w, float *y, int64_t column) {
    vec sum[4][WIDE];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; j++) sum[r][j] = ALL(0);
    const int64_t count = s->columns - column;
    for (int64_t k = 0; k < s->depth; k++)
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; j++) {
            if (count <= j * VL) break;
            const vec weight = take(w + k * s->columns + column + j * VL, count - j * VL);
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) sum[r][j] += ALL(x[r * s->depth + k]) * weight;
        }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < WIDE && j * VL < count; j++)
            give(y + r * s->columns + column + j * VL, sum[r][j], count - j * VL);
}

static void few_rows(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_few_rows *s = &call->few_rows;
    const int64_t blocks = (s->columns + WIDE * VL - 1) / (WIDE * VL);
    int64_t from, to;
    part(blocks, task, tasks, &from, &to);
    for (int64_t block = from; block < to; block++) {
        int64_t row = 0;
#define ROWS(count) \
    for (; row + count <= s->rows; row += count) \
        few_rows_block(count, s, s->source + row * s->depth, s->weights, s->out + row * s->columns, block * WIDE * VL);
        ROWS(4) ROWS(2) ROWS(1)
#undef ROWS
    }
}
