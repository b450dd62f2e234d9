/* An LSTM whose hidden state is projected to fewer numbers before it is fed back. Included by matrices.c.

   p, n and f as for an LSTM (sequences.c), but: p: 3 projections [rows][fed back], 4 memory: 2 size and 2 fed back for each
   sequence, 6 weights of the projection: for each VL of its numbers [size][VL].  n: 9 activation of the projection
   f: 1 bound of projections, or 0 */
typedef struct {
    const ft_step *step;
    const float *hidden;
    float *after; /* what is fed back */
    const int64_t *rows;
    int64_t alive;
} projection_step;

INLINE void project(const int ROWS, const projection_step *s, int64_t block, int64_t row) {
    const int64_t *n = s->step->n, first = block * VL, count = n[8] - first;
    const float bound = s->step->f[1];
    vec sum[1][TILE], number[TILE];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) sum[0][r] = ALL(0);
    add_units(ROWS, 1, s->hidden + row * n[1], s->step->p[6] + block * n[1] * VL, n[1], sum);
    lay_down(ROWS, sum[0], number);
#pragma GCC unroll 1
    for (int r = 0; r < ROWS; r++) {
        vec value = cell_activation(number[r], n[9]);
        if (bound > 0) value = MIN(MAX(value, ALL(-bound)), ALL(bound));
        give(s->after + (row + r) * n[8] + first, value, count);
        give(s->step->p[3] + s->rows[row + r] * n[8] + first, value, count);
    }
}

static void project_part(void *context, int64_t task, int64_t tasks) {
    const projection_step *s = context;
    int64_t block, block_end;
    part((s->step->n[8] + VL - 1) / VL, task, tasks, &block, &block_end);
    for (; block < block_end; block++) {
        int64_t row = 0;
#define UNITS(count) \
    for (; row + count <= s->alive; row += count) project(count, s, block, row);
#if TILE > 6
        UNITS(14) UNITS(7)
#endif
        UNITS(4) UNITS(2) UNITS(1)
#undef UNITS
    }
}

static void projected_sequences(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *starts = OFFSETS(step), *rows = starts + n[0] + 1;
    float *const fed = step->p[4], *const hidden = fed + 2 * n[2] * n[8];
    (void)task, (void)tasks;
    for (int64_t time = 0; time < n[0]; time++) {
        const int64_t alive = starts[time + 1] - starts[time];
        cell_step cells = {.step = step, .before = fed + (time + 1) % 2 * n[2] * n[8], .after = hidden,
                           .state = hidden + n[2] * n[1], .rows = rows + starts[time], .time = time, .alive = alive};
        projection_step projection = {step, hidden, fed + time % 2 * n[2] * n[8], rows + starts[time], alive};
        ft_parallel(lstm_part, &cells, n[3]);
        ft_parallel(project_part, &projection, n[3]);
    }
}
