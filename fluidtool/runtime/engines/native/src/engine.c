/* What Python calls: which instructions are in use, and run these kernel calls. */
#include "engine.h"
#include "subnormals.h"
#include "system.h"

#include <string.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

/* The instruction sets that build.py compiled units for: it defines FT_BUILT_… for each. */
#if FT_BUILT_PORTABLE
extern const ft_table ft_portable_images, ft_portable_matrices, ft_portable_int8;
#endif
#if FT_BUILT_AVX2
extern const ft_table ft_avx2_images, ft_avx2_matrices, ft_avx2_int8;
#if FT_BUILT_AVX2_VNNI
extern const ft_table ft_avx2_vnni_int8;
#endif
#endif
#if FT_BUILT_AVX512
extern const ft_table ft_avx512_images, ft_avx512_matrices, ft_avx512_int8;
#if FT_BUILT_AVX512_VNNI
extern const ft_table ft_avx512_vnni_int8;
#endif
#if FT_BUILT_AVX512_BF16
extern const ft_table ft_avx512_bf16_pairs;
#if FT_BUILT_AMX
extern const ft_table ft_amx_int8, ft_amx_pairs;
#endif
#endif
#endif

#if FT_BUILT_AVX2_VNNI
#include <cpuid.h>
/* AVX-VNNI, which compilers have not long known to ask for. */
static int has_avx_vnni(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

#if FT_BUILT_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
/* AMX, for which a process asks the system (Linux): its registers take 8 KiB of what a signal has to keep. */
static int has_amx(void) {
    enum { REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILES = 18 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    const int there = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1) && (d >> 25 & 1);
    return there && !syscall(SYS_arch_prctl, REQUEST, TILES);
}
#endif

#define UNITS 4
typedef struct {
    const char *name;
    int64_t width; /* floats in a vector */
    int usable;    /* whether this processor has the instructions */
    const ft_table *units[UNITS];
} variant;

#define VARIANTS 7
/* The variants of this build, the best first; how many. */
static int variants(variant *found) {
    int count = 0;
#if FT_BUILT_AVX512
    const int avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#if FT_BUILT_AVX512_VNNI
    const int vnni = avx512 && __builtin_cpu_supports("avx512vnni");
#if FT_BUILT_AVX512_BF16
    const int bf16 = vnni && __builtin_cpu_supports("avx512bf16");
#if FT_BUILT_AMX
    const int amx = bf16 && __builtin_cpu_supports("avx512vbmi") && has_amx();
    found[count++] = (variant){"amx", 16, amx, {&ft_avx512_images, &ft_avx512_matrices, &ft_amx_int8, &ft_amx_pairs}};
#endif
    found[count++] = (variant){
        "avx512_bf16", 16, bf16, {&ft_avx512_images, &ft_avx512_matrices, &ft_avx512_vnni_int8, &ft_avx512_bf16_pairs}};
#endif
    found[count++] = (variant){"avx512_vnni", 16, vnni, {&ft_avx512_images, &ft_avx512_matrices, &ft_avx512_vnni_int8}};
#endif
    found[count++] = (variant){"avx512", 16, avx512, {&ft_avx512_images, &ft_avx512_matrices, &ft_avx512_int8}};
#endif
#if FT_BUILT_AVX2
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#if FT_BUILT_AVX2_VNNI
    const int avx_vnni = avx2 && has_avx_vnni();
    found[count++] = (variant){"avx2_vnni", 8, avx_vnni, {&ft_avx2_images, &ft_avx2_matrices, &ft_avx2_vnni_int8}};
#endif
    found[count++] = (variant){"avx2", 8, avx2, {&ft_avx2_images, &ft_avx2_matrices, &ft_avx2_int8}};
#endif
#if FT_BUILT_PORTABLE
    found[count++] = (variant){"portable", 8, 1, {&ft_portable_images, &ft_portable_matrices, &ft_portable_int8}};
#endif
    return count;
}

static variant chosen;
static ft_table kernels;

static void choose(const variant *which) {
    chosen = *which;
    memset(kernels, 0, sizeof kernels);
    for (int unit = 0; unit < UNITS && which->units[unit]; unit++)
        for (int kind = 0; kind < FT_KINDS; kind++)
            if ((*which->units[unit])[kind]) kernels[kind] = (*which->units[unit])[kind];
}

/* Use the best variant of this build that this processor can run, or the one of that name where `name` is not 0; 0 when there
   is none. */
PUBLIC int ft_use_instructions(const char *name) {
    variant found[VARIANTS];
    const int count = variants(found);
    for (int i = 0; i < count; i++)
        if (found[i].usable && (!name || !strcmp(found[i].name, name))) {
            choose(&found[i]);
            return 1;
        }
    return 0;
}

/* The name of a variant that ft_use_instructions takes, by number, the best first; 0 behind the last. */
PUBLIC const char *ft_usable(int index) {
    variant found[VARIANTS];
    const int count = variants(found);
    for (int i = 0; i < count; i++)
        if (found[i].usable && !index--) return found[i].name;
    return 0;
}

PUBLIC const char *ft_instructions_name(void) { return chosen.name; }
PUBLIC int64_t ft_vector_width(void) { return chosen.width; }
PUBLIC uint32_t ft_abi(void) { return FT_ABI; }
PUBLIC int ft_use_threads(int count) { return ft_set_threads(count); }

/* Convolutions take subnormal numbers for zero, as all that Paddle's inference runs. */
static const char flushes[FT_KINDS] = {
    [FT_CONVOLUTION] = 1, [FT_DEPTHWISE] = 1, [FT_WINOGRAD] = 1, [FT_INT8_PRODUCTS] = 1, [FT_INT8_DEPTHWISE] = 1,
};

static void run_part(void *context, int64_t task, int64_t tasks) {
    const ft_call *call = context;
    if (!flushes[call->any.kind]) {
        kernels[call->any.kind](call, task, tasks);
        return;
    }
    const uint64_t before = ft_flush();
    kernels[call->any.kind](call, task, tasks);
    ft_restore(before);
}

/* Run kernel calls one after the other. */
PUBLIC void ft_run(const ft_call *calls, int64_t count) {
    ft_enter();
    for (int64_t i = 0; i < count; i++) ft_parallel(run_part, (void *)&calls[i], calls[i].any.tasks);
    ft_leave();
}

/* The same, and how many seconds each call took. */
PUBLIC void ft_run_timed(const ft_call *calls, int64_t count, double *seconds) {
    for (int64_t i = 0; i < count; i++) {
        const double start = ft_seconds();
        ft_run(calls + i, 1);
        seconds[i] = ft_seconds() - start;
    }
}

/* Give memory that is free back to the system (after packing weights). */
PUBLIC void ft_trim(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}
