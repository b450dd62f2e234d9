/* What Python calls: which instructions are in use, and run these steps. */
#include "engine.h"
#include "system.h"

#include <stddef.h>
#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

static const ft_instructions *chosen = NULL;

static const ft_instructions *best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return &ft_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &ft_avx2;
#endif
    return &ft_portable;
}

static const ft_instructions *instructions(void) {
    if (!chosen) chosen = best();
    return chosen;
}

PUBLIC const char *ft_instructions_name(void) { return instructions()->name; }
PUBLIC int64_t ft_vector_width(void) { return instructions()->width; }
PUBLIC int64_t ft_step_size(void) { return (int64_t)sizeof(ft_step); }
PUBLIC int ft_use_threads(int count) { return ft_set_threads(count); }

/* Use the instruction set of that name; 0 when this machine or this build does not have it. */
PUBLIC int ft_use_instructions(const char *name) {
    const ft_instructions *known[] = {
        &ft_portable,
#if defined(__x86_64__)
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &ft_avx2 : NULL,
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &ft_avx512 : NULL,
#endif
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] && !strcmp(known[i]->name, name)) {
            chosen = known[i];
            return 1;
        }
    return 0;
}

static void run_part(void *context, int64_t task, int64_t tasks) {
    const ft_step *step = context;
    instructions()->kernels[step->kind](step, task, tasks);
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
