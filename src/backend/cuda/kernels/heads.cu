// split_heads and merge_heads: between x[B,T,C] and up to three parts [B,N,T,D] in dtype T0, VEC
// elements at a time. A row is one head of one token, D elements in a run on either side. Rows are
// taken in groups of TOKENS tokens, of a group one head after the other, and of a head token after
// token: so either side is read or written in runs of some rows at about the same time, where the
// order of x would scatter the parts' rows over memory.
// `lanes` threads have a row and UNROLL rows each. ROTATES=1: of a rotated row a thread has a vector
// of the first half of the rotary part with its partner in the second (as in rope.cu: the same
// bits), of all else a vector that it copies. ROTATES=2, where the halves are no whole vectors: a
// thread turns the elements of its vector one by one, and finds their partners in L1.
// The loads of all rows come before the stores. Reads and writes every element once, the table
// through L1: floor 2 (bytes of x) / bandwidth; 3 FLOPs a rotated element.

struct heads {
  T0 *x;
  T0 *part[3];
  const float *table;
  int64_t rows, tokens;          // P N for each of whole groups of tokens; B T
  int64_t columns, rotary;       // D, R
  int64_t heads;                 // N
  gd_divider by_group;           // P N TOKENS
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

// x is NULL where there is no such token.
static GD_DEVICE row row_at(const heads &h, index_t index) {
  index_t group = quotient(index, h.by_group), in_group = index - group * h.by_group.divisor;
  index_t token = group * TOKENS + in_group % TOKENS, in_token = in_group / TOKENS;
  index_t sample = quotient(token, h.by_positions), position = token - sample * h.by_positions.divisor;
  index_t outer = quotient(in_token, h.by_inner), inner = in_token - outer * h.by_inner.divisor;
  index_t head = h.interleaved ? outer : inner, part = h.interleaved ? inner : outer;
  T0 *base = part == 0 ? h.part[0] : part == 1 ? h.part[1] : h.part[2];
  row r;
  r.x = 0;
  if (token >= h.tokens)
    return r;
  r.x = h.x + ((int64_t)token * (h.by_group.divisor / TOKENS) + in_token) * h.columns;
  index_t row_of_part = (sample * (index_t)h.heads + head) * h.by_positions.divisor + position;
  r.part = base + (int64_t)row_of_part * h.columns;
  r.rotated = h.rotated >> part & 1u;
  r.angles = h.table + (int64_t)position * h.rotary;
  return r;
}

typedef gd_pack<T0, VEC> vector;

#if ROTATES == 2
// The elements from `at` on of a row that begins at `from`, turned.
static GD_DEVICE vector turned_at(const heads &h, const row &r, const T0 *from, int64_t at) {
  int half = (int)(h.rotary / 2);
  vector own = *(const vector *)(from + at);
#pragma unroll
  for (int v = 0; v < VEC; v++) {
    int e = (int)at + v;
    bool second = e >= half;
    if (e >= 2 * half)
      continue;
    int angle = second ? e - half : e;
    float partner = gd_float(from[second ? e - half : e + half]), x = gd_float(own.at[v]);
    float turned[2];
    gd_turn(second ? partner : x, second ? x : partner, r.angles[angle],
            h.sign * r.angles[half + angle], turned);
    own.at[v] = gd_to<T0>(second ? turned[1] : turned[0]);
  }
  return own;
}
#endif

template <bool SPLIT> static GD_DEVICE void move_heads(const heads &h) {
  int each = 256 / h.lanes;
  if (threadIdx.x >= each * h.lanes)
    return;
  int64_t first = (int64_t)blockIdx.x * (each * UNROLL) + threadIdx.x / h.lanes;
  int64_t half = ROTATES == 1 ? h.rotary / 2 : 0, pairs = half / VEC;
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
      if (!r.x)
        continue;
      const T0 *from = SPLIT ? r.x : r.part;
      to[u] = SPLIT ? r.part : r.x;
      int64_t at = item * VEC;
#if ROTATES == 2
      if (r.rotated && at < h.rotary) {
        a[u] = turned_at(h, r, from, at);
        to[u] += at;
        continue;
      }
#endif
      if (ROTATES == 1 && r.rotated) {
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
      if (ROTATES == 1 && angles[u]) {
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

extern "C" __global__ void __launch_bounds__(256) split_heads(heads h) {
  move_heads<true>(h);
}
extern "C" __global__ void __launch_bounds__(256) merge_heads(heads h) {
  move_heads<false>(h);
}
