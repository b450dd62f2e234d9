/* The native engine: a program compiled to kernel calls, run in one go. Plain C ABI, no dependency but threads. */
#ifndef FLUIDTOOL_ENGINE_H
#define FLUIDTOOL_ENGINE_H

#include "abi.h"

/* Part `task` of `tasks` of a kernel call, whose arguments abi.h names. */
typedef void (*ft_kernel)(const ft_call *call, int64_t task, int64_t tasks);

/* The kernels of one unit for one instruction set, by kind; 0 where another unit has the kernel. */
typedef ft_kernel ft_table[FT_KINDS];

/* Threads (pool.c). A run enters, calls ft_parallel for each of its pieces of work, and leaves. */
typedef void (*ft_work)(void *context, int64_t task, int64_t tasks);
void ft_enter(void);
void ft_leave(void);
void ft_parallel(ft_work work, void *context, int64_t tasks);
int ft_threads(void);
int ft_set_threads(int count);

#endif
