/* Channels of blocked images put together anew. Included by images.c.

   p: images that channels are taken from, at 0, 1, 2 and 4; y; the table
   n: 0 images, 1 rows, 2 columns, 3 channel blocks to write; 4-6 y strides of image, channel block, row; 7-14 strides of image
   and row of each that is read; 15 whole numbers of a block in the table, 16 y stride of a pixel
   For each block the table has: which one, whether to keep what is there, how many blocks it is made of; then for each of
   these: image, offset, and as 32 bits by lane where it comes from, its own place where it stays. */
#define TAKEN 4 /* blocks at once */

/* COUNT is a constant wherever this is called. */
INLINE void regroup_row(const int COUNT, const float *const *x, const veci *lanes, int64_t kept, const int64_t *n,
                        float *y) {
    for (int64_t at = 0; at < n[2] * VL; at += VL, y += n[16]) {
        vec value = kept ? LOAD(y) : ALL(0);
#pragma GCC unroll 4
        for (int i = 0; i < COUNT; i++) value = SHUFFLE(value, LOAD(x[i] + at), lanes[i]);
        STORE(y, value);
    }
}

static void regroup(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n;
    const float *const images[4] = {step->p[0], step->p[1], step->p[2], step->p[4]};
    int64_t from, to;
    part(n[0] * n[3] * n[1], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = i % n[1], image = i / (n[1] * n[3]);
        const int64_t *entry = OFFSETS(step) + i / n[1] % n[3] * n[15], *source = entry + 3;
        float *y = step->p[3] + image * n[4] + entry[0] * n[5] + row * n[6];
        int64_t kept = entry[1];
        for (int64_t left = entry[2]; left > 0; left -= TAKEN, kept = 1) {
            const float *x[TAKEN];
            veci lanes[TAKEN];
            const int64_t count = left < TAKEN ? left : TAKEN;
            for (int64_t j = 0; j < count; j++, source += 2 + VL / 2) {
                x[j] = images[source[0]] + source[1] + image * n[7 + 2 * source[0]] + row * n[8 + 2 * source[0]];
                memcpy(&lanes[j], source + 2, sizeof(veci));
            }
            switch (count) {
                case 1: regroup_row(1, x, lanes, kept, n, y); break;
                case 2: regroup_row(2, x, lanes, kept, n, y); break;
                case 3: regroup_row(3, x, lanes, kept, n, y); break;
                default: regroup_row(4, x, lanes, kept, n, y); break;
            }
        }
    }
}
