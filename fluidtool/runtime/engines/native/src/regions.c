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

/* ---------------------------------------------------------------- roi_align: a mean of samples between pixels */
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
static bin_cells weigh_axis(const ft_align_regions *s, float start, float end, int64_t count, int64_t size, bin_cells *bins,
                            float *weights, double *sums) {
    const float extent = s->aligned || end - start > 1 ? end - start : 1, each = extent / (float)count;
    const int64_t samples = s->samples > 0 ? s->samples : each > 0 ? (int64_t)ceilf(each) : 0;
    bin_cells all = {size, 0, weights};
    for (int64_t i = 0; i < count; i++) {
        bins[i].weights = weights + i * size;
        weigh_bin(bins + i, start, each, i, samples, size, s->later, sums);
        if (bins[i].first < all.first) all.first = bins[i].first;
        if (bins[i].end > all.end) all.end = bins[i].end;
    }
    return all;
}

/* One region, one block of channels. */
static void align_block(const ft_align_regions *s, const float *x, const bin_cells *down, const bin_cells *across,
                        bin_cells columns, float *line, float *tile) {
    for (int64_t p = 0; p < s->bins_h; p++) {
        for (int64_t w = columns.first; w < columns.end; w++) {
            vec sum = ALL(0);
            for (int64_t h = down[p].first; h < down[p].end; h++)
                sum += ALL(down[p].weights[h]) * LOAD(x + (h * s->source_width + w) * VL);
            STORE(line + w * VL, sum);
        }
        for (int64_t q = 0; q < s->bins_w; q++) {
            vec sum = ALL(0);
            for (int64_t w = across[q].first; w < across[q].end; w++) sum += ALL(across[q].weights[w]) * LOAD(line + w * VL);
            STORE(tile + (p * s->bins_w + q) * VL, sum);
        }
    }
}

static void align_regions(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_align_regions *s = &call->align_regions;
    const int64_t bins = s->bins_h * s->bins_w, blocks = (s->channels + VL - 1) / VL,
                  plane = s->source_height * s->source_width * VL;
    const int64_t size = s->source_height > s->source_width ? s->source_height : s->source_width;
    double *sums = (double *)(void *)(s->scratch + task * s->task_scratch);
    bin_cells *down = (bin_cells *)(void *)(sums + size), *across = down + s->bins_h;
    float *row_weights = (float *)(void *)(across + s->bins_w), *column_weights = row_weights + s->bins_h * s->source_height;
    float *line = column_weights + s->bins_w * s->source_width, *tile = line + s->source_width * VL;
    int64_t from, to;
    part(s->region_count, task, tasks, &from, &to);
    for (int64_t region = from; region < to; region++) {
        const float *box = s->regions + 4 * region, *x = s->source + s->region_images[region] * blocks * plane;
        weigh_axis(s, box[1], box[3], s->bins_h, s->source_height, down, row_weights, sums);
        const bin_cells columns = weigh_axis(s, box[0], box[2], s->bins_w, s->source_width, across, column_weights, sums);
        for (int64_t block = 0; block < blocks; block++) {
            align_block(s, x + block * plane, down, across, columns, line, tile);
            move_tile(tile, bins, s->channels - block * VL, s->out + (region * s->channels + block * VL) * bins);
        }
    }
}

/* ---------------------------------------------------------------- roi_pool: the largest pixel, and which it is */
static void largest_in_bin(const ft_pool_regions *s, const float *x, const int64_t *rows, const int64_t *columns, vec *most,
                           veci *place) {
    vec best = ALL(-3.402823466e38f);
    veci found = (veci){0} - 1;
    for (int64_t h = rows[0]; h < rows[s->bins_h]; h++)
        for (int64_t w = columns[0]; w < columns[s->bins_w]; w++) {
            const vec value = LOAD(x + (h * s->source_width + w) * VL);
            const veci larger = value > best, here = (veci){0} + (int32_t)(h * s->source_width + w);
            best = CHOOSE(larger, value, best);
            found = (larger & here) | (~larger & found);
        }
    const int empty = rows[s->bins_h] <= rows[0] || columns[s->bins_w] <= columns[0];
    *most = empty ? ALL(0) : best, *place = found;
}

static void pool_regions(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pool_regions *s = &call->pool_regions;
    const int64_t bins = s->bins_h * s->bins_w, blocks = (s->channels + VL - 1) / VL,
                  plane = s->source_height * s->source_width * VL;
    float *tile = s->scratch + task * 2 * bins * VL;
    int32_t *found = (int32_t *)(void *)(tile + bins * VL);
    int64_t from, to, *places = s->places;
    part(s->region_count, task, tasks, &from, &to);
    for (int64_t region = from; region < to; region++) {
        const int64_t *edges = s->edges + region * (1 + 2 * (s->bins_h + s->bins_w)), *rows = edges + 1,
                      *columns = rows + 2 * s->bins_h;
        for (int64_t block = 0; block < blocks; block++) {
            const float *x = s->source + (edges[0] * blocks + block) * plane;
            const int64_t first = (region * s->channels + block * VL) * bins, channels = s->channels - block * VL;
            for (int64_t bin = 0; bin < bins; bin++) {
                vec most;
                veci place;
                largest_in_bin(s, x, rows + bin / s->bins_w, columns + bin % s->bins_w, &most, &place);
                STORE(tile + bin * VL, most);
                memcpy(found + bin * VL, &place, sizeof place);
            }
            move_tile(tile, bins, channels, s->out + first);
            for (int64_t lane = 0; places && lane < VL && lane < channels; lane++)
                for (int64_t bin = 0; bin < bins; bin++) places[first + lane * bins + bin] = found[bin * VL + lane];
        }
    }
}
