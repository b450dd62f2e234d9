/* Channels of blocked images put together anew. Included by images.c. */
#define TAKEN 4 /* blocks at once */

/* COUNT is a constant wherever this is called. */
INLINE void regroup_row(const int COUNT, const float *const *x, const veci *lanes, int64_t kept, const ft_regroup *s,
                        float *y) {
    for (int64_t at = 0; at < s->columns * VL; at += VL, y += s->out_pixel) {
        vec value = kept ? LOAD(y) : ALL(0);
#pragma GCC unroll 4
        for (int i = 0; i < COUNT; i++) value = SHUFFLE(value, LOAD(x[i] + at), lanes[i]);
        STORE(y, value);
    }
}

static void regroup(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_regroup *s = &call->regroup;
    const float *const images[4] = {s->first, s->second, s->third, s->fourth};
    int64_t from, to;
    part(s->images * s->blocks * s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % s->rows, image = i / (s->rows * s->blocks);
        const int64_t *entry = s->table + i / s->rows % s->blocks * s->words, *source = entry + 3;
        float *y = s->out + image * s->out_image + entry[0] * s->out_block + row * s->out_row;
        int64_t kept = entry[1];
        for (int64_t left = entry[2]; left > 0; left -= TAKEN, kept = 1) {
            const float *x[TAKEN];
            veci lanes[TAKEN];
            const int64_t count = left < TAKEN ? left : TAKEN;
            for (int64_t j = 0; j < count; j++, source += 2 + VL / 2) {
                x[j] = images[source[0]] + source[1] + image * s->source_strides[2 * source[0]] +
                       row * s->source_strides[2 * source[0] + 1];
                memcpy(&lanes[j], source + 2, sizeof(veci));
            }
            switch (count) {
                case 1: regroup_row(1, x, lanes, kept, s, y); break;
                case 2: regroup_row(2, x, lanes, kept, s, y); break;
                case 3: regroup_row(3, x, lanes, kept, s, y); break;
                default: regroup_row(4, x, lanes, kept, s, y); break;
            }
        }
    }
}
