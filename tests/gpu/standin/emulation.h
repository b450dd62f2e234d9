// What CUDA C++ needs to run on a processor: a block's threads take turns where they wait, each on a stack of its own.
#include <math.h>
#include <string.h>
#include <ucontext.h>

struct ft_place { unsigned x, y, z; };
static ft_place threadIdx, blockIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("ft_shared")))
#define __syncthreads() ft_wait(FT_BARRIER, __COUNTER__)
#define __shfl_xor_sync(mask, value, far) ft_exchanged(mask, value, far, __COUNTER__)
typedef unsigned long long ft_word;
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) ushort4 { unsigned short x, y, z, w; };

#define FT_EMULATED
// What a GPU would give up for, or never end of: a piece that is not aligned, what lies outside of the arrays that a kernel was
// given, threads of a block that wait at different barriers, and a shuffle that some threads of its warp never come to.
extern "C" { int ft_misaligned, ft_outside, ft_apart; }
extern "C" void __ubsan_handle_out_of_bounds(void*, void*) { ft_outside = 1; }  // of arrays of its own (-fsanitize=bounds)

struct ft_range { char *begin, *end; };
enum { FT_ARGUMENTS = 1024 };
static ft_range ft_ranges[FT_ARGUMENTS];
static unsigned ft_range_count;

static ft_range ft_range_of(const void* at)
{
    for (unsigned i = 0; i < ft_range_count; i++)
        if ((char*)at >= ft_ranges[i].begin && (char*)at < ft_ranges[i].end) return ft_ranges[i];
    return ft_range{0, 0};
}

#define FT_WITHIN(at, bytes) if ((char*)(at) + (bytes) > ft_range_of(at).end) { ft_outside = 1; return; }
#define FT_ALIGNED(at, bytes) \
    FT_WITHIN(at, bytes) if ((unsigned long long)(at) & ((bytes) < 16 ? (bytes) - 1 : 15)) ft_misaligned = 1;

// A pointer that knows the array in which it points; what lies outside is one element that means nothing.
template <class T> struct ft_array {
    T* at;
    ft_range range;
#define FT_INLINE __attribute__((always_inline)) inline
    FT_INLINE ft_array() : at(0), range{0, 0} {}
    FT_INLINE ft_array(T* at, ft_range range) : at(at), range(range) {}
    FT_INLINE ft_array(T* at) : at(at), range(ft_range_of(at)) {}
    template <class U> FT_INLINE ft_array(const ft_array<U>& other) : at(other.at), range(other.range) {}
    FT_INLINE T& operator[](long long i) const
    {
        static char nothing[16];
        char* const found = (char*)(at + i);
        if (found >= range.begin && found + sizeof(T) <= range.end) return at[i];
        ft_outside = 1;
        return *(T*)nothing;
    }
    FT_INLINE T& operator*() const { return (*this)[0]; }
    FT_INLINE ft_array operator+(long long i) const { return ft_array(at + i, range); }
    FT_INLINE operator T*() const { return at; }
    template <class U> explicit FT_INLINE operator U*() const { return (U*)at; }
};
static inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static inline float ft_of_fp16(unsigned short x)
{
    const unsigned sign = (x & 0x8000u) << 16, exponent = x >> 10 & 31, rest = x & 1023;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | rest << 13);
    const float value = exponent ? ldexpf((float)(1024 + rest), (int)exponent - 25) : ldexpf((float)rest, -24);
    return sign ? -value : value;
}
static inline unsigned short ft_nearest_fp16(float x)
{
    const unsigned sign = __float_as_uint(x) >> 16 & 0x8000u;
    if (x != x) return 0x7fff;
    const float most = fabsf(x);
    if (most >= 65520.0f) return sign | 0x7c00;
    const int exponent = most < 0x1p-14f ? -14 : ilogbf(most);
    const unsigned steps = (unsigned)nearbyintf(ldexpf(most, 10 - exponent));  // of the last bit; carries move on by themselves
    return sign | (most < 0x1p-14f ? steps : ((unsigned)(exponent + 14) << 10) + steps);
}
static inline ft_word __umul64hi(ft_word a, ft_word b) { return (ft_word)((unsigned __int128)a * b >> 64); }
static inline ft_word atomicMin(ft_word* at, ft_word value)
{
    ft_word before = *at;
    if (value < before) *at = value;
    return before;
}

enum { FT_THREADS = 1024, FT_WARP = 32, FT_STACK = 32768 };
enum ft_state { FT_READY, FT_BARRIER, FT_SHUFFLE, FT_DONE };
static ucontext_t ft_caller, ft_threads[FT_THREADS];
extern "C" { char* ft_stacks; }  // which all libraries of kernels share
static ft_state ft_states[FT_THREADS];
static int ft_sites[FT_THREADS];  // where in the source a thread waits
static unsigned ft_current;
static void (*ft_body)(void**);
static void** ft_given;

static void ft_wait(ft_state state, int site)
{
    ft_states[ft_current] = state;
    ft_sites[ft_current] = site;
    swapcontext(&ft_threads[ft_current], &ft_caller);
}

static float ft_shown[FT_THREADS];

static float ft_exchanged(unsigned mask, float value, int far, int site)
{
    if (mask != 0xffffffffu) ft_apart = 1;
    ft_shown[ft_current] = value;
    ft_wait(FT_SHUFFLE, site);
    const float other = ft_shown[ft_current ^ far];
    ft_wait(FT_SHUFFLE, ~site);
    return other;
}

static void ft_enter()
{
    ft_body(ft_given);
    ft_states[ft_current] = FT_DONE;
}

// Whether all of these threads wait alike; those that have ended count as waiting at a barrier, as on GPUs since Volta.
static bool ft_together(unsigned begin, unsigned end, ft_state state)
{
    int site = -1;
    bool first = true;
    for (unsigned i = begin; i < end; i++) {
        if (state == FT_BARRIER && ft_states[i] == FT_DONE) continue;
        if (ft_states[i] != state || (!first && ft_sites[i] != site)) return false;
        site = ft_sites[i];
        first = false;
    }
    return !first;
}

static void ft_release(unsigned begin, unsigned end)
{
    for (unsigned i = begin; i < end; i++)
        if (ft_states[i] != FT_DONE) ft_states[i] = FT_READY;
}

// Let go on whom waiting is over for; whether there is any. Where there is none, but some still wait, a GPU would hang.
static bool ft_go_on(unsigned count)
{
    bool any = false, left = false;
    for (unsigned warp = 0; warp < count; warp += FT_WARP)
        if (warp + FT_WARP <= count && ft_together(warp, warp + FT_WARP, FT_SHUFFLE)) {
            ft_release(warp, warp + FT_WARP);
            any = true;
        }
    if (!any && ft_together(0, count, FT_BARRIER)) {
        ft_release(0, count);
        any = true;
    }
    for (unsigned i = 0; i < count; i++) left = left || ft_states[i] != FT_DONE;
    if (left && !any) ft_apart = 1;
    return any;
}

static void ft_take_turns(unsigned count, bool backwards)
{
    for (unsigned i = 0; i < count; i++) {
        ft_states[i] = FT_READY;
        getcontext(&ft_threads[i]);
        ft_threads[i].uc_stack.ss_sp = ft_stacks + (size_t)i * FT_STACK;
        ft_threads[i].uc_stack.ss_size = FT_STACK;
        ft_threads[i].uc_link = &ft_caller;
        makecontext(&ft_threads[i], ft_enter, 0);
    }
    do
        for (unsigned turn = 0; turn < count; turn++) {
            const unsigned i = backwards ? count - 1 - turn : turn;
            if (ft_states[i] != FT_READY) continue;
            ft_current = i;
            threadIdx.x = i;
            swapcontext(&ft_caller, &ft_threads[i]);
        }
    while (ft_go_on(count));
}

static char ft_some __attribute__((used, section("ft_shared")));  // so that there is such a section
extern "C" __attribute__((visibility("hidden"))) char __start_ft_shared[], __stop_ft_shared[];

// A block begins with shared memory that holds nothing: bits that are NaN, and no place in an array.
static void ft_run_block(void (*body)(void**), void** given, bool waits, bool backwards)
{
    memset(__start_ft_shared, 0xff, __stop_ft_shared - __start_ft_shared);
    if (waits) return ft_take_turns(blockDim.x, backwards);
    for (unsigned turn = 0; turn < blockDim.x; turn++) {
        threadIdx.x = backwards ? blockDim.x - 1 - turn : turn;
        body(given);
    }
}

// Run a grid: blocks and threads one after another, forwards or backwards.
static void ft_run(const unsigned* sizes, void (*body)(void**), void** given, bool waits)
{
    gridDim.x = sizes[0], gridDim.y = sizes[1], gridDim.z = sizes[2], blockDim.x = sizes[3], blockDim.y = blockDim.z = 1;
    ft_body = body, ft_given = given;
    const bool backwards = sizes[4];
    const ft_word blocks = (ft_word)gridDim.x * gridDim.y * gridDim.z;
    for (ft_word turn = 0; turn < blocks; turn++) {
        const ft_word block = backwards ? blocks - 1 - turn : turn;
        blockIdx.x = block % gridDim.x, blockIdx.y = block / gridDim.x % gridDim.y, blockIdx.z = block / gridDim.x / gridDim.y;
        ft_run_block(body, given, waits, backwards);
    }
}
