// A function compiled for several instruction sets, of which the CPU's widest is taken when the
// program is loaded: TESSERA_CPU_CLONES before its declaration. Floating-point sums may differ in
// their last bits between the sets, for one of them multiplies and adds in one rounding.
#pragma once

// The thread sanitizer instruments the function that chooses, which runs before it is set up;
// clang, which reads this for clang-tidy, does not know the attribute on templates.
#if defined(__SANITIZE_THREAD__) || defined(__clang__)
#define TESSERA_CPU_CLONES
#else
#define TESSERA_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
