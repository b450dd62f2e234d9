/* Boxes from what a network says of them. Included by images.c. */

/* ---------------------------------------------------------------- YOLO
   p: x [images][anchors][5 + classes][cells], anchors [anchors][2], -, y [images][anchors][cells][4 or classes], -, sizes
   of the images, height and width (int64)
   n: 0 images, 1 anchors, 2-3 rows and columns of cells, 4 classes; 5-6 by what rows and columns are divided, 7 pixels of a
   cell, 8 whether boxes are cut off at the image.  f: 0 least confidence, 1-2 factor and shift of a place in its cell */

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

static void yolo_scores(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, cells = n[2] * n[3], classes = n[4], chunks = (cells + VL - 1) / VL;
    int64_t from, to;
    part(n[0] * n[1] * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t map = i / chunks, start = i % chunks * VL, count = cells - start < VL ? cells - start : VL;
        const float *x = step->p[0] + map * (5 + classes) * cells + start;
        float *y = step->p[3] + (map * cells + start) * classes, kept[VL], scores[VL];
        if (!confidences(x + 4 * cells, count, step->f[0], kept)) {
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

static void yolo_box(const ft_step *step, const float *x, const float *anchor, int64_t cell, float height, float width,
                     float *y) {
    const int64_t *n = step->n, cells = n[2] * n[3];
    const float factor = step->f[1], shift = step->f[2];
    const float center_x = ((float)(cell % n[3]) + exact_sigmoid(x[0]) * factor + shift) * width / (float)n[6];
    const float center_y = ((float)(cell / n[3]) + exact_sigmoid(x[cells]) * factor + shift) * height / (float)n[5];
    const float w = (float)exp((double)x[2 * cells]) * anchor[0] * width / (float)(n[7] * n[6]) / 2;
    const float h = (float)exp((double)x[3 * cells]) * anchor[1] * height / (float)(n[7] * n[5]) / 2;
    y[0] = center_x - w, y[1] = center_y - h, y[2] = center_x + w, y[3] = center_y + h;
    if (n[8]) {
        for (int side = 0; side < 2; side++) y[side] = y[side] < 0 ? 0 : y[side];
        y[2] = y[2] > width - 1 ? width - 1 : y[2], y[3] = y[3] > height - 1 ? height - 1 : y[3];
    }
}

static void yolo_boxes(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, *sizes = OFFSETS(step), cells = n[2] * n[3], chunks = (cells + VL - 1) / VL;
    int64_t from, to;
    part(n[0] * n[1] * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t map = i / chunks, start = i % chunks * VL, count = cells - start < VL ? cells - start : VL;
        const int64_t image = map / n[1];
        const float *x = step->p[0] + map * (5 + n[4]) * cells + start, *anchor = step->p[1] + map % n[1] * 2;
        const float height = (float)sizes[2 * image], width = (float)sizes[2 * image + 1];
        float *y = step->p[3] + (map * cells + start) * 4, kept[VL];
        confidences(x + 4 * cells, count, step->f[0], kept);
        memset(y, 0, (size_t)(count * 4) * sizeof(float));
        for (int64_t lane = 0; lane < count; lane++)
            if (kept[lane] >= 0) yolo_box(step, x + lane, anchor, start + lane, height, width, y + 4 * lane);
    }
}

/* ---------------------------------------------------------------- boxes from offsets to prior boxes
   p: codes [rows][columns][4], priors [4], scale [4], y [rows][columns][4]
   n: 0 rows, 1 columns, 2 whether priors lie along the rows, 3 step of the scale: 4, or 0 where all have one.
   f: 0 pixels that a box is longer than its ends lie apart */
static void four_of(const float *from, int64_t move, int64_t count, vec *to) {
    float lanes[4][VL];
    for (int64_t i = 0; i < VL; i++, from += i < count ? move : 0)
        for (int k = 0; k < 4; k++) lanes[k][i] = from[k];
    for (int k = 0; k < 4; k++) to[k] = LOAD(lanes[k]);
}

static void decode_boxes(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, columns = n[1], chunks = (columns + VL - 1) / VL;
    const vec pixel = ALL(step->f[0]), half = ALL(0.5f);
    int64_t from, to;
    part(n[0] * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i / chunks, start = i % chunks * VL, at = row * columns + start;
        const int64_t count = columns - start < VL ? columns - start : VL, prior = n[2] ? row : start;
        vec code[4], box[4], scale[4];
        four_of(step->p[0] + 4 * at, 4, count, code);
        four_of(step->p[1] + 4 * prior, n[2] ? 0 : 4, count, box);
        four_of(step->p[2] + prior * n[3], n[2] ? 0 : n[3], count, scale);
        const vec width = box[2] - box[0] + pixel, height = box[3] - box[1] + pixel;
        const vec x = scale[0] * code[0] * width + (box[0] + width * half);
        const vec y = scale[1] * code[1] * height + (box[1] + height * half);
        const vec w = exp_vec(scale[2] * code[2]) * width * half, h = exp_vec(scale[3] * code[3]) * height * half;
        const vec sides[4] = {x - w, y - h, x + w - pixel, y + h - pixel};
        float lanes[4][VL];
        for (int k = 0; k < 4; k++) STORE(lanes[k], sides[k]);
        for (int64_t lane = 0; lane < count; lane++)
            for (int k = 0; k < 4; k++) step->p[3][4 * (at + lane) + k] = lanes[k][lane];
    }
}
