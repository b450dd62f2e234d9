/* Borders around tensors. Included by images.c. */

static void pad(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pad *s = &call->pad;
    const int64_t columns = s->shape[4], first = s->first, count = s->run;
    const int64_t *at0 = s->places, *at1 = at0 + s->shape[0], *at2 = at1 + s->shape[1], *at3 = at2 + s->shape[2],
                  *at4 = at3 + s->shape[3];
    int64_t from, to;
    part(s->shape[0] * s->shape[1] * s->shape[2], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t i2 = i % s->shape[2], i1 = i / s->shape[2] % s->shape[1], i0 = i / (s->shape[2] * s->shape[1]);
        const int outside = at0[i0] < 0 || at1[i1] < 0 || at2[i2] < 0;
        float *y = s->out + i0 * s->out_strides[0] + i1 * s->out_strides[1] + i2 * s->out_strides[2];
        for (int64_t row = 0; row < s->shape[3]; row++, y += s->out_strides[3]) {
            if (outside || at3[row] < 0) {
                for (int64_t j = 0; j < columns; j++) y[j] = s->value;
                continue;
            }
            const float *x = s->source + at0[i0] + at1[i1] + at2[i2] + at3[row];
            for (int64_t j = 0; j < first; j++) y[j] = at4[j] < 0 ? s->value : x[at4[j]];
            if (count) memcpy(y + first, x + at4[first], (size_t)count * sizeof(float));
            for (int64_t j = first + count; j < columns; j++) y[j] = at4[j] < 0 ? s->value : x[at4[j]];
        }
    }
}
