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

static void viterbi(const ft_call *call, int64_t task, int64_t tasks) {
    const ft_viterbi *s = &call->viterbi;
    const int64_t tags = s->tags, room = tags + VL;
    const float *start = s->transitions, *stop = start + tags, *between = stop + tags;
    int64_t first, last, *path = s->path;
    part(s->sequences, task, tasks, &first, &last);
    for (int64_t sequence = first; sequence < last; sequence++) {
        const int64_t row = s->runs[2 * sequence], length = s->runs[2 * sequence + 1];
        float *best = s->scratch + task * s->task_scratch, *now = best + room;
        int32_t *from = (int32_t *)(void *)(now + room);
        if (length <= 0) continue;
        for (int64_t tag = 0; tag < tags; tag++) best[tag] = s->source[row * tags + tag] + start[tag];
        for (int64_t time = 1; time < length; time++) {
            for (int64_t tag = 0; tag < tags; tag += VL) {
                veci source;
                const vec score = best_before(best, between + tag, tags, tags - tag, &source);
                STORE(now + tag, score + take(s->source + (row + time) * tags + tag, tags - tag));
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
