#include <algorithm>

#include "tensor/error.h"
#include "tutorials/exercises/03_ring_all_reduce/shares.h"
#include "tutorials/exercises/grader/exercise.h"

namespace zl::exercises {
namespace {

using namespace ring_checks;

constexpr char kTwoOnly[] = "right at 2 ranks only: ";

const std::vector<Check> kChecks = {
    {kTwo, "two ranks", 15}, {kThree, "sums", 15},       {kUneven, "sums", 10},
    {kFew, "sums", 5},       {kOne, "one rank", 5},      {kBits, "bits", 10},
    {kAgain, "sums", 5},     {kMessages, "traffic", 10}, {kBytes, "traffic", 15},
    {kMemory, "memory", 10},
};

Verdict failed(const std::string& meaning, const std::string& details = "") {
  return {.passed = false, .meaning = meaning, .details = details};
}

const Numbers& numbers(const Record& record, const std::string& name) {
  static const Numbers none;
  const auto found = record.numbers.find(name);
  return found == record.numbers.end() ? none : found->second;
}

// ---- what ends the ranks ---------------------------------------------------------------------

using Messages = std::vector<std::vector<Message>>;  // by rank

Verdict judge_neighbours(const Case& c, const Messages& all);

Verdict judge_communication(const Case& c, const Messages& all, const std::string& why) {
  const Verdict neighbours = judge_neighbours(c, all);
  if (!neighbours.passed) return failed(neighbours.meaning, str(neighbours.details, "\n", why));
  const auto says = [&](const char* text) { return why.find(text) != std::string::npos; };
  if (says("in a circle") && says("waits in send"))
    return failed(
        "every rank waits until its send has been received, and no rank receives: start "
        "the send, receive, then wait for the send",
        why);
  const bool sends = std::ranges::any_of(all[0], &Message::sent);
  if (says("in a circle") && says("waits in receive") && !sends)
    return failed("every rank waits to receive, and no rank has sent: start the send first", why);
  if (says("dropped the Work"))
    return failed("a send or receive was not waited for: keep its Work, and call wait()", why);
  if (says("elements"))
    return failed(
        "a rank sends a message that its neighbour does not expect: both must take the "
        "same chunk in the same step",
        why);
  return failed("the ranks' sends and receives do not match", why);
}

// ---- sums ------------------------------------------------------------------------------------

Verdict judge_sums(const std::string& check, const Case& c, const Record& record) {
  for (size_t call = 0; call < c.values.size(); ++call) {
    std::vector<Numbers> of_rank;
    for (int r = 0; r < c.ranks; ++r) {
      of_rank.push_back(numbers(record, str("result ", call, " of ", r)));
      if (int64_t(of_rank.back().size()) != c.n(call))
        return failed("the ranks did not come to the end of their calls");
    }
    const Results results(c, call, of_rank);
    bool right = true;
    for (int r = 0; r < c.ranks; ++r) right = right && results.all_right(r);
    if (right) continue;
    const char* where = check == kThree ? "right at 2 ranks only: "
                        : check == kFew ? "wrong where n < N: some chunks are empty: "
                        : check == kAgain && call == 1 ? "right in the first call only: "
                                                       : "";
    return failed(where + meaning(results), evidence(results));
  }
  return {.passed = true};
}

Verdict judge_bits(const Case& c, const Record& record) {
  const Numbers& first = numbers(record, "result 0 of 0");
  for (int r = 1; r < c.ranks; ++r) {
    const Numbers& other = numbers(record, str("result 0 of ", r));
    for (size_t i = 0; i < first.size(); ++i)
      if (first[i] != other[i])
        return failed(
            "ranks have different bits: they add the same values in different orders; each "
            "chunk must be summed once, and that sum sent around",
            str("element ", i, " is ", first[i], " on rank 0 and ", other[i], " on rank ", r,
                ", a difference of ", first[i] - other[i]));
  }
  return {.passed = true};
}

// ---- traffic ---------------------------------------------------------------------------------

Messages messages_of(const Case& c, const Record& record) {
  Messages all;
  for (int r = 0; r < c.ranks; ++r) all.push_back(decoded(numbers(record, str("messages of ", r))));
  return all;
}

int64_t sent(const std::vector<Message>& messages) {
  int64_t elements = 0;
  for (const Message& message : messages) elements += message.sent ? message.elements : 0;
  return elements;
}

bool all_with_rank_0(const Messages& all) {
  for (size_t r = 1; r < all.size(); ++r)
    for (const Message& message : all[r])
      if (message.peer != 0) return false;
  return all.size() > 2;
}

std::string per_rank(const Messages& all) {
  std::string text = "sent, in bytes:";
  for (size_t r = 0; r < all.size(); ++r)
    text += str(r ? ", " : " ", "rank ", r, " ", 4 * sent(all[r]));
  return text;
}

Verdict judge_neighbours(const Case& c, const Messages& all) {
  if (all_with_rank_0(all))
    return failed(
        "all values go through rank 0: it sends (N - 1) n values, a rank of a ring "
        "2 (N - 1) / N n",
        per_rank(all));
  int reversed = 0, wrong = 0, total = 0;
  std::string first;
  for (int r = 0; r < c.ranks; ++r) {
    for (const Message& message : all[size_t(r)]) {
      const int step = message.sent ? 1 : c.ranks - 1, peer = (r + step) % c.ranks;
      ++total;
      if (message.peer == peer) continue;
      ++wrong;
      reversed += message.peer == (r + c.ranks - step) % c.ranks;
      if (first.empty())
        first = str("rank ", r, message.sent ? " sends to rank " : " receives from rank ",
                    message.peer, "; in the ring its neighbour is rank ", peer);
    }
  }
  if (wrong == 0) return {.passed = true};
  return failed(reversed == total ? "the ring turns the other way: rank r sends to rank r + 1"
                                  : "a message does not go around the ring: rank r sends to rank "
                                    "r + 1 and receives from rank r - 1, modulo N",
                first);
}

Verdict judge_messages(const Case& c, const Messages& all) {
  const Verdict neighbours = judge_neighbours(c, all);
  if (!neighbours.passed) return neighbours;
  const int most = 2 * (c.ranks - 1);
  for (int r = 0; r < c.ranks; ++r) {
    const auto sends = std::ranges::count_if(all[size_t(r)], &Message::sent);
    const auto receives = int64_t(all[size_t(r)].size()) - sends;
    if (sends > most || receives > most)
      return failed("there are more messages than 2 (N - 1) per rank",
                    str("rank ", r, " of ", c.ranks, " sends ", sends, " and receives ", receives,
                        " messages; 2 (N - 1) is ", most));
  }
  return {.passed = true};
}

Verdict judge_bytes(const Case& c, const Messages& all) {
  const int64_t n = c.n(0), N = c.ranks;
  int64_t total = 0, most = 0, whole = 0;
  for (const auto& messages : all) {
    total += sent(messages);
    most = std::max(most, sent(messages));
    for (const Message& message : messages) whole += message.sent && message.elements == n;
  }
  const std::string ring = str("n is ", n, ": a rank of the ring sends 2 (N - 1) / N x 4 n = ",
                               8.0 * double((N - 1) * n) / double(N), " B; ", per_rank(all));
  if (whole > 0)
    return failed(
        "messages carry all n values: each message of a ring carries one chunk, n / N values",
        ring);
  if (total > 2 * (N - 1) * n)
    return failed(
        str("the ranks send ", double(total) / double(2 * (N - 1) * n), " x the bytes of a ring"),
        ring);
  if (total < 2 * (N - 1) * n)
    return failed("fewer bytes are sent than the sum of all ranks' values needs", ring);
  if (most > 2 * (N - 1) * ((n + N - 1) / N))
    return failed("the chunks are not nearly equal: one rank sends more than its part", ring);
  return {.passed = true};
}

// ---- memory ----------------------------------------------------------------------------------

Verdict judge_memory(const Case& c, const Record& record) {
  const Numbers &peak = numbers(record, "peak"), &kept = numbers(record, "kept"),
                &allocations = numbers(record, "allocations");
  for (size_t r = 0; r < allocations.size(); ++r) {
    if (allocations[r] == 0) continue;
    const std::string numbers =
        str("rank ", r, " makes ", allocations[r], " allocations; its peak is ", peak[r],
            " B above values and scratch, ", kept[r], " B stay allocated; n values are ",
            4 * c.n(0), " B, a chunk ", 4 * c.n(0) / c.ranks, " B");
    if (peak[r] >= double(4 * c.n(0)))
      return failed(
          "a second tensor of n values is allocated: receive each chunk into scratch, or "
          "into its place in values",
          numbers);
    return failed("memory is allocated: scratch is all that a ring needs", numbers);
  }
  constexpr double at_once = 1024;  // [B] the state of a message is smaller
  const Numbers& heap = numbers(record, "largest on heap");
  for (size_t r = 0; r < heap.size(); ++r)
    if (heap[r] > at_once)
      return failed(
          "values are kept in memory of new or of a container: scratch is all that a "
          "ring needs",
          str("rank ", r, " allocates ", heap[r], " B on the heap at once"));
  return {.passed = !allocations.empty()};
}

Verdict judge(const Check& check, const CheckOptions& options, const Record& record) {
  const Case c = make_case(check.name, options);
  const auto why = record.texts.find("communication");
  if (why != record.texts.end()) {
    Verdict verdict = judge_communication(c, messages_of(c, record), why->second);
    if (check.name == kThree) verdict.meaning = kTwoOnly + verdict.meaning;
    return verdict;
  }
  const Verdict sums = judge_sums(check.name, c, record);
  if (!sums.passed) return sums;
  const auto all = messages_of(c, record);
  if (check.name == kBits) return judge_bits(c, record);
  if (check.name == kMessages) return judge_messages(c, all);
  if (check.name == kBytes) return judge_bytes(c, all);
  if (check.name == kMemory) return judge_memory(c, record);
  if (check.name == kOne && !all[0].empty())
    return failed("one rank sends messages to itself: with N = 1 there is nothing to send");
  return {.passed = true};
}

}  // namespace

Exercise exercise_03() {
  return {.number = 3,
          .name = "03_ring_all_reduce",
          .title = "A ring all-reduce: how few bytes are enough?",
          .checks = kChecks,
          .headers = {"tutorials/exercises/03_ring_all_reduce/ring_all_reduce.h",
                      "dist/communicator.h", "tensor/kernels.h", "tensor/tensor.h"},
          .functions = {"zl::Communicator::send", "zl::Communicator::receive",
                        "zl::Tensor::", "zl::kernel::accumulate", "zl::kernel::add",
                        "zl::kernel::copy", "zl::kernel::fill"},
          .defines = {"zl::exercises::ring_all_reduce("},
          .judge = judge};
}

}  // namespace zl::exercises
