/* The best path through tags. Included by matrices.c. Sums are added as numpy adds them: which path is best must not depend on
   the last bit. Of equal ones the first wins, and what is no number wins. */
INLINE int wins(float a, float b) { return a > b || (a != a && b == b); }

/* The best way to each of VL tags from all tags before, and from which. */
INLINE vec best_before(const float *before, const float *between, int64_t tags, int64_t count, veci *from) {
    vec best = ALL(before[0]) + take(between, count);
    *from = (veci){0};
    for (int64_t tag = 1; tag < tags; tag++) {
        const vec path = ALL(before[tag]) + take(between + tag * tags, count);
        const veci better = (path > best) | ((path != path) & (best == best));
        best = CHOOSE(better, path, best);
        *from = (better & ((veci){0} + (int32_t)tag)) | (~better & *from);
    }
    return best;
}

/* p: scores [rows][tags]; of the first tag, of the last tag, then of what follows what [2 + tags][tags]; memory, -, tags of the
   rows (int64), of each sequence its first row and its length (int64)
   n: 0 sequences, 1 tags, 2 floats of memory of a task: (longest + 2) (tags + VL) */
static void viterbi(const ft_step *step, int64_t task, int64_t tasks) {
    const int64_t *n = step->n, tags = n[1], room = tags + VL;
    const float *start = step->p[1], *stop = start + tags, *between = stop + tags;
    int64_t first, last, *path = (int64_t *)(void *)step->p[4];
    part(n[0], task, tasks, &first, &last);
    for (int64_t sequence = first; sequence < last; sequence++) {
        const int64_t row = OFFSETS(step)[2 * sequence], length = OFFSETS(step)[2 * sequence + 1];
        float *best = step->p[2] + task * n[2], *now = best + room;
        int32_t *from = (int32_t *)(void *)(now + room);
        if (length <= 0) continue;
        for (int64_t tag = 0; tag < tags; tag++) best[tag] = step->p[0][row * tags + tag] + start[tag];
        for (int64_t time = 1; time < length; time++) {
            for (int64_t tag = 0; tag < tags; tag += VL) {
                veci source;
                const vec score = best_before(best, between + tag, tags, tags - tag, &source);
                STORE(now + tag, score + take(step->p[0] + (row + time) * tags + tag, tags - tag));
                memcpy(from + time * room + tag, &source, sizeof source);
            }
            float *const old = best;
            best = now, now = old;
        }
        int64_t current = 0;
        for (int64_t tag = 0; tag < tags; tag++) {
            best[tag] += stop[tag];
            if (wins(best[tag], best[current])) current = tag;
        }
        for (int64_t time = length - 1; time >= 0; time--) {
            path[row + time] = current;
            if (time) current = from[time * room + current];
        }
    }
}
