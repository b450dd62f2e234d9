/* Attention: softmax(f[3] * q k + mask) v of every head, without the scores of more rows than a cache holds in memory.
   Included by matrices.c. */

#define SCORES 16384 /* numbers of a block of rows of scores; MOST_KEYS of attention.py times the rows of a tile */

/* p: q, k, mask or 0, y, v, weights that are read next or 0, room
   n: 0 rows of q, 1 depth, 2 keys, 3 columns of v and y; 4 stride of a row of q; strides 5-6 of k for a key and along the
   depth, 7-8 of v for a key and along a row; 9 stride of a row of y; 10 inner matrices; 11-12 strides of outer and inner
   matrices in q, 13-14 in k, 15-16 in v, 19-20 in y; 17-18 as in products.c; 21-24 strides of the mask: outer, inner, row,
   key; 25 parts by rows; 26 floats of the room for a task. f[3] = factor. Tasks: outer * n[10] * n[25]. */
static void attention(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, keys = n[2], inner = task / n[25] % n[10], outer = task / (n[25] * n[10]);
    const int64_t most = SCORES / keys / GROUP_TILE * GROUP_TILE;
    float scores[SCORES] __attribute__((aligned(64)));
    const packing k = {.depth = n[1], .columns = keys, .x_row = n[6], .x_column = n[5], .all = keys,
                       .y = step->p[6] + task * n[26]};
    const packing v = {.depth = keys, .columns = n[3], .x_row = n[7], .x_column = n[8], .all = n[3],
                       .y = k.y + (keys + VL - 1) / VL * VL * n[1]};
    pack_rows(&k, step->p[1] + outer * n[13] + inner * n[14], 0, 0, k.depth);
    pack_rows(&v, step->p[4] + outer * n[15] + inner * n[16], 0, 0, v.depth);
    int64_t row, end, count;
    part(n[0], task % n[25], n[25], &row, &end);
    for (; row < end; row += count) {
        count = end - row < most ? end - row : most;
        const matrix_product first = {.x = step->p[0] + outer * n[11] + inner * n[12] + row * n[4], .w = k.y, .y = scores,
                                      .depth = k.depth, .columns = keys, .x_row = n[4], .y_row = keys, .f = step->f};
        product_block(&first, 0, count, 0, groups_of(keys));
        const row_mask mask = {.at = step->p[2] ? step->p[2] + outer * n[21] + inner * n[22] + row * n[23] : 0,
                               .heads = 1, .rows = count, .row = n[23], .column = n[24]};
        softmax_rows(scores, scores, &mask, keys, step->f[3], 0, count);
        const matrix_product second = {.x = scores, .w = v.y, .y = step->p[3] + outer * n[19] + inner * n[20] + row * n[9],
                                       .after = row + count < end ? 0 : weights_after(step, task, tasks, 0), .depth = keys,
                                       .columns = n[3], .x_row = keys, .y_row = n[9], .activation = step->activation,
                                       .f = step->f};
        product_block(&second, 0, count, 0, groups_of(n[3]));
    }
}
