/* Polygons that do not overlap better ones. Included by images.c. A polygon is its corners, x and y in turn. Two intersect by
   the even-odd rule, in slabs between the heights of all corners and crossings, as numpy's kernel has it. */
enum { MOST_EDGES = 32 }; /* of two polygons */

typedef struct {
    double x, y, end_x, end_y;
} polygon_edge;

static int64_t add_edges(const float *polygon, int64_t corners, polygon_edge *edges) {
    for (int64_t i = 0; i < corners; i++) {
        const float *next = polygon + 2 * (i + 1 < corners ? i + 1 : 0);
        edges[i] = (polygon_edge){polygon[2 * i], polygon[2 * i + 1], next[0], next[1]};
    }
    return corners;
}

/* Put a height in order; returns how many there are now. */
static int64_t add_height(double *heights, int64_t count, double height) {
    int64_t at = count;
    for (; at && heights[at - 1] > height; at--) heights[at] = heights[at - 1];
    heights[at] = height;
    return count + 1;
}

/* Whether two edges cross within both of them, and how high. */
static int cross(const polygon_edge *a, const polygon_edge *b, double *height) {
    const double ax = a->end_x - a->x, ay = a->end_y - a->y, bx = b->end_x - b->x, by = b->end_y - b->y;
    const double turn = ax * by - ay * bx, gap_x = b->x - a->x, gap_y = b->y - a->y;
    if (turn == 0) return 0;
    const double t = (gap_x * by - gap_y * bx) / turn, u = (gap_x * ay - gap_y * ax) / turn;
    *height = a->y + t * ay;
    return t > 0 && t < 1 && u > 0 && u < 1;
}

/* The common width of both polygons at a height that no corner has. */
static double common_width(const polygon_edge *edges, int64_t corners, double height) {
    double places[MOST_EDGES], width = 0;
    int second[MOST_EDGES], inside[2] = {0, 0};
    int64_t count = 0;
    for (int64_t i = 0; i < 2 * corners; i++) {
        const polygon_edge *e = edges + i;
        if ((e->y < height) == (e->end_y < height)) continue;
        const double place = e->x + (height - e->y) * ((e->end_x - e->x) / (e->end_y - e->y));
        int64_t at = count++;
        for (; at && places[at - 1] > place; at--) places[at] = places[at - 1], second[at] = second[at - 1];
        places[at] = place, second[at] = i >= corners;
    }
    for (int64_t i = 0; i + 1 < count; i++) {
        inside[second[i]] ^= 1;
        if (inside[0] && inside[1]) width += places[i + 1] - places[i];
    }
    return width;
}

static double common_area(const float *a, const float *b, int64_t corners) {
    polygon_edge edges[MOST_EDGES];
    double heights[MOST_EDGES * (MOST_EDGES + 1) / 2], height, area = 0;
    const int64_t all = 2 * corners;
    int64_t count = 0;
    add_edges(b, corners, edges + add_edges(a, corners, edges));
    for (int64_t i = 0; i < all; i++) count = add_height(heights, count, edges[i].y);
    for (int64_t i = 0; i < all; i++)
        for (int64_t j = i + 1; j < all; j++)
            if (cross(edges + i, edges + j, &height)) count = add_height(heights, count, height);
    for (int64_t i = 0; i + 1 < count; i++) {
        const double high = heights[i + 1] - heights[i];
        if (high > 0) area += common_width(edges, corners, heights[i] + high / 2) * high;
    }
    return area;
}

static float polygon_area(const float *polygon, int64_t corners) {
    float twice = 0;
    for (int64_t i = 0; i < corners; i++) {
        const float *a = polygon + 2 * i, *b = polygon + 2 * (i + 1 < corners ? i + 1 : 0);
        const float one = (float)((double)a[0] * b[1]), other = (float)((double)a[1] * b[0]);
        twice += one - other;
    }
    return fabsf(twice / 2);
}

/* The boxes around them, x and y of the least and of the greatest; a corner that is no number makes it touch nothing. */
static void box_around(const float *polygon, int64_t corners, float *box) {
    for (int axis = 0; axis < 2; axis++) {
        box[axis] = box[2 + axis] = polygon[axis];
        for (int64_t i = 0; i < corners; i++) {
            const float value = polygon[2 * i + axis];
            if (!(value >= box[axis])) box[axis] = value;
            if (!(value <= box[2 + axis])) box[2 + axis] = value;
            if (value != value) break;
        }
    }
}

static float polygon_overlap(const float *a, const float *b, const float *boxes_a, const float *boxes_b, int64_t corners) {
    for (int axis = 0; axis < 2; axis++)
        if (!(boxes_a[axis] <= boxes_b[2 + axis] && boxes_b[axis] <= boxes_a[2 + axis])) return 0;
    const float area = boxes_a[4], other = boxes_b[4], inter = (float)common_area(a, b, corners);
    return area == 0 || other == 0 || inter == 0 ? 0 : inter / (area + other - inter);
}

static void suppress_polygons(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_suppress_polygons *s = &call->suppress_polygons;
    const int64_t corners = s->numbers / 2;
    int64_t *places = s->kept, kept = 0;
    float limit = s->overlap;
    (void)task, (void)tasks;
    for (int64_t i = 0; i < s->count; i++) {
        const float *polygon = s->polygons + i * s->numbers;
        float *box = s->scratch + 5 * i;
        int stays = 1;
        box_around(polygon, corners, box);
        box[4] = polygon_area(polygon, corners);
        for (int64_t k = 0; stays && k < kept; k++) {
            const float *other = s->scratch + 5 * places[k];
            stays = polygon_overlap(polygon, s->polygons + places[k] * s->numbers, box, other, corners) <= limit;
        }
        if (!stays) continue;
        places[kept++] = i;
        if (s->decay < 1 && limit > 0.5f) limit *= s->decay;
    }
    places[s->count] = kept;
}
