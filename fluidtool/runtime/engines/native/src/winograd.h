/* What Winograd's method computes of windows and filters in every unit: F(m x m, 3 x 3), m = 2 or 4. The points are 0, +-1, infinity for
   m = 2; for m = 4 they are 0, +-1/sqrt(2), +-sqrt(2), infinity, whose error is a fifth of that of 0, +-1, +-2, infinity. */
#ifndef FLUIDTOOL_WINOGRAD_H
#define FLUIDTOOL_WINOGRAD_H

#define ROOT 1.41421356f
#define HALF_ROOT 0.70710678f

/* One axis of a window, pixels `step` vectors apart: B^T d. */
INLINE void transform_window(const int OUTPUTS, const vec *d, const int step, vec *v, const int v_step) {
    if (OUTPUTS == 2) {
        v[0] = d[0] - d[2 * step];
        v[v_step] = d[step] + d[2 * step];
        v[2 * v_step] = d[2 * step] - d[step];
        v[3 * v_step] = d[step] - d[3 * step];
        return;
    }
    const vec d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step];
    const vec even = d4 - ALL(2) * d2, odd = ALL(HALF_ROOT) * (d3 - ALL(2) * d1);
    const vec even_far = d4 - ALL(0.5f) * d2, odd_far = ALL(ROOT) * (d3 - ALL(0.5f) * d1);
    v[0] = (d[0] + d4) - ALL(2.5f) * d2;
    v[v_step] = even + odd;
    v[2 * v_step] = even - odd;
    v[3 * v_step] = even_far + odd_far;
    v[4 * v_step] = even_far - odd_far;
    v[5 * v_step] = (d1 + d[5 * step]) - ALL(2.5f) * d3;
}

/* One axis of the results: A^T m. */
INLINE void transform_back(const int OUTPUTS, const vec *m, const int step, vec *y, const int y_step) {
    const vec sum = m[step] + m[2 * step], difference = m[step] - m[2 * step];
    if (OUTPUTS == 2) {
        y[0] = m[0] + sum;
        y[y_step] = difference - m[3 * step];
        return;
    }
    const vec far_sum = m[3 * step] + m[4 * step], far_difference = m[3 * step] - m[4 * step];
    y[0] = m[0] + sum + far_sum;
    y[y_step] = ALL(HALF_ROOT) * difference + ALL(ROOT) * far_difference;
    y[2 * y_step] = ALL(0.5f) * sum + ALL(2) * far_sum;
    y[3 * y_step] = ALL(0.5f * HALF_ROOT) * difference + ALL(2 * ROOT) * far_difference + m[5 * step];
}

/* One axis of filters, in double: G g. */
INLINE void transform_filter(const int OUTPUTS, const vec_wide *g, const int step, vec_wide *u, const int u_step) {
    const vec_wide ends = g[0] + g[2 * step];
    u[0] = g[0];
    if (OUTPUTS == 2) {
        u[u_step] = (ends + g[step]) * 0.5;
        u[2 * u_step] = (ends - g[step]) * 0.5;
        u[3 * u_step] = g[2 * step];
        return;
    }
    const vec_wide near = (g[0] + g[2 * step] * 0.5) / -1.5, near_odd = g[step] * (0.70710678118654752 / -1.5);
    const vec_wide far = (g[0] + g[2 * step] * 2.0) / 6.0, far_odd = g[step] * (1.41421356237309505 / 6.0);
    u[u_step] = near + near_odd;
    u[2 * u_step] = near - near_odd;
    u[3 * u_step] = far + far_odd;
    u[4 * u_step] = far - far_odd;
    u[5 * u_step] = g[2 * step];
}

/* The nine taps of VL filters of a channel, a vector for each tap; filters are `step` apart, turned: with their last tap first. */
INLINE void filter_taps(const loose *x, int64_t step, int64_t turned, int64_t there, vec *taps) {
    vec lines[VL];
    for (int64_t lane = 0; lane < VL; lane++) lines[lane] = take_loose(x + lane * step, lane < there ? VL < 9 ? VL : 9 : 0);
    transpose(lines);
    float ninth[VL] = {0};
    for (int tap = 0; tap < 9 && tap < VL; tap++) taps[turned ? 8 - tap : tap] = lines[tap];
    if (VL >= 9) return;
    for (int64_t lane = 0; lane < there; lane++) ninth[lane] = x[lane * step + 8];
    taps[turned ? 0 : 8] = LOAD(ninth);
}

#endif
