/* Pooling of regions of interest. Included by images.c. Maps lie in blocks of VL channels (layouts.c). What the bins of a
   region and a block of channels hold is computed as [bins][VL], then moved to [VL][bins]. */

/* The tile [bins][VL] of a block of channels to y [channels][bins]. */
static void move_tile(const float *tile, int64_t bins, int64_t channels, float *y) {
    for (int64_t start = 0; start < bins; start += VL) {
        const int64_t count = bins - start;
        vec lines[VL];
        for (int64_t i = 0; i < VL; i++) lines[i] = i < count ? LOAD(tile + (start + i) * VL) : ALL(0);
        transpose(lines);
        for (int64_t i = 0; i < VL && i < channels; i++) give(y + i * bins + start, lines[i], count);
    }
}

/* ---------------------------------------------------------------- roi_align: a mean of samples between pixels
   p: x, regions [R][4] in pixels of x, memory, y [R][channels][rows][columns of bins], -, image of each region (int64)
   n: 0 regions, 1 channels, 2-3 rows and columns of x, 4-5 rows and columns of bins, 6 samples along a side of a bin, or as
   many as it spans cells; 7 whether regions may be smaller than a pixel, 8 whether places are computed as Paddle 2.x does,
   9 floats of memory of a task */
typedef struct {
    int64_t first, end; /* cells that weigh anything */
    float *weights;     /* of all cells of the axis */
} bin_cells;

/* The place of a sample, rounded after every operation: the products are exact in double. */
static float sample_place(float start, float step, int64_t bin, int64_t sample, float number, int64_t later) {
    const double here = (double)sample + 0.5;
    if (later) {
        const float inside = (float)here / number, within = (float)bin + inside;
        return (float)((double)start + (float)((double)step * within));
    }
    const float inside = (float)(here * step) / number;
    return (float)((double)(float)((double)start + (float)((double)bin * step)) + inside);
}

/* What the cells of an axis weigh in a bin: samples are between two cells, beyond one cell outside they weigh nothing. */
static void weigh_bin(bin_cells *bin, float start, float step, int64_t number, int64_t count, int64_t size, int64_t later,
                      double *sums) {
    bin->first = size, bin->end = 0;
    memset(sums, 0, (size_t)size * sizeof(double));
    for (int64_t sample = 0; sample < count; sample++) {
        const float place = sample_place(start, step, number, sample, (float)count, later);
        if (!(place >= -1 && place <= (float)size)) continue;
        const double inside = place < 0 ? 0 : place > (float)(size - 1) ? (double)(size - 1) : (double)place;
        const int64_t low = (int64_t)inside, high = low + 1 < size ? low + 1 : low;
        sums[low] += 1 - (inside - (double)low);
        if (high > low) sums[high] += 1 - ((double)high - inside);
        if (low < bin->first) bin->first = low;
        if (high + 1 > bin->end) bin->end = high + 1;
    }
    for (int64_t cell = bin->first; cell < bin->end; cell++) bin->weights[cell] = (float)(sums[cell] / (double)count);
}

/* All bins of an axis; returns the cells that any of them needs. */
static bin_cells weigh_axis(const ft_step *step, float start, float end, int64_t count, int64_t size, bin_cells *bins,
                            float *weights, double *sums) {
    const int64_t *n = step->n;
    const float extent = n[7] || end - start > 1 ? end - start : 1, each = extent / (float)count;
    const int64_t samples = n[6] > 0 ? n[6] : each > 0 ? (int64_t)ceilf(each) : 0;
    bin_cells all = {size, 0, weights};
    for (int64_t i = 0; i < count; i++) {
        bins[i].weights = weights + i * size;
        weigh_bin(bins + i, start, each, i, samples, size, n[8], sums);
        if (bins[i].first < all.first) all.first = bins[i].first;
        if (bins[i].end > all.end) all.end = bins[i].end;
    }
    return all;
}

/* One region, one block of channels. */
static void align_block(const int64_t *n, const float *x, const bin_cells *down, const bin_cells *across, bin_cells columns,
                        float *line, float *tile) {
    for (int64_t p = 0; p < n[4]; p++) {
        for (int64_t w = columns.first; w < columns.end; w++) {
            vec sum = ALL(0);
            for (int64_t h = down[p].first; h < down[p].end; h++)
                sum += ALL(down[p].weights[h]) * LOAD(x + (h * n[3] + w) * VL);
            STORE(line + w * VL, sum);
        }
        for (int64_t q = 0; q < n[5]; q++) {
            vec sum = ALL(0);
            for (int64_t w = across[q].first; w < across[q].end; w++) sum += ALL(across[q].weights[w]) * LOAD(line + w * VL);
            STORE(tile + (p * n[5] + q) * VL, sum);
        }
    }
}

static void align_regions(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, bins = n[4] * n[5], blocks = (n[1] + VL - 1) / VL, plane = n[2] * n[3] * VL;
    const int64_t size = n[2] > n[3] ? n[2] : n[3];
    double *sums = (double *)(void *)(step->p[2] + task * n[9]);
    bin_cells *down = (bin_cells *)(void *)(sums + size), *across = down + n[4];
    float *row_weights = (float *)(void *)(across + n[5]), *column_weights = row_weights + n[4] * n[2];
    float *line = column_weights + n[5] * n[3], *tile = line + n[3] * VL;
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t region = from; region < to; region++) {
        const float *box = step->p[1] + 4 * region, *x = step->p[0] + OFFSETS(step)[region] * blocks * plane;
        weigh_axis(step, box[1], box[3], n[4], n[2], down, row_weights, sums);
        const bin_cells columns = weigh_axis(step, box[0], box[2], n[5], n[3], across, column_weights, sums);
        for (int64_t block = 0; block < blocks; block++) {
            align_block(n, x + block * plane, down, across, columns, line, tile);
            move_tile(tile, bins, n[1] - block * VL, step->p[3] + (region * n[1] + block * VL) * bins);
        }
    }
}

/* ---------------------------------------------------------------- roi_pool: the largest pixel, and which it is
   p: x, -, memory of [bins][2][VL] of a task, y as above, places of the pixels (int64), as y, or 0; of each region its image,
   then the first rows and the ends of the rows of bins, then those of columns (int64)
   n: 0-5 as above */
static void largest_in_bin(const int64_t *n, const float *x, const int64_t *rows, const int64_t *columns, vec *most, veci *place) {
    vec best = ALL(-3.402823466e38f);
    veci found = (veci){0} - 1;
    for (int64_t h = rows[0]; h < rows[n[4]]; h++)
        for (int64_t w = columns[0]; w < columns[n[5]]; w++) {
            const vec value = LOAD(x + (h * n[3] + w) * VL);
            const veci larger = value > best, here = (veci){0} + (int32_t)(h * n[3] + w);
            best = CHOOSE(larger, value, best);
            found = (larger & here) | (~larger & found);
        }
    const int empty = rows[n[4]] <= rows[0] || columns[n[5]] <= columns[0];
    *most = empty ? ALL(0) : best, *place = found;
}

static void pool_regions(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, bins = n[4] * n[5], blocks = (n[1] + VL - 1) / VL, plane = n[2] * n[3] * VL;
    float *tile = step->p[2] + task * 2 * bins * VL;
    int32_t *found = (int32_t *)(void *)(tile + bins * VL);
    int64_t from, to, *places = (int64_t *)(void *)step->p[4];
    part(n[0], task, tasks, &from, &to);
    for (int64_t region = from; region < to; region++) {
        const int64_t *edges = OFFSETS(step) + region * (1 + 2 * (n[4] + n[5])), *rows = edges + 1, *columns = rows + 2 * n[4];
        for (int64_t block = 0; block < blocks; block++) {
            const float *x = step->p[0] + (edges[0] * blocks + block) * plane;
            const int64_t first = (region * n[1] + block * VL) * bins, channels = n[1] - block * VL;
            for (int64_t bin = 0; bin < bins; bin++) {
                vec most;
                veci place;
                largest_in_bin(n, x, rows + bin / n[5], columns + bin % n[5], &most, &place);
                STORE(tile + bin * VL, most);
                memcpy(found + bin * VL, &place, sizeof place);
            }
            move_tile(tile, bins, channels, step->p[3] + first);
            for (int64_t lane = 0; places && lane < VL && lane < channels; lane++)
                for (int64_t bin = 0; bin < bins; bin++) places[first + lane * bins + bin] = found[bin * VL + lane];
        }
    }
}
