/* Detections: the best boxes of every class that do not overlap better ones. Included by images.c. What is kept must not
   depend on the last bit, so numbers are rounded as numpy rounds them: a product that is chosen is never fused with a sum. */

INLINE vec least(vec a, vec b) { return CHOOSE((a < b) | (a != a), a, b); } /* a NaN stays, as in numpy */
INLINE vec greatest(vec a, vec b) { return CHOOSE((a > b) | (a != a), a, b); }

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
   f: 1 most overlap, 2 by what that is multiplied after each box as long as it is above a half, 3 pixels that a box is
   longer than its ends lie apart.  lines: 5 (count + VL) floats */
static int64_t keep_apart(const float *boxes, int64_t *places, int64_t count, float *lines, const float *f) {
    box_lines kept = {lines, count + VL, 0};
    float limit = f[1];
    for (int64_t i = 0; i < count; i++) {
        const float *box = boxes + 4 * places[i], area = box_area(box, f[3]);
        if (overlaps(kept, box, area, limit, f[3])) continue;
        places[kept.count] = places[i];
        add_box(&kept, box, area);
        if (f[2] < 1 && limit > 0.5f) limit *= f[2];
    }
    return kept.count;
}

/* p: boxes [N][4] from best to worst, lines [5][N + VL], -, -, -, places of those that stay and, at [N], how many they
   are (int64).  n: 0 N.  f: as above.  One task. */
static void suppress(const ft_step *step, int64_t task, int64_t tasks) {
    int64_t *places = (int64_t *)(void *)step->p[5], count = step->n[0];
    (void)task, (void)tasks;
    for (int64_t i = 0; i < count; i++) places[i] = i;
    places[count] = keep_apart(step->p[0], places, count, step->p[1], step->f);
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
   Every class of every image for itself.
   p: boxes [images][M][4], scores [images][classes][M], lines [images][classes][5][most + VL], -, -, places
   [images][classes][most + 1] of the boxes that stay, from best to worst, and how many they are (int64)
   n: 0 images, 1 classes, 2 M, 3 most boxes of a class that are looked at, 4 the class that is left out, or -1
   f: 0 what scores are above, 1-3 as for keep_apart */
static void best_boxes(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, size = n[2], most = n[3];
    int64_t from, to;
    part(n[0] * n[1], task, tasks, &from, &to);
    for (int64_t i = from; i < to; i++) {
        const float *boxes = step->p[0] + i / n[1] * size * 4;
        float *lines = step->p[2] + i * 5 * (most + VL);
        int64_t *places = (int64_t *)(void *)step->p[5] + i * (most + 1), count = 0;
        if (i % n[1] != n[4]) count = best_places(step->p[1] + i * size, size, most, step->f[0], places);
        places[most] = keep_apart(boxes, places, count, lines, step->f);
    }
}

/* The rank of an image's worst detection, where only the best `wanted` are; they are numbered by class. */
static uint64_t worst_wanted(const ft_step *step, int64_t image, int64_t wanted, uint64_t *heap) {
    const int64_t *n = step->n, *places = OFFSETS(step) + image * n[1] * (n[3] + 1);
    const float *scores = step->p[1] + image * n[1] * n[2];
    int64_t count = 0, number = 0;
    for (int64_t label = 0; label < n[1]; label++, places += n[3] + 1, scores += n[2])
        for (int64_t i = 0; i < places[n[3]]; i++)
            count = join_best(heap, count, wanted, rank_of(scores[places[i]], number++));
    return heap[0];
}

/* The detections of every image, by class.
   p: boxes, scores, where each image's detections start (int64 [images + 1]), rows of label, score and box, a heap as long
   as there are rows (uint64), places as above, of each row the place of its box among those of all images (int32)
   n: 0-3 as above */
static void detections(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, size = n[2], most = n[3], *starts = (const int64_t *)(const void *)step->p[2];
    int64_t from, to;
    part(n[0], task, tasks, &from, &to);
    for (int64_t image = from; image < to; image++) {
        int64_t row = starts[image], wanted = starts[image + 1] - row, number = 0;
        if (!wanted) continue;
        const uint64_t worst = worst_wanted(step, image, wanted, (uint64_t *)(void *)step->p[4] + row);
        for (int64_t label = 0; label < n[1]; label++) {
            const int64_t line = image * n[1] + label, *places = OFFSETS(step) + line * (most + 1);
            for (int64_t i = 0; i < places[most]; i++) {
                const float score = step->p[1][line * size + places[i]];
                if (rank_of(score, number++) > worst) continue;
                const int64_t place = image * size + places[i];
                float *to_row = step->p[3] + 6 * row;
                to_row[0] = (float)label, to_row[1] = score;
                memcpy(to_row + 2, step->p[0] + 4 * place, 4 * sizeof(float));
                ((int32_t *)(void *)step->p[6])[row++] = (int32_t)place;
            }
        }
    }
}
