/* The threads of the engine. Workers spin briefly between the steps of a run and sleep between runs; a fork starts
   afresh in the child. One run at a time uses the workers, those at the same moment compute alone, and for each of them
   one worker less takes part: more threads than were asked for would keep one another from their processors. */
#include "engine.h"
#include "system.h"

#include <stdatomic.h>

#define MOST_THREADS 256
#define SPINS 20000
#define WORKERS UINT64_C(0xffff)
#define OPEN UINT64_C(0x10000)
#define NUMBER(state) ((state) >> 17)

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

/* The tasks [next, end) that a thread takes first, on a line of the cache of its own. */
typedef struct {
    _Alignas(64) atomic_int_fast64_t next;
    int64_t end;
    uint_fast64_t seen; /* the piece of work before the first that a worker is to look at */
} share;

static struct {
    ft_lock owner;  /* held by the run that uses the workers */
    ft_lock asleep; /* guards sleeping */
    ft_signal wake;
    atomic_uint_fast64_t state; /* number of the piece of work, whether one may still join it, how many workers are at it */
    atomic_int sleepers;
    atomic_int runs;    /* at this moment */
    atomic_int helpers; /* workers that may join at once */
    share shares[MOST_THREADS]; /* the first is that of the caller */
    ft_work work;
    void *context;
    int64_t tasks;
    int sharing; /* threads that the tasks are shared out to */
    int started; /* workers that exist */
    int wanted;  /* threads in all, the caller included */
} pool = {.owner = FT_UNLOCKED, .asleep = FT_UNLOCKED, .wake = FT_SILENT};

/* The tasks of a thread, then what is left of those of others. Step by step each thread gets the same share first, so that
   much of what it reads it has written itself, and its own cache holds it. */
static void take_tasks(int thread) {
    for (int i = 0; i < pool.sharing; i++) {
        share *from = &pool.shares[(thread + i) % pool.sharing];
        for (;;) {
            const int64_t task = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
            if (task >= from->end) break;
            pool.work(pool.context, task, pool.tasks);
        }
    }
}

/* Join the piece of work at hand, unless it is closed already or has workers enough. */
static int join(uint_fast64_t state) {
    const uint_fast64_t most = (uint_fast64_t)atomic_load_explicit(&pool.helpers, memory_order_relaxed);
    while (state & OPEN && (state & WORKERS) < most)
        if (atomic_compare_exchange_weak_explicit(&pool.state, &state, state + 1, memory_order_acq_rel,
                                                  memory_order_acquire))
            return 1;
    return 0;
}

static ft_result FT_THREAD worker(void *own) {
    const int thread = (int)((share *)own - pool.shares);
    uint_fast64_t seen = pool.shares[thread].seen, state;
    for (;;) {
        int spins = 0;
        while (NUMBER(state = atomic_load_explicit(&pool.state, memory_order_acquire)) == seen) {
            if (++spins < SPINS) {
                PAUSE();
                continue;
            }
            ft_acquire(&pool.asleep);
            atomic_fetch_add(&pool.sleepers, 1);
            while (NUMBER(atomic_load(&pool.state)) == seen) ft_wait(&pool.wake, &pool.asleep);
            atomic_fetch_sub(&pool.sleepers, 1);
            ft_release(&pool.asleep);
        }
        seen = NUMBER(state);
        if (!join(state)) continue; /* the others were quicker */
        take_tasks(thread);
        atomic_fetch_sub_explicit(&pool.state, 1, memory_order_release);
    }
    return 0;
}

/* After a fork the child has no workers and may hold locks of threads that do not exist. The system calls this in the child
   before anything else runs there, so that no second thread can be at work already. */
static void fresh_in_child(void) {
    pool.owner = (ft_lock)FT_UNLOCKED;
    pool.asleep = (ft_lock)FT_UNLOCKED;
    pool.wake = (ft_signal)FT_SILENT;
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.runs, 0);
    atomic_store(&pool.state, NUMBER(atomic_load(&pool.state)) << 17);
    pool.started = 0;
}

FT_IN_CHILD(fresh_in_child)

static void start_workers(void) {
    while (pool.started < pool.wanted - 1) {
        share *own = &pool.shares[pool.started + 1];
        own->seen = NUMBER(atomic_load(&pool.state));
        if (!ft_start(worker, own)) {
            pool.wanted = pool.started + 1;
            return;
        }
        pool.started++;
    }
}

/* To the caller and to each helper tasks that follow each other, as many as to the others. */
static void share_out(int64_t tasks, int helpers) {
    pool.tasks = tasks;
    pool.sharing = helpers + 1;
    for (int i = 0; i < pool.sharing; i++) {
        atomic_store_explicit(&pool.shares[i].next, tasks * i / pool.sharing, memory_order_relaxed);
        pool.shares[i].end = tasks * (i + 1) / pool.sharing;
    }
}

int ft_threads(void) {
    if (!pool.wanted) pool.wanted = 1;
    return pool.wanted;
}

int ft_set_threads(int count) {
    if (count < 1 || count > MOST_THREADS) return -1;
    ft_acquire(&pool.owner);
    if (count - 1 >= pool.started) pool.wanted = count; /* workers are never ended: fewer threads keep them all busy */
    ft_release(&pool.owner);
    return pool.wanted;
}

void ft_enter(void) { atomic_fetch_add(&pool.runs, 1); }

void ft_leave(void) { atomic_fetch_sub(&pool.runs, 1); }

void ft_parallel(ft_work work, void *context, int64_t tasks) {
    const int helpers = ft_threads() - atomic_load_explicit(&pool.runs, memory_order_relaxed);
    if (tasks <= 1 || helpers < 1 || !ft_try(&pool.owner)) {
        for (int64_t task = 0; task < tasks; task++) work(context, task, tasks);
        return;
    }
    start_workers();
    pool.work = work;
    pool.context = context;
    share_out(tasks, helpers < pool.started ? helpers : pool.started);
    atomic_store_explicit(&pool.helpers, helpers, memory_order_relaxed);
    const uint_fast64_t number = NUMBER(atomic_load(&pool.state)) + 1;
    atomic_store(&pool.state, number << 17 | OPEN);
    if (atomic_load(&pool.sleepers)) {
        ft_acquire(&pool.asleep);
        ft_wake(&pool.wake);
        ft_release(&pool.asleep);
    }
    take_tasks(0);
    atomic_fetch_and(&pool.state, ~OPEN); /* who has not come by now is not waited for */
    for (int spins = 0; atomic_load_explicit(&pool.state, memory_order_acquire) & WORKERS; spins++) {
        if (spins < SPINS) PAUSE();
        else ft_yield();
    }
    ft_release(&pool.owner);
}
