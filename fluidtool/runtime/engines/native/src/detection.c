/* Greedy suppression of boxes. Included by kernels.c. */

INLINE float box_area(const float *box, float pixel) {
    return box[2] < box[0] || box[3] < box[1] ? 0 : (box[2] - box[0] + pixel) * (box[3] - box[1] + pixel);
}

/* The overlap divided by the union. The double keeps compilers from rounding `inter` once less than numpy does. */
INLINE float jaccard(const float *a, const float *b, float a_area, float b_area, float pixel) {
    if (b[0] > a[2] || b[2] < a[0] || b[1] > a[3] || b[3] < a[1]) return 0;
    const float right = a[2] < b[2] ? a[2] : b[2], left = a[0] > b[0] ? a[0] : b[0];
    const float bottom = a[3] < b[3] ? a[3] : b[3], top = a[1] > b[1] ? a[1] : b[1];
    const float inter = (right - left + pixel) * (bottom - top + pixel);
    return inter / (float)((double)(a_area + b_area) - (double)inter);
}

/* p: boxes [N][4] from best to worst, areas [N], -, -, -, numbers of those that are kept and, at [N], how many they
   are (int64).  n: 0 N.  f: threshold, eta, 1 for sides that are one pixel longer.  One task. */
static void suppress(const ft_step *step, int64_t task, int64_t tasks) {
    const float pixel = step->f[2], *boxes = step->p[0];
    float *areas = step->p[1], limit = step->f[0];
    int64_t *kept = (int64_t *)(void *)step->p[5], count = 0;
    (void)task, (void)tasks;
    for (int64_t i = 0; i < step->n[0]; i++) {
        const float *box = boxes + 4 * i;
        areas[i] = box_area(box, pixel);
        int64_t j = 0;
        while (j < count && jaccard(box, boxes + 4 * kept[j], areas[i], areas[kept[j]], pixel) <= limit) j++;
        if (j < count) continue;
        kept[count++] = i;
        if (step->f[1] < 1 && limit > 0.5f) limit *= step->f[1];
    }
    kept[step->n[0]] = count;
}
