# Makes gpt2.txt: python make_golden.py > gpt2.txt  (made with torch 2.15.0 on a CPU; any 2.x does)
#
# GPT-2 written against torch alone, in float64: the loss, all gradients, and the losses of three AdamW steps of a
# model whose weights and tokens are a formula that gpt_test.cpp computes too. All weights are multiples of 1/256
# with at most 8 significant bits, so that bf16 holds them exactly.
import math
import torch
import torch.nn.functional as F

LAYERS, HEADS, C, BLOCK, V = 2, 3, 6, 6, 13
B, T = 3, 5
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def mix(k, i):  # 32 bits from two numbers
    h = (i * 2654435761 + k * 2246822519 + 374761393) & 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 2246822519) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 3266489917) & 0xFFFFFFFF
    return h ^ (h >> 16)


def names():
    yield 'wte.weight', (V, C)
    yield 'wpe.weight', (BLOCK, C)
    yield 'ln_f.weight', (C,)
    yield 'ln_f.bias', (C,)
    for l in range(LAYERS):
        for name, shape in [('ln_1.weight', (C,)), ('ln_1.bias', (C,)), ('attn.c_attn.weight', (C, 3 * C)),
                            ('attn.c_attn.bias', (3 * C,)), ('attn.c_proj.weight', (C, C)), ('attn.c_proj.bias', (C,)),
                            ('ln_2.weight', (C,)), ('ln_2.bias', (C,)), ('mlp.c_fc.weight', (C, 4 * C)),
                            ('mlp.c_fc.bias', (4 * C,)), ('mlp.c_proj.weight', (4 * C, C)), ('mlp.c_proj.bias', (C,))]:
            yield f'h.{l}.{name}', shape


def make(k, name, shape):
    n = math.prod(shape)
    if 'ln_' in name and name.endswith('weight'):
        flat = [1 + (mix(k, i) % 64 - 32) / 128 for i in range(n)]
    else:
        flat = [(mix(k, i) % 256 - 128) / 256 for i in range(n)]
    return torch.tensor(flat).reshape(shape).requires_grad_()


parameters = {name: make(k, name, shape) for k, (name, shape) in enumerate(names())}
tokens = torch.tensor([mix(1000, i) % V for i in range(B * (T + 1))]).reshape(B, T + 1)


def loss():
    p = parameters
    x = p['wte.weight'][tokens[:, :-1]] + p['wpe.weight'][:T]
    for l in range(LAYERS):
        w = lambda name: p[f'h.{l}.{name}']
        a = F.layer_norm(x, (C,), w('ln_1.weight'), w('ln_1.bias'), 1e-5)
        q, k, v = (a @ w('attn.c_attn.weight') + w('attn.c_attn.bias')).split(C, dim=2)
        heads = lambda t: t.reshape(B, T, HEADS, C // HEADS).transpose(1, 2)
        score = heads(q) @ heads(k).transpose(2, 3) / math.sqrt(C // HEADS)
        score = score.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float('-inf'))
        y = (score.softmax(-1) @ heads(v)).transpose(1, 2).reshape(B, T, C)
        x = x + y @ w('attn.c_proj.weight') + w('attn.c_proj.bias')
        m = F.layer_norm(x, (C,), w('ln_2.weight'), w('ln_2.bias'), 1e-5)
        m = F.gelu(m @ w('mlp.c_fc.weight') + w('mlp.c_fc.bias'), approximate='tanh')
        x = x + m @ w('mlp.c_proj.weight') + w('mlp.c_proj.bias')
    x = F.layer_norm(x, (C,), p['ln_f.weight'], p['ln_f.bias'], 1e-5)
    return F.cross_entropy((x @ p['wte.weight'].T).reshape(-1, V), tokens[:, 1:].reshape(-1))


first = loss()
first.backward()
print(f'loss 1\n{first.item():.17g}')
for name, p in parameters.items():
    print(f'{name} {p.numel()}')
    flat = [f'{x:.12g}' for x in p.grad.reshape(-1).tolist()]
    print('\n'.join(' '.join(flat[i:i + 24]) for i in range(0, len(flat), 24)))

optimizer = torch.optim.AdamW(parameters.values(), lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    y = loss()
    y.backward()
    optimizer.step()
    losses.append(loss().item())
print('after_adamw_steps 3\n' + ' '.join(f'{x:.17g}' for x in losses))
