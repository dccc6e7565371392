// The symbols and sections of an ELF object file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zl::exercises {

struct ElfSection {
  std::string name;
  int64_t size = 0;  // [B]
  bool writable = false;
};

struct ElfSymbol {
  std::string name;              // as the linker sees it
  int section = 0;               // in ElfObject::sections; -1: of another file; -2: none
  bool local = false;            // it has no name outside the file
  bool weak = false;             // other files may define it too: inline functions, templates
  bool named = false;            // false: sections and files
  bool chosen_at_start = false;  // code that runs before main() chooses its address (ifunc)
};

struct ElfObject {
  std::vector<ElfSection> sections;
  std::vector<ElfSymbol> symbols;
};

// Throws InputError if it is no ELF object of 64 bits.
ElfObject read_elf(const std::string& path);

// "zl::stage_zero2()" for each name of the object; a name that is no C++ stays. A name of some
// hundred letters can demangle to gigabytes, so c++filt writes them, in a process with limits.
// Empty if they are longer than 4 MiB together, or take c++filt more than 10 s or 512 MiB. Throws
// InputError if c++filt cannot be started.
std::map<std::string, std::string> demangled_names(const ElfObject& object);

}  // namespace zl::exercises
