#include "tutorials/exercises/grader/rules/elf_object.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tensor/error.h"
#include "tutorials/exercises/grader/child_process.h"

namespace zl::exercises {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    std::ifstream in(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }

  ElfObject read() {
    const auto header = at<Elf64_Ehdr>(0);
    require_input(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                      header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_type == ET_REL,
                  path_, " is no ELF object of 64 bits");
    std::vector<Elf64_Shdr> sections;
    // A file with many sections has their number in the first one.
    const auto first = at<Elf64_Shdr>(header.e_shoff);
    const uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size,
                   names = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first.sh_link;
    for (uint64_t k = 0; k < count; ++k)
      sections.push_back(at<Elf64_Shdr>(header.e_shoff + k * sizeof(Elf64_Shdr)));
    require_input(names < count, path_, " is damaged");
    ElfObject object;
    for (const Elf64_Shdr& section : sections)
      object.sections.push_back({text(sections[names], section.sh_name), int64_t(section.sh_size),
                                 (section.sh_flags & SHF_WRITE) != 0});
    for (const Elf64_Shdr& section : sections)
      if (section.sh_type == SHT_SYMTAB) {
        require_input(section.sh_link < count, path_, " is damaged");
        symbols(section, sections[section.sh_link], object);
      }
    return object;
  }

 private:
  template <class T>
  T at(uint64_t offset) const {
    T value;
    require_input(offset <= bytes_.size() && sizeof value <= bytes_.size() - offset, path_,
                  " is no ELF object: it ends too early");
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  std::string text(const Elf64_Shdr& strings, uint64_t offset) const {
    const uint64_t begin = strings.sh_offset + offset;
    require_input(begin < bytes_.size(), path_, " is damaged");
    return bytes_.c_str() + begin;
  }

  void symbols(const Elf64_Shdr& table, const Elf64_Shdr& strings, ElfObject& object) const {
    for (uint64_t k = 1; k < table.sh_size / sizeof(Elf64_Sym); ++k) {
      const auto symbol = at<Elf64_Sym>(table.sh_offset + k * sizeof(Elf64_Sym));
      const int type = ELF64_ST_TYPE(symbol.st_info), bind = ELF64_ST_BIND(symbol.st_info);
      const int section = symbol.st_shndx == SHN_UNDEF               ? -1
                          : symbol.st_shndx < object.sections.size() ? int(symbol.st_shndx)
                                                                     : -2;
      object.symbols.push_back({.name = text(strings, symbol.st_name),
                                .section = section,
                                .local = bind == STB_LOCAL,
                                .weak = bind == STB_WEAK || bind == STB_GNU_UNIQUE,
                                .named = type != STT_SECTION && type != STT_FILE,
                                .chosen_at_start = type == STT_GNU_IFUNC});
    }
  }

  const std::string path_;
  std::string bytes_;
};

}  // namespace

ElfObject read_elf(const std::string& path) { return Reader(path).read(); }

std::map<std::string, std::string> demangled_names(const ElfObject& object) {
  constexpr int64_t most = 4 << 20;  // [B]
  std::vector<std::string> command = {"c++filt", "--"};
  int64_t bytes = 0;
  for (const ElfSymbol& symbol : object.symbols)
    if (symbol.named && symbol.name.starts_with("_Z")) {
      command.push_back(symbol.name);
      bytes += int64_t(symbol.name.size());
    }
  if (bytes > most / 4) return {};
  const ChildEnd end = run_child(
      command,
      {.time = std::chrono::seconds(10), .output = most, .kept_output = most, .memory = 512 << 20});
  if (end.code != 0 || end.signal != 0 || end.timed_out || end.too_much_output) return {};
  std::map<std::string, std::string> names;
  for (const ElfSymbol& symbol : object.symbols) names[symbol.name] = symbol.name;
  std::istringstream lines(end.output);
  for (size_t k = 2; k < command.size(); ++k) std::getline(lines, names[command[k]]);
  return names;
}

}  // namespace zl::exercises
