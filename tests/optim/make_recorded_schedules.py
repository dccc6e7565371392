# Makes recorded_schedules.h: python make_recorded_schedules.py lr_schedules.py > recorded_schedules.h
# The argument is deepspeed/runtime/lr_schedules.py of DeepSpeed 0.19.8 (pip download --no-deps deepspeed); needs torch.
import sys, types, importlib.util, math, logging
ds=types.ModuleType('deepspeed'); u=types.ModuleType('deepspeed.utils'); u.logger=logging.getLogger('x'); u.logger.setLevel(100)
sys.modules['deepspeed']=ds; sys.modules['deepspeed.utils']=u
spec=importlib.util.spec_from_file_location('lr',sys.argv[1]); m=importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
import torch
def rates(cls, base=0.003, **kw):
    opt=torch.optim.SGD([torch.zeros(1,requires_grad=True)], lr=base)
    s=getattr(m,cls)(opt, **kw)
    out=[]
    for _ in range(20):
        out.append(float(opt.param_groups[0]['lr'])); opt.step(); s.step()
    return out
cases=[('warmup','log','WarmupLR',dict(warmup_min_lr=1e-5,warmup_max_lr=2e-3,warmup_num_steps=10,warmup_type='log')),
('warmup','linear','WarmupLR',dict(warmup_min_lr=1e-5,warmup_max_lr=2e-3,warmup_num_steps=10,warmup_type='linear')),
('warmup','log','WarmupLR',dict(warmup_min_lr=0.0,warmup_max_lr=1e-3,warmup_num_steps=1,warmup_type='log')),
('warmup_decay','log','WarmupDecayLR',dict(total_num_steps=16,warmup_min_lr=1e-5,warmup_max_lr=2e-3,warmup_num_steps=10,warmup_type='log')),
('warmup_decay','linear','WarmupDecayLR',dict(total_num_steps=16,warmup_min_lr=1e-4,warmup_max_lr=2e-3,warmup_num_steps=7,warmup_type='linear')),
('warmup_decay','linear','WarmupDecayLR',dict(total_num_steps=5,warmup_min_lr=0.0,warmup_max_lr=2e-3,warmup_num_steps=8,warmup_type='linear')),
('warmup_cosine','log','WarmupCosineLR',dict(total_num_steps=15,warmup_min_ratio=0.1,warmup_num_steps=8,cos_min_ratio=0.05,warmup_type='log')),
('warmup_cosine','linear','WarmupCosineLR',dict(total_num_steps=18,warmup_num_steps=5,warmup_type='linear')),
('warmup_cosine','linear','WarmupCosineLR',dict(total_num_steps=4,warmup_num_steps=6,cos_min_ratio=0.2,warmup_type='linear')),
]
print('''// The rates of DeepSpeed 0.19.8 for the first 20 updates, its scheduler stepped after each update:
// the classes of deepspeed/runtime/lr_schedules.py run under torch with an optimizer of lr 0.003.
#pragma once

#include "optim/schedule.h"

namespace zl {

struct RecordedSchedule {
  const char* called;
  ScheduleConfig config;
};

// Kind, least and largest rate, steps and type of the warm-up, all steps, the cosine's two ratios.
inline const RecordedSchedule kRecordedSchedules[] = {''')  # clang-format breaks the lines
for kind,t,cls,kw in cases:
    of=lambda key, otherwise: repr(kw.get(key, otherwise))
    f=[f'ScheduleKind::{kind}', of('warmup_min_lr',0), of('warmup_max_lr',0.001), of('warmup_num_steps',0), f'WarmupType::{t}']
    f+=[of('total_num_steps',0), of('warmup_min_ratio',0), of('cos_min_ratio',0.0001)]
    print(f'    {{"{cls}, {t}, {kw["warmup_num_steps"]} of {kw.get("total_num_steps","any")} steps", {{'+', '.join(f)+'}},')
print('''};

// Twenty of each of them.
inline const char* const kRecordedRates = R"(''')
for kind,t,cls,kw in cases:
    r=[repr(x) for x in rates(cls,**kw)]
    for i in range(0,20,4): print(' '.join(r[i:i+4]))
print(''')";

}  // namespace zl''')
