// Reads an SVG file as a browser would, as far as the tests need it.
#pragma once

#include <string>
#include <vector>

namespace draw {

// An element without its children.
struct Element {
  std::string name, attributes;
  std::string text;  // directly inside it
  // The value of an attribute, or "".
  std::string value(const std::string& attribute) const;
  double number(const std::string& attribute) const;
};

// All elements in the order of their begin tags. Throws std::runtime_error where the text is not
// well-formed XML: tags nest, attributes are quoted and given once, every & begins an entity.
std::vector<Element> parse_xml(const std::string& text);

// The shapes that a browser names when the mouse is over them, with that name as their text.
std::vector<Element> named_shapes(const std::string& svg);
// The shape of that name; fails the test if there is none.
Element named_shape(const std::string& svg, const std::string& name);

}  // namespace draw
