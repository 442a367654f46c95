// The gradient of the selective scan of Mamba; the formulas are those of ref_scan.c.
// T0: u, dy and du; T1: delta and its gradient; T2: b, c and theirs. Letters: T steps, C channels,
// S states.
//
// A chunk has 64 steps; the forward pass saved the states at its start. 8 lanes of a warp (a row)
// hold 8 of its steps each, for CP channels. A warp has 4 such rows. They go through the states one
// by one. The recurrences h_t = p_t h_{t-1} + v_t and, backward, g_t = w_t + p_{t+1} g_{t+1} are
// composed per lane, scanned across the 8 lanes and walked again from what the scan gave, so each
// power is computed once and du and ddelta, sums over states, stay in registers. db and dc, sums
// over channels, are added up in shared memory. At any time the rows of a CTA work on different
// states, and a warp gets its next 4 states (a quad) from the warp after it, so the order of
// additions is fixed. Each row works on two states at once: the operands of the second are read
// before the first is done.
//
// exp(delta A) is 2^(delta a) with a = A log2(e), one instruction of the special function units.
// Reads of registers bound it: about 51 a state and step, of which a scheduler gets two a clock (on
// 132 multiprocessors at 1.98 GHz 290 us for 369 million), closely followed by the 24 instructions
// (265 us) and by shared memory and shuffles (75 wavefronts for a warp's state of 16 steps: 210
// us); the powers take 120 us, the bytes 60.
//
// STATES, VEC (elements of u at a time between global and shared memory), THREADS, CP, MIN_BLOCKS.

#include "scan_args.cuh"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define CHUNK 64 // GD_SCAN_CHUNK
#define EACH 8   // steps of a lane
#define SPAN 8   // lanes of a chunk
#define ROWS 4   // of lanes in a warp
#define WARPS (THREADS / 32)
#define CHANNELS (WARPS * ROWS * CP)
#define WIDE (CHANNELS + 4) // of [S, C]; 4 more, so that states of a channel meet few banks twice
#define QUADS ((STATES + 3) / 4) // of states
#define PADDED (QUADS * 4)
#define TILE_QUADS (QUADS < 4 ? QUADS : 4) // whose b, c, db, dc are in shared memory at a time
#define TILE_STATES (TILE_QUADS * 4)
#define TURNS (TILE_QUADS < WARPS ? WARPS : TILE_QUADS)
#define PANEL (4 * CHUNK + 4) // floats; 4 more, so that writing b and c meets few banks twice
#define MOST_1(x) ((x) ? (x) : 1)
#define ROUNDS(n) (((n) + THREADS - 1) / THREADS) // of the block over n items
#define PAST(v, n) ((n) % THREADS && (v) >= (n))
#define STAGED (VEC > 1 && STATES * sizeof(T2) % 16 == 0)
#ifndef UNROLL
#define UNROLL 2 // states of a row at once, 1, 2 or 4
#endif
static_assert(WARPS == 1 || (TURNS - 1) * WARPS < 16, "pairs of warps have 15 barriers");

GD_DEVICE void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A barrier of two warps (64 threads): what one wrote before `pair_arrive` is visible to the other
// after `pair_wait`. Each may be used once between two barriers of the block.
GD_DEVICE void pair_arrive(int barrier) {
  asm volatile("bar.arrive %0, 64;" ::"r"(barrier) : "memory");
}
GD_DEVICE void pair_wait(int barrier) {
  asm volatile("bar.sync %0, 64;" ::"r"(barrier) : "memory");
}

// Access to global memory through which blocks exchange results.
GD_DEVICE uint32_t load_acquire(const uint32_t *from) {
  uint32_t x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
GD_DEVICE void store_release(uint32_t *to, uint32_t x) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
GD_DEVICE float load_relaxed(const float *from) {
  float x;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
  return x;
}

// --- tiles ---------------------------------------------------------------------------------------

// CHUNK x CHANNELS elements of x[T, C] in shared memory. Every 8 rows begin 16 bytes late, so that
// the lanes of a chunk, which read rows 8 apart, find different banks.
template <typename T> struct tile {
  static constexpr int MOST = VEC < 16 / (int)sizeof(T) ? VEC : 16 / (int)sizeof(T);
  static constexpr int WIDTH = MOST < CHANNELS ? MOST : CHANNELS, ACROSS = CHANNELS / WIDTH;
  static constexpr int HIGH = THREADS / ACROSS, TIMES = CHUNK / HIGH; // rows at a time
  static constexpr int SKEW = 16 / sizeof(T), ELEMENTS = CHUNK * CHANNELS + SPAN * SKEW;

  static GD_DEVICE int at(int t, int c) { return t * CHANNELS + t / EACH * SKEW + c; }
  // `first`: the element of x that the tile begins with.
  static GD_DEVICE void fetch(T *to, const T *x, int64_t first, uint32_t stride, int steps,
                              int channels) {
    int t = threadIdx.x / ACROSS, c = threadIdx.x % ACROSS * WIDTH;
    first += (int64_t)t * stride + c;
    steps = c < channels ? steps : 0;
#pragma unroll
    for (int i = 0; i < TIMES; i++, first += (int64_t)HIGH * stride, t += HIGH)
      if constexpr (sizeof(T) * WIDTH >= 4)
        gd_copy<sizeof(T) * WIDTH, true>(gd_shared(to + at(t, c)), x + first, t < steps);
      else
        to[at(t, c)] = t < steps ? x[first] : gd_to<T>(0);
  }
};

// CP channels of a step.
template <typename T> GD_DEVICE void get_channels(float (&x)[CP], const T *from) {
  gd_load(from, x);
}
#if CP % 2 == 0
template <> GD_DEVICE void get_channels<gd_bf16>(float (&x)[CP], const gd_bf16 *from) {
  gd_pack<uint32_t, CP / 2> pack = *(const gd_pack<uint32_t, CP / 2> *)from;
#pragma unroll
  for (int j = 0; j < CP; j += 2) {
    x[j] = __uint_as_float(pack.at[j / 2] << 16); // one instruction each
    x[j + 1] = __uint_as_float(pack.at[j / 2] & 0xffff0000);
    asm volatile("" : "+f"(x[j]), "+f"(x[j + 1])); // here, not at every use
  }
}
#endif

// Stores all channels by one instruction; the compiler would use several. Sectors of 32 bytes are
// written whole where the four rows of a warp have 32 contiguous bytes.
GD_DEVICE void put_words(void *to, const uint32_t (&x)[1]) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x[0]) : "memory");
}
GD_DEVICE void put_words(void *to, const uint32_t (&x)[2]) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(x[0]), "r"(x[1]) : "memory");
}
GD_DEVICE void put_words(void *to, const uint32_t (&x)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]),
               "r"(x[2]), "r"(x[3])
               : "memory");
}
template <typename T> GD_DEVICE void put_channels(T *to, const float (&x)[CP], int channels) {
  gd_pack<T, CP> pack;
#pragma unroll
  for (int j = 0; j < CP; j++)
    pack.at[j] = gd_to<T>(x[j]);
  if constexpr (VEC % CP == 0 && sizeof pack >= 4) {
    uint32_t words[sizeof pack / 4];
    memcpy(words, &pack, sizeof pack);
    if (channels > 0)
      put_words(to, words);
  } else {
#pragma unroll
    for (int j = 0; j < CP; j++)
      if (j < channels)
        to[j] = pack.at[j];
  }
}

// A panel in shared memory holds b, c, db and dc of one state and chunk, one after the other. Each
// has the first 4 steps of every lane, then the other 4; `at` points to the first of this lane.
GD_DEVICE void get_steps(float (&x)[EACH], const float *at) {
  float4 low = *(const float4 *)at, high = *(const float4 *)(at + CHUNK / 2);
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}
GD_DEVICE void put_steps(float *at, const float (&x)[EACH]) {
  *(float4 *)at = float4{x[0], x[1], x[2], x[3]};
  *(float4 *)(at + CHUNK / 2) = float4{x[4], x[5], x[6], x[7]};
}

// Copies b or c of TILE_STATES states to their panels. from[t, STATES] points to the first of them.
// Steps after the last one are staged as zeros.
GD_DEVICE void put_selected(float *panels, const T2 *from, int states, int steps) {
  constexpr int QUARTERS = TILE_STATES * CHUNK / 4; // of what a lane has of a state
#pragma unroll
  for (int i = 0; i < ROUNDS(QUARTERS); i++) {
    uint32_t v = threadIdx.x + i * THREADS, s = v % MOST_1(TILE_STATES);
    uint32_t quarter = v / MOST_1(TILE_STATES), t = quarter % SPAN * EACH + quarter / SPAN * 4;
    if (PAST(v, QUARTERS))
      return;
    const T2 *at = from + (t * STATES + s);
    float x[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      bool inside = STATES % MOST_1(TILE_STATES) == 0 || (int)s < states;
      inside = inside && (STAGED || (int)t + k < steps);
      x[k] = inside ? gd_float(at[k * STATES]) : 0.0f;
    }
    *(float4 *)(panels + s * PANEL + quarter * 4) = float4{x[0], x[1], x[2], x[3]};
  }
}

// --- one state -----------------------------------------------------------------------------------

// 8 steps of CP channels, and what is summed of them over states.
struct steps_of {
  float delta[CP][EACH], x[CP][EACH], dy[CP][EACH]; // x: delta u
  float sum1[CP], sum2[CP], sum4[CP]; // of delta: this lane's, with 1 lane's, with 3 before it
  float along_b[CP][EACH], along_a[CP][EACH];
};

// One state of channel j: adds to db, dc and da. edge, in lane 0: the state before the chunk; in
// lane 7: dL/dh times the power of the step after the chunk. Returns in lane 0 what lane 7 needs as
// edge in the previous chunk.
GD_DEVICE float one_state(steps_of &of, int j, float a, float edge, const float (&bs)[EACH],
                          const float (&cs)[EACH], float (&db)[EACH], float (&dc)[EACH], float &da,
                          int lane) {
  float power[EACH], h[EACH + 1], w[EACH];
  float before = lane == 0 ? edge : 0, behind = lane == SPAN - 1 ? edge : 0;
#pragma unroll
  for (int k = 0; k < EACH; k++)
    power[k] = gd_exp2(of.delta[j][k] * a);
  float power1 = gd_exp2(of.sum1[j] * a);
  float power2 = gd_exp2(of.sum2[j] * a), power4 = gd_exp2(of.sum4[j] * a);

  float state = before;
#pragma unroll
  for (int k = 0; k < EACH; k++)
    state = power[k] * state + of.x[j][k] * bs[k];
  float from = __shfl_up_sync(0xffffffff, state, 1, SPAN);
  if (lane >= 1)
    state += power1 * from;
  from = __shfl_up_sync(0xffffffff, state, 2, SPAN);
  if (lane >= 2)
    state += power2 * from;
  from = __shfl_up_sync(0xffffffff, state, 4, SPAN);
  if (lane >= 4)
    state += power4 * from;
  from = __shfl_up_sync(0xffffffff, state, 1, SPAN);
  h[0] = lane == 0 ? before : from;
#pragma unroll
  for (int k = 0; k < EACH; k++) {
    h[k + 1] = power[k] * h[k] + of.x[j][k] * bs[k];
    dc[k] += of.dy[j][k] * h[k + 1];
  }

  float g = behind;
#pragma unroll
  for (int k = EACH - 1; k >= 0; k--) {
    w[k] = cs[k] * of.dy[j][k];
    g = k == EACH - 1 ? w[k] + g : power[k + 1] * g + w[k];
  }
  g *= power[0];
  from = __shfl_down_sync(0xffffffff, g, 1, SPAN);
  if (lane < SPAN - 1)
    g += power1 * from;
  from = __shfl_down_sync(0xffffffff, g, 2, SPAN);
  power2 = __shfl_down_sync(0xffffffff, power2, 1, SPAN);
  if (lane < SPAN - 2)
    g += power2 * from;
  from = __shfl_down_sync(0xffffffff, g, 4, SPAN);
  power4 = __shfl_down_sync(0xffffffff, power4, 3, SPAN);
  if (!(lane >= 4))
    g += power4 * from;
  float left = g;
  from = __shfl_down_sync(0xffffffff, g, 1, SPAN);
  g = lane == SPAN - 1 ? behind : from;
#pragma unroll
  for (int k = EACH - 1; k >= 0; k--) {
    g += w[k];
    of.along_b[j][k] += g * bs[k];
    db[k] += g * of.x[j][k];
    g *= power[k];
    float decayed = g * h[k];
    of.along_a[j][k] += a * decayed;
    da += of.delta[j][k] * decayed;
  }
  return left;
}

// A CTA has CHANNELS channels of a sequence. It processes the chunks of its part of [begin, end)
// backward, and copies the tiles of the next chunk meanwhile. CTAs draw tickets: the first get the
// last parts of the sequences. A CTA waits for the one with the part after its own; ticket order
// guarantees that that one has started. `finished` has a count of finished parts for each group of
// channels, then the number of tickets drawn. carry: dL/dh times the power of the next step, handed
// from part to part and from launch to launch; null where one CTA has all chunks.
// partial[sequence, group, chunk, S, b | c, CHUNK] (in the order of get_steps) are partial sums of
// db and dc for scan_sums; partial_a[sequence, C, S] and partial_d[sequence, C] are added up over
// sequences by others.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    scan_grad(const __grid_constant__ gd_scan_grad_args args) {
  const T0 *dy = args.dy, *u = args.u;
  const T1 *delta = args.delta;
  const T2 *b = args.b, *c = args.c;
  const float *a_log = args.a_log, *d = args.d, *saved = args.saved;
  T0 *du = args.du;
  T1 *ddelta = args.ddelta;
  float *partial = args.partial, *partial_a = args.partial_a, *partial_d = args.partial_d;
  float *carry = args.carry;
  uint32_t *finished = args.finished;
  int from_carry = args.from_carry, parts = args.parts;
  int64_t first_batch = args.first_batch, begin = args.begin, end = args.end;
  int64_t steps = args.steps, channels = args.channels;
  extern __shared__ __align__(16) unsigned char shared[];
  float *panels = (float *)shared, *rates = panels + TILE_STATES * PANEL; // [S, C], as next_g
  float *next_g = rates + PADDED * WIDE, *first_h = next_g + PADDED * WIDE;
  float *rates_g = first_h + 2 * PADDED * WIDE; // [S, thread, CP]
  T2 *raw_b = (T2 *)(rates_g + PADDED * CP * THREADS), *raw_c = raw_b + CHUNK * STATES * STAGED;
  T0 *tiles_u = (T0 *)(raw_c + CHUNK * STATES * STAGED);
  T0 *tile_dy = tiles_u + 2 * tile<T0>::ELEMENTS; // one: soon in registers, unlike u
  T1 *tile_delta = (T1 *)(tile_dy + tile<T0>::ELEMENTS);
  __shared__ uint32_t ticket;
  uint32_t blocks = gridDim.x / parts, turn = blockIdx.x;
  if (parts > 1) { // ticket order guarantees that the CTA that this one waits for has started
    if (threadIdx.x == 0)
      ticket = atomicAdd(finished + blocks, 1u);
    __syncthreads();
    turn = ticket;
  }
  uint32_t part = turn / blocks, block = turn % blocks;
  int64_t groups = (channels + CHANNELS - 1) / CHANNELS, sequence = block / groups;
  int64_t group = block % groups, batch = first_batch + sequence;
  int64_t first_channel = group * CHANNELS;
  int left = channels - first_channel < CHANNELS ? (int)(channels - first_channel) : CHANNELS;
  int64_t chunks = (steps + CHUNK - 1) / CHUNK;
  uint32_t stride = (uint32_t)channels;
  int warp = threadIdx.x / 32, lane = threadIdx.x % SPAN, row = threadIdx.x % 32 / SPAN;
  int local = (warp * ROWS + row) * CP;
  float *own_panel = panels + lane * 4, *own_rates = rates + local;
  float *own_rates_g = rates_g + threadIdx.x * CP;

  float *shares = partial + (sequence * groups + group) * (end - begin) * STATES * 2 * CHUNK;
  int64_t each = (end - begin + parts - 1) / parts, first = begin;
  end -= part * each;
  begin = end - each > begin ? end - each : begin;
  shares += (end - 1 - first) * STATES * 2 * CHUNK;
  if (part > 0) {
    from_carry = 1;
    if (threadIdx.x == 0)
      while (load_acquire(finished + block) < part)
        ;
    __syncthreads();
  }
  for (int v = threadIdx.x; v < PADDED * CHANNELS; v += THREADS) {
    int s = v / CHANNELS, ch = v % CHANNELS, to = s * WIDE + ch;
    bool inside = s < STATES && ch < left;
    int64_t at = (first_channel + ch) * STATES + s;
    rates[to] = inside ? -expf(a_log[at]) * LOG2_E : 0;
    next_g[to] = from_carry && inside ? load_relaxed(carry + sequence * channels * STATES + at) : 0;
    first_h[to] = first_h[PADDED * WIDE + to] = 0;
  }
  for (int v = threadIdx.x; v < PADDED * CP * THREADS; v += THREADS)
    rates_g[v] = 0;
  for (int v = threadIdx.x; v < TILE_STATES * PANEL; v += THREADS)
    panels[v] = 0;
  __syncthreads();

  // Of the current chunk: its first element in u, in saved and in b, and how many steps it has.
  int64_t last = end - 1, corner = (batch * steps + last * CHUNK) * channels + first_channel;
  int64_t of_saved = ((batch * chunks + last) * channels + first_channel) * STATES;
  int64_t of_b = (batch * steps + last * CHUNK) * STATES;
  int rest = end < chunks ? CHUNK : (int)(steps - last * CHUNK), half = (int)last & 1;
  auto fetch = [&](int64_t corner, int64_t of_saved, int64_t of_b, int rest, int half) {
    tile<T0>::fetch(tiles_u + half * tile<T0>::ELEMENTS, u, corner, stride, rest, left);
    tile<T0>::fetch(tile_dy, dy, corner, stride, rest, left);
    tile<T1>::fetch(tile_delta, delta, corner, stride, rest, left);
    const float *from = saved + of_saved;
    float *to = first_h + half * PADDED * WIDE;
    constexpr int STATES_IN = CHANNELS * STATES, PIECES = CHUNK * STATES * (int)sizeof(T2) / 16;
#pragma unroll
    for (int i = 0; i < ROUNDS(STATES_IN); i++) {
      uint32_t v = threadIdx.x + i * THREADS, ch = v / MOST_1(STATES), s = v % MOST_1(STATES);
      if (THREADS % MOST_1(STATES) == 0) // the compiler does not see that this is the same
        ch = threadIdx.x / MOST_1(STATES) + i * (THREADS / MOST_1(STATES));
      if (!PAST(v, STATES_IN))
        gd_copy<4, true>(gd_shared(to + s * WIDE + ch), from + v, (int)ch < left);
    }
    if constexpr (STAGED) {
      int bytes = rest * STATES * (int)sizeof(T2);
      const char *from_b = (const char *)(b + of_b), *from_c = (const char *)(c + of_b);
#pragma unroll
      for (int i = 0; i < ROUNDS(PIECES); i++) {
        int v = threadIdx.x + i * THREADS;
        if (PAST(v, PIECES))
          break;
        gd_copy<16, true>(gd_shared((char *)raw_b + v * 16), from_b + v * 16, v * 16 < bytes);
        gd_copy<16, true>(gd_shared((char *)raw_c + v * 16), from_c + v * 16, v * 16 < bytes);
      }
    }
  };
  float dd[CP] = {}, skip[CP];
#pragma unroll
  for (int j = 0; j < CP; j++)
    skip[j] = local + j < left ? d[first_channel + local + j] : 0;
  auto fetch_next = [&] {
    fetch(corner - CHUNK * channels, of_saved - channels * STATES, of_b - CHUNK * STATES, CHUNK,
          half ^ 1);
  };
  if (begin < end)
    fetch(corner, of_saved, of_b, rest, half);
  for (int left_over = (int)(end - begin); left_over > 0; left_over--) {
    T0 *tile_u = tiles_u + half * tile<T0>::ELEMENTS;
    T0 *own_u = tile_u + tile<T0>::at(lane * EACH, local);
    T0 *own_dy = tile_dy + tile<T0>::at(lane * EACH, local);
    T1 *own_delta = tile_delta + tile<T1>::at(lane * EACH, local);
    // Lane 7 reads the value after the chunk, the others that before it; only lane 0 uses the latter.
    const float *edges = lane == SPAN - 1 ? next_g : first_h + half * PADDED * WIDE;
    const float *own_edges = edges + local;
    copies_wait();
    __syncthreads();
    steps_of of;
#pragma unroll
    for (int j = 0; j < CP; j++)
      of.sum1[j] = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      float step[CP], input[CP], gradient[CP];
      get_channels(step, own_delta + k * CHANNELS);
      get_channels(input, own_u + k * CHANNELS);
      get_channels(gradient, own_dy + k * CHANNELS);
#pragma unroll
      for (int j = 0; j < CP; j++) {
        of.delta[j][k] = step[j];
        of.x[j][k] = step[j] * input[j];
        of.dy[j][k] = gradient[j];
        of.sum1[j] += step[j];
        of.along_a[j][k] = of.along_b[j][k] = 0;
        dd[j] += gradient[j] * input[j];
      }
    }
#pragma unroll
    for (int j = 0; j < CP; j++) { // lanes without so many lanes before them do not use what they get
      of.sum2[j] = of.sum1[j] + __shfl_up_sync(0xffffffff, of.sum1[j], 1, SPAN);
      of.sum4[j] = of.sum2[j] + __shfl_up_sync(0xffffffff, of.sum2[j], 2, SPAN);
    }
    for (int quad = 0; quad < QUADS; quad += TILE_QUADS) {
      int states = STATES - quad * 4;
      if (quad > 0)
        __syncthreads();
      put_selected(panels, (STAGED ? raw_b : b + of_b) + quad * 4, states, rest);
      put_selected(panels + CHUNK, (STAGED ? raw_c : c + of_b) + quad * 4, states, rest);
      __syncthreads();
      if (quad == 0 && TILE_QUADS == QUADS && left_over > 1)
        fetch_next();
      for (int turn = 0; turn < TURNS; turn++) {
        int own_quad = (warp + turn) % TURNS; // a quad that no other warp works on
        if (WARPS > 1 && turn > 0) // the next warp has just finished with it
          pair_wait((turn - 1) * WARPS + (warp + 1) % WARPS + 1);
        if (own_quad < TILE_QUADS && quad + own_quad < QUADS) {
#pragma unroll 1
          for (int i = 0; i < 4; i += UNROLL) {
            int at[UNROLL];
            float a[UNROLL][CP], edge[UNROLL][CP];
            float bs[UNROLL][EACH], cs[UNROLL][EACH];
#pragma unroll
            for (int n = 0; n < UNROLL; n++) { // no other warp writes these now
              at[n] = (own_quad * 4 + row) ^ (i + n); // each row of a warp works on another state
              gd_load(own_rates + (quad * 4 + at[n]) * WIDE, a[n]);
              gd_load(own_edges + (quad * 4 + at[n]) * WIDE, edge[n]);
              get_steps(bs[n], own_panel + at[n] * PANEL);
              get_steps(cs[n], own_panel + at[n] * PANEL + CHUNK);
            }
#pragma unroll
            for (int n = 0; n < UNROLL; n++) {
              int s = at[n], in_all = quad * 4 + s;
              float *panel = own_panel + s * PANEL, *own = own_rates_g + in_all * (THREADS * CP);
              float db[EACH], dc[EACH], da[CP], out[CP];
              gd_load(own, da);
              get_steps(db, panel + 2 * CHUNK);
              get_steps(dc, panel + 3 * CHUNK);
#pragma unroll
              for (int j = 0; j < CP; j++)
                out[j] = one_state(of, j, a[n][j], edge[n][j], bs[n], cs[n], db, dc, da[j], lane);
              put_steps(panel + 2 * CHUNK, db);
              put_steps(panel + 3 * CHUNK, dc);
              gd_store(own, da);
              __syncwarp(); // before another row adds to the sums; lane 7 has read its edge
              if (lane == 0)
                gd_store(own_rates + (PADDED + in_all) * WIDE, out); // next_g
            }
          }
          if (warp ? turn == TURNS - 1 : turn >= WARPS - 1) { // no other warp will add to these sums
            float4 *to = (float4 *)(shares + (quad + own_quad) * 4 * 2 * CHUNK) + threadIdx.x % 32;
#pragma unroll
            for (int i = 0; i < 4; i++) {
              float4 *sum = (float4 *)(panels + (own_quad * 4 + i) * PANEL + 2 * CHUNK);
              sum += threadIdx.x % 32;
              if (STATES % 4 == 0 || own_quad * 4 + i < states)
                to[i * (CHUNK / 2)] = *sum;
              *sum = float4{0, 0, 0, 0};
            }
          }
        }
        if (WARPS > 1 && turn < TURNS - 1)
          pair_arrive(turn * WARPS + warp + 1);
      }
    }
    if (QUADS == 0)
      __syncthreads(); // the tiles have been read, as in the other branch
    if ((TILE_QUADS < QUADS || QUADS == 0) && left_over > 1)
      fetch_next(); // the staged tiles are free from here on
    int64_t own = corner + (int64_t)(lane * EACH) * stride + local;
    T0 *to_du = du + own;
    T1 *to_ddelta = ddelta + own;
#pragma unroll
    for (int k = 0; k < EACH; k++, to_du += stride, to_ddelta += stride) {
      float input[CP], of_u[CP], of_delta[CP];
      int inside = lane * EACH + k < rest ? left - local : 0;
      get_channels(input, own_u + k * CHANNELS);
#pragma unroll
      for (int j = 0; j < CP; j++) {
        of_u[j] = of.delta[j][k] * of.along_b[j][k] + skip[j] * of.dy[j][k];
        of_delta[j] = input[j] * of.along_b[j][k] + LN_2 * of.along_a[j][k];
      }
      put_channels(to_du, of_u, inside);
      put_channels(to_ddelta, of_delta, inside);
    }
    corner -= CHUNK * channels;
    of_saved -= channels * STATES;
    of_b -= CHUNK * STATES;
    shares -= STATES * 2 * CHUNK;
    rest = CHUNK;
    half ^= 1;
  }
#pragma unroll
  for (int j = 0; j < CP; j++) {
    int64_t at = sequence * channels + first_channel + local + j;
    bool writes = lane == 0 && local + j < left;
    float sum = gd_warp<gd_add>(dd[j], SPAN);
    if (writes)
      partial_d[at] = part > 0 ? load_relaxed(partial_d + at) + sum : sum;
    for (int s = 0; s < STATES; s++) {
      sum = gd_warp<gd_add>(rates_g[(s * THREADS + threadIdx.x) * CP + j], SPAN);
      if (writes) {
        float *to = partial_a + (at * STATES + s);
        sum *= rates[s * WIDE + local + j] * LN_2;
        *to = part > 0 ? load_relaxed(to) + sum : sum;
        if (carry)
          carry[at * STATES + s] = next_g[s * WIDE + local + j];
      }
    }
  }
  if (parts > 1) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
      store_release(finished + block, part + 1);
  }
}

// db and dc of chunks [first, first + chunks) of some sequences, from their groups' shares. A
// thread has 4 steps of a state of either. Reads partial once: 2 S floats a step and group.
extern "C" __global__ void __launch_bounds__(256)
    scan_sums(const __grid_constant__ gd_scan_sums_args args) {
  const float *partial = args.partial;
  T2 *db = args.db, *dc = args.dc;
  int64_t sequences = args.sequences, groups = args.groups, chunks = args.chunks;
  int64_t first_batch = args.first_batch, first = args.first, steps = args.steps;
  int64_t width = chunks * STATES * (CHUNK / 2), item = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (item >= sequences * width)
    return;
  int64_t sequence = item / width, at = item % width;
  const float4 *from = (const float4 *)partial + sequence * groups * width + at;
  float sum[4] = {};
  auto add = [&](float4 x) { sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w; };
  int64_t g = 0;
  for (; g + 8 <= groups; g += 8) {
    float4 part[8];
#pragma unroll
    for (int k = 0; k < 8; k++)
      part[k] = from[(g + k) * width];
#pragma unroll
    for (int k = 0; k < 8; k++)
      add(part[k]);
  }
  for (; g < groups; g++)
    add(from[g * width]);
  int quarter = (int)(at % (CHUNK / 4));
  int64_t of = at / (CHUNK / 4), s = of / 2 % (STATES ? STATES : 1);
  int64_t t = (first + of / (2 * STATES ? 2 * STATES : 1)) * CHUNK + quarter % SPAN * EACH +
              quarter / SPAN * 4;
  T2 *to = (of % 2 ? dc : db) + ((first_batch + sequence) * steps + t) * STATES + s;
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (t + k < steps)
      to[k * STATES] = gd_to<T2>(sum[k]);
}
