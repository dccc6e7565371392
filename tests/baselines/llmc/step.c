// Times a training step of llm.c's GPT-2, and prints JSON.
//
//   gcc -Ofast -march=native -fopenmp -DOMP -I LLMC step.c -lm -o step       LLMC: a checkout of llm.c; its Makefile's flags
//   OMP_NUM_THREADS=1 ./step MODEL.bin B T STEPS WARM_UP [TOKENS.bin]
//
// MODEL.bin is a checkpoint of version 3 (zerolab model export). TOKENS.bin holds uint16, read as nn/data/windows.h says; the
// default is random tokens. The step is that of llm.c's main(); AdamW has zerolab's default settings.
#define TESTING  // leaves llm.c's main() out
#include "train_gpt2.c"

static double now(void) {  // [s]
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* sorted, int n) { return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]); }

typedef struct {
  uint16_t* all;  // null: random tokens
  size_t count;
  uint64_t state;  // of the random generator
} Tokens;

static Tokens read_tokens(const char* path) {
  Tokens tokens = {NULL, 0, 1337};
  if (!path) return tokens;
  FILE* file = fopenCheck(path, "rb");
  fseekCheck(file, 0, SEEK_END);
  tokens.count = (size_t)ftell(file) / 2;
  fseekCheck(file, 0, SEEK_SET);
  tokens.all = (uint16_t*)mallocCheck(2 * tokens.count);
  freadCheck(tokens.all, 2, tokens.count, file);
  fcloseCheck(file);
  return tokens;
}

// Micro-batch `step` as B rows of T: ids, and the same shifted by one as targets.
static void fill(Tokens* tokens, int step, int B, int T, int vocab, int* ids, int* targets) {
  for (int b = 0; b < B; ++b) {
    if (tokens->all) {
      const size_t windows = (tokens->count - 1) / (size_t)T, first = ((size_t)step * B + b) % windows * T;
      for (int t = 0; t < T; ++t) ids[b * T + t] = tokens->all[first + t], targets[b * T + t] = tokens->all[first + t + 1];
      continue;
    }
    for (int t = 0; t < T; ++t) {
      tokens->state = tokens->state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
      ids[b * T + t] = (int)((tokens->state >> 33) % (uint64_t)vocab);
    }
    for (int t = 0; t < T; ++t) targets[b * T + t] = ids[b * T + (t + 1) % T];
  }
}

static void print(FILE* out, int steps, int warm_up, double* seconds, const double* losses) {
  fprintf(out, "{\"losses\": [");
  for (int i = 0; i < steps + warm_up; ++i) fprintf(out, "%s%.9g", i ? ", " : "", losses[i]);
  qsort(seconds, (size_t)steps, sizeof *seconds, by_value);
  fprintf(out, "], \"seconds_per_step\": {\"median\": %.9f}}\n", median(seconds, steps));
}

int main(int argc, char** argv) {
  if (argc < 6 || argc > 7) {
    fprintf(stderr, "usage: step MODEL.bin B T STEPS WARM_UP [TOKENS.bin]\n");
    return 2;
  }
  const int B = atoi(argv[2]), T = atoi(argv[3]), steps = atoi(argv[4]), warm_up = atoi(argv[5]);
  FILE* out = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);  // llm.c prints sizes to stdout, where only the JSON belongs

  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  Tokens tokens = read_tokens(argc == 7 ? argv[6] : NULL);
  int* ids = (int*)mallocCheck((size_t)B * T * sizeof(int));
  int* targets = (int*)mallocCheck((size_t)B * T * sizeof(int));
  double* seconds = (double*)mallocCheck((size_t)steps * sizeof(double));
  double* losses = (double*)mallocCheck((size_t)(steps + warm_up) * sizeof(double));
  for (int step = 0; step < steps + warm_up; ++step) {
    fill(&tokens, step, B, T, model.config.vocab_size, ids, targets);
    const double begin = now();
    gpt2_forward(&model, ids, targets, (size_t)B, (size_t)T);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-3f, 0.9f, 0.999f, 1e-8f, 0.0f, step + 1);
    if (step >= warm_up) seconds[step - warm_up] = now() - begin;
    losses[step] = model.mean_loss;
  }
  print(out, steps, warm_up, seconds, losses);
  fclose(out);
  gpt2_free(&model);
  free(ids), free(targets), free(seconds), free(losses), free(tokens.all);
  return 0;
}
