/* Products of bfloat16 by AMX: 16 pixels times 16 outputs at once. Part of pairs.c, with the same layout and weights. */
#include "tiles.h"

/* The pixels of a group, and what a tile has of a segment, in numbers; where all segments are last ones, these. */
typedef struct {
    int64_t pixels, chunk, length, whole, rest;
} tile_depth;

/* Groups are cut from strips of places that lie at one distance from each other in the source: from a row of pixels, or from all
   rows of an image, with what lies between them (a halo), whose sums nobody stores. */
typedef struct {
    int64_t pixels;        /* of a group */
    int64_t strips, lines; /* how many strips there are, and the rows in each */
    int64_t column, width; /* the first pixel of each row, and how many there are */
    int64_t pitch, places; /* from row to row, and in all, of a strip */
    int64_t each;          /* groups of a strip */
} tile_strips;

INLINE tile_strips cut_strips(int64_t strips, int64_t lines, int64_t column, int64_t width, int64_t pitch) {
    const int64_t places = (lines - 1) * pitch + width;
    return (tile_strips){tile_pixels(places), strips, lines, column, width, pitch, places, groups_of(places)};
}

/* What the products of tiles of all groups take, as measured: a third of it does not depend on the pixels. */
INLINE int64_t cost_of(const tile_strips *cut) { return cut->strips * cut->each * (cut->pixels + 8); }

/* The strips of rows [row, row_end) x columns [column, column_end): those that take less. */
static tile_strips strips_of(const ft_pairs *s, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
    const int64_t rows = row_end - row, width = column_end - column;
    const int64_t apart = s->rows == 1 ? s->source_image : s->source_row, pitch = apart / s->source_pixel;
    const tile_strips by_row = cut_strips(rows, 1, column, width, width);
    if (rows == 1 || pitch < width || apart % s->source_pixel) return by_row;
    const int one = s->source_image == s->rows * apart || row / s->rows == (row_end - 1) / s->rows;
    if (!one && (row % s->rows || rows % s->rows)) return by_row;
    const int64_t lines = one ? rows : s->rows;
    const tile_strips joined = cut_strips(rows / lines, lines, column, width, pitch);
    return cost_of(&joined) < cost_of(&by_row) ? joined : by_row;
}

INLINE tile_depth depth_of(const ft_pairs *s, int64_t pixels) {
    const int64_t whole = s->segments - s->last_segments, length = whole ? s->segment_length : s->last_length;
    return (tile_depth){.pixels = pixels,
                        .chunk = chunk_of(2 * length) / 2,
                        .length = length,
                        .whole = whole ? whole : s->segments,
                        .rest = whole && s->last_segments ? s->last_length : 0};
}

/* Whether tiles are the way to so many pixels; they have their shapes then. */
static int starts_tiles(const ft_pairs *s, const tile_strips *cut) {
    if (cut->strips * cut->lines * cut->width < LEAST_PIXELS) return 0;
    const tile_depth depth = depth_of(s, cut->pixels);
    if (2 * depth.chunk < LEAST_CHUNK) return 0;
    shape_tiles(depth.pixels, 2 * depth.chunk, 2 * (depth.rest ? depth.rest : depth.chunk));
    return 1;
}

/* What is left to do for pixels whose sums are there: of two groups, cut into runs of pixels of one row, of two blocks that lie
   side by side as halves. It is done little by little while tiles multiply, since they do not need the units for vectors. */
typedef struct {
    const vec *sums;
    const bf16 *residual;
    bf16 *half;
    int64_t pixels;
} ending;
typedef struct {
    ending runs[2 * TILE_ROWS];
    int run, count, relu; /* the run at hand, and how many there are */
    int64_t half_pixel, residual_pixel;
    int64_t each; /* pixels for each product of tiles */
} endings;

INLINE void end_lines(const int RELU, const int R, const endings *rest, ending *e, int64_t pixels) {
    for (int64_t i = 0; i < pixels; i++, e->sums++, e->half += rest->half_pixel) {
        vec low = e->sums[0], high = e->sums[APART];
        if (R) {
            low += load_halves(e->residual), high += load_halves(e->residual + VL);
            e->residual += rest->residual_pixel;
        }
        if (RELU) low = MAX(low, ALL(0)), high = MAX(high, ALL(0));
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
        memcpy(e->half, &both, sizeof both);
    }
}

/* Of some pixels more, `count` at most. */
INLINE void end_some(endings *rest, int64_t count) {
    while (count && rest->run < rest->count) {
        ending *e = &rest->runs[rest->run];
        const int64_t pixels = e->pixels < count ? e->pixels : count;
        if (rest->relu && e->residual) end_lines(1, 1, rest, e, pixels);
        else if (rest->relu) end_lines(1, 0, rest, e, pixels);
        else if (e->residual) end_lines(0, 1, rest, e, pixels);
        else end_lines(0, 0, rest, e, pixels);
        count -= pixels;
        if (!(e->pixels -= pixels)) rest->run++;
    }
}

/* The sums of one group of pixels or two, of one block or two, in `sums`: [group][block][APART]. REST: whether there are last
   segments of another length, for which tiles 5 and 7 are kept. */
INLINE void sum_tiles(const int GROUPS, const int BLOCKS, const int REST, const pair_tile *t, const bf16 *second,
                      const tile_depth *depth, endings *before, vec *sums) {
    const int64_t row = BLOCKS * TILE_BYTES;
    if (t->bias) {
        LOAD_TILE(0, t->bias, 0, 1, TILE_BYTES);
        if (BLOCKS == 2) LOAD_TILE(1, t->bias + VL, 0, 1, TILE_BYTES);
        if (GROUPS == 2) LOAD_TILE(2, t->bias, 0, 1, TILE_BYTES);
        if (GROUPS == 2 && BLOCKS == 2) LOAD_TILE(3, t->bias + VL, 0, 1, TILE_BYTES);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    const bf16 *w = t->w, *ahead = t->ahead;
    const int64_t pixel = 2 * t->x_pixel;
    for (int64_t s = 0; s < depth->whole; s++)
        for (int64_t k = 0; k < depth->length; k += depth->chunk, w += depth->chunk * BLOCKS * VL) {
            const int64_t at = t->offsets[s] + k;
            for (int64_t line = 0; line < t->ahead_lines; line++, ahead += 32) __builtin_prefetch(ahead, 0, 2);
            LOAD_TILE(4, t->x + at, pixel, depth->pixels, 2 * depth->chunk);
            LOAD_TILE(6, w, row, depth->chunk / 2, TILE_BYTES);
            _tile_dpbf16ps(0, 4, 6);
            if (REST) {
                if (GROUPS == 2) {
                    LOAD_TILE(4, second + at, pixel, depth->pixels, 2 * depth->chunk);
                    _tile_dpbf16ps(2, 4, 6);
                }
                if (BLOCKS == 2) {
                    LOAD_TILE(6, w + 2 * VL, row, depth->chunk / 2, TILE_BYTES);
                    if (GROUPS == 2) {
                        _tile_dpbf16ps(3, 4, 6);
                        LOAD_TILE(4, t->x + at, pixel, depth->pixels, 2 * depth->chunk);
                    }
                    _tile_dpbf16ps(1, 4, 6);
                }
                end_some(before, before->each);
                continue;
            }
            if (BLOCKS == 2) {
                LOAD_TILE(7, w + 2 * VL, row, depth->chunk / 2, TILE_BYTES);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (GROUPS == 2) {
                LOAD_TILE(5, second + at, pixel, depth->pixels, 2 * depth->chunk);
                _tile_dpbf16ps(2, 5, 6);
                if (BLOCKS == 2) _tile_dpbf16ps(3, 5, 7);
            }
            end_some(before, before->each);
        }
    if (REST)
        for (int64_t s = depth->whole; s < t->segments; s++, w += depth->rest * BLOCKS * VL) {
            LOAD_TILE(5, t->x + t->offsets[s], pixel, depth->pixels, 2 * depth->rest);
            LOAD_TILE(7, w, row, depth->rest / 2, TILE_BYTES);
            _tile_dpbf16ps(0, 5, 7);
            if (GROUPS == 2) {
                LOAD_TILE(5, second + t->offsets[s], pixel, depth->pixels, 2 * depth->rest);
                _tile_dpbf16ps(2, 5, 7);
            }
            if (BLOCKS == 2) {
                LOAD_TILE(7, w + 2 * VL, row, depth->rest / 2, TILE_BYTES);
                if (GROUPS == 2) {
                    _tile_dpbf16ps(3, 5, 7);
                    LOAD_TILE(5, t->x + t->offsets[s], pixel, depth->pixels, 2 * depth->rest);
                }
                _tile_dpbf16ps(1, 5, 7);
            }
        }
    _tile_stored(0, sums, TILE_BYTES);
    if (BLOCKS == 2) _tile_stored(1, sums + APART, TILE_BYTES);
    if (GROUPS == 2) _tile_stored(2, sums + 2 * APART, TILE_BYTES);
    if (GROUPS == 2 && BLOCKS == 2) _tile_stored(3, sums + 3 * APART, TILE_BYTES);
}

#define SUM_TILES(groups, blocks)                                                      \
    do {                                                                               \
        if (depth->rest) sum_tiles(groups, blocks, 1, t, second, depth, before, sums); \
        else sum_tiles(groups, blocks, 0, t, second, depth, before, sums);             \
    } while (0)

static void sum_groups(int64_t groups, int64_t blocks, const pair_tile *t, const bf16 *second, const tile_depth *depth,
                       endings *before, vec *sums) {
    if (groups == 2 && blocks == 2) SUM_TILES(2, 2);
    else if (groups == 2) SUM_TILES(2, 1);
    else if (blocks == 2) SUM_TILES(1, 2);
    else SUM_TILES(1, 1);
}

/* What follows the sums, where activation, residual (R: 1 of floats, 2 of halves), floats (Y) and halves (H) are known. */
INLINE void end_known(const int RELU, const int R, const int Y, const int H, const pair_tile *t, const vec *sums,
                      int64_t pixels, int64_t blocks) {
    for (int64_t b = 0; b < blocks; b++, sums += APART) {
        const float *residual = t->residual + b * t->residual_block;
        const bf16 *residual_half = t->residual_half + b * t->residual_block;
        float *y = t->y + b * t->y_block;
        bf16 *half = t->half + b * t->half_block;
        for (int64_t i = 0; i < pixels; i++) {
            vec value = sums[i];
            if (R == 1) value += LOAD(residual + i * t->residual_pixel);
            if (R == 2) value += load_halves(residual_half + i * t->residual_pixel);
            if (RELU) value = MAX(value, ALL(0));
            if (Y) STORE(y + i * t->y_pixel, value);
            if (H) store_halves(half + i * t->half_pixel, value);
        }
    }
}

#define END_OF(relu, r)                                                                   \
    do {                                                                                  \
        if (!t->half) end_known(relu, r, 1, 0, t, sums, pixels, blocks);                  \
        else if (!t->y) end_known(relu, r, 0, 1, t, sums, pixels, blocks);                \
        else end_known(relu, r, 1, 1, t, sums, pixels, blocks);                           \
    } while (0)

static __attribute__((noinline)) void end_tiles(const pair_tile *t, const vec *sums, int64_t pixels, int64_t blocks) {
    if (t->lanes < VL || t->activation > FT_RELU) finish_pairs(t, sums, pixels, blocks);
    else if (t->activation == FT_RELU && t->residual) END_OF(1, 1);
    else if (t->activation == FT_RELU && t->residual_half) END_OF(1, 2);
    else if (t->activation == FT_RELU) END_OF(1, 0);
    else if (t->residual) END_OF(0, 1);
    else if (t->residual_half) END_OF(0, 2);
    else END_OF(0, 0);
}

/* The group of places that is next in the source: the strip that starts with `row`, from `place` on. */
typedef struct {
    const bf16 *x; /* of the strip */
    int64_t row, place;
} next_group;

/* Its first place, and the places of it that no group before has. */
INLINE const bf16 *take_group(const ft_pairs *s, const tile_strips *cut, next_group *next, const bf16 *x, int64_t *places) {
    if (next->place == cut->places) next->row += cut->lines, next->place = 0;
    if (!next->place)
        next->x = x + next->row / s->rows * s->source_image + next->row % s->rows * s->source_row + cut->column * s->source_pixel;
    const int64_t last = cut->places - cut->pixels, from = next->place < last ? next->place : last;
    *places = from + cut->pixels - next->place;
    next->place = from + cut->pixels;
    return next->x + from * s->source_pixel;
}

/* The pixel that is next to come to its end: where its results go, how many more its row has, and the places to skip then. */
typedef struct {
    pair_tile at;
    int64_t row, left, gap;
} next_pixel;

INLINE void start_row(const ft_pairs *s, const pair_tile *first, const tile_strips *cut, next_pixel *next) {
    move_to(s, first, &next->at, next->row, cut->column);
    next->left = cut->width;
}

INLINE void pass_pixels(const ft_pairs *s, next_pixel *next, int64_t count) {
    pair_tile *at = &next->at;
    if (at->y) at->y += count * s->out_pixel;
    if (at->residual) at->residual += count * s->residual_pixel;
    if (at->residual_half) at->residual_half += count * s->residual_pixel;
    if (at->half) at->half += count * s->halves_pixel;
    next->left -= count;
}

/* What follows the sums of so many places: now, or kept in `later` for the time while the next ones are summed. */
static __attribute__((noinline)) void end_places(const ft_pairs *s, const pair_tile *first, const tile_strips *cut, int64_t first_row, next_pixel *next,
                       const vec *sums, int64_t places, int64_t blocks, endings *later) {
    while (places) {
        if (!next->left) {
            const int64_t skipped = next->gap < places ? next->gap : places;
            sums += skipped, places -= skipped;
            if (!(next->gap -= skipped)) start_row(s, first, cut, next);
            continue;
        }
        const int64_t pixels = next->left < places ? next->left : places;
        if (later) later->runs[later->count++] = (ending){sums, next->at.residual_half, next->at.half, pixels};
        else end_tiles(&next->at, sums, pixels, blocks);
        pass_pixels(s, next, pixels);
        sums += pixels, places -= pixels;
        if (next->left || ++next->row == first_row + cut->strips * cut->lines) continue;
        next->gap = (next->row - first_row) % cut->lines ? cut->pitch - cut->width : 0;
        if (!next->gap) start_row(s, first, cut, next);
    }
}

/* All strips, the first of which starts with `row`, of one channel block or two: groups of as many pixels each, two by two,
   whichever strips they are of. */
static void sweep_tiles(const ft_pairs *s, const pair_tile *first, int64_t blocks, const tile_strips *cut, int64_t row) {
    const tile_depth depth = depth_of(s, cut->pixels);
    const int64_t all = cut->strips * cut->each, steps = (all + 1) / 2 * depth.whole * (depth.length / depth.chunk),
                  weights = (depth.whole * depth.length + s->last_segments * depth.rest) * blocks * VL;
    pair_tile t = *first;
    t.offsets = s->offsets, t.segments = s->segments, t.ahead = first->w + weights;
    t.ahead_lines = (weights / 32 + steps - 1) / steps;
    next_group group = {.row = row};
    next_pixel pixel = {.at = *first, .row = row};
    pixel.at.first = pixel.at.last = 1;
    start_row(s, first, cut, &pixel);
    const int beside = blocks == 2 && first->half && !first->y && !first->residual && first->half_block == VL &&
                       (!first->residual_half || first->residual_block == VL) && first->lanes == VL &&
                       first->activation <= FT_RELU;
    endings before = {.relu = first->activation == FT_RELU,
                      .half_pixel = first->half_pixel,
                      .residual_pixel = first->residual_pixel,
                      .each = (2 * cut->pixels - 1) / (depth.whole * (depth.length / depth.chunk)) + 1};
    vec of_both[2][4 * APART]; /* those that are summed, and those that come to their end meanwhile */
    for (int64_t number = 0; number < all; number += 2) {
        vec *const sums = of_both[number / 2 % 2];
        const int64_t groups = number + 1 < all ? 2 : 1;
        int64_t places[2];
        const bf16 *second = 0;
        t.x = take_group(s, cut, &group, first->x, &places[0]);
        if (groups == 2) second = take_group(s, cut, &group, first->x, &places[1]);
        sum_groups(groups, blocks, &t, second, &depth, &before, sums);
        t.ahead += steps / ((all + 1) / 2) * t.ahead_lines * 32;
        if (t.ahead >= first->w + 2 * weights) t.ahead_lines = 0;
        end_some(&before, 2 * cut->pixels), before.run = before.count = 0;
        for (int64_t g = 0; g < groups; g++)
            end_places(s, first, cut, row, &pixel, sums + 2 * g * APART + cut->pixels - places[g], places[g], blocks,
                       beside ? &before : 0);
    }
    end_some(&before, 2 * cut->pixels);
}
