#!/usr/bin/env python3
"""Times a training step of GPT-2 in PyTorch, on one thread by default, and prints JSON. tests/baselines/compare calls it.

    python step_torch.py --model M
    python step_torch.py --model M --mode ddp        two processes, gloo over loopback
    python step_torch.py --model S --weights w.safetensors --tokens t.bin --steps 5 --warm-up 0     losses to compare

The time of a step is the first process's: forward, backward, update. As in zerolab, making the tokens and reading the
loss are not timed.
"""
import argparse
import array
import gc
import json
import os
import resource
import statistics
import sys
import tempfile
import time

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # read when the libraries load
    os.environ[name] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402

from sizes import BARE, SIZES  # noqa: E402
from gpt2_torch import HAS_SDPA, Gpt, adamw, distribute  # noqa: E402


def resident():  # [B] now
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="S")
    parser.add_argument("--describe", action="store_true", help="print what this torch has, and measure nothing")
    parser.add_argument("--mode", choices=("plain", "ddp", "fsdp2", "no-comm"), default="plain",
                        help="no-comm: independent processes")
    parser.add_argument("--ranks", type=int, default=2, help="processes, except in plain (default 2)")
    parser.add_argument("--threads", type=int, default=1, help="of each process (default 1)")
    parser.add_argument("--attention", choices=("sdpa", "manual"), default="sdpa" if HAS_SDPA else "manual")
    parser.add_argument("--steps", type=int, help="timed steps")
    parser.add_argument("--warm-up", type=int, help="steps before the timed ones")
    parser.add_argument("--weights", metavar="FILE", help="safetensors to start from")
    parser.add_argument("--tokens", metavar="FILE", help="uint16 tokens, read as nn/data/windows.h says (default random)")
    options = parser.parse_args()
    size = SIZES[options.model]
    options.steps = size.steps if options.steps is None else options.steps
    options.warm_up = size.warm_up if options.warm_up is None else options.warm_up
    if options.steps < 1 or options.warm_up < 0 or options.ranks < 1 or options.threads < 1:
        parser.error("--steps, --ranks and --threads must be at least 1, --warm-up at least 0")
    if options.attention == "sdpa" and not HAS_SDPA:
        parser.error("torch %s has no scaled_dot_product_attention; use --attention manual" % torch.__version__)
    options.ranks = 1 if options.mode == "plain" else options.ranks
    return options


def batches(options, rank):
    """ids and targets of each step."""
    size = SIZES[options.model]
    B, T, count = size.batch, size.window, options.warm_up + options.steps
    if not options.tokens:
        torch.manual_seed(1337 + rank)
        few = [torch.randint(size.vocab, (B, T + 1)) for _ in range(4)]
        return [(b[:, :-1].contiguous(), b[:, 1:].contiguous()) for b in (few[i % 4] for i in range(count))]
    tokens = array.array("H")
    with open(options.tokens, "rb") as file:
        tokens.frombytes(file.read())
    windows = (len(tokens) - 1) // T
    rows = [[((step * options.ranks + rank) * B + b) % windows * T for b in range(B)] for step in range(count)]
    read = lambda first: torch.tensor([list(tokens[w:w + T]) for w in first])
    return [(read(first), read([w + 1 for w in first])) for first in rows]


def train(options, rank):
    """Trains. Returns the measurements of this process."""
    torch.manual_seed(1337)
    model = Gpt(SIZES[options.model], options.attention)
    if options.weights:
        model.load(options.weights)
    if options.mode in ("ddp", "fsdp2"):
        model = distribute(model, options.mode)
    optimizer, _ = adamw(model.parameters())
    seconds, losses = [], []
    gc.collect()
    gc.freeze()  # the garbage collector skips existing objects
    for ids, targets in batches(options, rank):
        begin = time.perf_counter()
        loss = model(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
        del loss
    gc.unfreeze()
    return {"rank": rank, "seconds": seconds[options.warm_up:], "losses": losses,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def rank_main(options, rank, folder, barrier, results):
    torch.set_num_threads(options.threads)
    try:
        if options.mode != "no-comm":
            dist.init_process_group("gloo", init_method="file://%s/rendezvous" % folder, rank=rank, world_size=options.ranks)
        barrier.wait()
        results.put(train(options, rank))
        barrier.wait()  # no process leaves while another still sends
        if options.mode != "no-comm":
            dist.destroy_process_group()
    except Exception as error:
        results.put({"rank": rank, "error": "%s: %s" % (type(error).__name__, error)})


def train_together(options):
    """The results of each process, in the order of ranks."""
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(options.ranks), spawn.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [spawn.Process(target=rank_main, args=(options, rank, folder, barrier, results), daemon=True)
                     for rank in range(options.ranks)]
        for process in processes:
            process.start()
        found = []
        for _ in processes:
            found.append(results.get())
            if "error" in found[-1]:  # the others may wait for it for ever
                for process in processes:
                    process.terminate()
                sys.exit("step_torch.py: rank %(rank)d: %(error)s" % found[-1])
        for process in processes:
            process.join()
    return sorted(found, key=lambda r: r["rank"])


def memory_of_libraries(attention):
    """[B] resident after a step of a tiny model: code, stacks, the interpreter."""
    model = Gpt(BARE, attention)
    optimizer, _ = adamw(model.parameters())
    ids = torch.zeros(BARE.batch, BARE.window, dtype=torch.long)
    model(ids, ids).backward()
    optimizer.step()
    gc.collect()
    return resident()


def matrix_library():
    """The matrix library that torch was built with and, if that is a generic libblas, which one was loaded."""
    words = torch.__config__.show().replace(",", " ").split()
    built = [word[len("BLAS_INFO="):] for word in words if word.startswith("BLAS_INFO=")]
    (torch.ones(8, 8) @ torch.ones(8, 8)).sum()
    with open("/proc/self/maps") as file:
        loaded = {os.path.realpath(line.split()[-1]) for line in file if "blas" in line and "/" in line}
    ours = sorted(os.path.basename(path) for path in loaded if "cublas" not in path and "numpy" not in path)
    return {"built_with": built[0] if built else "unknown", "loaded": ours if built != ["mkl"] else []}


def has_fsdp2():
    try:
        from torch.distributed.fsdp import fully_shard  # noqa: F401
        return True
    except Exception:  # 1.13 fails in other ways on a newer Python
        return False


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    if options.describe:
        print(json.dumps({"version": torch.__version__, "matrix_library": matrix_library(), "sdpa": HAS_SDPA,
                          "fsdp2": has_fsdp2(), "update": adamw([torch.nn.Parameter(torch.zeros(1))])[1]}))
        return
    if options.mode == "fsdp2" and not has_fsdp2():
        sys.exit("step_torch.py: torch %s has no fully_shard (FSDP2), which came with 2.6" % torch.__version__)
    if options.mode == "plain":
        libraries = memory_of_libraries(options.attention)
        ranks = [train(options, 0)]
    else:
        libraries = None
        ranks = train_together(options)
    seconds = ranks[0]["seconds"]
    print(json.dumps({
        "seconds_per_step": {"median": statistics.median(seconds), "min": min(seconds)},
        "losses": [statistics.fmean(step) for step in zip(*(r["losses"] for r in ranks))],
        "peak_rss_bytes": ranks[0]["peak_rss_bytes"], "libraries_bytes": libraries}))


if __name__ == "__main__":
    main()
