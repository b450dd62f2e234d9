/* Boxes from what a network says of them. Included by images.c. */

/* ---------------------------------------------------------------- YOLO */

/* Sigmoid, divided in double as numpy's kernel does: what is kept must not depend on the last bit. */
INLINE float exact_sigmoid(float x) { return (float)(1 / (1 + (double)(float)exp(-(double)x))); }

/* Confidences of some cells, -1 for those that are not kept; returns whether there are others. */
static int confidences(const float *x, int64_t count, float least, float *found) {
    int any = 0;
    for (int64_t i = 0; i < VL; i++) {
        const float confidence = i < count ? exact_sigmoid(x[i]) : -1;
        const int kept = i < count && confidence >= least;
        found[i] = kept ? confidence : -1;
        any |= kept;
    }
    return any;
}

static void yolo_scores(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_yolo_scores *s = &call->yolo_scores;
    const int64_t cells = s->rows * s->columns, classes = s->classes, chunks = (cells + VL - 1) / VL;
    int64_t from, to;
    part(s->images * s->anchor_count * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t map = i / chunks, start = i % chunks * VL, count = cells - start < VL ? cells - start : VL;
        const float *x = s->source + map * (5 + classes) * cells + start;
        float *y = s->out + (map * cells + start) * classes, kept[VL], scores[VL];
        if (!confidences(x + 4 * cells, count, s->threshold, kept)) {
            memset(y, 0, (size_t)(count * classes) * sizeof(float));
            continue;
        }
        const vec confidence = LOAD(kept);
        for (int64_t c = 0; c < classes; c++) {
            const vec score = confidence * sigmoid_vec(take(x + (5 + c) * cells, count));
            STORE(scores, CHOOSE(confidence < ALL(0), ALL(0), score));
            for (int64_t lane = 0; lane < count; lane++) y[lane * classes + c] = scores[lane];
        }
    }
}

static void yolo_box(const ft_yolo_boxes *s, const float *x, const float *anchor, int64_t cell, float height, float width,
                     float *y) {
    const int64_t cells = s->rows * s->columns;
    const float factor = s->scale, shift = s->shift;
    const float center_x = ((float)(cell % s->columns) + exact_sigmoid(x[0]) * factor + shift) * width / (float)s->grid_w;
    const float center_y = ((float)(cell / s->columns) + exact_sigmoid(x[cells]) * factor + shift) * height /
                           (float)s->grid_h;
    const float w = (float)exp((double)x[2 * cells]) * anchor[0] * width / (float)(s->cell_pixels * s->grid_w) / 2;
    const float h = (float)exp((double)x[3 * cells]) * anchor[1] * height / (float)(s->cell_pixels * s->grid_h) / 2;
    y[0] = center_x - w, y[1] = center_y - h, y[2] = center_x + w, y[3] = center_y + h;
    if (s->clip) {
        for (int side = 0; side < 2; side++) y[side] = y[side] < 0 ? 0 : y[side];
        y[2] = y[2] > width - 1 ? width - 1 : y[2], y[3] = y[3] > height - 1 ? height - 1 : y[3];
    }
}

static void yolo_boxes(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_yolo_boxes *s = &call->yolo_boxes;
    const int64_t *sizes = s->image_sizes, cells = s->rows * s->columns, chunks = (cells + VL - 1) / VL;
    int64_t from, to;
    part(s->images * s->anchor_count * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t map = i / chunks, start = i % chunks * VL, count = cells - start < VL ? cells - start : VL;
        const int64_t image = map / s->anchor_count;
        const float *x = s->source + map * (5 + s->classes) * cells + start, *anchor = s->anchors + map % s->anchor_count * 2;
        const float height = (float)sizes[2 * image], width = (float)sizes[2 * image + 1];
        float *y = s->out + (map * cells + start) * 4, kept[VL];
        confidences(x + 4 * cells, count, s->threshold, kept);
        memset(y, 0, (size_t)(count * 4) * sizeof(float));
        for (int64_t lane = 0; lane < count; lane++)
            if (kept[lane] >= 0) yolo_box(s, x + lane, anchor, start + lane, height, width, y + 4 * lane);
    }
}

/* ---------------------------------------------------------------- boxes from offsets to prior boxes */
static void four_of(const float *from, int64_t move, int64_t count, vec *to) {
    float lanes[4][VL];
    for (int64_t i = 0; i < VL; i++, from += i < count ? move : 0)
        for (int k = 0; k < 4; k++) lanes[k][i] = from[k];
    for (int k = 0; k < 4; k++) to[k] = LOAD(lanes[k]);
}

static void decode_boxes(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_decode_boxes *s = &call->decode_boxes;
    const int64_t columns = s->columns, chunks = (columns + VL - 1) / VL;
    const vec pixel = ALL(s->pixel), half = ALL(0.5f);
    int64_t from, to;
    part(s->rows * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i / chunks, start = i % chunks * VL, at = row * columns + start;
        const int64_t count = columns - start < VL ? columns - start : VL, prior = s->along_rows ? row : start;
        vec code[4], box[4], scale[4];
        four_of(s->source + 4 * at, 4, count, code);
        four_of(s->priors + 4 * prior, s->along_rows ? 0 : 4, count, box);
        four_of(s->scale + prior * s->scale_step, s->along_rows ? 0 : s->scale_step, count, scale);
        const vec width = box[2] - box[0] + pixel, height = box[3] - box[1] + pixel;
        const vec x = scale[0] * code[0] * width + (box[0] + width * half);
        const vec y = scale[1] * code[1] * height + (box[1] + height * half);
        const vec w = exp_vec(scale[2] * code[2]) * width * half, h = exp_vec(scale[3] * code[3]) * height * half;
        const vec sides[4] = {x - w, y - h, x + w - pixel, y + h - pixel};
        float lanes[4][VL];
        for (int k = 0; k < 4; k++) STORE(lanes[k], sides[k]);
        for (int64_t lane = 0; lane < count; lane++)
            for (int k = 0; k < 4; k++) s->out[4 * (at + lane) + k] = lanes[k][lane];
    }
}
