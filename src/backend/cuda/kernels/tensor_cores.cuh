// Tensor cores from shared memory: the instructions and who holds what, for attention's kernels.
#ifndef GD_TENSOR_CORES_CUH
#define GD_TENSOR_CORES_CUH

extern __shared__ __align__(16) unsigned char shared[];

// As gd_shared, but the compiler sees a number and nothing of what it is the address of: kernels
// were measured so, and others come out of the latter.
GD_DEVICE uint32_t shared_address(const void *p) {
  uint32_t address;
  asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }"
      : "=r"(address)
      : "l"(p));
  return address;
}

// Four 8x8 matrices of 16-bit elements (or 8x4 of 32-bit ones): lanes 8i..8i+7 name the rows of
// matrix i, 16 bytes each; lane 4r + c gets bytes 4c..4c+3 of row r of each.
GD_DEVICE void load_matrices(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

// The same of 16-bit matrices, transposed: lane 4c + r gets rows 2r, 2r+1 of column c.
GD_DEVICE void load_transposed(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

// What differs between dtypes. Of two that are packed, `first` goes to the lower half.
template <typename T> struct gd_unit;
#define GD_MMA(kind)                                                                         \
  static GD_DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {   \
    asm("mma.sync.aligned." kind " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "               \
        "{%0, %1, %2, %3};"                                                                      \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                         \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                         \
  }
template <> struct gd_unit<gd_bf16> {
  static GD_DEVICE uint32_t pack(float first, float second) {
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(second), "f"(first));
    return x;
  }
  GD_MMA("m16n8k16.row.col.f32.bf16.bf16.f32")
};
template <> struct gd_unit<gd_f16> {
  static GD_DEVICE uint32_t pack(float first, float second) {
    uint32_t x;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(second), "f"(first));
    return x;
  }
  GD_MMA("m16n8k16.row.col.f32.f16.f16.f32")
};
template <> struct gd_unit<gd_f32> { // of operands, the lowest 13 bits are not looked at
  static GD_DEVICE uint32_t pack(float first, float) { return __float_as_uint(first); }
  GD_MMA("m16n8k8.row.col.f32.tf32.tf32.f32")
};

// With group = lane / 4 and pair = lane % 4, an MMA of a 16 x K matrix a, a K x 8 matrix b (K is
// 16 for 16-bit elements, 8 for tf32) and the 16 x 8 sums c, a lane holds
//   c[0], c[1]  row group,     columns 2 pair, 2 pair + 1
//   c[2], c[3]  row group + 8, the same columns
//   a[0]  row group,     a[1]  row group + 8     16-bit: columns 2 pair, 2 pair + 1; tf32: pair
//   a[2]  row group,     a[3]  row group + 8     8 (tf32: 4) columns further
//   b[0]  column group   16-bit: rows 2 pair, 2 pair + 1; tf32: row pair
//   b[1]  column group   8 (tf32: 4) rows further
// so load_matrices serves both: a from rows of a matrix, b from rows of its transpose.

#endif
