// split_heads and merge_heads: between x[B,T,C] and up to three parts [B,N,T,D] in dtype T0, VEC
// elements at a time. A row is one head of one token, D elements in a run on either side, and the
// rows are taken in the order of x: x is one stream, a part is written or read in runs of a row.
// `lanes` threads (a power of two) have a row and UNROLL rows each; of a rotated row a thread has a
// unit of the rotary part (the same bits as in rope.cu) or a vector that it copies. The loads of all
// rows come before the stores. ROTATES:
//   0  no row is rotated
//   1  a unit is a vector of the first half with its partner in the second, and a thread may have
//      several
//   2  the same, but a thread has at most one in all its rows: which lane has which item moves on
//      from row to row, so that a warp does the arithmetic once and not once a row
//   3  as 2, but the unit is the whole rotary part, RUN vectors with what is behind it in the last
//      one: halves of HALF elements that are no vectors
// Reads and writes every element once, the table through L1: floor 2 (bytes of x) / bandwidth;
// 3 FLOPs a rotated element.

struct heads {
  T0 *x;
  T0 *part[3];
  const float *table;
  int64_t rows, columns, rotary; // B T P N, D, R
  int64_t heads;                 // N
  gd_divider by_token;           // P N
  gd_divider by_positions;       // T
  gd_divider by_inner;           // the faster of the two in a token: P if interleaved, else N
  uint32_t rotated;
  int32_t interleaved;
  int32_t lanes;
  int64_t items; // vectors and pairs of a row, at most
  float sign;
};

struct row {
  T0 *x, *part;
  const float *angles;
  bool rotated;
};

// Indices of rows: 31 bits, or WIDE where there are more of them.
#if WIDE
typedef int64_t index_t;
static GD_DEVICE index_t quotient(index_t n, const gd_divider &by) { return n / by.divisor; }
#else
typedef uint32_t index_t;
static GD_DEVICE index_t quotient(index_t n, const gd_divider &by) { return gd_quotient(n, by); }
#endif

static GD_DEVICE row row_at(const heads &h, index_t index) {
  index_t token = quotient(index, h.by_token), in_token = index - token * h.by_token.divisor;
  index_t sample = quotient(token, h.by_positions), position = token - sample * h.by_positions.divisor;
  index_t outer = quotient(in_token, h.by_inner), inner = in_token - outer * h.by_inner.divisor;
  index_t head = h.interleaved ? outer : inner, part = h.interleaved ? inner : outer;
  T0 *base = part == 0 ? h.part[0] : part == 1 ? h.part[1] : h.part[2];
  row r;
  r.x = h.x + (int64_t)index * h.columns;
  index_t row_of_part = (sample * (index_t)h.heads + head) * h.by_positions.divisor + position;
  r.part = base + (int64_t)row_of_part * h.columns;
  r.rotated = h.rotated >> part & 1u;
  r.angles = h.table + (int64_t)position * h.rotary;
  return r;
}

typedef gd_pack<T0, VEC> vector;

template <bool SPLIT> static GD_DEVICE void move_heads(const heads &h) {
  int each = 256 / h.lanes;
  int64_t first = (int64_t)blockIdx.x * (each * UNROLL) + threadIdx.x / h.lanes;
  int64_t half = ROTATES ? h.rotary / 2 : 0, pairs = half / VEC;
  for (int64_t item = threadIdx.x % h.lanes; item < h.items; item += h.lanes) {
    vector a[UNROLL], b[UNROLL];
    T0 *to[UNROLL];
    const float *angles[UNROLL]; // of a pair; else NULL
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      int64_t index = first + u * each;
      to[u] = 0;
      angles[u] = 0;
      if (index >= h.rows)
        continue;
      row r = row_at(h, (index_t)index);
      const T0 *from = SPLIT ? r.x : r.part;
      to[u] = SPLIT ? r.part : r.x;
      int64_t at = item * VEC;
      if (ROTATES && r.rotated) {
        if (item < pairs) {
          angles[u] = r.angles + at;
          b[u] = *(const vector *)(from + at + half);
        } else {
          at += half; // behind both halves
        }
        if (at >= h.columns) { // a rotated row has fewer items than another
          to[u] = 0;
          continue;
        }
      }
      a[u] = *(const vector *)(from + at);
      to[u] += at;
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (!to[u])
        continue;
      if (ROTATES && angles[u]) {
        float cosine[VEC], sine[VEC];
        gd_load(angles[u], cosine);
        gd_load(angles[u] + half, sine);
        vector c, d;
#pragma unroll
        for (int v = 0; v < VEC; v++) {
          float turned[2];
          gd_turn(gd_float(a[u].at[v]), gd_float(b[u].at[v]), cosine[v], h.sign * sine[v], turned);
          c.at[v] = gd_to<T0>(turned[0]);
          d.at[v] = gd_to<T0>(turned[1]);
        }
        *(vector *)to[u] = c;
        *(vector *)(to[u] + half) = d;
      } else {
        *(vector *)to[u] = a[u];
      }
    }
  }
}

#if ROTATES >= 2
#if ROTATES == 2
#undef RUN
#define RUN 2
#define ANGLES (2 * VEC)
#else
#define ANGLES (2 * HALF)
#endif

// What one thread rotates, in registers.
struct unit {
  vector at[RUN];
  float angles[ANGLES]; // cosines, then sines
  T0 *to;

  GD_DEVICE void load(const T0 *from, const float *table, int64_t half) {
    constexpr int AHEAD = ROTATES == 2 ? VEC : HALF, N = AHEAD % 4 == 0 ? 4 : 2;
    int64_t apart = ROTATES == 2 ? half : VEC;
#pragma unroll
    for (int i = 0; i < RUN; i++)
      at[i] = *(const vector *)(from + i * apart);
#pragma unroll
    for (int i = 0; i < ANGLES; i += N) {
      float x[N];
      gd_load(table + (i < AHEAD ? i : half + i - AHEAD), x);
#pragma unroll
      for (int n = 0; n < N; n++)
        angles[i + n] = x[n];
    }
  }

  GD_DEVICE void turn(float sign, int64_t half) {
    constexpr int AHEAD = ROTATES == 2 ? VEC : HALF;
    int64_t apart = ROTATES == 2 ? half : VEC;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) { // element i and the one AHEAD of it, wherever in the vectors
      T0 &a = at[i / VEC].at[i % VEC], &b = at[(i + AHEAD) / VEC].at[(i + AHEAD) % VEC];
      float turned[2];
      gd_turn(gd_float(a), gd_float(b), angles[i], sign * angles[i + AHEAD], turned);
      a = gd_to<T0>(turned[0]);
      b = gd_to<T0>(turned[1]);
    }
#pragma unroll
    for (int i = 0; i < RUN; i++)
      *(vector *)(to + i * apart) = at[i];
  }
};

template <bool SPLIT> static GD_DEVICE void spread_heads(const heads &h) {
  int lane = threadIdx.x & (h.lanes - 1), each = 256 / h.lanes;
  int64_t first = (int64_t)blockIdx.x * (each * UNROLL) + threadIdx.x / h.lanes;
  int64_t half = h.rotary / 2;
  int units = ROTATES == 2 ? (int)half / VEC : 1;
  int behind = ROTATES == 2 ? (int)half : (RUN - 1) * VEC; // how much further a copied item is
  vector a[UNROLL];
  T0 *to[UNROLL];
  unit turned;
  turned.to = 0;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    int64_t index = first + u * each;
    to[u] = 0;
    if (index >= h.rows)
      continue;
    row r = row_at(h, (index_t)index);
    int item = (lane + u * units) & (h.lanes - 1), at = item * VEC;
    if (r.rotated && item < units) {
      turned.load((SPLIT ? r.x : r.part) + at, r.angles + at, half);
      turned.to = (SPLIT ? r.part : r.x) + at;
      continue;
    }
    at += r.rotated ? behind : 0;
    if (at >= h.columns)
      continue;
    a[u] = *(const vector *)((SPLIT ? r.x : r.part) + at);
    to[u] = (SPLIT ? r.part : r.x) + at;
  }
  if (turned.to)
    turned.turn(h.sign, half);
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (to[u])
      *(vector *)to[u] = a[u];
}
#define MOVE spread_heads
#else
#define MOVE move_heads
#endif

extern "C" __global__ void __launch_bounds__(256) split_heads(heads h) {
  MOVE<true>(h);
}
extern "C" __global__ void __launch_bounds__(256) merge_heads(heads h) {
  MOVE<false>(h);
}
