/* Where the largest numbers are. Included by images.c. Places are int64. */

/* Of what a comparison gave. */
INLINE int any_lane(veci mask) {
#if VL == 16 && defined(__AVX512F__) && !defined(__clang__)
    return __builtin_ia32_ptestmd512(mask, mask, -1) != 0;
#elif VL == 8 && defined(__AVX2__) && !defined(__clang__)
    return __builtin_ia32_movmskps256((vec)mask) != 0;
#else
    int64_t parts[VL / 2], all = 0;
    memcpy(parts, &mask, sizeof parts);
    for (int i = 0; i < VL / 2; i++) all |= parts[i];
    return all != 0;
#endif
}

/* ---------------------------------------------------------------- the first place of the largest or smallest number
   NaN is never it. */
typedef struct {
    vec best;
    veci place;
} lane_places;

INLINE lane_places better(lane_places found, vec value, veci place) {
    const veci mask = value > found.best;
    return (lane_places){CHOOSE(mask, value, found.best), (mask & place) | (~mask & found.place)};
}

static int64_t place_in_row(const float *x, int64_t count, float sign) {
    const float least = -__builtin_inff();
    lane_places found = {ALL(least), {0}};
    veci place;
    for (int lane = 0; lane < VL; lane++) place[lane] = lane;
    int64_t i = 0;
    for (; i + VL <= count; i += VL, place += VL) found = better(found, LOAD(x + i) * ALL(sign), place);
    if (i < count) found = better(found, load_some(x + i, count - i, sign * least) * ALL(sign), place);
    float best = least;
    int64_t first = 0;
    for (int lane = 0; lane < VL; lane++) {
        const float value = found.best[lane];
        if (value > best || (value == best && found.place[lane] < first)) best = value, first = found.place[lane];
    }
    return first;
}

static void extreme_place(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_extreme_place *s = &call->extreme_place;
    const int64_t axis = s->axis, inner = s->inner, chunks = (inner + VL - 1) / VL;
    const float sign = s->smallest ? -1 : 1;
    int64_t *places = s->out, from, to;
    part(inner == 1 ? s->outer : s->outer * chunks, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        if (inner == 1) {
            places[i] = place_in_row(s->source + i * axis, axis, sign);
            continue;
        }
        const int64_t outer = i / chunks, start = i % chunks * VL, there = inner - start < VL ? inner - start : VL;
        const float *x = s->source + outer * axis * inner + start;
        lane_places found = {ALL(-__builtin_inff()), {0}};
        for (int64_t k = 0; k < axis; k++)
            found = better(found, take(x + k * inner, there) * ALL(sign), (veci){0} + (int32_t)k);
        for (int64_t lane = 0; lane < there; lane++) places[outer * inner + start + lane] = found.place[lane];
    }
}

/* ---------------------------------------------------------------- the places of the k largest numbers of every row
   Largest first, equal ones as C++'s partial_sort leaves them (fluidtool/ops/tensor/partial_sort.py): its heap, move by
   move. NaN counts as the largest. */
static void sink(const float *row, int64_t *heap, int64_t top, int64_t size, int64_t place) {
    int64_t hole = top, child = top;
    while (child < (size - 1) / 2) {
        child = 2 * (child + 1);
        if (row[heap[child]] > row[heap[child - 1]]) child--;
        heap[hole] = heap[child], hole = child;
    }
    if (size % 2 == 0 && child == (size - 2) / 2) {
        child = 2 * child + 1;
        heap[hole] = heap[child], hole = child;
    }
    for (int64_t parent = (hole - 1) / 2; hole > top && row[heap[parent]] > row[place]; parent = (hole - 1) / 2)
        heap[hole] = heap[parent], hole = parent;
    heap[hole] = place;
}

/* The first place, from `from` on, of a number that is larger than `than`; `size` without. */
static int64_t next_larger(const float *row, int64_t from, int64_t size, float than) {
    for (; from + 8 * VL <= size; from += 8 * VL) {
        veci larger = LOAD(row + from) > ALL(than);
#pragma GCC unroll 8
        for (int j = 1; j < 8; j++) larger |= LOAD(row + from + j * VL) > ALL(than);
        if (any_lane(larger)) break;
    }
    while (from < size && !(row[from] > than)) from++;
    return from;
}

static void largest_places(const float *row, int64_t size, int64_t k, int64_t *heap) {
    for (int64_t i = 0; i < k; i++) heap[i] = i;
    for (int64_t top = (k - 2) / 2; k > 1 && top >= 0; top--) sink(row, heap, top, k, heap[top]);
    for (int64_t place = k; (place = next_larger(row, place, size, row[heap[0]])) < size; place++)
        sink(row, heap, 0, k, place);
    for (int64_t last = k - 1; last > 0; last--) {
        const int64_t place = heap[last];
        heap[last] = heap[0];
        sink(row, heap, 0, last, place);
    }
}

INLINE int is_before(const float *row, int64_t a, int64_t b) {
    const int a_none = row[a] != row[a], b_none = row[b] != row[b];
    if (a_none != b_none) return a_none;
    return row[a] > row[b] || ((row[a] == row[b] || a_none) && a < b);
}

/* With NaN among them: one after the other. Returns whether numbers were equal, and nothing is found then. */
static int places_with_nan(const float *row, int64_t size, int64_t k, int64_t *places) {
    int64_t last = -1;
    for (int64_t rank = 0; rank < size && rank <= k; rank++) {
        int64_t next = -1;
        for (int64_t i = 0; i < size; i++)
            if ((last < 0 || is_before(row, last, i)) && (next < 0 || is_before(row, i, next))) next = i;
        if (last >= 0 && row[last] == row[next]) return 1;
        if (rank < k) places[rank] = next;
        last = next;
    }
    return 0;
}

static void top_k(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_top_k *s = &call->top_k;
    const int64_t size = s->columns, k = s->k;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *row = s->source + i * size;
        int64_t *places = s->out + i * k, j = 0;
        veci none = {0};
        for (; j + VL <= size; j += VL) none |= LOAD(row + j) != LOAD(row + j);
        int nan = any_lane(none);
        for (; j < size; j++) nan |= row[j] != row[j];
        if (!nan || places_with_nan(row, size, k, places)) largest_places(row, size, k, places);
    }
}

/* The numbers at places of every row. */
static void pick(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_pick *s = &call->pick;
    const int64_t *places = s->places;
    int64_t from, to;
    part(s->rows, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++)
        for (int64_t j = i * s->k; j < (i + 1) * s->k; j++) s->out[j] = s->source[i * s->columns + places[j]];
}
