// What CUDA C++ needs to run on a processor: a block's threads take turns at __syncthreads, each on a stack of its own.
#include <cmath>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

using std::fmaxf;
using std::fminf;

struct ft_place { unsigned x, y, z; };
static ft_place threadIdx, blockIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __shared__ static
#define __syncthreads ft_wait
typedef unsigned long long ft_word;

static inline ft_word __umul64hi(ft_word a, ft_word b) { return (ft_word)((unsigned __int128)a * b >> 64); }
static inline ft_word atomicMin(ft_word* at, ft_word value)
{
    ft_word before = *at;
    if (value < before) *at = value;
    return before;
}
static inline float __int_as_float(int bits) { float found; std::memcpy(&found, &bits, 4); return found; }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static inline float fdividef(float a, float b) { return a / b; }

static ucontext_t ft_caller;
static std::vector<ucontext_t> ft_threads;
static std::vector<std::vector<char>> ft_stacks;
static std::vector<char> ft_done;
static unsigned ft_current;
static const std::function<void()>* ft_body;

static void ft_wait() { swapcontext(&ft_threads[ft_current], &ft_caller); }

static void ft_enter()
{
    (*ft_body)();
    ft_done[ft_current] = 1;
}

static void ft_block(const std::function<void()>& body, bool waits)
{
    unsigned count = blockDim.x;
    if (!waits) {
        for (unsigned i = 0; i < count; i++) {
            threadIdx = {i, 0, 0};
            body();
        }
        return;
    }
    ft_body = &body;
    if (ft_stacks.size() < count) {
        ft_stacks.resize(count, std::vector<char>(65536));
        ft_threads.resize(count);
    }
    ft_done.assign(count, 0);
    for (unsigned i = 0; i < count; i++) {
        getcontext(&ft_threads[i]);
        ft_threads[i].uc_stack.ss_sp = ft_stacks[i].data();
        ft_threads[i].uc_stack.ss_size = ft_stacks[i].size();
        ft_threads[i].uc_link = &ft_caller;
        makecontext(&ft_threads[i], ft_enter, 0);
    }
    for (bool left = true; left;) {
        left = false;
        for (unsigned i = 0; i < count; i++) {
            if (ft_done[i]) continue;
            ft_current = i;
            threadIdx = {i, 0, 0};
            swapcontext(&ft_caller, &ft_threads[i]);
            left = left || !ft_done[i];
        }
    }
}

static void ft_run(const unsigned* sizes, const std::function<void()>& body, bool waits)
{
    gridDim = {sizes[0], sizes[1], sizes[2]};
    blockDim = {sizes[3], 1, 1};
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                ft_block(body, waits);
            }
}
