/* What `fluidtool profile` compares with: how fast this processor multiplies and adds. Included by matrices.c. */

#define SUMS 12 /* more than hide how long one takes, in registers; PEAK_SUMS in fluidtool/profiling/machine.py */

/* Rounds of SUMS vectors each. */
static void multiply_adds(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_multiply_adds *s = &call->multiply_adds;
    (void)tasks;
    const vec factor = ALL(0.999f), shift = ALL(0.001f);
    vec sums[SUMS], total = ALL(0);
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) sums[i] = ALL(2 + i); /* 1 stays 1: compilers leave its sums out */
    for (int64_t round = 0; round < s->rounds; round++)
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) sums[i] = sums[i] * factor + shift;
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) total += sums[i];
    STORE(s->out + task * VL, total);
}
