"""The model of nn/gpt.h in PyTorch: GPT-2 with learned positions, pre-norm blocks, tanh GELU, the head tied to the token
embedding, no dropout. Also the optimizer, with zerolab's default settings.

Eager mode, as fast as possible: linear weights are (out, in), torch's preferred layout, and attention is one call where
torch has one. Works with torch 1.13 and later.
"""
import json
import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")


class Block(nn.Module):
    def __init__(self, size, attention):
        super().__init__()
        self.heads, self.attention = size.heads, attention
        C = size.width
        self.ln_1, self.ln_2 = nn.LayerNorm(C, eps=1e-5), nn.LayerNorm(C, eps=1e-5)
        self.c_attn, self.attn_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.c_fc, self.mlp_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x, mask):
        x = x + self.attn_proj(self.attend(self.c_attn(self.ln_1(x)), mask))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    def attend(self, qkv, mask):
        """(B, T, 3C) -> (B, T, C)"""
        B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in qkv.split(C, dim=2))  # (B, NH, T, C/NH)
        if self.attention == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            # One call scales, masks and multiplies, which saves a pass over (B, NH, T, T).
            q, k, v = (t.reshape(B * self.heads, T, -1) for t in (q, k, v))
            scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(q.shape[2]))
            y = torch.bmm(scores.softmax(-1), v).view(B, self.heads, T, -1)
        return y.transpose(1, 2).reshape(B, T, C)


class Gpt(nn.Module):
    """size: sizes.Size; attention: "sdpa" or "manual"."""

    def __init__(self, size, attention):
        super().__init__()
        self.size = size
        self.wte = nn.Parameter(torch.empty(size.vocab, size.width))
        self.wpe = nn.Parameter(torch.empty(size.window, size.width))
        self.h = nn.ModuleList(Block(size, attention) for _ in range(size.layers))
        self.ln_f = nn.LayerNorm(size.width, eps=1e-5)
        mask = torch.full((size.window, size.window), -math.inf).triu(1) if attention == "manual" else None
        self.register_buffer("mask", mask, persistent=False)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if name.endswith("bias"):
                    p.zero_()
                elif "ln_" not in name:
                    p.normal_(0, 0.02 / math.sqrt(2 * size.layers) if "proj" in name else 0.02)

    def forward(self, ids, targets):
        """Mean cross-entropy of targets (B, T) given ids (B, T)."""
        x = F.embedding(ids, self.wte) + self.wpe
        for block in self.h:
            x = block(x, self.mask)
        logits = F.linear(self.ln_f(x), self.wte)
        return F.cross_entropy(logits.view(-1, self.size.vocab), targets.reshape(-1))

    def load(self, path):
        """Takes the values of a safetensors file with the names of Hugging Face's GPT-2, whose linear weights are (in, out)."""
        values = read_safetensors(path)
        with torch.no_grad():
            for name, p in self.named_parameters():
                theirs = (name.replace("attn_proj", "attn.c_proj").replace("mlp_proj", "mlp.c_proj")
                          .replace("c_attn", "attn.c_attn").replace("c_fc", "mlp.c_fc"))
                value = values[theirs + ".weight" if name in ("wte", "wpe") else theirs]
                linear = value.dim() == 2 and name not in ("wte", "wpe")
                p.copy_(value.t() if linear else value)


def read_safetensors(path):
    """name -> fp32 tensor. Eight bytes of length, a JSON header, the values."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        values = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError("'%s' of %s is %s; only F32 is read" % (name, path, entry["dtype"]))
        begin, end = entry["data_offsets"]
        tensors[name] = torch.frombuffer(values, dtype=torch.float32, count=(end - begin) // 4, offset=begin).view(entry["shape"])
    return tensors


def adamw(parameters, fused=True):
    """AdamW as zerolab has it by default, and how torch does it: fused where it can (2.4 on a CPU), else tensor by tensor."""
    settings = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    parameters = list(parameters)
    if fused:
        try:
            return torch.optim.AdamW(parameters, fused=True, **settings), "fused"
        except (TypeError, RuntimeError):  # 1.13 lacks the argument; 2.0 to 2.3 accept it for GPUs only
            pass
    return torch.optim.AdamW(parameters, foreach=False, **settings), "by tensor"


def distribute(model, mode):
    """The model, distributed over the processes: DistributedDataParallel, or fully_shard of each block and the root."""
    if mode == "ddp":
        from torch.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)
