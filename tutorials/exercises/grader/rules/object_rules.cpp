#include "tutorials/exercises/grader/rules/object_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "tensor/error.h"
#include "tutorials/exercises/grader/rules/declarations.h"
#include "tutorials/exercises/grader/rules/elf_object.h"
#include "tutorials/exercises/grader/sandbox.h"

namespace zl::exercises {
namespace {

// Of C, by their names.
const std::set<std::string_view> kC = {
    "memcpy", "memmove", "memset", "memcmp", "bcmp", "memchr", "strlen", "strcmp", "strncmp",
    "strchr", "strrchr", "strstr", "strtol", "strtoll", "strtoul", "strtoull", "strtod", "strtof",
    "printf", "fprintf", "vfprintf", "vprintf", "snprintf", "vsnprintf", "sprintf", "puts",
    "putchar", "fputs", "fputc", "putc", "fwrite", "fflush", "stdout", "stderr", "qsort", "bsearch",
    "div", "ldiv", "lldiv", "__assert_fail", "__errno_location",
    // Forms of them that the compiler makes.
    "__memcpy_chk", "__memmove_chk", "__memset_chk", "__printf_chk", "__fprintf_chk",
    "__snprintf_chk", "__sprintf_chk", "__vsnprintf_chk", "__stack_chk_fail", "__stack_chk_guard",
    // What C++ needs to run.
    "_GLOBAL_OFFSET_TABLE_", "__gxx_personality_v0", "_Unwind_Resume", "__dynamic_cast",
    "__libc_single_threaded", "__cxa_allocate_exception", "__cxa_free_exception",
    "__cxa_init_primary_exception", "__cxa_throw", "__cxa_rethrow", "__cxa_begin_catch",
    "__cxa_end_catch", "__cxa_get_exception_ptr", "__cxa_bad_cast", "__cxa_bad_typeid",
    "__cxa_pure_virtual", "__cxa_deleted_virtual", "__cxa_throw_bad_array_new_length",
    "__cxa_throw_bad_array_length", "__clang_call_terminate", "__cxa_call_terminate",
    "__cxa_current_exception_type"};

// With suffix f for float, l for long double, or none.
const std::set<std::string_view> kMath = {
    "acos",      "acosh",    "asin",      "asinh", "atan",   "atan2",  "atanh",   "cbrt",
    "ceil",      "copysign", "cos",       "cosh",  "erf",    "erfc",   "exp",     "exp2",
    "expm1",     "fabs",     "fdim",      "floor", "fma",    "fmax",   "fmin",    "fmod",
    "frexp",     "hypot",    "ilogb",     "ldexp", "lgamma", "llrint", "llround", "log",
    "log10",     "log1p",    "log2",      "logb",  "lrint",  "lround", "modf",    "nearbyint",
    "nextafter", "pow",      "remainder", "rint",  "round",  "scalbn", "sin",     "sincos",
    "sinh",      "sqrt",     "tan",       "tanh",  "tgamma", "trunc"};

// Beginnings of names, of every exercise. std:: has exceptions.
const std::vector<std::string> kCommon = {
    "std::", "__gnu_cxx::__", "__cxxabiv1::", "operator new(unsigned long)",
    "operator new[](unsigned long)", "operator new(unsigned long, std::nothrow_t",
    "operator delete(void*)", "operator delete(void*, unsigned long)", "operator delete[](void*)",
    "operator delete[](void*, unsigned long)", "operator delete(void*, std::nothrow_t",
    "zl::Tensor::", "zl::Work::", "zl::Shape::", "zl::InputError::", "zl::str<", "zl::require<",
    "zl::require_input<", "zl::detail::",
    // Only the compiler writes them: the rules of the source forbid such names.
    "__asan_", "__ubsan_", "__tsan_", "__sanitizer_"};
const std::vector<std::string> kNotOfStd = {"std::basic_ifstream",
                                            "std::basic_ofstream",
                                            "std::basic_fstream",
                                            "std::basic_filebuf",
                                            "std::__basic_file",
                                            "std::filesystem::",
                                            "std::thread::",
                                            "std::jthread",
                                            "std::this_thread::",
                                            "std::random_device",
                                            "std::cin",
                                            "std::cout",
                                            "std::cerr",
                                            "std::clog",
                                            "std::ios_base::Init",
                                            "std::pmr::",
                                            "std::locale::global",
                                            "std::ios_base::xalloc",
                                            "std::rethrow_exception",
                                            "std::current_exception",
                                            "std::__exception_ptr::",
                                            "std::set_new_handler",
                                            "std::set_terminate",
                                            "std::exit",
                                            "std::__future_base",
                                            "std::set_unexpected",
                                            "std::terminate_handler"};

// What the compiler adds to a class or function, before its name.
const std::vector<std::string> kPrefixes = {"vtable for ",
                                            "VTT for ",
                                            "typeinfo for ",
                                            "typeinfo name for ",
                                            "construction vtable for ",
                                            "guard variable for ",
                                            "non-virtual thunk to ",
                                            "virtual thunk to ",
                                            "covariant return thunk to "};

// What compilers write for C++, and what another rule refuses in better words.
const std::vector<std::string> kSections = {
    ".text",     ".rodata", ".data",          ".bss",   ".tdata",  ".tbss",
    ".init",     ".fini",   ".preinit_array", ".ctors", ".dtors",  ".gcc_except_table",
    ".eh_frame", ".group",  ".comment",       ".note",  ".symtab", ".strtab",
    ".shstrtab", ".rel",    ".llvm_addrsig",  ".debug"};

bool begins_with_one_of(const std::string& name, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& one) { return name.starts_with(one); });
}

// Whether it is `name`, or `name` with the suffix of another type.
bool is_math(std::string_view name) {
  return kMath.count(name) != 0 || (name.size() > 1 && (name.back() == 'f' || name.back() == 'l') &&
                                    kMath.count(name.substr(0, name.size() - 1)) != 0);
}

// A function template has its return type before its name: "void zl::f<int>(int)". The name starts
// after the last space outside brackets before the parameters.
std::string without_return_type(const std::string& name) {
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_operator = i >= 8 && name.compare(i - 8, 8, "operator") == 0;
    if (is_operator) return name.substr(begin);
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (c == '(' && depth == 0 && name.compare(i, 11, "(anonymous ") != 0) break;
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ' ' && depth == 0) begin = i + 1;
  }
  return name.substr(begin);
}

// The class or function that a symbol belongs to; a class ends with "::".
std::string subject(std::string name) {
  for (const std::string& prefix : kPrefixes)
    if (name.starts_with(prefix)) return name.substr(prefix.size()) + "::";
  return without_return_type(name);
}

class Rules {
 public:
  Rules(const Exercise& exercise, const std::string& path, const std::string& text)
      : exercise_(exercise),
        object_(read_elf(path)),
        names_(demangled_names(object_)),
        declarations_(text) {}

  std::string violations() {
    if (names_.empty())
      return "the names of its types and functions are too long: do not nest templates in "
             "templates in templates";
    for (const ElfSymbol& symbol : object_.symbols) {
      if (!symbol.named || symbol.name.empty()) continue;
      if (symbol.chosen_at_start) found_.insert("code runs before the checks: an ifunc");
      if (symbol.section == -1)
        used(symbol.name);
      else if (!symbol.local && symbol.section >= 0)
        defined(symbol);
    }
    missing_definitions();
    foreign_definitions();
    for (size_t k = 0; k < object_.sections.size(); ++k) section(int(k));
    std::string all;
    for (const std::string& one : found_) all += (all.empty() ? "" : "\n") + one;
    return all;
  }

 private:
  const std::string& name_of(const std::string& symbol) const { return names_.at(symbol); }

  bool is_allowed(const std::string& symbol) const {
    if (kC.count(symbol) != 0 || is_math(symbol)) return true;
    const std::string whole = name_of(symbol), name = subject(whole);
    // Sanitizers compare types.
    if (kSanitized && whole.starts_with("typeinfo for ")) return true;
    // Of int and the like, for throw and catch.
    if (whole.starts_with("typeinfo for ") && whole.find("::") == std::string::npos) return true;
    if (begins_with_one_of(name, kNotOfStd)) return false;
    if (name.find("std::align_val_t") != std::string::npos) return false;
    return begins_with_one_of(name, kCommon) || begins_with_one_of(name, exercise_.functions);
  }

  void used(const std::string& symbol) {
    if (is_allowed(symbol)) return;
    const std::string name = name_of(symbol);
    if (symbol == "__dso_handle" || symbol.starts_with("__cxa_guard") || symbol == "__cxa_atexit" ||
        symbol == "__cxa_thread_atexit" || symbol == "__tls_get_addr")
      found_.insert(
          "it keeps a variable for the whole program: use members or local variables, because "
          "all ranks share such a variable");
    else if (symbol == "exit" || symbol == "_exit" || symbol == "_Exit" || symbol == "abort" ||
             symbol == "quick_exit")
      found_.insert("it uses " + symbol + ": throw std::runtime_error instead");
    else if (name.find("std::align_val_t") != std::string::npos)
      found_.insert("it allocates aligned memory past the ledger: use tensors");
    else if (name.starts_with("zl::"))
      found_.insert("it uses " + name + ", which is no part of this exercise");
    else
      found_.insert("it uses " + name + ", which no exercise needs");
  }

  void defined(const ElfSymbol& symbol) {
    const std::string name = name_of(symbol.name);
    if (symbol.name.starts_with("DW.ref.")) return;
    if (begins_with_one_of(subject(name), exercise_.defines)) return;
    // Inline functions and templates of headers.
    if (symbol.weak && (is_allowed(symbol.name) || !declarations_.may_define(subject(name))))
      return;
    if (name.starts_with("operator new") || name.starts_with("operator delete"))
      found_.insert("it replaces " + name + ", which the checks count");
    else
      foreign_.insert(subject(name).ends_with("::") ? "class " + subject(name) : name);
  }

  // The library may have a function of that name, which the linker would take.
  void missing_definitions() {
    for (const std::string& needed : exercise_.defines)
      if (std::none_of(object_.symbols.begin(), object_.symbols.end(), [&](const ElfSymbol& s) {
            return s.named && s.section >= 0 && !s.local && name_of(s.name).starts_with(needed);
          }))
        found_.insert("it does not define " + needed.substr(0, needed.find('(')) +
                      "(…): the function of the task is missing, or has other parameters or "
                      "another namespace");
  }

  // A class that others see is one mistake, whatever number of functions it has.
  void foreign_definitions() {
    const auto is_member = [&](const std::string& name) {
      return std::any_of(foreign_.begin(), foreign_.end(), [&](const std::string& other) {
        return other.starts_with("class ") && name.starts_with(other.substr(6));
      });
    };
    for (const std::string& name : foreign_) {
      if (is_member(name)) continue;
      const bool is_class = name.starts_with("class ");
      found_.insert("it defines " + (is_class ? name.substr(0, name.size() - 2) : name) +
                    ", which the task does not ask for: put functions, classes and constants of "
                    "yours into an anonymous namespace");
    }
  }

  void section(int k) {
    const ElfSection& section = object_.sections[size_t(k)];
    if (kSanitized || section.size == 0) return;  // a sanitizer adds variables and code itself
    for (const char* start :
         {".init_array", ".preinit_array", ".fini_array", ".ctors", ".dtors", ".init", ".fini"})
      if (section.name == start || section.name.starts_with(start + std::string(".")))
        found_.insert(
            "code runs before or after the checks: a variable outside functions that is computed "
            "when the program starts. Make it constexpr, or a local variable");
    if (!begins_with_one_of(section.name, kSections))
      found_.insert("it has the section " + section.name + ", which no exercise needs");
    if (!section.writable || section.name.starts_with(".data.rel.ro") ||
        section.name.find(".DW.ref.") != std::string::npos)  // of the compiler
      return;
    bool named = false;
    for (const ElfSymbol& symbol : object_.symbols) {
      if (symbol.section != k || !symbol.named) continue;
      found_.insert("'" + name_of(symbol.name) +
                    "' is a global or static variable, which all ranks would share: make it a "
                    "member, a local variable, or constexpr");
      named = true;
    }
    if (!named && section.name.find("_array") == std::string::npos)
      found_.insert("it has global variables, which all ranks would share");
  }

  const Exercise& exercise_;
  const ElfObject object_;
  const std::map<std::string, std::string> names_;
  const Declarations declarations_;
  std::set<std::string> foreign_;  // definitions; "class zl::A::"
  std::set<std::string> found_;
};

}  // namespace

std::string object_violations(const Exercise& exercise, const std::string& path,
                              const std::string& text) {
  return Rules(exercise, path, text).violations();
}

}  // namespace zl::exercises
