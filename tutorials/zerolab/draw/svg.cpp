#include "tutorials/zerolab/draw/svg.h"

#include <array>
#include <charconv>
#include <cmath>

#include "tensor/error.h"

namespace zl::draw {
namespace {

// Colours of Okabe and Ito (2008), which readers with any colour vision can tell apart, darkened or
// lightened for the two schemes. Each memory use has a pattern too.
constexpr const char* kStyle = R"svg(<style>
text {
 font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328;
}
.big { font-size: 16px } .bold { font-weight: 600 }
.mono { font-family: ui-monospace, 'SF Mono', 'DejaVu Sans Mono', monospace; font-size: 12px }
.middle { text-anchor: middle } .end { text-anchor: end }
text.soft { fill: #59636e } text.on { fill: #fff } text.dark { fill: #1f2328 }
.halo { paint-order: stroke; stroke: #fff; stroke-width: 4px; stroke-linejoin: round }
line, path.ink { fill: none; stroke: #1f2328; stroke-width: 1.5 }
line.soft { stroke: #818b98 } line.faint { stroke: #d1d9e0; stroke-width: 1 }
line.accent, path.accent { stroke: #c2410c; stroke-width: 2 }
.dash { stroke-dasharray: 4 3 }
.outline { fill: none; stroke: #818b98 }
.panel { fill: #818b98; fill-opacity: .1 }
.solid { fill: #1f2328 } circle.accent { fill: #c2410c }
.strong { fill-opacity: .38 } .weak { fill-opacity: .16 }
.sum1 { fill-opacity: .08 } .sum2 { fill-opacity: .25 } .sum3 { fill-opacity: .45 }
.parameter { fill: #0072b2 } .owner { fill: #00795a }
.gradient { fill: url(#gradient) } .g1 { fill: #e69f00 } .g2 { stroke: #a35f00 }
.optimizer_state { fill: url(#optimizer_state) } .o1 { fill: #00795a } .o2 { fill: #8fdcc4 }
.activation { fill: url(#activation) } .a1 { fill: #bdb5d9 } .a2 { stroke: #9389c0 }
.communication { fill: url(#communication) } .c1 { fill: #f4b6d2 } .c2 { stroke: #b0477f }
.padding { fill: url(#padding) } .p2 { stroke: #818b98 }
@media (prefers-color-scheme: dark) {
 text { fill: #e6edf3 } .halo { stroke: #0d1117 }
 text.soft { fill: #9198a1 } text.on { fill: #0d1117 } text.dark { fill: #1f2328 }
 line, path.ink { stroke: #e6edf3 } line.soft, .outline { stroke: #7d8590 }
 line.faint { stroke: #30363d } line.accent, path.accent { stroke: #ff8f5a }
 .solid { fill: #e6edf3 } circle.accent { fill: #ff8f5a }
 .parameter { fill: #3f9fe0 } .owner { fill: #35b592 } .a1 { fill: #534d6e } .a2 { stroke: #7a7299 }
}
</style>
<defs>
)svg";

// A tile of 7 x 7 px that fills a memory use: its colour, and a mark on it.
std::string pattern(const char* use, const char* fill, const char* mark, int turned = 0) {
  return str("<pattern id=\"", use, "\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\"",
             turned == 0 ? "" : str(" patternTransform=\"rotate(", turned, ")\""),
             "><rect class=\"", fill, "\" width=\"7\" height=\"7\"/>", mark, "</pattern>\n");
}

std::string definitions() {
  return pattern("gradient", "g1", "<path class=\"g2\" stroke-width=\"1.6\" d=\"M0 0v7\"/>", 45) +
         pattern("optimizer_state", "o1",
                 "<circle class=\"o2\" cx=\"3.5\" cy=\"3.5\" r=\"1.1\"/>") +
         pattern("activation", "a1", "<path class=\"a2\" d=\"M0 3.5h7\"/>") +
         pattern("communication", "c1", "<path class=\"c2\" stroke-width=\"1.6\" d=\"M3 0v7\"/>") +
         pattern("padding", "panel", "<path class=\"p2\" d=\"M0 0v7\"/>", -45) +
         "<marker id=\"head\" markerWidth=\"7\" markerHeight=\"7\" refX=\"6\" refY=\"3.5\" "
         "orient=\"auto\" markerUnits=\"userSpaceOnUse\">"
         "<path class=\"solid\" d=\"M0 0L7 3.5L0 7z\"/></marker>\n</defs>\n";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

// ' x="1" y="2"'
std::string attribute(const char* name, double value) {
  return str(" ", name, "=\"", number(value), "\"");
}

std::string class_of(const std::string& style) {
  return style.empty() ? "" : str(" class=\"", style, "\"");
}

}  // namespace

std::string number(double value) {
  std::array<char, 40> text;
  const double tenths = std::round(value * 10) / 10;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), tenths == 0 ? 0 : tenths,
                                 std::chars_format::fixed, 1);
  std::string digits(text.data(), end.ptr);
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits;
}

Svg::Svg(const std::string& title, const std::string& description, double height)
    : head_(str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(kWidth), " ",
                number(height), "\" width=\"", number(kWidth), "\" height=\"", number(height),
                "\" role=\"img\" aria-labelledby=\"title description\">\n<title id=\"title\">",
                escaped(title), "</title>\n<desc id=\"description\">", escaped(description),
                "</desc>\n")) {
  text({16, 18}, title, "big bold");
}

void Svg::shape(const std::string& element, const std::string& hover) {
  const std::string name = element.substr(0, element.find(' '));
  body_ += "<" + element +
           (hover.empty() ? "/>\n" : "><title>" + escaped(hover) + "</title></" + name + ">\n");
}

void Svg::box(const Box& b, const std::string& style, const std::string& hover) {
  shape("rect" + class_of(style) + attribute("x", b.x) + attribute("y", b.y) +
            attribute("width", b.width) + attribute("height", b.height),
        hover);
}

void Svg::text(Point at, const std::string& text, const std::string& style) {
  body_ += "<text" + class_of(style) + attribute("x", at.x) + attribute("y", at.y) + ">" +
           escaped(text) + "</text>\n";
}

void Svg::text_up(Point at, const std::string& text, const std::string& style) {
  body_ += str("<text", class_of(style), " transform=\"translate(", number(at.x), " ", number(at.y),
               ")rotate(-90)\">", escaped(text), "</text>\n");
}

void Svg::line(Point from, Point to, const std::string& style) {
  shape("line" + class_of(style) + attribute("x1", from.x) + attribute("y1", from.y) +
            attribute("x2", to.x) + attribute("y2", to.y),
        "");
}

void Svg::arrow(Point from, Point to, const std::string& style) {
  shape("line" + class_of(style) + attribute("x1", from.x) + attribute("y1", from.y) +
            attribute("x2", to.x) + attribute("y2", to.y) + " marker-end=\"url(#head)\"",
        "");
}

void Svg::circle(Point center, double radius, const std::string& style, const std::string& hover) {
  shape("circle" + class_of(style) + attribute("cx", center.x) + attribute("cy", center.y) +
            attribute("r", radius),
        hover);
}

void Svg::path(const std::string& commands, const std::string& style, const std::string& hover) {
  shape("path" + class_of(style) + " d=\"" + commands + "\"", hover);
}

std::string Svg::document() const { return head_ + kStyle + definitions() + body_ + "</svg>\n"; }

}  // namespace zl::draw
