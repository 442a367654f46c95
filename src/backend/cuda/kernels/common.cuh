// Comes before every kernel: types, conversions, vectors, reductions, random numbers, mathematics.
// No CUDA headers: NVRTC's users often have none.

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define GD_DEVICE __device__ __forceinline__
#define GD_INFINITY __int_as_float(0x7f800000)

// --- dtypes ----------------------------------------------------------------------------------------

typedef float gd_f32;
typedef int gd_i32;
struct gd_bf16 {
  uint16_t bits;
};
struct gd_f16 {
  uint16_t bits;
};

GD_DEVICE float gd_float(gd_f32 x) { return x; }
GD_DEVICE float gd_float(gd_i32 x) { return (float)x; }
GD_DEVICE float gd_float(gd_bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
GD_DEVICE float gd_float(gd_f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

template <typename T> struct gd_rounding;
template <> struct gd_rounding<gd_f32> {
  static GD_DEVICE gd_f32 from(float x) { return x; }
};
template <> struct gd_rounding<gd_bf16> {
  static GD_DEVICE gd_bf16 from(float x) {
    gd_bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
};
template <> struct gd_rounding<gd_f16> {
  static GD_DEVICE gd_f16 from(float x) {
    gd_f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
  }
};
// To nearest even. gd_to<T0>(x).
template <typename T> GD_DEVICE T gd_to(float x) { return gd_rounding<T>::from(x); }

// --- vectors ---------------------------------------------------------------------------------------

// N elements behind each other that move as one access; N * sizeof(T) is at most 16 bytes (more is
// split by the compiler). The address must be a multiple of that: gd_aligned asks.
template <typename T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) gd_pack {
  T at[N];
};
template <typename T, int N> GD_DEVICE void gd_load(const T *p, float (&x)[N]) {
  gd_pack<T, N> pack = *(const gd_pack<T, N> *)p;
#pragma unroll
  for (int i = 0; i < N; i++)
    x[i] = gd_float(pack.at[i]);
}
template <typename T, int N> GD_DEVICE void gd_store(T *p, const float (&x)[N]) {
  gd_pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; i++)
    pack.at[i] = gd_to<T>(x[i]);
  *(gd_pack<T, N> *)p = pack;
}
GD_DEVICE bool gd_aligned(const void *p, int bytes) { return (uint64_t)p % (uint32_t)bytes == 0; }

// --- copies to shared memory -------------------------------------------------------------------------

GD_DEVICE uint32_t gd_shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// BYTES (4, 8 or 16) on their way; zeros where `valid` is false, and `from` is not read then. IN_L1:
// kept there too, as fewer than 16 always are.
template <int BYTES, bool IN_L1 = (BYTES < 16)>
GD_DEVICE void gd_copy(uint32_t to, const void *from, bool valid) {
  static_assert(BYTES == 16 || (IN_L1 && (BYTES == 8 || BYTES == 4)), "what cp.async moves");
  if constexpr (IN_L1)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                 "r"(valid ? BYTES : 0)
                 : "memory");
  else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
GD_DEVICE void gd_copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most N of the groups that this thread committed are still under way.
template <int N> GD_DEVICE void gd_copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// --- division --------------------------------------------------------------------------------------

#include "args.cuh"
// gd_divider: of numbers below 2^31.
GD_DEVICE uint32_t gd_quotient(uint32_t n, const gd_divider &by) {
  return (__umulhi(n, by.factor) + n) >> by.shift;
}

// --- reductions ------------------------------------------------------------------------------------

struct gd_add {
  static GD_DEVICE float of(float a, float b) { return a + b; }
  static GD_DEVICE float none() { return 0; }
};
struct gd_greater {
  static GD_DEVICE float of(float a, float b) { return fmaxf(a, b); }
  static GD_DEVICE float none() { return -GD_INFINITY; }
};

// Over the `width` (a power of two) neighbouring lanes of a warp; every lane gets the result.
template <typename Op> GD_DEVICE float gd_warp(float x, int width = 32) {
  for (int step = width / 2; step > 0; step /= 2)
    x = Op::of(x, __shfl_xor_sync(0xffffffff, x, step, 32));
  return x;
}

// Over a block of whole warps; every thread gets the result. shared: 33 floats, used again at once.
template <typename Op> GD_DEVICE float gd_block(float x, float *shared) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
  x = gd_warp<Op>(x);
  if (warps == 1)
    return x;
  if (lane == 0)
    shared[warp] = x;
  __syncthreads();
  if (warp == 0) {
    x = gd_warp<Op>(lane < warps ? shared[lane] : Op::none());
    if (lane == 0)
      shared[32] = x;
  }
  __syncthreads();
  x = shared[32];
  __syncthreads();
  return x;
}

// --- random numbers --------------------------------------------------------------------------------

// Philox 4x32 with the 7 rounds of gd_rng_dropout; a counter serves 8 elements, 16 bits each.
struct gd_words {
  uint32_t at[4];
};
GD_DEVICE gd_words gd_philox(uint32_t key, uint32_t step, uint32_t stream, uint64_t counter) {
  uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = step, c3 = stream;
  uint32_t k0 = key, k1 = 0;
#pragma unroll
  for (int round = 0; round < 7; round++) {
    uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return gd_words{{c0, c1, c2, c3}};
}
// The bits of element i of a counter's 8, in the high half; what is in the low half is left over, so
// compare with threshold << 16: that is the same.
GD_DEVICE uint32_t gd_drawn(const gd_words &words, uint32_t i) {
  uint32_t low = i & 2 ? words.at[1] : words.at[0], high = i & 2 ? words.at[3] : words.at[2];
  uint32_t word = i & 4 ? high : low;
  return i & 1 ? word : word << 16;
}

// --- rotary positions --------------------------------------------------------------------------

// The pair (a, b) rotated. The fma is explicit, so that every kernel gives the same bits.
GD_DEVICE void gd_rotate(float a, float b, float cosine, float sine, float (&rotated)[2]) {
  rotated[0] = fmaf(a, cosine, -(b * sine));
  rotated[1] = fmaf(b, cosine, a * sine);
}

// --- mathematics -----------------------------------------------------------------------------------

// The special-function unit's exponential and quotient, in place of expf and division: activations
// would otherwise be bound by arithmetic, not by memory. The quotient is two units in the last place
// off, gd_exp_fast by about |x| 2^-24.
GD_DEVICE float gd_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
GD_DEVICE float gd_exp_fast(float x) { return gd_exp2(x * 1.44269504f); }
// Written so that no intermediate overflows into NaN.
GD_DEVICE float gd_logistic(float x) { return __fdividef(1.0f, 1.0f + gd_exp_fast(-x)); }
GD_DEVICE float gd_logistic_derivative(float x) {
  float e = gd_exp_fast(-fabsf(x)), sum = 1.0f + e;
  return __fdividef(e, sum * sum);
}
// P(N(0,1) > z), z >= 0, with e = exp(-z^2 / 2): a polynomial in 0.3 z / (1 + 0.3 z), as on the CPU.
GD_DEVICE float gd_normal_tail(float z, float e) {
  float scaled = z * 0.3f, s = __fdividef(scaled, 1.0f + scaled);
  float p = s * 3.808895229e-02f + -1.368089247e-01f;
  p = p * s + 1.175051083e-01f;
  p = p * s + 1.091282078e-01f;
  p = p * s + -4.502287347e-02f;
  p = p * s + -7.011742978e-01f;
  p = p * s + 1.448101461e+00f;
  p = p * s + -1.329811175e+00f;
  p = p * s + 0.5f;
  return p * e;
}
GD_DEVICE float gd_gauss(float x) { return gd_exp2(x * x * -0.721347520f); }
GD_DEVICE float gd_gelu(float x) {
  float z = fminf(fabsf(x), 16.0f);
  return fmaxf(x, 0.0f) - fabsf(x) * gd_normal_tail(z, gd_gauss(x)); // of -infinity: NaN, as ref
}
GD_DEVICE float gd_gelu_derivative(float x) {
  float e = gd_gauss(x), tail = gd_normal_tail(fminf(fabsf(x), 16.0f), e);
  return x * 0.3989422804014327f * e + (x > 0.0f ? 1.0f - tail : tail);
}
GD_DEVICE float gd_twice_inner(float x) {
  return x * (x * x * 0.07135481627f + 1.5957691216057308f);
}
GD_DEVICE float gd_gelu_tanh(float x) {
  return __fdividef(x, 1.0f + gd_exp_fast(-gd_twice_inner(x)));
}
GD_DEVICE float gd_gelu_tanh_derivative(float x) {
  float s = gd_logistic(gd_twice_inner(x));
  return x * (x * x * 0.21406444881f + 1.5957691216057308f) * (s * (1.0f - s)) + s;
}
// NaN stays, as in PyTorch.
GD_DEVICE float gd_relu(float x) { return x <= 0.0f ? 0.0f : x; }
GD_DEVICE float gd_relu_derivative(float x) { return x <= 0.0f ? 0.0f : 1.0f; }
GD_DEVICE float gd_silu(float x) { return __fdividef(x, 1.0f + gd_exp_fast(-x)); }
GD_DEVICE float gd_silu_derivative(float x) {
  float s = gd_logistic(x);
  return s * (x * (1.0f - s) + 1.0f);
}
GD_DEVICE float gd_softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
GD_DEVICE float gd_softplus_derivative(float x) { return gd_logistic(x); }
GD_DEVICE float gd_quick_gelu(float x) {
  return __fdividef(x, 1.0f + gd_exp_fast(-1.702f * x));
}
GD_DEVICE float gd_quick_gelu_derivative(float x) {
  float s = gd_logistic(1.702f * x);
  return s * (x * ((1.0f - s) * 1.702f) + 1.0f);
}
GD_DEVICE float gd_tanh(float x) { return tanhf(x); }
GD_DEVICE float gd_tanh_derivative(float x) { return 4.0f * gd_logistic_derivative(2.0f * x); }
