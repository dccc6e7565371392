# Decides whether NCCL is built in -> ZEROLAB_HAVE_NCCL, and ZEROLAB_NCCL_SAYS, one line with the result and
# its reason. NCCL copies between GPUs, so it needs the part for GPUs. Version 2.14 is the first with
# communicators that do not block.
set(ZEROLAB_NCCL AUTO CACHE STRING
  "NCCL between GPUs: AUTO (where it is found), ON (error with a fix if unavailable), OFF")
set_property(CACHE ZEROLAB_NCCL PROPERTY STRINGS AUTO ON OFF)
if(NOT ZEROLAB_NCCL MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ZEROLAB_NCCL must be AUTO, ON or OFF, not '${ZEROLAB_NCCL}'")
endif()

set(ZEROLAB_HAVE_NCCL OFF)
set(why "")
if(ZEROLAB_NCCL STREQUAL "OFF")
  set(why "ZEROLAB_NCCL is OFF")
elseif(NOT ZEROLAB_HAVE_CUDA)
  set(why "it needs the CUDA part")
else()
  find_package(NCCL 2.14 QUIET)
  if(NOT NCCL_FOUND)
    set(why "NCCL 2.14 or later was not found; install it (apt: libnccl-dev), \
or set NCCL_ROOT to its folder")
  endif()
endif()
if(NOT why)
  set(ZEROLAB_HAVE_NCCL ON)
elseif(ZEROLAB_NCCL STREQUAL "ON")
  message(FATAL_ERROR "ZEROLAB_NCCL is ON, but ${why}.")
endif()
if(ZEROLAB_HAVE_NCCL)
  set(ZEROLAB_NCCL_SAYS "${NCCL_VERSION}")
else()
  set(ZEROLAB_NCCL_SAYS "not built in: ${why}")
endif()
