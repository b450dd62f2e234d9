/* Borders around tensors. Included by images.c. */

/* p: x, -, -, y, -, for each of the five axes of y and each place where in x its numbers are, or -1 for f[0].
   n: 0-4 sizes of y, 5-8 y strides of all axes but the last, 9-10 the places of the last axis that lie in x as in y: from,
   count */
static void pad(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, columns = n[4], first = n[9], count = n[10];
    const int64_t *at0 = OFFSETS(step), *at1 = at0 + n[0], *at2 = at1 + n[1], *at3 = at2 + n[2], *at4 = at3 + n[3];
    int64_t from, to;
    part(n[0] * n[1] * n[2], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t i2 = i % n[2], i1 = i / n[2] % n[1], i0 = i / (n[2] * n[1]);
        const int outside = at0[i0] < 0 || at1[i1] < 0 || at2[i2] < 0;
        float *y = step->p[3] + i0 * n[5] + i1 * n[6] + i2 * n[7];
        for (int64_t row = 0; row < n[3]; row++, y += n[8]) {
            if (outside || at3[row] < 0) {
                for (int64_t j = 0; j < columns; j++) y[j] = step->f[0];
                continue;
            }
            const float *x = step->p[0] + at0[i0] + at1[i1] + at2[i2] + at3[row];
            for (int64_t j = 0; j < first; j++) y[j] = at4[j] < 0 ? step->f[0] : x[at4[j]];
            if (count) memcpy(y + first, x + at4[first], (size_t)count * sizeof(float));
            for (int64_t j = first + count; j < columns; j++) y[j] = at4[j] < 0 ? step->f[0] : x[at4[j]];
        }
    }
}
