#include "tests/draw/svg_text.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <regex>
#include <set>
#include <stdexcept>

namespace draw {
namespace {

void require_entities(const std::string& text) {
  static const std::regex entity("&(amp|lt|gt|quot|#[0-9]+);");
  const auto found = std::distance(std::sregex_iterator(text.begin(), text.end(), entity), {});
  if (found != std::ranges::count(text, '&')) throw std::runtime_error("a & that is no entity");
}

void require_attributes(const std::string& attributes) {
  static const std::regex all("(\\s+[A-Za-z][A-Za-z0-9:-]*=(\"[^\"<]*\"|'[^'<]*'))*\\s*"),
      one("([A-Za-z][A-Za-z0-9:-]*)=(\"[^\"]*\"|'[^']*')");
  if (!std::regex_match(attributes, all)) throw std::runtime_error("not attributes: " + attributes);
  std::set<std::string> names;
  for (std::sregex_iterator it(attributes.begin(), attributes.end(), one), end; it != end; ++it)
    if (!names.insert((*it)[1]).second) throw std::runtime_error("given twice: " + attributes);
  require_entities(attributes);
}

}  // namespace

std::string Element::value(const std::string& attribute) const {
  const size_t at = attributes.find(" " + attribute + "=\"");
  if (at == std::string::npos) return "";
  const size_t begin = at + attribute.size() + 3;
  return attributes.substr(begin, attributes.find('"', begin) - begin);
}
double Element::number(const std::string& attribute) const { return std::stod(value(attribute)); }

std::vector<Element> parse_xml(const std::string& text) {
  static const std::regex name("[A-Za-z][A-Za-z0-9]*");
  std::vector<Element> elements;
  std::vector<size_t> open;
  size_t at = 0;
  while (true) {
    const size_t begin = text.find('<', at);
    const std::string between = text.substr(at, begin - at);
    require_entities(between);
    if (!open.empty())
      elements[open.back()].text += between;
    else if (between.find_first_not_of(" \n") != std::string::npos)
      throw std::runtime_error("text outside the document: " + between);
    if (begin == std::string::npos) break;
    const size_t end = text.find('>', begin);
    if (end == std::string::npos) throw std::runtime_error("a tag without end");
    std::string tag = text.substr(begin + 1, end - begin - 1);
    at = end + 1;
    if (tag.starts_with("/")) {
      if (open.empty() || elements[open.back()].name != tag.substr(1))
        throw std::runtime_error("unexpected end tag " + tag);
      open.pop_back();
      continue;
    }
    if (open.empty() && !elements.empty()) throw std::runtime_error("a second document");
    const bool closed = tag.ends_with("/");
    if (closed) tag.pop_back();
    Element element{tag.substr(0, tag.find_first_of(" \n")), "", ""};
    element.attributes = tag.substr(element.name.size());
    if (!std::regex_match(element.name, name)) throw std::runtime_error("no name: " + tag);
    require_attributes(element.attributes);
    if (!closed) open.push_back(elements.size());
    elements.push_back(std::move(element));
  }
  if (!open.empty()) throw std::runtime_error("not closed: " + elements[open.back()].name);
  if (elements.empty()) throw std::runtime_error("no element");
  return elements;
}

std::vector<Element> named_shapes(const std::string& svg) {
  const std::vector<Element> all = parse_xml(svg);
  std::vector<Element> shapes;
  for (size_t i = 2; i < all.size(); ++i)  // the first title names the picture
    if (all[i].name == "title") {
      shapes.push_back(all[i - 1]);
      shapes.back().text = all[i].text;
    }
  return shapes;
}

Element named_shape(const std::string& svg, const std::string& name) {
  for (const Element& shape : named_shapes(svg))
    if (shape.text == name) return shape;
  FAIL("no shape is named '" << name << "'");
  return {};
}

}  // namespace draw
