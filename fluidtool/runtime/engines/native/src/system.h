/* What the engine asks of the operating system: locks, signals, threads, forks, a clock, the names that others may call.
   POSIX, or Windows itself: what is built there needs no other library. */
#ifndef FLUIDTOOL_SYSTEM_H
#define FLUIDTOOL_SYSTEM_H

#define FT_STACK (1 << 20) /* bytes for a thread: kernels keep blocks of numbers there, and some systems give 128 KiB */

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#define PUBLIC __declspec(dllexport)
#define FT_UNLOCKED SRWLOCK_INIT
#define FT_SILENT CONDITION_VARIABLE_INIT
typedef SRWLOCK ft_lock;
typedef CONDITION_VARIABLE ft_signal;
typedef DWORD ft_result; /* of a thread */
#define FT_THREAD WINAPI

static inline void ft_acquire(ft_lock *lock) { AcquireSRWLockExclusive(lock); }
static inline int ft_try(ft_lock *lock) { return TryAcquireSRWLockExclusive(lock); }
static inline void ft_release(ft_lock *lock) { ReleaseSRWLockExclusive(lock); }
static inline void ft_wait(ft_signal *signal, ft_lock *lock) { SleepConditionVariableSRW(signal, lock, INFINITE, 0); }
static inline void ft_wake(ft_signal *signal) { WakeAllConditionVariable(signal); }
static inline void ft_yield(void) { SwitchToThread(); }
#define FT_IN_CHILD(work) static void (*const ft_no_forks)(void) __attribute__((unused)) = work; /* nothing forks here */

/* 0 where no thread is to be had. */
static inline int ft_start(ft_result(FT_THREAD *work)(void *), void *argument) {
    const HANDLE thread = CreateThread(NULL, FT_STACK, work, argument, 0, NULL);
    return thread && CloseHandle(thread);
}

static inline double ft_seconds(void) {
    LARGE_INTEGER ticks, rate;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&rate);
    return (double)ticks.QuadPart / (double)rate.QuadPart;
}
#else
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define PUBLIC __attribute__((visibility("default")))
#define FT_UNLOCKED PTHREAD_MUTEX_INITIALIZER
#define FT_SILENT PTHREAD_COND_INITIALIZER
typedef pthread_mutex_t ft_lock;
typedef pthread_cond_t ft_signal;
typedef void *ft_result;
#define FT_THREAD

static inline void ft_acquire(ft_lock *lock) { pthread_mutex_lock(lock); }
static inline int ft_try(ft_lock *lock) { return !pthread_mutex_trylock(lock); }
static inline void ft_release(ft_lock *lock) { pthread_mutex_unlock(lock); }
static inline void ft_wait(ft_signal *signal, ft_lock *lock) { pthread_cond_wait(signal, lock); }
static inline void ft_wake(ft_signal *signal) { pthread_cond_broadcast(signal); }
static inline void ft_yield(void) { sched_yield(); }
/* Have `work` done in the child of every fork, from the moment that the library is loaded. */
#define FT_IN_CHILD(work) \
    __attribute__((constructor)) static void ft_watch_forks(void) { pthread_atfork(NULL, NULL, work); }

static inline int ft_start(ft_result(FT_THREAD *work)(void *), void *argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return 0;
    const int started = !pthread_attr_setstacksize(&attributes, FT_STACK) &&
                        !pthread_create(&thread, &attributes, work, argument) && !pthread_detach(thread);
    pthread_attr_destroy(&attributes);
    return started;
}

static inline double ft_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
#endif
#endif
