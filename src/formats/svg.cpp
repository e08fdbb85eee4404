#include "formats/svg.h"

#include <charconv>
#include <cmath>

namespace tessera {
namespace {

// Two decimals, whatever the locale says of points and commas.
std::string number(double value) {
  if (!std::isfinite(value)) value = 0;
  char text[64];
  const auto [end, code] =
      std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 2);
  std::string result(text, code == std::errc() ? end : text);
  if (result.ends_with(".00")) result.resize(result.size() - 3);
  return result.empty() || result == "-0" ? "0" : result;
}

// XML 1.0 has no control characters but tab and line ends.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r') {
          result += "\xEF\xBF\xBD";
        } else {
          result += c;
        }
    }
  }
  return result;
}

std::string attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + escaped(value) + "\"";
}

std::string attribute(std::string_view name, double value) {
  return attribute(name, number(value));
}

std::string coordinates(const std::vector<SvgPicture::Point>& points) {
  std::string text;
  for (const SvgPicture::Point& point : points) {
    text += (text.empty() ? "" : " ") + number(point.x) + "," + number(point.y);
  }
  return text;
}

}  // namespace

SvgPicture::SvgPicture(double width, double height, std::string_view title)
    : head_("<svg xmlns=\"http://www.w3.org/2000/svg\"" + attribute("width", width) +
            attribute("height", height) +
            attribute("viewBox", "0 0 " + number(width) + " " + number(height)) +
            " font-family=\"sans-serif\">\n<title>" + escaped(title) + "</title>\n") {
  rectangle({}, width, height, "white");
}

void SvgPicture::rectangle(Point corner, double width, double height, std::string_view fill,
                           std::string_view tip) {
  body_ += "<rect" + attribute("x", corner.x) + attribute("y", corner.y) +
           attribute("width", width) + attribute("height", height) + attribute("fill", fill);
  body_ += tip.empty() ? "/>\n" : "><title>" + escaped(tip) + "</title></rect>\n";
}

void SvgPicture::line(Point from, Point to, std::string_view stroke) {
  body_ += "<line" + attribute("x1", from.x) + attribute("y1", from.y) + attribute("x2", to.x) +
           attribute("y2", to.y) + attribute("stroke", stroke) + "/>\n";
}

void SvgPicture::polyline(const std::vector<Point>& points, std::string_view stroke) {
  body_ += "<polyline" + attribute("points", coordinates(points)) + attribute("stroke", stroke) +
           " fill=\"none\"/>\n";
}

void SvgPicture::polygon(const std::vector<Point>& points, std::string_view fill) {
  body_ += "<polygon" + attribute("points", coordinates(points)) + attribute("fill", fill) + "/>\n";
}

void SvgPicture::text(Point at, std::string_view text, double size, Anchor anchor) {
  body_ += "<text" + attribute("x", at.x) + attribute("y", at.y) + attribute("font-size", size);
  if (anchor != Anchor::kStart) {
    body_ += attribute("text-anchor", anchor == Anchor::kMiddle ? "middle" : "end");
  }
  body_ += ">" + escaped(text) + "</text>\n";
}

std::string SvgPicture::str() const { return head_ + body_ + "</svg>\n"; }

}  // namespace tessera
