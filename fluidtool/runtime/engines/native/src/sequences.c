/* Sequences in inference: recurrent layers whose time steps are cut among the threads, and pooling. Included by matrices.c.

   Rows are packed as recurrent.c says. A step of a recurrent layer runs on the thread that calls, which hands the parts of
   each time step to all of them: every part owns some units, and their weights stay near one processor. */
#define CELL_ROWS (TILE / 2) /* rows of a tile of the four gates of VL units */

/* ---------------------------------------------------------------- LSTM; gates: candidate, input, forget, output
   p: 0 x [rows][4 size], 1 weights: for each VL units [fed back][4][VL], zeros behind the last unit; 2 bias [4][units] and
   peepholes [3][units], units filled up with zeros to whole vectors; 3 hidden [rows][size], 4 memory: 3 size for each
   sequence, 5 starts of the steps, then the row of x that each packed row is
   n: 0 steps, 1 size, 2 sequences, 3 parts, 4 peepholes, 5-7 activations of gates, cell, candidate, 8 how many numbers of a
   sequence are fed back: its hidden state, or a projection (projected.c).  f: 0 bound of cells, or 0 */
typedef struct {
    const ft_step *step;
    const float *before; /* what the step before feeds back */
    float *after, *state, *hidden; /* after: what this step feeds back; hidden: rows as in x, or 0 */
    const int64_t *rows; /* of x, of the rows of this step */
    int64_t time, alive;
} cell_step;

INLINE void add_gates(const int ROWS, const float *h, int64_t h_row, const float *w, int64_t depth, vec (*sum)[CELL_ROWS]) {
    for (int64_t k = 0; k < depth; k++, w += 4 * VL) {
        const vec w0 = LOAD(w), w1 = LOAD(w + VL), w2 = LOAD(w + 2 * VL), w3 = LOAD(w + 3 * VL);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            const vec value = ALL(h[r * h_row + k]);
            sum[0][r] += w0 * value, sum[1][r] += w1 * value, sum[2][r] += w2 * value, sum[3][r] += w3 * value;
        }
    }
}

/* One row: two sums for each gate, since one would wait for itself. */
INLINE void add_gates_of_one(const float *h, const float *w, int64_t depth, vec (*sum)[CELL_ROWS]) {
    vec odd[4] = {ALL(0), ALL(0), ALL(0), ALL(0)};
    int64_t k = 0;
    for (; k + 2 <= depth; k += 2, w += 8 * VL) {
        const vec even_value = ALL(h[k]), odd_value = ALL(h[k + 1]);
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            sum[g][0] += LOAD(w + g * VL) * even_value;
            odd[g] += LOAD(w + (4 + g) * VL) * odd_value;
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        if (k < depth) sum[g][0] += LOAD(w + g * VL) * ALL(h[k]);
        sum[g][0] += odd[g];
    }
}

/* The units of one vector, ROWS rows from `row` on. */
INLINE void lstm_units(const int ROWS, const cell_step *s, int64_t block, int64_t row) {
    const int64_t *n = s->step->n, size = n[1], unit = block * VL, count = size - unit;
    const int64_t units = (size + VL - 1) / VL * VL;
    const float *bias = s->step->p[2] + unit, *peep = bias + 4 * units;
    vec sum[4][CELL_ROWS], product[4][CELL_ROWS];
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) sum[g][r] = ALL(0);
    if (s->time) {
        const float *h = s->before + row * n[8], *w = s->step->p[1] + block * n[8] * 4 * VL;
        if (ROWS == 1) add_gates_of_one(h, w, n[8], sum);
        else add_gates(ROWS, h, n[8], w, n[8], sum);
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) lay_down(ROWS, sum[g], product[g]);
#pragma GCC unroll 1
    for (int r = 0; r < ROWS; r++) {
        const int64_t here = s->rows[row + r];
        const float *x = s->step->p[0] + here * 4 * size + unit;
        float *state = s->state + (row + r) * size + unit;
        vec gate[4];
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) gate[g] = product[g][r] + (take(x + g * size, count) + LOAD(bias + g * units));
        const vec before = s->time ? take(state, count) : ALL(0), candidate = cell_activation(gate[0], n[7]);
        if (n[4]) gate[1] += before * LOAD(peep), gate[2] += before * LOAD(peep + units);
        vec now = candidate * cell_activation(gate[1], n[5]);
        if (s->time) now += before * cell_activation(gate[2], n[5]);
        if (s->step->f[0] > 0) now = MIN(MAX(now, ALL(-s->step->f[0])), ALL(s->step->f[0]));
        if (n[4]) gate[3] += now * LOAD(peep + 2 * units);
        const vec hidden = cell_activation(gate[3], n[5]) * cell_activation(now, n[6]);
        give(state, now, count);
        give(s->after + (row + r) * size + unit, hidden, count);
        if (s->hidden) give(s->hidden + here * size + unit, hidden, count);
    }
}

static void lstm_part(void *context, int64_t task, int64_t tasks) {
    const cell_step *s = context;
    int64_t block, block_end;
    part((s->step->n[1] + VL - 1) / VL, task, tasks, &block, &block_end);
    for (; block < block_end; block++) {
        int64_t row = 0;
#define UNITS(rows) \
    for (; row + rows <= s->alive; row += rows) lstm_units(rows, s, block, row);
#if TILE > 6
        UNITS(7) UNITS(5) UNITS(3)
#endif
        UNITS(3) UNITS(2) UNITS(1)
#undef UNITS
    }
}

static void lstm_sequences(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *starts = OFFSETS(step), *rows = starts + n[0] + 1;
    float *const memory = step->p[4];
    (void)task, (void)tasks;
    for (int64_t time = 0; time < n[0]; time++) {
        cell_step s = {.step = step, .before = memory + (time + 1) % 2 * n[2] * n[1], .after = memory + time % 2 * n[2] * n[1],
                       .state = memory + 2 * n[2] * n[1], .hidden = step->p[3], .rows = rows + starts[time], .time = time,
                       .alive = starts[time + 1] - starts[time]};
        ft_parallel(lstm_part, &s, n[3]);
    }
}

/* ---------------------------------------------------------------- pooling
   p: x [rows][width], -, -, y [sequences][width], -, offsets.  n: 0 sequences, 1 width, 2 what (POOL_…)
   f: 0 what an empty sequence gives */
enum { POOL_SUM, POOL_MEAN, POOL_SQUARE_ROOT, POOL_LARGEST, POOL_FIRST, POOL_LAST };

/* Of a block of columns: rows [begin, end) of x, or those that ids name, of which one may stand for zeros. */
INLINE vec pool_rows_of(const float *x, int64_t width, int64_t begin, int64_t end, int64_t count, int64_t what,
                        const int64_t *ids, int64_t zero) {
#define ROW_OF(row) (!ids ? take(x + (row) * width, count) : ids[row] == zero ? ALL(0) : take(x + ids[row] * width, count))
    vec value = ROW_OF(what == POOL_LAST ? end - 1 : begin);
    if (what < POOL_FIRST)
        for (int64_t row = begin + 1; row < end; row++) {
            const vec item = ROW_OF(row);
            value = what == POOL_LARGEST ? CHOOSE(item == item, MAX(value, item), item) : value + item;
        }
#undef ROW_OF
    const float length = (float)(end - begin);
    if (what < POOL_LARGEST) value /= ALL(what == POOL_MEAN ? length : what == POOL_SQUARE_ROOT ? sqrtf(length) : 1);
    return value;
}

static void pool_sequences(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *offsets = OFFSETS(step), width = n[1];
    int64_t from, to;
    part((width + VL - 1) / VL, task, tasks, &from, &to);
    for (int64_t sequence = 0; sequence < n[0]; sequence++) {
        const int64_t begin = offsets[sequence], end = offsets[sequence + 1];
        for (int64_t block = from; block < to; block++) {
            const int64_t count = width - block * VL;
            vec value = ALL(step->f[0]);
            if (begin < end) value = pool_rows_of(step->p[0] + block * VL, width, begin, end, count, n[2], 0, -1);
            give(step->p[3] + sequence * width + block * VL, value, count);
        }
    }
}

/* Rows of a table pooled as they are looked up.
   p: table, offsets (int64), -, y [sequences][width], -, ids (int64).  n: 0 sequences, 1 width, 2 what, 3 the id whose row is
   zero (-1: none), 4 rows of the table, 5 set to 1 when an id is none of them or offsets do not fit: then y is not to be used,
   6 ids. f: as above */
static void gather_pool(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *ids = OFFSETS(step), *offsets = (const int64_t *)(const void *)step->p[1], width = n[1];
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t sequence = from; sequence < to; sequence++) {
        const int64_t begin = offsets[sequence], end = offsets[sequence + 1];
        int fits = 0 <= begin && begin <= end && end <= n[6];
        for (int64_t i = begin; fits && i < end; i++) fits = 0 <= ids[i] && ids[i] < n[4];
        if (!fits) {
            __atomic_store_n((int64_t *)&n[5], 1, __ATOMIC_RELAXED);
            continue;
        }
        for (int64_t column = 0; column < width; column += VL) {
            vec value = ALL(step->f[0]);
            if (begin < end) value = pool_rows_of(step->p[0] + column, width, begin, end, width - column, n[2], ids, n[3]);
            give(step->p[3] + sequence * width + column, value, width - column);
        }
    }
}

/* ---------------------------------------------------------------- softmax of each sequence of numbers
   p: x, -, -, y, -, offsets.  n: 0 sequences */
static void softmax_sequences(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *offsets = OFFSETS(step);
    int64_t from, to;
    part(step->n[0], task, tasks, &from, &to);
    for (int64_t sequence = from; sequence < to; sequence++) {
        const int64_t length = offsets[sequence + 1] - offsets[sequence];
        const float *x = step->p[0] + offsets[sequence];
        float *y = step->p[3] + offsets[sequence];
        vec most = ALL(-INFINITY), sum = ALL(0);
        for (int64_t i = 0; i < length; i += VL) {
            const vec value = load_some(x + i, length - i, -INFINITY);
            most = CHOOSE(value == value, MAX(most, value), value);
        }
        const vec peak = ALL(max_lanes(most));
        for (int64_t i = 0; i < length; i += VL) {
            const vec power = exp_vec(load_some(x + i, length - i, -INFINITY) - peak);
            sum += power;
            give(y + i, power, length - i);
        }
        const vec total = ALL(sum_lanes(sum));
        for (int64_t i = 0; i < length; i += VL) give(y + i, take(y + i, length - i) / total, length - i);
    }
}

/* ---------------------------------------------------------------- the cosine between rows
   p: x, y, -, result [rows].  n: 0 rows, 1 width, 2 stride of the rows of y, or 0 where one is for all */
static void cosine(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = step->p[0] + row * n[1], *y = step->p[1] + row * n[2];
        vec both = ALL(0), xx = ALL(0), yy = ALL(0);
        for (int64_t i = 0; i < n[1]; i += VL) {
            const vec a = take(x + i, n[1] - i), b = take(y + i, n[1] - i);
            both += a * b, xx += a * a, yy += b * b;
        }
        step->p[3][row] = sum_lanes(both) / sqrtf(sum_lanes(xx)) / sqrtf(sum_lanes(yy));
    }
}
