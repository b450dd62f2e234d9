/* Values of loops and the memory that they lie in, and what instructions are written with. Included by matrices.c.

   A value is a place in memory with its shape and LoD, and is never changed once it is made; so that values can share memory.
   Memory comes from the caller, who is asked for more and then calls again: an instruction that lacked some runs once more from
   its beginning. What an instruction cannot compute (another data type, an id out of range) ends the loop as UNSUITABLE: nothing
   outside has changed. */
enum { NO_VALUE, FLOATS, LONGS, INTS, TRUTHS, DIMENSIONS }; /* kinds of values */
enum { LOOP_DIMS = 4, LOOP_WORDS = 24, MOST_ITEMS = 1 << 24 };
#define MOST_NUMBERS ((int64_t)1 << 46) /* in a value: more would have no memory, and could not be counted */

typedef struct {
    void *data;
    int64_t kind, rank, dims[LOOP_DIMS];
    const int64_t *lod; /* offsets of the only level, or 0 */
    int64_t bounds;     /* of them */
    int64_t borrowed;   /* 1 or 2: in which of the two memories that are used anew by every second step; 0: it stays */
    int64_t array;      /* its number, from 1, if this is an array of values */
} loop_value;

typedef struct {
    loop_value *items;
    int64_t count, room;
} loop_array;

enum { RUNNING, FINISHED, MORE_KEPT, MORE_BORROWED, MORE_STEPS, MORE_ITEMS, UNSUITABLE }; /* states */

typedef struct {
    int64_t state, wanted; /* bytes, or the number of an array, or of an instruction */
    int64_t step, next;    /* instruction */
    char *kept, *kept_end;
    char *borrowed[2], *borrowed_start[2], *borrowed_end[2];
    int64_t most;      /* steps, or -1: as long as the condition is true */
    int64_t condition; /* slot */
} loop_state;

typedef struct {
    loop_state *state;
    loop_value *slots;
    loop_array *arrays;
} loop;

INLINE int64_t loop_size(const loop_value *v) {
    int64_t size = 1;
    for (int64_t i = 0; i < v->rank; i++) size *= v->dims[i];
    return size;
}

INLINE int64_t loop_bytes(const loop_value *v) {
    const int64_t each = v->kind == LONGS ? 8 : v->kind == TRUTHS ? 1 : 4;
    return v->kind == NO_VALUE || v->kind == DIMENSIONS ? 0 : each * loop_size(v);
}

/* Of a value that is only looked at for its shape there may be no more. */
INLINE int has_floats(const loop_value *v) { return v->kind == FLOATS && !v->array && v->data; }

INLINE int same_shape(const loop_value *a, const loop_value *b) {
    if (a->rank != b->rank) return 0;
    for (int64_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return 0;
    return 1;
}

static int unsuitable(loop *l) {
    l->state->state = UNSUITABLE;
    l->state->wanted = l->state->next;
    return 0;
}

/* Memory for a value; 0 where there is not enough. */
static void *loop_memory(loop *l, int64_t bytes, int keep) {
    loop_state *s = l->state;
    char **at = keep ? &s->kept : &s->borrowed[s->step % 2], *end = keep ? s->kept_end : s->borrowed_end[s->step % 2];
    const int64_t room = (bytes + 63) / 64 * 64 + 64; /* vectors may reach behind the last number */
    if (end - *at < room) {
        s->state = keep ? MORE_KEPT : MORE_BORROWED;
        s->wanted = room;
        return 0;
    }
    void *found = *at;
    *at += room;
    return found;
}

/* Whether the numbers of a shape can be counted. */
INLINE int is_countable(const loop_value *v) {
    int64_t size = 1;
    for (int64_t i = 0; i < v->rank; i++) {
        if (v->dims[i] < 0 || (v->dims[i] && size > MOST_NUMBERS / v->dims[i])) return 0;
        size *= v->dims[i];
    }
    return 1;
}

/* A new value with the shape, data type and LoD of another; 0 where memory lacks. */
static int make_like(loop *l, loop_value *made, const loop_value *like, int keep) {
    if (!is_countable(like)) return unsuitable(l);
    *made = *like;
    made->array = 0;
    made->borrowed = keep ? 0 : 1 + l->state->step % 2;
    made->data = loop_memory(l, loop_bytes(made), keep);
    return made->data != 0;
}

/* The same with the rows and columns given, and without LoD. */
static int make_rows(loop *l, loop_value *made, int64_t rows, int64_t columns, int keep) {
    const loop_value like = {.kind = FLOATS, .rank = 2, .dims = {rows, columns}};
    return make_like(l, made, &like, keep);
}

static int stay(loop *l, loop_value *v, int keep) {
    if (!v->borrowed || (!keep && v->borrowed == 1 + l->state->step % 2)) return 1;
    loop_value made;
    if (!make_like(l, &made, v, keep)) return 0;
    memcpy(made.data, v->data, (size_t)loop_bytes(v));
    *v = made;
    return 1;
}

/* ---------------------------------------------------------------- instructions: words from 2 on, by name */
#define SLOT(word) (l->slots[w[word]])
#define KEEP(output) (int)(w[1] >> (output)&1)
#define NEED(condition) \
    if (!(condition)) return unsuitable(l)
#define MAKE(condition) \
    if (!(condition)) return 0

INLINE int64_t index_of(const loop_value *v) {
    if (loop_size(v) != 1 || !v->data) return -1;
    return v->kind == LONGS ? *(const int64_t *)v->data : v->kind == INTS ? *(const int32_t *)v->data : -1;
}
