/* Softmax and layer normalisation. Included by kernels.c. */
/* ---------------------------------------------------------------- rows
   softmax: p: x, mask or 0, -, y. n: 0 rows, 1 columns, 2-3 the rows as [image][n[2]][n[3]], 4-6 mask strides of image,
   n[2], n[3], 7 mask stride inside a row (0 or 1). y = softmax(f[0] * x + mask). */
static void softmax(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, columns = n[1];
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = step->p[0] + row * columns, *mask = 0;
        float *y = step->p[3] + row * columns;
        if (step->p[1])
            mask = step->p[1] + row / (n[2] * n[3]) * n[4] + row / n[3] % n[2] * n[5] + row % n[3] * n[6];
        vec most = ALL(-3.402823466e38f);
        int64_t i = 0;
        for (; i + VL <= columns; i += VL) {
            vec value = LOAD(x + i) * ALL(step->f[0]);
            if (mask) value += n[7] ? LOAD(mask + i) : ALL(*mask);
            STORE(y + i, value);
            most = MAX(value, most);
        }
        if (i < columns) {
            vec value = load_some(x + i, columns - i, -3.402823466e38f) * ALL(step->f[0]);
            if (mask) value += n[7] ? load_some(mask + i, columns - i, 0) : ALL(*mask);
            store_some(y + i, value, columns - i);
            float lanes[VL];
            STORE(lanes, value);
            for (int64_t j = columns - i; j < VL; j++) lanes[j] = lanes[0];
            most = MAX(LOAD(lanes), most);
        }
        const vec top = ALL(max_lanes(most));
        vec sum = ALL(0);
        for (i = 0; i + VL <= columns; i += VL) {
            const vec value = exp_vec(LOAD(y + i) - top);
            sum += value;
            STORE(y + i, value);
        }
        float total = sum_lanes(sum);
        if (i < columns) {
            const vec value = exp_vec(load_some(y + i, columns - i, 0) - top);
            float lanes[VL];
            STORE(lanes, value);
            for (int64_t j = 0; j < columns - i; j++) total += lanes[j], y[i + j] = lanes[j];
        }
        const vec factor = ALL(1 / total);
        for (i = 0; i + VL <= columns; i += VL) STORE(y + i, LOAD(y + i) * factor);
        for (; i < columns; i++) y[i] *= 1 / total;
    }
}

/* p: x, scale or 0, bias or 0, y, residual or 0 (added to x first), mean and variance of every row or 0. n: 0 rows,
   1 columns. f[0] = epsilon */
static void layer_norm(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, columns = n[1], even = columns / VL * VL;
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t row = from; row < to; row++) {
        const float *x = step->p[0] + row * columns, *more = step->p[4] ? step->p[4] + row * columns : 0;
        float *y = step->p[3] + row * columns;
        vec sum = ALL(0);
        float rest = 0;
        for (int64_t i = 0; i < even; i += VL) {
            const vec value = more ? LOAD(x + i) + LOAD(more + i) : LOAD(x + i);
            STORE(y + i, value);
            sum += value;
        }
        for (int64_t i = even; i < columns; i++) rest += y[i] = more ? x[i] + more[i] : x[i];
        const float mean = (sum_lanes(sum) + rest) / (float)columns;
        sum = ALL(0), rest = 0;
        for (int64_t i = 0; i < even; i += VL) {
            const vec away = LOAD(y + i) - ALL(mean);
            sum += away * away;
        }
        for (int64_t i = even; i < columns; i++) rest += (y[i] - mean) * (y[i] - mean);
        const float variance = (sum_lanes(sum) + rest) / (float)columns, inverse = 1 / sqrtf(variance + step->f[0]);
        const float *scale = step->p[1], *bias = step->p[2];
        if (step->p[5]) step->p[5][row] = mean, step->p[5][n[0] + row] = variance;
        for (int64_t i = 0; i < even; i += VL) {
            vec value = (LOAD(y + i) - ALL(mean)) * ALL(inverse);
            if (scale) value *= LOAD(scale + i);
            if (bias) value += LOAD(bias + i);
            STORE(y + i, activate(value, step->activation, step->f));
        }
        for (int64_t i = even; i < columns; i++) {
            const float value = (y[i] - mean) * inverse * (scale ? scale[i] : 1) + (bias ? bias[i] : 0);
            store_some(y + i, activate(ALL(value), step->activation, step->f), 1);
        }
    }
}
