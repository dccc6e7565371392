// Files that PyTorch and DeepSpeed write with Python's pickle. To read a pickle is to run the
// program in it, so they are not read here: these functions refuse them and say how to convert them
// to safetensors.
#pragma once

#include <string>

namespace zl {

// Throws InputError if the file begins as torch.save begins one, or has the name of a file of
// DeepSpeed.
void refuse_pytorch_file(const std::string& path);

// Throws InputError if the folder is a checkpoint of DeepSpeed, or the folder of one of its steps.
void refuse_deepspeed_checkpoint(const std::string& folder);

}  // namespace zl
