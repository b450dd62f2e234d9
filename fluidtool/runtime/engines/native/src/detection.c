/* Detections: the best boxes of every class that do not overlap better ones. Included by images.c. What is kept must not
   depend on the last bit, so numbers are rounded as numpy rounds them: a product that is chosen is never fused with a sum. */

INLINE vec least(vec a, vec b) { return CHOOSE(b < a, b, a); } /* of a NaN and a number the first, as in C++ */
INLINE vec greatest(vec a, vec b) { return CHOOSE(b > a, b, a); }

INLINE float box_area(const float *box, float pixel) {
    return box[2] < box[0] || box[3] < box[1] ? 0 : (box[2] - box[0] + pixel) * (box[3] - box[1] + pixel);
}

/* Boxes side by side: their four numbers and their areas, each in a line of `stride`. */
typedef struct {
    float *lines;
    int64_t stride, count;
} box_lines;

static void add_box(box_lines *boxes, const float *box, float area) {
    float *to = boxes->lines + boxes->count++;
    for (int side = 0; side < 4; side++) to[side * boxes->stride] = box[side];
    to[4 * boxes->stride] = area;
}

/* Whether the overlap with one of the boxes, divided by the union, is not at most `limit`. */
static int overlaps(box_lines boxes, const float *box, float area, float limit, float pixel) {
    const vec xmin = ALL(box[0]), ymin = ALL(box[1]), xmax = ALL(box[2]), ymax = ALL(box[3]);
    for (int64_t i = 0; i < boxes.count; i += VL) {
        const float *at = boxes.lines + i;
        const vec left = LOAD(at), top = LOAD(at + boxes.stride), right = LOAD(at + 2 * boxes.stride);
        const vec bottom = LOAD(at + 3 * boxes.stride), areas = LOAD(at + 4 * boxes.stride);
        const veci there = LANES < (int32_t)(boxes.count - i < VL ? boxes.count - i : VL);
        const veci touching = there & ~((xmin > right) | (xmax < left) | (ymin > bottom) | (ymax < top));
        if (limit >= 0 && !any_lane(touching)) continue;
        const vec width = least(xmax, right) - greatest(xmin, left) + ALL(pixel);
        const vec height = least(ymax, bottom) - greatest(ymin, top) + ALL(pixel);
        const vec inter = CHOOSE(touching, width * height, ALL(0));
        const vec overlap = CHOOSE(touching, inter / (ALL(area) + areas - inter), ALL(0));
        if (any_lane(there & ~(overlap <= ALL(limit)))) return 1;
    }
    return 0;
}

/* Places of boxes, from best to worst: those whose boxes stay move to the front. Returns how many they are.
   limit: most overlap; decay: by what that is multiplied after each box as long as it is above a half; pixel: how much longer
   a box is than its ends lie apart.  lines: 5 (count + VL) floats */
static int64_t keep_apart(const float *boxes, int64_t *places, int64_t count, float *lines, float limit, float decay,
                          float pixel) {
    box_lines kept = {lines, count + VL, 0};
    for (int64_t i = 0; i < count; i++) {
        const float *box = boxes + 4 * places[i], area = box_area(box, pixel);
        if (overlaps(kept, box, area, limit, pixel)) continue;
        places[kept.count] = places[i];
        add_box(&kept, box, area);
        if (decay < 1 && limit > 0.5f) limit *= decay;
    }
    return kept.count;
}

static void suppress(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_suppress *s = &call->suppress;
    int64_t *places = s->kept, count = s->count;
    (void)task, (void)tasks;
    for (int64_t i = 0; i < count; i++) places[i] = i;
    places[count] = keep_apart(s->boxes, places, count, s->scratch, s->overlap, s->decay, s->pixel);
}

/* ---------------------------------------------------------------- the best of many
   A number that is smaller, the higher the score is, and among equal scores the lower the place. */
INLINE uint64_t rank_of(float score, int64_t place) {
    uint32_t bits;
    score += 0.0f; /* there is one zero */
    memcpy(&bits, &score, sizeof bits);
    bits ^= bits >> 31 ? 0 : 0x7fffffff;
    return (uint64_t)bits << 32 | (uint32_t)place;
}

INLINE int64_t place_of(uint64_t rank) { return (int64_t)(uint32_t)rank; }

/* Put a rank in the place of the heap's first, its worst. */
static void replace_first(uint64_t *heap, int64_t count, uint64_t rank) {
    int64_t hole = 0;
    for (int64_t child = 1; child < count; child = 2 * hole + 1) {
        if (child + 1 < count && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= rank) break;
        heap[hole] = heap[child], hole = child;
    }
    heap[hole] = rank;
}

/* One more for the heap of the best `most`; returns how many there are now. */
static int64_t join_best(uint64_t *heap, int64_t count, int64_t most, uint64_t rank) {
    if (count == most) {
        if (rank < heap[0]) replace_first(heap, count, rank);
        return count;
    }
    int64_t hole = count;
    for (; hole && heap[(hole - 1) / 2] < rank; hole = (hole - 1) / 2) heap[hole] = heap[(hole - 1) / 2];
    heap[hole] = rank;
    return count + 1;
}

static void best_first(uint64_t *heap, int64_t count) {
    for (int64_t last = count - 1; last > 0; last--) {
        const uint64_t rank = heap[last];
        heap[last] = heap[0];
        replace_first(heap, last, rank);
    }
}

static int64_t count_above(const float *scores, int64_t size, float than) {
    veci above = {0};
    int64_t count = 0, i = 0;
    for (; i + VL <= size; i += VL) above -= LOAD(scores + i) > ALL(than);
    for (int lane = 0; lane < VL; lane++) count += above[lane];
    for (; i < size; i++) count += scores[i] > than;
    return count;
}

/* A score, `least_score` or higher, that at least `most` are above: few more, where halving finds such a one. */
static float few_above(const float *scores, int64_t size, int64_t most, float least_score) {
    vec highest = ALL(least_score);
    for (int64_t i = 0; i < size; i += VL) highest = MAX(highest, take(scores + i, size - i));
    float high = max_lanes(highest);
    for (int round = 0; round < 12; round++) {
        const float middle = least_score + (high - least_score) / 2;
        const int64_t above = count_above(scores, size, middle);
        if (above < most) high = middle;
        else least_score = middle;
        if (above >= most && above <= most + most / 4) break;
    }
    return least_score;
}

/* Places of the at most `most` best scores above `least_score`, from best to worst; returns how many they are. */
static int64_t best_places(const float *scores, int64_t size, int64_t most, float least_score, int64_t *places) {
    uint64_t *heap = (uint64_t *)places;
    int64_t count = 0;
    float than = 2 * most < size ? few_above(scores, size, most, least_score) : least_score;
    for (int64_t i = 0; most && (i = next_larger(scores, i, size, than)) < size; i++) {
        count = join_best(heap, count, most, rank_of(scores[i], i));
        if (count == most) than = scores[place_of(heap[0])];
    }
    best_first(heap, count);
    for (int64_t i = 0; i < count; i++) places[i] = place_of(heap[i]);
    return count;
}

/* ---------------------------------------------------------------- detections
   Every class of every image for itself. */
static void best_boxes(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_best_boxes *s = &call->best_boxes;
    const int64_t size = s->box_count, most = s->most;
    int64_t from, to;
    part(s->images * s->classes, task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *boxes = s->boxes + i / s->classes * size * 4;
        float *lines = s->scratch + i * 5 * (most + VL);
        int64_t *places = s->places + i * (most + 1), count = 0;
        if (i % s->classes != s->background) count = best_places(s->scores + i * size, size, most, s->threshold, places);
        places[most] = keep_apart(boxes, places, count, lines, s->overlap, s->decay, s->pixel);
    }
}

/* The rank of an image's worst detection, where only the best `wanted` are; they are numbered by class. */
static uint64_t worst_wanted(const ft_detections *s, int64_t image, int64_t wanted, uint64_t *heap) {
    const int64_t *places = s->places + image * s->classes * (s->most + 1);
    const float *scores = s->scores + image * s->classes * s->box_count;
    int64_t count = 0, number = 0;
    for (int64_t label = 0; label < s->classes; label++, places += s->most + 1, scores += s->box_count)
        for (int64_t i = 0; i < places[s->most]; i++)
            count = join_best(heap, count, wanted, rank_of(scores[places[i]], number++));
    return heap[0];
}

/* The detections of every image, by class. */
static void detections(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_detections *s = &call->detections;
    const int64_t size = s->box_count, most = s->most, *starts = s->starts;
    int64_t from, to;
    part(s->images, task, tasks, &from, &to);
    for (int64_t image = from; image < to; image++) {
        int64_t row = starts[image], wanted = starts[image + 1] - row, number = 0;
        if (!wanted) continue;
        const uint64_t worst = worst_wanted(s, image, wanted, s->heap + row);
        for (int64_t label = 0; label < s->classes; label++) {
            const int64_t line = image * s->classes + label, *places = s->places + line * (most + 1);
            for (int64_t i = 0; i < places[most]; i++) {
                const float score = s->scores[line * size + places[i]];
                if (rank_of(score, number++) > worst) continue;
                const int64_t place = image * size + places[i];
                float *to_row = s->out + 6 * row;
                to_row[0] = (float)label, to_row[1] = score;
                memcpy(to_row + 2, s->boxes + 4 * place, 4 * sizeof(float));
                (s->index)[row++] = (int32_t)place;
            }
        }
    }
}
