#include "kernels/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/parallel.h"
#include "kernels/math/convert.h"

namespace kernelbox::cpu {
namespace {

// c = op(a) op(b) + beta c, row-major.
void Blas(bool ta, bool tb, int m, int n, int k, const float* a, int lda, const float* b, int ldb,
          float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n,
              k, 1.0F, a, lda, b, ldb, beta, c, ldc);
}

void Blas(bool ta, bool tb, int m, int n, int k, const double* a, int lda, const double* b, int ldb,
          double beta, double* c, int ldc) {
  cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n,
              k, 1.0, a, lda, b, ldb, beta, c, ldc);
}

// A part of a matrix as stored. `ld` is the distance between rows.
template <class T>
struct Block {
  T* data;
  int64_t ld;
  int64_t rows, columns;
};

// Rows [m0, m0 + m) and columns [k0, k0 + k) of op(matrix), as stored.
template <class T>
Block<const T> Part(const T* matrix, bool transposed, int64_t ld, int64_t m0, int64_t m, int64_t k0,
                    int64_t k) {
  if (transposed) return {matrix + k0 * ld + m0, ld, k, m};
  return {matrix + m0 * ld + k0, ld, m, k};
}

template <class T, class U>
void Copy(Block<const T> from, Block<U> to) {
  ParallelFor(
      from.rows,
      [&](int64_t r) {
        for (int64_t c = 0; c < from.columns; ++c) {
          to.data[r * to.ld + c] = math::Convert<U>(from.data[r * from.ld + c]);
        }
      },
      kGrain / std::max<int64_t>(1, from.columns));
}

// Sets every row to the bias, or to 0 without one.
template <class T, class S>
void StartWithBias(const T* bias, Block<S> c) {
  ParallelFor(
      c.rows,
      [&](int64_t r) {
        for (int64_t i = 0; i < c.columns; ++i) {
          c.data[r * c.ld + i] = bias == nullptr ? S(0) : math::Convert<S>(bias[i]);
        }
      },
      kGrain / std::max<int64_t>(1, c.columns));
}

// float and double: OpenBLAS on the matrices themselves. Sizes are cut to fit its int.
template <class T>
void RunDirect(const Gemm& g, T* c) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t lda = g.transpose_a ? g.m : g.k;
  const int64_t ldb = g.transpose_b ? g.k : g.n;
  StartWithBias(static_cast<const T*>(g.bias), Block<T>{c, g.n, g.m, g.n});
  for (int64_t m0 = 0; m0 < g.m; m0 += kMost) {
    const int64_t m = std::min(kMost, g.m - m0);
    for (int64_t k0 = 0; k0 < g.k; k0 += kMost) {
      const int64_t k = std::min(kMost, g.k - k0);
      const auto a = Part(static_cast<const T*>(g.a), g.transpose_a, lda, m0, m, k0, k);
      const auto b = Part(static_cast<const T*>(g.b), g.transpose_b, ldb, k0, k, 0, g.n);
      Blas(g.transpose_a, g.transpose_b, static_cast<int>(m), static_cast<int>(g.n),
           static_cast<int>(k), a.data, static_cast<int>(lda), b.data, static_cast<int>(ldb), T(1),
           c + m0 * g.n, static_cast<int>(g.n));
    }
  }
}

// 16-bit types: in blocks converted to float, so that scratch memory stays small.
constexpr int64_t kBlockM = 256, kBlockN = 1024, kBlockK = 512;

template <class T, class U>
void RunConverted(const Gemm& g, float* scratch, U* c) {
  float* a_block = scratch;
  float* b_block = a_block + kBlockM * kBlockK;
  float* c_block = b_block + kBlockK * kBlockN;
  const int64_t lda = g.transpose_a ? g.m : g.k;
  const int64_t ldb = g.transpose_b ? g.k : g.n;
  const T* bias = static_cast<const T*>(g.bias);
  for (int64_t n0 = 0; n0 < g.n; n0 += kBlockN) {
    const int64_t n = std::min(kBlockN, g.n - n0);
    for (int64_t m0 = 0; m0 < g.m; m0 += kBlockM) {
      const int64_t m = std::min(kBlockM, g.m - m0);
      StartWithBias(bias == nullptr ? nullptr : bias + n0, Block<float>{c_block, n, m, n});
      for (int64_t k0 = 0; k0 < g.k; k0 += kBlockK) {
        const int64_t k = std::min(kBlockK, g.k - k0);
        const auto a = Part(static_cast<const T*>(g.a), g.transpose_a, lda, m0, m, k0, k);
        const auto b = Part(static_cast<const T*>(g.b), g.transpose_b, ldb, k0, k, n0, n);
        Copy(a, Block<float>{a_block, a.columns, a.rows, a.columns});
        Copy(b, Block<float>{b_block, b.columns, b.rows, b.columns});
        Blas(g.transpose_a, g.transpose_b, static_cast<int>(m), static_cast<int>(n),
             static_cast<int>(k), a_block, static_cast<int>(a.columns), b_block,
             static_cast<int>(b.columns), 1.0F, c_block, static_cast<int>(n));
      }
      Copy(Block<const float>{c_block, n, m, n}, Block<U>{c + m0 * g.n + n0, g.n, m, n});
    }
  }
}

}  // namespace

size_t GemmWorkspace(DType in) {
  if (in == DType::kFloat32 || in == DType::kFloat64) return 0;
  return sizeof(float) * (kBlockM * kBlockK + kBlockK * kBlockN + kBlockM * kBlockN);
}

Status RunGemm(const Gemm& g, void* workspace, Gemm::Done* done) {
  done->bias = true;
  if (g.m == 0 || g.n == 0) return Status::Ok();
  if (std::max({g.transpose_a ? g.m : g.k, g.k, g.n}) > std::numeric_limits<int>::max()) {
    return Status::Error(Reason::kUnsupported, "", "matrices with rows below 2^31 elements",
                         "a longer one");
  }
  float* scratch = static_cast<float*>(workspace);
  void* c = g.Linear();
  DispatchFloating(g.in, [&]<class T>(TypeTag<T>) {
    if constexpr (!math::kIsHalf<T>) {
      RunDirect(g, static_cast<T*>(c));
    } else if (g.out == DType::kFloat32) {
      RunConverted<T>(g, scratch, static_cast<float*>(c));
    } else {
      RunConverted<T>(g, scratch, static_cast<T*>(c));
    }
  });
  return Status::Ok();
}

}  // namespace kernelbox::cpu
