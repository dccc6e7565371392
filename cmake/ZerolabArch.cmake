# Chooses the instruction set of the CPU's kernels -> ZEROLAB_ARCH_NAME, ZEROLAB_ARCH_FLAGS.
# x86-64-v3 is AVX2, FMA and F16C: every x86 core since 2015. Without it matrix products take 2.5 times as long.
# x86-64-v4 is AVX-512: twice the registers, so larger tiles of products. Both give the same bits.
set(ZEROLAB_ARCH AUTO CACHE STRING "Instruction set of the CPU's kernels: AUTO (the best of this machine), v3, v4, baseline")
set_property(CACHE ZEROLAB_ARCH PROPERTY STRINGS AUTO v3 v4 baseline)
if(NOT ZEROLAB_ARCH MATCHES "^(AUTO|v3|v4|baseline)$")
  message(FATAL_ERROR "ZEROLAB_ARCH must be AUTO, v3, v4 or baseline, not '${ZEROLAB_ARCH}'")
endif()

set(level baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  if(NOT ZEROLAB_ARCH STREQUAL "AUTO")
    set(level ${ZEROLAB_ARCH})
  elseif(NOT CMAKE_CROSSCOMPILING)
    include(CheckCXXSourceRuns)
    # F16C is read from cpuid, because clang 14's __builtin_cpu_supports does not know the name.
    check_cxx_source_runs([[
      #include <cpuid.h>
      int main() {
        unsigned a, b, c, d;
        const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
        const bool rest = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
        return f16c && rest ? 0 : 1;
      }]] ZEROLAB_MACHINE_HAS_V3)
    check_cxx_source_runs([[
      int main() {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") ? 0 : 1;
      }]] ZEROLAB_MACHINE_HAS_V4)
    if(ZEROLAB_MACHINE_HAS_V3 AND ZEROLAB_MACHINE_HAS_V4)
      set(level v4)
    elseif(ZEROLAB_MACHINE_HAS_V3)
      set(level v3)
    endif()
  endif()
elseif(ZEROLAB_ARCH MATCHES "^v")
  message(FATAL_ERROR "ZEROLAB_ARCH=${ZEROLAB_ARCH} is for x86-64, this is ${CMAKE_SYSTEM_PROCESSOR}")
endif()

if(level STREQUAL "baseline")
  set(ZEROLAB_ARCH_NAME "${CMAKE_SYSTEM_PROCESSOR}")
  set(ZEROLAB_ARCH_FLAGS "")
else()
  set(ZEROLAB_ARCH_NAME "x86-64-${level}")
  # What to tune for is measured, not obvious: g++ 12 tuned for znver3 folds loads into multiply-adds and
  # loses 30 % on Zen 3 itself; clang 14 without it loses 40 %.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(ZEROLAB_ARCH_FLAGS -march=${ZEROLAB_ARCH_NAME} -mtune=znver3)
  else()
    set(ZEROLAB_ARCH_FLAGS -march=${ZEROLAB_ARCH_NAME} -mtune=generic)
  endif()
endif()
