#include "formats/svg.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(SvgPictureTest, WritesElementsInTheirOrder) {
  SvgPicture picture(100, 50.5, "a step");
  picture.rectangle({1, 2}, 3.25, 4, "#abc", "h.0");
  picture.line({0, 0}, {10, 20}, "black");
  picture.polyline({{0, 1}, {2, 3.999}}, "red");
  picture.text({5, 6}, "GiB", 12, SvgPicture::Anchor::kEnd);
  EXPECT_EQ(picture.str(),
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"50.50\" "
            "viewBox=\"0 0 100 50.50\" font-family=\"sans-serif\">\n<title>a step</title>\n"
            "<rect x=\"0\" y=\"0\" width=\"100\" height=\"50.50\" fill=\"white\"/>\n"
            "<rect x=\"1\" y=\"2\" width=\"3.25\" height=\"4\" fill=\"#abc\"><title>h.0</title>"
            "</rect>\n"
            "<line x1=\"0\" y1=\"0\" x2=\"10\" y2=\"20\" stroke=\"black\"/>\n"
            "<polyline points=\"0,1 2,4\" stroke=\"red\" fill=\"none\"/>\n"
            "<text x=\"5\" y=\"6\" font-size=\"12\" text-anchor=\"end\">GiB</text>\n</svg>\n");
}

TEST(SvgPictureTest, TextCannotBecomeElements) {
  SvgPicture picture(1, 1, "<script>&\"");
  picture.text({0, 0}, "</text>\x01", 10);
  const std::string text = picture.str();
  EXPECT_NE(text.find("<title>&lt;script&gt;&amp;&quot;</title>"), std::string::npos) << text;
  EXPECT_NE(text.find(">&lt;/text&gt;\xEF\xBF\xBD</text>"), std::string::npos) << text;
}

TEST(SvgPictureTest, NumbersThatAreNotFiniteAreZero) {
  SvgPicture picture(1, 1, "");
  picture.line({0.0 / 0.0, -0.001}, {1, 1}, "red");
  EXPECT_NE(picture.str().find("x1=\"0\" y1=\"0\""), std::string::npos) << picture.str();
}

}  // namespace
}  // namespace tessera
