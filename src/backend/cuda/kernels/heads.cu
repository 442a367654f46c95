// split_heads and merge_heads: between x[B,T,C] and up to three parts [B,N,T,D] in dtype T0, VEC
// elements at a time. A row is one head of one token, D elements in a run on either side. Rows are
// taken in groups of TOKENS tokens, of a group one head after the other, and of a head token after
// token: so either side is read or written in runs of some rows at about the same time, where the
// order of x would scatter the parts' rows over memory.
// `lanes` threads have a row and UNROLL rows each, and copy its vectors, the loads of all rows before
// the stores. What ROTATES, and whatever else lies in the same vectors, is left to a second walk
// over the block's rotated rows: there all threads share the pairs of all rows evenly, PAIR
// neighbours a thread (the same bits as rope.cu), where the few lanes that have a row's pairs would
// keep their warp waiting. With STASH, where PAIRs would be narrow (4 bytes, if 20 of 80 columns
// rotate), the vectors that hold some of it wait in shared memory instead, to be rotated by the
// threads of their row, so that memory sees whole vectors alone. Reads and writes every element
// once, the table through L1: floor 2 (bytes of x) / bandwidth; 3 FLOPs a rotated element.

#include "heads_args.cuh"

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
static GD_DEVICE row row_at(const gd_heads_args &h, index_t index) {
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

template <bool SPLIT> static GD_DEVICE void copy_vectors(const gd_heads_args &h, int64_t block, int each) {
  for (int item = threadIdx.x % h.lanes; item < h.items; item += h.lanes) {
    vector a[UNROLL];
    T0 *to[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      int64_t index = block + threadIdx.x / h.lanes + u * each;
      to[u] = 0;
      if (index >= h.rows)
        continue;
      row r = row_at(h, (index_t)index);
      int at = item * VEC + (ROTATES && r.rotated ? h.second : 0);
      if (!r.x || at >= h.columns) // a rotated row has fewer items than another
        continue;
      a[u] = *(const vector *)((SPLIT ? r.x : r.part) + at);
      to[u] = (SPLIT ? r.part : r.x) + at;
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (to[u])
        *(vector *)to[u] = a[u];
  }
}

#if ROTATES
template <bool SPLIT> static GD_DEVICE void rotate_pairs(const gd_heads_args &h, int64_t block, int rows) {
  typedef gd_pack<T0, PAIR> piece;
  int half = (int)(h.rotary / 2), pairs = half / PAIR, pieces = h.by_pieces.divisor;
  for (int i = threadIdx.x; i < rows * pieces; i += 256) {
    int in_block = (int)gd_quotient((uint32_t)i, h.by_pieces), number = i - in_block * pieces;
    if (block + in_block >= h.rows)
      break;
    row r = row_at(h, (index_t)(block + in_block));
    if (!r.x || !r.rotated)
      continue;
    const T0 *from = SPLIT ? r.x : r.part;
    T0 *to = SPLIT ? r.part : r.x;
    if (number >= pairs) { // behind the rotary part
      int at = (int)h.rotary + (number - pairs) * PAIR;
      *(piece *)(to + at) = *(const piece *)(from + at);
      continue;
    }
    int at = number * PAIR;
    piece a = *(const piece *)(from + at), b = *(const piece *)(from + half + at);
    float cosine[PAIR], sine[PAIR];
    gd_load(r.angles + at, cosine);
    gd_load(r.angles + half + at, sine);
#pragma unroll
    for (int v = 0; v < PAIR; v++) {
      float rotated[2];
      gd_rotate(gd_float(a.at[v]), gd_float(b.at[v]), cosine[v], h.sign * sine[v], rotated);
      a.at[v] = gd_to<T0>(rotated[0]);
      b.at[v] = gd_to<T0>(rotated[1]);
    }
    *(piece *)(to + at) = a;
    *(piece *)(to + half + at) = b;
  }
}
#endif

#if STASH
// A row has one vector a thread: h.items is h.lanes.
template <bool SPLIT> static GD_DEVICE void move_rotated(const gd_heads_args &h, int64_t block, int each) {
  __shared__ vector stash[UNROLL][256];
  int item = (int)threadIdx.x % h.lanes, own = (int)threadIdx.x / h.lanes;
  int half = (int)(h.rotary / 2);
  vector a[UNROLL];
  T0 *to[UNROLL];
  const float *angles[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    int64_t index = block + own + u * each;
    to[u] = 0;
    angles[u] = 0;
    if (own >= each || index >= h.rows)
      continue;
    row r = row_at(h, (index_t)index);
    if (!r.x)
      continue;
    a[u] = *(const vector *)((SPLIT ? r.x : r.part) + item * VEC);
    to[u] = (SPLIT ? r.part : r.x) + item * VEC;
    if (r.rotated)
      angles[u] = r.angles;
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    if (angles[u] && item * VEC < h.second) {
      stash[u][threadIdx.x] = a[u];
    } else if (to[u]) {
      *(vector *)to[u] = a[u];
      to[u] = 0;
    }
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    T0 *x = (T0 *)&stash[u][own * h.lanes];
    for (int n = item; angles[u] && n < half; n += h.lanes) {
      float rotated[2];
      gd_rotate(gd_float(x[n]), gd_float(x[half + n]), angles[u][n], h.sign * angles[u][half + n],
              rotated);
      x[n] = gd_to<T0>(rotated[0]);
      x[half + n] = gd_to<T0>(rotated[1]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (to[u])
      *(vector *)to[u] = stash[u][threadIdx.x];
}
#endif

template <bool SPLIT> static GD_DEVICE void move_heads(const gd_heads_args &h) {
  int each = 256 / h.lanes, rows = each * UNROLL;
  int64_t block = (int64_t)blockIdx.x * rows;
#if STASH
  move_rotated<SPLIT>(h, block, each);
#else
  if (threadIdx.x < each * h.lanes)
    copy_vectors<SPLIT>(h, block, each);
#if ROTATES
  rotate_pairs<SPLIT>(h, block, rows);
#endif
#endif
}

extern "C" __global__ void __launch_bounds__(256) split_heads(gd_heads_args h) {
  move_heads<true>(h);
}
extern "C" __global__ void __launch_bounds__(256) merge_heads(gd_heads_args h) {
  move_heads<false>(h);
}
