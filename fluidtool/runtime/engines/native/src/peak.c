/* What `fluidtool profile` compares with: how fast this processor multiplies and adds. Included by matrices.c. */

#define SUMS 8 /* as many as hide how long one takes; PEAK_SUMS in fluidtool/profiling/machine.py */

/* Rounds of SUMS vectors each. */
static void multiply_adds(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_multiply_adds *s = &call->multiply_adds;
    (void)tasks;
    const vec factor = ALL(0.999f), shift = ALL(0.001f);
    vec sums[SUMS], total = ALL(0);
    for (int i = 0; i < SUMS; i++) sums[i] = ALL(i);
    for (int64_t round = 0; round < s->rounds; round++)
        for (int i = 0; i < SUMS; i++) sums[i] = sums[i] * factor + shift;
    for (int i = 0; i < SUMS; i++) total += sums[i];
    STORE(s->out + task * VL, total);
}
