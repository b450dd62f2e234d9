/* The threads of the engine. Workers spin briefly between the steps of a run and sleep between runs; a fork starts
   afresh in the child; one run at a time uses the workers, a second one at the same moment computes alone. */
#include "engine.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

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
    pthread_mutex_t owner;  /* held by the run that uses the workers */
    pthread_mutex_t asleep; /* guards sleeping */
    pthread_cond_t wake;
    atomic_uint_fast64_t state; /* number of the piece of work, whether one may still join it, how many workers are at it */
    atomic_int sleepers;
    share shares[MOST_THREADS]; /* the first is that of the caller */
    ft_work work;
    void *context;
    int64_t tasks;
    int sharing; /* threads that the tasks are shared out to */
    int started; /* workers that exist */
    int wanted;  /* threads in all, the caller included */
    pid_t process;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER, .asleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

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

/* Join the piece of work at hand, unless it is closed already. */
static int join(uint_fast64_t state) {
    while (state & OPEN)
        if (atomic_compare_exchange_weak_explicit(&pool.state, &state, state + 1, memory_order_acq_rel,
                                                  memory_order_acquire))
            return 1;
    return 0;
}

static void *worker(void *own) {
    const int thread = (int)((share *)own - pool.shares);
    uint_fast64_t seen = pool.shares[thread].seen, state;
    for (;;) {
        int spins = 0;
        while (NUMBER(state = atomic_load_explicit(&pool.state, memory_order_acquire)) == seen) {
            if (++spins < SPINS) {
                PAUSE();
                continue;
            }
            pthread_mutex_lock(&pool.asleep);
            atomic_fetch_add(&pool.sleepers, 1);
            while (NUMBER(atomic_load(&pool.state)) == seen) pthread_cond_wait(&pool.wake, &pool.asleep);
            atomic_fetch_sub(&pool.sleepers, 1);
            pthread_mutex_unlock(&pool.asleep);
        }
        seen = NUMBER(state);
        if (!join(state)) continue; /* the others were quicker */
        take_tasks(thread);
        atomic_fetch_sub_explicit(&pool.state, 1, memory_order_release);
    }
    return NULL;
}

/* After a fork the child has no workers and may hold locks of threads that do not exist. */
static void fresh_in_child(void) {
    if (pool.process == getpid()) return;
    if (pool.process) {
        pthread_mutex_init(&pool.owner, NULL);
        pthread_mutex_init(&pool.asleep, NULL);
        pthread_cond_init(&pool.wake, NULL);
        atomic_store(&pool.sleepers, 0);
        atomic_store(&pool.state, NUMBER(atomic_load(&pool.state)) << 17);
        pool.started = 0;
    }
    pool.process = getpid();
}

static void start_workers(void) {
    while (pool.started < pool.wanted - 1) {
        pthread_t thread;
        share *own = &pool.shares[pool.started + 1];
        own->seen = NUMBER(atomic_load(&pool.state));
        if (pthread_create(&thread, NULL, worker, own)) {
            pool.wanted = pool.started + 1;
            return;
        }
        pthread_detach(thread);
        pool.started++;
    }
}

/* To each thread tasks that follow each other, as many as to the others. */
static void share_out(int64_t tasks) {
    pool.tasks = tasks;
    pool.sharing = pool.started + 1;
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
    fresh_in_child();
    if (count < 1 || count > MOST_THREADS) return -1;
    pthread_mutex_lock(&pool.owner);
    if (count - 1 >= pool.started) pool.wanted = count; /* workers are never ended: fewer threads keep them all busy */
    pthread_mutex_unlock(&pool.owner);
    return pool.wanted;
}

void ft_parallel(ft_work work, void *context, int64_t tasks) {
    fresh_in_child();
    if (tasks <= 1 || ft_threads() == 1 || pthread_mutex_trylock(&pool.owner)) {
        for (int64_t task = 0; task < tasks; task++) work(context, task, tasks);
        return;
    }
    start_workers();
    pool.work = work;
    pool.context = context;
    share_out(tasks);
    const uint_fast64_t number = NUMBER(atomic_load(&pool.state)) + 1;
    atomic_store(&pool.state, number << 17 | OPEN);
    if (atomic_load(&pool.sleepers)) {
        pthread_mutex_lock(&pool.asleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.asleep);
    }
    take_tasks(0);
    atomic_fetch_and(&pool.state, ~OPEN); /* who has not come by now is not waited for */
    for (int spins = 0; atomic_load_explicit(&pool.state, memory_order_acquire) & WORKERS; spins++) {
        if (spins < SPINS) PAUSE();
        else sched_yield();
    }
    pthread_mutex_unlock(&pool.owner);
}
