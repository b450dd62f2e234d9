/* What `fluidtool profile` compares with: how fast this processor multiplies and adds. Included by matrices.c. */

#define SUMS 8 /* as many as hide how long one takes; PEAK_SUMS in fluidtool/profiling/machine.py */

/* p: -, -, -, a vector of floats for each task. n: 0 rounds, of SUMS vectors each */
static void multiply_adds(const ft_step *step, int64_t task, int64_t tasks) {
    (void)tasks;
    const vec factor = ALL(0.999f), shift = ALL(0.001f);
    vec sums[SUMS], total = ALL(0);
    for (int i = 0; i < SUMS; i++) sums[i] = ALL(i);
    for (int64_t round = 0; round < step->n[0]; round++)
        for (int i = 0; i < SUMS; i++) sums[i] = sums[i] * factor + shift;
    for (int i = 0; i < SUMS; i++) total += sums[i];
    STORE(step->p[3] + task * VL, total);
}
