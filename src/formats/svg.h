// Pictures as SVG text. Owns: elements, numbers and escaping. Not: what is drawn.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class SvgPicture {
 public:
  struct Point {
    double x = 0, y = 0;
  };
  enum class Anchor { kStart, kMiddle, kEnd };

  // In pixels; `title` is what a viewer shows for the whole.
  SvgPicture(double width, double height, std::string_view title);

  // Colours as CSS writes them. `tip` is shown where the pointer rests; empty: none.
  void rectangle(Point corner, double width, double height, std::string_view fill,
                 std::string_view tip = {});
  void line(Point from, Point to, std::string_view stroke);
  void polyline(const std::vector<Point>& points, std::string_view stroke);
  void polygon(const std::vector<Point>& points, std::string_view fill);
  void text(Point at, std::string_view text, double size, Anchor anchor = Anchor::kStart);

  // The whole file. Any text is valid XML in it: what XML does not allow becomes U+FFFD.
  std::string str() const;

 private:
  std::string head_, body_;
};

}  // namespace tessera
