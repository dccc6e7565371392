#!/usr/bin/env python3
"""Trains the GPT of a golden folder in PyTorch, wrapped as you wrap yours, and writes what 'zerolab check' reads.

    torchrun --nproc-per-node 2 parity.py GOLDEN OUT --wrap ddp          or fsdp2, fsdp2-no-reshard, mine.py

GOLDEN comes from 'zerolab golden'. OUT gets metrics.jsonl, model.safetensors, and trace_rank0.json.gz, … with the
collectives of steps 3 and 4. mine.py defines one or both of
    wrap(model, golden) -> (model, optimizer), or an engine of DeepSpeed
    train_step(model, optimizer, micro_batches, golden) -> norm or None, with one (ids, targets) per micro-batch;
        it appends each micro-batch's loss to golden["losses_of_step"]. Runs on CPUs (gloo), with PyTorch 2.6 or later.
"""
import argparse
import ctypes
import json
import math
import os
import runpy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

class Linear(nn.Module):  # the weight is (in, out), as in Hugging Face's GPT-2
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(n_in, n_out)), nn.Parameter(torch.empty(n_out))
    def forward(self, x):
        return x @ self.weight + self.bias

class Block(nn.Module):
    def __init__(self, heads, C):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.attn = nn.ModuleDict({"c_attn": Linear(C, 3 * C), "c_proj": Linear(C, C)})
        self.mlp = nn.ModuleDict({"c_fc": Linear(C, 4 * C), "c_proj": Linear(4 * C, C)})
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.attn["c_attn"](self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.attn["c_proj"](y)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))

class Gpt(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.wte = nn.Embedding(size["vocab_size"], size["n_embd"])
        self.wpe = nn.Embedding(size["block_size"], size["n_embd"])
        self.ln_f = nn.LayerNorm(size["n_embd"])
        self.h = nn.ModuleList(Block(size["n_head"], size["n_embd"]) for _ in range(size["n_layer"]))
    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1), targets.flatten())

def read_safetensors(path):
    file = open(path, "rb")
    header, values = json.loads(file.read(int.from_bytes(file.read(8), "little"))), bytearray(file.read())
    return {name: torch.frombuffer(values, dtype=torch.float32, offset=at["data_offsets"][0],
                                   count=math.prod(at["shape"])).view(at["shape"])
            for name, at in header.items() if name != "__metadata__"}

def write_safetensors(path, tensors):
    header, begin = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [begin, begin := begin + 4 * t.numel()]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in (t.detach().float().contiguous() for t in tensors.values()):
            file.write(ctypes.string_at(t.data_ptr(), 4 * t.numel()))

def wrap(model, golden):
    if golden["wrap"] == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        keep = {"reshard_after_forward": False} if golden["wrap"] == "fsdp2-no-reshard" else {}
        for module in [*model.h, model]:
            fully_shard(module, mesh=mesh, **keep)
    o = golden["optimizer"]
    return model, torch.optim.AdamW(model.parameters(), **{k: o[k] for k in ("lr", "betas", "eps", "weight_decay")})

def train_step(model, optimizer, micro_batches, golden):
    for a, (ids, targets) in enumerate(micro_batches):
        if hasattr(model, "require_backward_grad_sync"):  # DDP's no_sync() sets it
            model.require_backward_grad_sync = a == len(micro_batches) - 1
        loss = model(ids, targets)
        golden["losses_of_step"].append(loss.detach())
        (loss / len(micro_batches)).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), golden["gradient_clipping"] or math.inf)
    optimizer.step(), optimizer.zero_grad()
    return norm

def engine_step(engine, _, micro_batches, golden):  # of DeepSpeed
    for ids, targets in micro_batches:
        loss = engine(ids, targets)
        golden["losses_of_step"].append(loss.detach())
        engine.backward(loss), engine.step()
    return engine.get_global_grad_norm()

def full(t):  # of a DTensor
    return t.full_tensor() if hasattr(t, "full_tensor") else t

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden"), parser.add_argument("out"), parser.add_argument("--wrap", default="ddp")
    options = parser.parse_args()
    golden = json.load(open(options.golden + "/golden.json"))
    golden["wrap"], mine = options.wrap, runpy.run_path(options.wrap) if options.wrap.endswith(".py") else {}
    dist.init_process_group("gloo"), torch.set_num_threads(1)
    rank, N, A, B, T = dist.get_rank(), dist.get_world_size(), golden["accumulation"], golden["micro_batch"], golden["window"]
    assert N == golden["ranks"], "the golden run has %d ranks, this one %d" % (golden["ranks"], N)
    os.makedirs(options.out, exist_ok=True)
    (model := Gpt(golden["model"])).load_state_dict(read_safetensors(options.golden + "/init.safetensors"))
    wrapped = mine.get("wrap", wrap)(model, golden)
    model, optimizer = wrapped if isinstance(wrapped, tuple) else (wrapped, None)
    step_once = mine.get("train_step", train_step if optimizer else engine_step)
    tokens = torch.frombuffer(bytearray(open(options.golden + "/tokens.bin", "rb").read()), dtype=torch.uint16).long()
    windows = (len(tokens) - 1) // T
    rows = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True,
                                schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)) as profiler:
        for step in range(golden["steps"]):
            first = [((step * A + a) * N + rank) * B for a in range(A)]
            starts = [[(j + b) % windows * T for b in range(B)] for j in first]
            cut = lambda more, at: torch.stack([tokens[w + more:w + more + T] for w in at])
            if optimizer:
                optimizer.param_groups[0]["lr"] = golden["lr"][step]
            golden["losses_of_step"] = []
            norm = step_once(model, optimizer, [(cut(0, at), cut(1, at)) for at in starts], golden)
            rows.append((torch.stack(golden["losses_of_step"]).mean().double(), full(norm)))
            profiler.step()
    profiler.export_chrome_trace(options.out + "/trace_rank%d.json.gz" % rank)
    losses = torch.stack([loss for loss, _ in rows])
    dist.all_reduce(losses)  # after training, so that it is in no trace
    inner = model.module if hasattr(model, "module") else model
    whole = {n: full(p) for n, p in inner.named_parameters()}
    if rank == 0:
        with open(options.out + "/metrics.jsonl", "w") as file:
            for step, (_, norm) in enumerate(rows):
                line = {"step": step + 1, "loss": losses[step].item() / N, "lr": golden["lr"][step]}
                file.write(json.dumps(line | ({} if norm is None else {"grad_norm": float(norm)})) + "\n")
        write_safetensors(options.out + "/model.safetensors", whole)
    dist.destroy_process_group()
if __name__ == "__main__":
    main()
