/* Attention: softmax(factor * query key + mask) value of every head, without the scores of more rows than a cache
   holds in memory. Included by matrices.c. */

#define SCORES 16384 /* numbers of a block of rows of scores; LANES of extents.py times the rows of a tile */

static void attention(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_attention *s = &call->attention;
    const int64_t keys = s->keys, inner = task / s->row_parts % s->inner, outer = task / (s->row_parts * s->inner);
    const int64_t most = SCORES / keys / GROUP_TILE * GROUP_TILE;
    float scores[SCORES] __attribute__((aligned(64)));
    const packing k = {.depth = s->depth, .columns = keys, .x_row = s->key_column, .x_column = s->key_row, .all = keys,
                       .y = s->scratch + task * s->task_scratch};
    const packing v = {.depth = keys,
                       .columns = s->columns,
                       .x_row = s->value_row,
                       .x_column = s->value_column,
                       .all = s->columns,
                       .y = k.y + (keys + VL - 1) / VL * VL * s->depth};
    pack_rows(&k, s->key + outer * s->key_outer + inner * s->key_inner, 0, 0, k.depth);
    pack_rows(&v, s->value + outer * s->value_outer + inner * s->value_inner, 0, 0, v.depth);
    int64_t row, end, count;
    part(s->rows, task % s->row_parts, s->row_parts, &row, &end);
    for (; row < end; row += count) {
        count = end - row < most ? end - row : most;
        const matrix_product first = {.x = s->query + outer * s->query_outer + inner * s->query_inner + row * s->query_row,
                                      .w = k.y,
                                      .y = scores,
                                      .depth = k.depth,
                                      .columns = keys,
                                      .x_row = s->query_row,
                                      .y_row = keys,
                                      .constants = &s->constants};
        product_block(&first, 0, count, 0, groups_of(keys));
        const row_mask mask = {.at = s->mask ? s->mask + outer * s->mask_outer + inner * s->mask_inner + row * s->mask_row
                                             : 0,
                               .heads = 1,
                               .rows = count,
                               .row = s->mask_row,
                               .column = s->mask_column};
        softmax_rows(scores, scores, &mask, keys, s->factor, 0, count);
        const matrix_product second = {
            .x = scores,
            .w = v.y,
            .y = s->out + outer * s->out_outer + inner * s->out_inner + row * s->out_row,
            .after = row + count < end ? 0 : weights_after(s->next_weights, s->next_groups, s->next_group, task, tasks, 0),
            .depth = keys,
            .columns = s->columns,
            .x_row = keys,
            .y_row = s->out_row,
            .activation = s->activation,
            .constants = &s->constants};
        product_block(&second, 0, count, 0, groups_of(s->columns));
    }
}
