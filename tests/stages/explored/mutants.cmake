# Faults of overlap in real systems, each put into a copy of the library's source by one replacement of
# text. Each is a small program that must find it (mutant_main.cpp). The linker takes the changed file's
# functions before the archive's, which then stay there.
#
#   zerolab_mutant(NAME CHECK FILE OLD NEW)   CHECK: schedules, exceptions, or none: finds nothing

set(explored ${here}/stages/explored)
add_library(explored_ranks OBJECT
  ${explored}/schedules.cpp ${explored}/races.cpp ${explored}/explored_ranks.cpp
  ${explored}/explored_communicator.cpp ${explored}/checked_backend.cpp
  ${explored}/explored_training.cpp ${explored}/mutant_main.cpp)
target_link_libraries(explored_ranks PRIVATE zerolab::zerolab zerolab_flags)
target_compile_options(explored_ranks PRIVATE "$<$<NOT:$<CONFIG:Debug>>:-O1>")

function(zerolab_mutant name check file old new)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${file}")
  file(READ "${PROJECT_SOURCE_DIR}/${file}" text)
  string(REPLACE "${old}" "" without "${text}")
  string(LENGTH "${text}" length)
  string(LENGTH "${without}" rest)
  string(LENGTH "${old}" replaced)
  math(EXPR found "(${length} - ${rest}) / ${replaced}")
  if(NOT found EQUAL 1)
    message(FATAL_ERROR "mutant ${name}: ${file} has the text to replace ${found} times, not once. "
      "Change tests/stages/explored/mutants.cmake with it:\n${old}")
  endif()
  string(REPLACE "${old}" "${new}" text "${text}")
  set(changed "${CMAKE_CURRENT_BINARY_DIR}/mutants/${name}.cpp")
  file(CONFIGURE OUTPUT "${changed}" CONTENT "${text}" @ONLY)
  add_executable(mutant_${name} "${changed}" $<TARGET_OBJECTS:explored_ranks>)
  target_link_libraries(mutant_${name} PRIVATE zerolab::zerolab zerolab_flags)
  target_compile_options(mutant_${name} PRIVATE "$<$<NOT:$<CONFIG:Debug>>:-O1>")
  set_target_properties(mutant_${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/mutants")
  add_test(NAME mutant_${name} COMMAND mutant_${name} ${check})
  set_tests_properties(mutant_${name} PROPERTIES TIMEOUT 300)
endfunction()

set(reductions stages/schedule/gradient_reductions.cpp)
set(parameters stages/schedule/full_parameters.cpp)

# The text in place of itself: the check finds nothing by itself.
zerolab_mutant(none none ${reductions} "  wait();\n  const Bucket" "  wait();\n  const Bucket")

# A bucket is issued while the one before is in flight (DeepSpeed #2500, #5545).
zerolab_mutant(second_bucket schedules ${reductions} "  wait();\n  const Bucket" "  const Bucket")

# A flush forgets the bucket in flight (DeepSpeed #6993, #7371).
zerolab_mutant(forgotten_bucket schedules ${reductions} "issue();\n  wait();\n}" "issue();\n}")

# The full gradient is freed when its reduction is issued (DeepSpeed #7965, PyTorch #180665).
zerolab_mutant(freed_at_issue schedules stages/zero3.cpp
  "{ return reduce_scatter(u, u.full_gradient); }"
  "{
    Work work = reduce_scatter(u, u.full_gradient);
    u.full_gradient = {};
    u.full_gradient = new_full_tensor(u, MemoryUse::gradient);
    return work;
  }")

# A unit waits for the Work of another one (DeepSpeed #7898, #8061, Megatron #3693).
zerolab_mutant(other_work schedules ${reductions}
  "    reduction.work.wait();
    stage_.finish_reduction(*reduction.unit);
  }"
  "    in_flight_.front().work.wait();
    stage_.finish_reduction(*reduction.unit);
  }
  for (InFlight& reduction : in_flight_) reduction.work.wait();")

# The reduced gradient is read before the wait (PyTorch #180666, Megatron #663).
zerolab_mutant(read_before_wait schedules ${reductions}
  "    reduction.work.wait();
    stage_.finish_reduction(*reduction.unit);"
  "    stage_.finish_reduction(*reduction.unit);
    reduction.work.wait();")

# Updated parameters are waited for in another unit (Megatron #950, #827).
zerolab_mutant(wrong_unit schedules ${parameters}
  "    u.unshard_work.wait();
    require("
  "    stage.units()[size_t(u.unit->index + 1) % stage.units().size()].unshard_work.wait();
    require(")

# A prefetch is one unit off: of the unit behind the next one, or of the next one's neighbour
# (DeepSpeed #1069, #1849, #1903).
zerolab_mutant(prefetch_skips schedules ${parameters}
  "const size_t next = size_t(u.unit->index) + 1;" "const size_t next = size_t(u.unit->index) + 2;")
zerolab_mutant(prefetch_neighbour schedules ${parameters}
  "      start_unshard(stage_, *v);" "      start_unshard(stage_, units_[size_t(v->unit->index) - 1]);")

# An all-gather is issued before the local shard was copied in (DeepSpeed #5059, nearly).
zerolab_mutant(gather_before_copy schedules stages/zero3.cpp
  "    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return all_gather(u, u.full_parameter);"
  "    Work work = all_gather(u, u.full_parameter);
    kernel::copy(u.parameter_shard, local_shard(u.full_parameter));
    return work;")

# After an exception, memory is freed before the Works that use it, or ranks wait for calls that
# never come.
zerolab_mutant(memory_before_work exceptions stages/stage.cpp
  "    u.bind_parameters({});
    u.bind_gradients({});"
  "    u.bind_parameters({});
    u.bind_gradients({});
    u.full_parameter = {};")
zerolab_mutant(waits_while_unwinding exceptions stages/stage.cpp
  "if (std::uncaught_exceptions() == 0) wait_for_parameters();" "wait_for_parameters();")
