/* Loops: the operators of a block as instructions, run step after step without Python. Included by matrices.c.

   Sizes are known only when an instruction runs, since batches shrink from step to step. The instructions are in the files
   loop_*.c. */
typedef int (*loop_instruction)(loop *, const int64_t *);
static const loop_instruction loop_instructions[] = {
    read_item, write_item, first_rows, multiply_rows, multiply_back, add_product, expand, expand_back, combine_two,
    combine_back, apply, apply_back, normalize_sequences, normalize_sequences_back, reshape_value, reshape_back, pool_value, pool_back,
    add_values, scale_value, assign_value, hand_on, gru_value, gru_back, increment_value, compare, normalize_rows,
    normalize_rows_back, largest, look_up, first_rows_back, add_first_rows, keep_value, carry_value,
    hollow_value,
};
#define LOOP_INSTRUCTIONS (int64_t)(sizeof loop_instructions / sizeof *loop_instructions)

/* kept[step][slot]: what outer variables hold before a step and others after it; where values are given, those of each step
   that are something are there before it. */
static void begin_step(loop *l, const ft_loop *s, loop_value *row) {
    loop_state *state = l->state;
    state->borrowed[state->step % 2] = state->borrowed_start[state->step % 2];
    for (int64_t i = 0; i < s->slot_count; i++) {
        if (s->given && (row[i].kind != NO_VALUE || row[i].array)) l->slots[i] = row[i];
        else if (!s->outer[i]) l->slots[i] = (loop_value){0};
        if (s->keeps && s->outer[i]) row[i] = l->slots[i];
    }
}

/* Whether another step is to begin, and can. */
static int goes_on(loop *l, const ft_loop *s) {
    loop_state *state = l->state;
    int more = state->step < state->most;
    if (state->most < 0) {
        const loop_value *condition = &l->slots[state->condition];
        NEED(condition->kind == TRUTHS && condition->data && loop_size(condition) == 1);
        more = *(const uint8_t *)condition->data != 0;
    }
    if (!more) state->state = FINISHED;
    else if (state->step >= s->kept_steps) state->state = MORE_STEPS; /* without values that are kept: a caller may stop it */
    return state->state == RUNNING;
}

static void run_loop(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_loop *s = &call->loop;
    loop l = {(loop_state *)s->state, (loop_value *)s->values, (loop_array *)s->arrays};
    loop_state *state = l.state;
    (void)tasks;
    if (task) return;
    for (state->state = RUNNING;; state->next = 0, state->step++) {
        if (!state->next && !goes_on(&l, s)) return;
        loop_value *row = s->kept ? (loop_value *)s->kept + state->step * s->slot_count : 0;
        if (!state->next) begin_step(&l, s, row);
        for (; state->next < s->count; state->next++) {
            const int64_t *w = s->instructions + state->next * LOOP_WORDS;
            if (w[0] < 0 || w[0] >= LOOP_INSTRUCTIONS) unsuitable(&l);
            else loop_instructions[w[0]](&l, w);
            if (state->state != RUNNING) return;
        }
        for (int64_t i = 0; s->keeps && i < s->slot_count; i++)
            if (!s->outer[i]) row[i] = l.slots[i];
    }
}
