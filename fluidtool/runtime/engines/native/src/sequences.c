/* Sequences in inference: recurrent layers whose time steps are cut among the threads, and pooling. Included by matrices.c.

   Rows are packed as recurrent.c says. A step of a recurrent layer runs on the thread that calls, which hands the parts of
   each time step to all of them: every part owns some units, and their weights stay near one processor. */
#define CELL_ROWS (TILE / 2) /* rows of a tile of the four gates of VL units */

/* ---------------------------------------------------------------- LSTM; gates: candidate, input, forget, output */
typedef struct {
    const float *source, *weights, *bias; /* as ft_lstm_sequences has them */
    int64_t size, fed_back, parts, peepholes, gate, cell, candidate;
    float bound; /* of cells, or 0 */
} lstm_layer;

#define LSTM_LAYER(s)                                                                                                    \
    {                                                                                                                    \
        .source = (s)->source, .weights = (s)->weights, .bias = (s)->bias, .size = (s)->size, .fed_back = (s)->fed_back, \
        .parts = (s)->parts, .peepholes = (s)->peepholes, .gate = (s)->gate_activation, .cell = (s)->cell_activation,    \
        .candidate = (s)->candidate_activation, .bound = (s)->cell_bound,                                                \
    }

typedef struct {
    const lstm_layer *layer;
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
    const int64_t size = s->layer->size, unit = block * VL, count = size - unit;
    const int64_t units = (size + VL - 1) / VL * VL;
    const float *bias = s->layer->bias + unit, *peep = bias + 4 * units;
    vec sum[4][CELL_ROWS], product[4][CELL_ROWS];
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++)
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) sum[g][r] = ALL(0);
    if (s->time) {
        const float *h = s->before + row * s->layer->fed_back, *w = s->layer->weights + block * s->layer->fed_back * 4 * VL;
        if (ROWS == 1) add_gates_of_one(h, w, s->layer->fed_back, sum);
        else add_gates(ROWS, h, s->layer->fed_back, w, s->layer->fed_back, sum);
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) lay_down(ROWS, sum[g], product[g]);
#pragma GCC unroll 1
    for (int r = 0; r < ROWS; r++) {
        const int64_t here = s->rows[row + r];
        const float *x = s->layer->source + here * 4 * size + unit;
        float *state = s->state + (row + r) * size + unit;
        vec gate[4];
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) gate[g] = product[g][r] + (take(x + g * size, count) + LOAD(bias + g * units));
        const vec before = s->time ? take(state, count) : ALL(0), candidate = cell_activation(gate[0], s->layer->candidate);
        if (s->layer->peepholes) gate[1] += before * LOAD(peep), gate[2] += before * LOAD(peep + units);
        vec now = candidate * cell_activation(gate[1], s->layer->gate);
        if (s->time) now += before * cell_activation(gate[2], s->layer->gate);
        if (s->layer->bound > 0) now = MIN(MAX(now, ALL(-s->layer->bound)), ALL(s->layer->bound));
        if (s->layer->peepholes) gate[3] += now * LOAD(peep + 2 * units);
        const vec hidden = cell_activation(gate[3], s->layer->gate) * cell_activation(now, s->layer->cell);
        give(state, now, count);
        give(s->after + (row + r) * size + unit, hidden, count);
        if (s->hidden) give(s->hidden + here * size + unit, hidden, count);
    }
}

static void lstm_part(void *context, int64_t task, int64_t tasks) {
    const cell_step *s = context;
    int64_t block, block_end;
    part((s->layer->size + VL - 1) / VL, task, tasks, &block, &block_end);
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

static void lstm_sequences(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_lstm_sequences *s = &call->lstm_sequences;
    const lstm_layer layer = LSTM_LAYER(s);
    const int64_t *starts = s->table, *rows = starts + s->steps + 1;
    float *const memory = s->scratch;
    (void)task, (void)tasks;
    for (int64_t time = 0; time < s->steps; time++) {
        cell_step now = {.layer = &layer,
                         .before = memory + (time + 1) % 2 * s->sequences * s->size,
                         .after = memory + time % 2 * s->sequences * s->size,
                         .state = memory + 2 * s->sequences * s->size,
                         .hidden = s->out,
                         .rows = rows + starts[time],
                         .time = time,
                         .alive = starts[time + 1] - starts[time]};
        ft_parallel(lstm_part, &now, s->parts);
    }
}

/* ---------------------------------------------------------------- pooling */
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

/* The maxima of rows [begin, end) and the first row that holds each; what is no number counts as the largest. */
INLINE vec largest_of(const float *x, int64_t width, int64_t begin, int64_t end, int64_t count, veci *place) {
    vec value = take(x + begin * width, count);
    *place = (veci){0} + (int32_t)begin;
    for (int64_t row = begin + 1; row < end; row++) {
        const vec item = take(x + row * width, count);
        const veci larger = (item > value) | ((item != item) & (value == value));
        value = CHOOSE(larger, item, value);
        *place = (larger & (int32_t)row) | (~larger & *place);
    }
    return value;
}

static void pool_sequences(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pool_sequences *s = &call->pool_sequences;
    const int64_t *offsets = s->offsets, width = s->columns;
    int64_t from, to;
    part((width + VL - 1) / VL, task, tasks, &from, &to);
    for (int64_t sequence = 0; sequence < s->sequences; sequence++) {
        const int64_t begin = offsets[sequence], end = offsets[sequence + 1];
        for (int64_t block = from; block < to; block++) {
            const int64_t count = width - block * VL;
            const float *x = s->source + block * VL;
            vec value = ALL(s->empty);
            veci place = (veci){0} - 1;
            if (begin < end && s->places) value = largest_of(x, width, begin, end, count, &place);
            else if (begin < end) value = pool_rows_of(x, width, begin, end, count, s->how, 0, -1);
            give(s->out + sequence * width + block * VL, value, count);
            if (s->places) give((float *)s->places + sequence * width + block * VL, (vec)place, count);
        }
    }
}

/* Rows of a table pooled as they are looked up. */
static void gather_pool(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_gather_pool *s = &call->gather_pool;
    const int64_t *ids = s->ids, *offsets = s->offsets, width = s->columns;
    int64_t from, to;
    part(s->sequences, task, tasks, &from, &to);
    for (int64_t sequence = from; sequence < to; sequence++) {
        const int64_t begin = offsets[sequence], end = offsets[sequence + 1];
        int fits = 0 <= begin && begin <= end && end <= s->id_count;
        for (int64_t i = begin; fits && i < end; i++) fits = 0 <= ids[i] && ids[i] < s->table_rows;
        if (!fits) {
            __atomic_store_n((int64_t *)&s->beyond, 1, __ATOMIC_RELAXED);
            continue;
        }
        for (int64_t column = 0; column < width; column += VL) {
            vec value = ALL(s->empty);
            if (begin < end)
                value = pool_rows_of(s->table + column, width, begin, end, width - column, s->how, ids, s->zero_id);
            give(s->out + sequence * width + column, value, width - column);
        }
    }
}

/* ---------------------------------------------------------------- softmax of each sequence of numbers */
static void softmax_sequences(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_softmax_sequences *s = &call->softmax_sequences;
    const int64_t *offsets = s->offsets;
    int64_t from, to;
    part(s->sequences, task, tasks, &from, &to);
    for (int64_t sequence = from; sequence < to; sequence++) {
        const int64_t length = offsets[sequence + 1] - offsets[sequence];
        const float *x = s->source + offsets[sequence];
        float *y = s->out + offsets[sequence];
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

/* ---------------------------------------------------------------- the cosine between rows */
static void cosine(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_cosine *s = &call->cosine;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = s->source + row * s->columns, *y = s->other + row * s->other_row;
        vec both = ALL(0), xx = ALL(0), yy = ALL(0);
        for (int64_t i = 0; i < s->columns; i += VL) {
            const vec a = take(x + i, s->columns - i), b = take(y + i, s->columns - i);
            both += a * b, xx += a * a, yy += b * b;
        }
        s->out[row] = sum_lanes(both) / sqrtf(sum_lanes(xx)) / sqrtf(sum_lanes(yy));
    }
}
