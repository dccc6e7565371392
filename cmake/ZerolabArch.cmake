# Chooses the instruction sets of the CPU's kernels -> ZEROLAB_ARCH_LEVELS (see zerolab_arch()) and
# ZEROLAB_ARCH_SAYS.
# x86-64-v3 is AVX2, FMA and F16C: every x86 core since 2015. Without it a matmul takes 2.5 times as long.
# x86-64-v4 is AVX-512: twice the registers, so larger tiles of a matmul. Both give the same bits.
#
# Portable builds all three: complete shared libraries of one name. When a program starts, glibc's loader
# takes the best one for the machine (glibc-hwcaps). Kernels of several levels in one library would share
# the inline functions of headers. The linker keeps any one of them, possibly with instructions that
# the machine does not have.
set(ZEROLAB_ARCH AUTO CACHE STRING
  "Instruction set of the CPU's kernels: AUTO (the best of this machine), v3, v4, baseline, portable (all)")
set_property(CACHE ZEROLAB_ARCH PROPERTY STRINGS AUTO v3 v4 baseline portable)
if(NOT ZEROLAB_ARCH MATCHES "^(AUTO|v3|v4|baseline|portable)$")
  message(FATAL_ERROR "ZEROLAB_ARCH must be AUTO, v3, v4, baseline or portable, not '${ZEROLAB_ARCH}'")
endif()

set(level baseline)
set(why "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  if(ZEROLAB_ARCH STREQUAL "portable")
    include(CheckCXXSourceCompiles)
    check_cxx_source_compiles([[
      #include <features.h>
      #if !__GLIBC_PREREQ(2, 33)
      #error "no glibc-hwcaps"
      #endif
      int main() { return 0; }]] ZEROLAB_LOADER_CHOOSES)
    if(NOT ZEROLAB_LOADER_CHOOSES)
      set(why "needs the loader of glibc 2.33 or later, which chooses the library")
    elseif(ZEROLAB_SANITIZE OR ZEROLAB_FUZZ)
      set(why "is for redistributable builds, not for sanitizers")
    endif()
  elseif(NOT ZEROLAB_ARCH STREQUAL "AUTO")
    set(level ${ZEROLAB_ARCH})
  elseif(NOT CMAKE_CROSSCOMPILING)
    include(CheckCXXSourceRuns)
    # F16C is read from cpuid, because clang 14's __builtin_cpu_supports does not know the name.
    check_cxx_source_runs([[
      #include <cpuid.h>
      int main() {
        unsigned a, b, c, d;
        const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
        const bool rest = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi2");
        return f16c && rest ? 0 : 1;
      }]] ZEROLAB_MACHINE_HAS_V3)
    check_cxx_source_runs([[
      int main() {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") ? 0 : 1;
      }]] ZEROLAB_MACHINE_HAS_V4)
    if(ZEROLAB_MACHINE_HAS_V3 AND ZEROLAB_MACHINE_HAS_V4)
      set(level v4)
    elseif(ZEROLAB_MACHINE_HAS_V3)
      set(level v3)
    endif()
  endif()
elseif(ZEROLAB_ARCH MATCHES "^(v|portable)")
  set(why "is for x86-64, this is ${CMAKE_SYSTEM_PROCESSOR}")
endif()
if(why)
  message(FATAL_ERROR "ZEROLAB_ARCH=${ZEROLAB_ARCH} ${why}. How to fix it: leave it at AUTO.")
endif()

# -> arch_name, arch_flags of a level
function(zerolab_arch level)
  set(arch_name "x86-64-${level}")
  # The tuning is measured, not obvious: g++ 12 tuned for znver3 folds loads into multiply-adds and
  # loses 30 % on Zen 3 itself; clang 14 without it loses 40 %.
  if(level STREQUAL "baseline")
    set(arch_name "${CMAKE_SYSTEM_PROCESSOR}")
    set(arch_flags "")
  elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(arch_flags -march=${arch_name} -mtune=znver3)
  else()
    set(arch_flags -march=${arch_name} -mtune=generic)
  endif()
  set(arch_name "${arch_name}" PARENT_SCOPE)
  set(arch_flags "${arch_flags}" PARENT_SCOPE)
endfunction()

if(ZEROLAB_ARCH STREQUAL "portable")
  set(ZEROLAB_ARCH_LEVELS baseline v3 v4)   # programs are linked with the first
  set(ZEROLAB_ARCH_SAYS "x86-64, x86-64-v3 and x86-64-v4, chosen at start")
else()
  set(ZEROLAB_ARCH_LEVELS ${level})
  zerolab_arch(${level})
  set(ZEROLAB_ARCH_SAYS "${arch_name}")
endif()
