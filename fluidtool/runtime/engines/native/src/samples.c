/* Planes read between their cells, zeros outside. Included by images.c. */
enum { PLACES = 64 }; /* at a time */

/* Where a place's four cells are in a plane and what they weigh: 0 outside. */
static void find_cells(const ft_sample_planes *s, float down, float across, float weight, int64_t *cells, float *weights) {
    const int within = down > -1 && down < (float)s->source_height && across > -1 && across < (float)s->source_width;
    const float above = within ? floorf(down) : 0, left = within ? floorf(across) : 0;
    for (int corner = 0; corner < 4; corner++) {
        const float row = above + (float)(corner / 2), column = left + (float)(corner % 2);
        const int inside = within && row >= 0 && row < (float)s->source_height && column >= 0 &&
                           column < (float)s->source_width;
        const float by_row = corner / 2 ? down - above : above + 1 - down;
        const float by_column = corner % 2 ? across - left : left + 1 - across;
        cells[corner] = inside ? (int64_t)row * s->source_width + (int64_t)column : 0;
        weights[corner] = inside ? by_row * by_column * weight : 0;
    }
}

static void sample_planes(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_sample_planes *s = &call->sample_planes;
    const int64_t chunks = (s->places + PLACES - 1) / PLACES, size = s->source_height * s->source_width;
    int64_t from, to, cells[PLACES][4];
    float weights[PLACES][4];
    part(s->planes * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t plane = i / chunks, first = i % chunks * PLACES, at = plane * s->places + first;
        const int64_t count = s->places - first < PLACES ? s->places - first : PLACES;
        for (int64_t k = 0; k < count; k++)
            find_cells(s, s->down[at + k], s->across[at + k], s->weights ? s->weights[at + k] : 1, cells[k], weights[k]);
        for (int64_t channel = 0; channel < s->channels; channel++) {
            const float *x = s->source + (plane * s->channels + channel) * size;
            float *y = s->out + (plane * s->channels + channel) * s->places + first;
            for (int64_t k = 0; k < count; k++) {
                const int64_t *cell = cells[k];
                const float *weight = weights[k];
                y[k] = (weight[0] * x[cell[0]] + weight[1] * x[cell[1]]) + (weight[2] * x[cell[2]] + weight[3] * x[cell[3]]);
            }
        }
    }
}
