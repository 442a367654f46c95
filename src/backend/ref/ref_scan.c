/*
 * ref kernels of the selective scan (Gu and Dao, "Mamba", 2023, eq. 2 with the discretisation of
 * its code): per sequence b, channel c and state s, with A = -exp(A_log[c,s]):
 *
 *   h_t = exp(delta_t A) h_{t-1} + delta_t b_t[s] u_t        h_{-1} = 0
 *   y_t = sum_s c_t[s] h_t[s] + d u_t
 *
 * The forward pass keeps the state before every GD_SCAN_CHUNK-th step; the backward pass recomputes
 * those between, so no state is stored per step.
 */
#include <math.h>

#include "backend/ref/ref_int.h"

enum { MOST_STATES = 256 };

void gd_ref_scan(const struct gd_kernel_args *args) {
  const struct gd_view *u = &args->in[0], *delta = &args->in[1], *a_log = &args->in[2];
  const struct gd_view *b = &args->in[3], *c = &args->in[4], *d = &args->in[5];
  const struct gd_view *states = &args->out[1];
  int64_t steps = u->dims[1], channels = u->dims[2], size = a_log->dims[1];
  int64_t chunks = states->dims[1];
  GD_ASSERT(size <= MOST_STATES);
  for (int64_t batch = 0; batch < u->dims[0]; batch++)
    for (int64_t channel = 0; channel < channels; channel++) {
      double h[MOST_STATES] = {0};
      for (int64_t t = 0; t < steps; t++) {
        int64_t at = (batch * steps + t) * channels + channel;
        double y = get(d, channel) * get(u, at);
        for (int64_t s = 0; s < size; s++) {
          int64_t at_s = (batch * steps + t) * size + s;
          int64_t at_state = (batch * chunks + t / GD_SCAN_CHUNK) * channels + channel;
          if (t % GD_SCAN_CHUNK == 0)
            put(states, at_state * size + s, h[s]);
          double a = -exp(get(a_log, channel * size + s));
          h[s] = exp(get(delta, at) * a) * h[s] + get(delta, at) * get(b, at_s) * get(u, at);
          y += get(c, at_s) * h[s];
        }
        put(&args->out[0], at, y);
      }
    }
}

/* What one chunk of one sequence adds up: over states for du and ddelta, over channels for db, dc.
 */
struct chunk_sums {
  double du[GD_SCAN_CHUNK], ddelta[GD_SCAN_CHUNK];
  double db[GD_SCAN_CHUNK][MOST_STATES], dc[GD_SCAN_CHUNK][MOST_STATES];
};

/*
 * One (sequence, chunk, channel, state). With g_t = dL/dh_t = c_t dy_t + exp(delta_{t+1} A) g_{t+1}
 * and e = exp(delta_t A):
 *   du_t += g delta b          ddelta_t += g (A e h_{t-1} + b u)     db_t += g delta u
 *   dc_t += dy h_t             returns the part of dA_log: sum_t g delta A e h_{t-1}
 */
static double walk_back(const struct gd_kernel_args *args, int64_t batch, int64_t chunk,
                        int64_t channel, int64_t s, struct chunk_sums *sums) {
  const struct gd_view *dy = &args->in[0], *u = &args->in[1], *delta = &args->in[2];
  const struct gd_view *b = &args->in[4], *c = &args->in[5], *states = &args->in[7];
  int64_t steps = u->dims[1], channels = u->dims[2], size = args->in[3].dims[1];
  int64_t first = chunk * GD_SCAN_CHUNK, count = steps - first;
  double a = -exp(get(&args->in[3], channel * size + s)), da_log = 0, g = 0;
  double h[GD_SCAN_CHUNK + 1];
  count = count < GD_SCAN_CHUNK ? count : GD_SCAN_CHUNK;
  h[0] = get(states, ((batch * states->dims[1] + chunk) * channels + channel) * size + s);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = (batch * steps + first + i) * channels + channel;
    int64_t at_s = (batch * steps + first + i) * size + s;
    h[i + 1] = exp(get(delta, at) * a) * h[i] + get(delta, at) * get(b, at_s) * get(u, at);
  }
  for (int64_t t = steps - 1; t >= first; t--) { /* later chunks only carry g */
    int64_t at = (batch * steps + t) * channels + channel, at_s = (batch * steps + t) * size + s;
    double e = exp(get(delta, at) * a);
    g += get(c, at_s) * get(dy, at);
    if (t < first + count) {
      int64_t i = t - first;
      sums->du[i] += g * get(delta, at) * get(b, at_s);
      sums->ddelta[i] += g * (a * e * h[i] + get(b, at_s) * get(u, at));
      sums->db[i][s] += g * get(delta, at) * get(u, at);
      sums->dc[i][s] += get(dy, at) * h[i + 1];
      da_log += g * get(delta, at) * a * e * h[i];
    }
    g *= e;
  }
  return da_log;
}

void gd_ref_scan_grad(const struct gd_kernel_args *args) {
  const struct gd_view *dy = &args->in[0], *u = &args->in[1], *d = &args->in[6];
  const struct gd_view *da_log = &args->out[2];
  int64_t steps = u->dims[1], channels = u->dims[2], size = args->in[3].dims[1];
  static _Thread_local struct chunk_sums sums; /* too large for a stack */
  GD_ASSERT(size <= MOST_STATES);
  for (int64_t i = 0; i < da_log->elements; i++)
    put_out(args, 2, i, 0);
  for (int64_t batch = 0; batch < u->dims[0]; batch++)
    for (int64_t first = 0; first < steps; first += GD_SCAN_CHUNK) {
      int64_t count = steps - first < GD_SCAN_CHUNK ? steps - first : GD_SCAN_CHUNK;
      memset(sums.db, 0, sizeof sums.db);
      memset(sums.dc, 0, sizeof sums.dc);
      for (int64_t channel = 0; channel < channels; channel++) {
        memset(sums.du, 0, sizeof sums.du);
        memset(sums.ddelta, 0, sizeof sums.ddelta);
        for (int64_t s = 0; s < size; s++) {
          int64_t at = channel * size + s;
          double part = walk_back(args, batch, first / GD_SCAN_CHUNK, channel, s, &sums);
          put(da_log, at, get(da_log, at) + part);
        }
        for (int64_t i = 0; i < count; i++) {
          int64_t at = (batch * steps + first + i) * channels + channel;
          put(&args->out[0], at, sums.du[i] + get(d, channel) * get(dy, at));
          put(&args->out[1], at, sums.ddelta[i]);
        }
      }
      for (int64_t i = 0; i < count; i++)
        for (int64_t s = 0; s < size; s++) {
          put(&args->out[3], (batch * steps + first + i) * size + s, sums.db[i][s]);
          put(&args->out[4], (batch * steps + first + i) * size + s, sums.dc[i][s]);
        }
    }
  for (int64_t channel = 0; channel < channels; channel++) {
    double dd = 0;
    for (int64_t at = channel; at < u->elements; at += channels)
      dd += get(dy, at) * get(u, at);
    put_out(args, 5, channel, dd);
  }
}
