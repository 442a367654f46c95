// Numbers like those of a network, in dtype T0, mean 0 and variance 1: what algorithms are timed on.
// Writes every element once.

GD_DEVICE uint32_t scrambled(uint32_t x) {
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  return x ^ x >> 16;
}

// Four uniform numbers of a byte each, summed: near enough to a normal distribution.
extern "C" __global__ void __launch_bounds__(256) random_fill(T0 *to, int64_t count) {
  for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < count; i += (int64_t)gridDim.x * 256) {
    uint32_t x = scrambled((uint32_t)i + scrambled((uint32_t)(i >> 32)));
    uint32_t pairs = (x & 0x00ff00ffu) + (x >> 8 & 0x00ff00ffu);
    float sum = (float)((pairs & 0xffffu) + (pairs >> 16));
    float rest = (float)(scrambled(x) >> 8) * 0x1p-24f; // all bits of the mantissa
    to[i] = gd_to<T0>((sum + rest - 510.5f) * 6.765e-3f);
  }
}
