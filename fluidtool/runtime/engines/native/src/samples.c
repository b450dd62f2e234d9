/* Planes read between their cells, zeros outside. Included by images.c.

   p: x [planes][channels][rows][columns], rows and columns of the places [planes][places], y [planes][channels][places],
   weights [planes][places] or 0
   n: 0 planes, 1 channels, 2-3 rows and columns of x, 4 places */
enum { PLACES = 64 }; /* at a time */

/* Where a place's four cells are in a plane and what they weigh: 0 outside. */
static void find_cells(const int64_t *n, float down, float across, float weight, int64_t *cells, float *weights) {
    const int within = down > -1 && down < (float)n[2] && across > -1 && across < (float)n[3];
    const float above = within ? floorf(down) : 0, left = within ? floorf(across) : 0;
    for (int corner = 0; corner < 4; corner++) {
        const float row = above + (float)(corner / 2), column = left + (float)(corner % 2);
        const int inside = within && row >= 0 && row < (float)n[2] && column >= 0 && column < (float)n[3];
        const float by_row = corner / 2 ? down - above : above + 1 - down;
        const float by_column = corner % 2 ? across - left : left + 1 - across;
        cells[corner] = inside ? (int64_t)row * n[3] + (int64_t)column : 0;
        weights[corner] = inside ? by_row * by_column * weight : 0;
    }
}

static void sample_planes(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, chunks = (n[4] + PLACES - 1) / PLACES, size = n[2] * n[3];
    int64_t from, to, cells[PLACES][4];
    float weights[PLACES][4];
    part(n[0] * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t plane = i / chunks, first = i % chunks * PLACES, at = plane * n[4] + first;
        const int64_t count = n[4] - first < PLACES ? n[4] - first : PLACES;
        for (int64_t k = 0; k < count; k++)
            find_cells(n, step->p[1][at + k], step->p[2][at + k], step->p[4] ? step->p[4][at + k] : 1, cells[k], weights[k]);
        for (int64_t channel = 0; channel < n[1]; channel++) {
            const float *x = step->p[0] + (plane * n[1] + channel) * size;
            float *y = step->p[3] + (plane * n[1] + channel) * n[4] + first;
            for (int64_t k = 0; k < count; k++) {
                const int64_t *cell = cells[k];
                const float *weight = weights[k];
                y[k] = (weight[0] * x[cell[0]] + weight[1] * x[cell[1]]) + (weight[2] * x[cell[2]] + weight[3] * x[cell[3]]);
            }
        }
    }
}
