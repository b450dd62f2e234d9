/* What Python calls: which instructions are in use, and run these steps. */
#include "engine.h"
#include "system.h"

#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

/* A table of kernels, and how it is called where it is used: one table serves processors with and without AVX512-BF16. */
typedef struct {
    const char *name;
    const ft_instructions *table;
} variant;

static variant chosen;

#define VARIANTS 4
/* The variants that this machine and this build have, the best first; how many. */
static int variants(variant *found) {
    int count = 0;
#if defined(__x86_64__)
    const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
#if FT_HAS_PAIRS
    const int bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
    if (avx512 && bf16) found[count++] = (variant){"avx512_bf16", &ft_avx512};
#endif
    if (avx512) found[count++] = (variant){"avx512", &ft_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[count++] = (variant){"avx2", &ft_avx2};
#endif
    found[count++] = (variant){"portable", &ft_portable};
    return count;
}

static const variant *instructions(void) {
    if (!chosen.table) {
        variant found[VARIANTS];
        variants(found);
        chosen = found[0];
    }
    return &chosen;
}

PUBLIC const char *ft_instructions_name(void) { return instructions()->name; }
PUBLIC int64_t ft_vector_width(void) { return instructions()->table->width; }
PUBLIC int64_t ft_step_size(void) { return (int64_t)sizeof(ft_step); }
PUBLIC int ft_use_threads(int count) { return ft_set_threads(count); }

/* Use the instruction set of that name; 0 when this machine or this build does not have it. */
PUBLIC int ft_use_instructions(const char *name) {
    variant found[VARIANTS];
    for (int i = variants(found) - 1; i >= 0; i--)
        if (!strcmp(found[i].name, name)) {
            chosen = found[i];
            return 1;
        }
    return 0;
}

static void run_part(void *context, int64_t task, int64_t tasks) {
    const ft_step *step = context;
    instructions()->table->kernels[step->kind](step, task, tasks);
}

/* Run steps one after the other; n[31] of a step is the number of parts that it may be cut into. */
PUBLIC void ft_run(const ft_step *steps, int64_t count) {
    instructions();
    ft_enter();
    for (int64_t i = 0; i < count; i++) ft_parallel(run_part, (void *)&steps[i], steps[i].n[31]);
    ft_leave();
}

/* The same, and how many seconds each step took. */
PUBLIC void ft_run_timed(const ft_step *steps, int64_t count, double *seconds) {
    for (int64_t i = 0; i < count; i++) {
        const double start = ft_seconds();
        ft_run(steps + i, 1);
        seconds[i] = ft_seconds() - start;
    }
}

/* Give memory that is free back to the system (after packing weights). */
PUBLIC void ft_trim(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}
