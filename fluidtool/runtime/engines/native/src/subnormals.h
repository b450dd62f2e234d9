/* Numbers smaller than the smallest normal one, which processors compute with up to a hundred times more slowly. Channels that
   training has let die consist of them: the scales of their batch normalization have decayed to that. */
#ifndef FLUIDTOOL_SUBNORMALS_H
#define FLUIDTOOL_SUBNORMALS_H

#include <stdint.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

/* Take them for zero on this thread; what ft_restore takes. */
static inline uint64_t ft_flush(void) {
#if defined(__SSE__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u); /* results, operands */
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | 1u << 24));
    return before;
#else
    return 0;
#endif
}

static inline void ft_restore(uint64_t before) {
#if defined(__SSE__)
    _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

#endif
