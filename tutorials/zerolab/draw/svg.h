// Writes a picture as SVG. Colours are classes, which follow the reader's light or dark scheme; the
// background is transparent.
#pragma once

#include <string>

namespace zl::draw {

// [px] from the upper left corner.
struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};
struct Point {
  double x = 0, y = 0;
};

// Each shape takes the classes of its style, separated by spaces; svg.cpp has them. Boxes and
// areas: the names of memory uses, each with a colour and a pattern, "owner", "padding", "panel",
// "outline", and how strong the fill is. Lines: "ink", "soft", "faint", "accent", "dash". Text:
// "big", "bold", "mono", "soft", "on" (dark fills), "dark" (light fills), "halo", "middle", "end".
// `hover` is the name of a shape, which browsers show; "": none.
class Svg {
 public:
  static constexpr double kWidth = 760;  // [px]

  // `title` is shown as the heading, `description` says in a sentence what the picture shows.
  Svg(const std::string& title, const std::string& description, double height);

  void box(const Box& box, const std::string& style, const std::string& hover = "");
  // y is the base line.
  void text(Point at, const std::string& text, const std::string& style = "");
  // Text that runs upwards from `at`.
  void text_up(Point at, const std::string& text, const std::string& style = "");
  void line(Point from, Point to, const std::string& style = "soft");
  void arrow(Point from, Point to, const std::string& style = "ink");
  void circle(Point center, double radius, const std::string& style, const std::string& hover = "");
  // `commands` as in the attribute d of <path>.
  void path(const std::string& commands, const std::string& style, const std::string& hover = "");

  std::string document() const;  // the file

 private:
  void shape(const std::string& element, const std::string& hover);

  std::string head_, body_;
};

// "12.5": at most one decimal, the same on every machine.
std::string number(double value);

}  // namespace zl::draw
