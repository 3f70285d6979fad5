// What lets one formula serve the host compiler and nvcc.
#pragma once

#if defined(__CUDACC__)
#define KB_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define KB_HOST_DEVICE inline
#endif
