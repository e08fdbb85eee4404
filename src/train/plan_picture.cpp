#include "train/plan_picture.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "base/text_format.h"
#include "formats/svg.h"

namespace tessera {
namespace {

using Point = SvgPicture::Point;

constexpr double kLeft = 110, kWidth = 1200, kRight = 20, kTop = 64, kLaneHeight = 34, kLaneGap = 8,
                 kMemoryHeight = 220, kBottom = 40;

const char* colour_of(Operation operation) {
  switch (operation) {
    case Operation::kGather: return "#59a14f";
    case Operation::kForward: return "#4e79a7";
    case Operation::kRecompute: return "#b07aa1";
    case Operation::kBackward: return "#f28e2b";
    case Operation::kReduceScatter: return "#e15759";
    case Operation::kAllReduce: return "#76b7b2";
    default: return "#9c9c9c";
  }
}

std::string bytes_text(std::int64_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

// "Forward h.3", as print() of schedule.h says it.
std::string name_of(const Instruction& instruction, const ScheduleInputs& inputs) {
  const std::string line = print({instruction}, inputs);
  return line.substr(0, line.find('\n'));
}

class Drawing {
 public:
  Drawing(const StepCostInputs& inputs, const StepCost& cost, const NominalRates& rates,
          const std::string& title)
      : inputs_(inputs),
        cost_(cost),
        timeline_(timeline_of(inputs, cost, rates)),
        lanes_(lanes()),
        memory_top_(kTop + static_cast<double>(lanes_.size()) * (kLaneHeight + kLaneGap) + 24),
        picture_(kLeft + kWidth + kRight, memory_top_ + kMemoryHeight + kBottom, title) {
    picture_.text({kLeft, 24}, title, 16);
    char text[200];
    std::snprintf(
        text, sizeof text,
        "Widths at nominal rates: %.4g TFLOP/s, %.4g GB/s inside a node, %.4g GB/s across "
        "nodes. No prediction of time.",
        rates.flops / 1e12, rates.inside_bytes / 1e9, rates.across_bytes / 1e9);
    picture_.text({kLeft, 44}, text, 12);
  }

  std::string draw() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      picture_.text({kLeft - 8, lane_top(lane) + kLaneHeight / 2 + 4}, to_string(lanes_[lane]), 12,
                    SvgPicture::Anchor::kEnd);
      picture_.rectangle({kLeft, lane_top(lane)}, kWidth, kLaneHeight, "#f3f3f3");
    }
    for (const TimelineSpan& span : timeline_.spans) draw_span(span);
    draw_memory();
    return picture_.str();
  }

 private:
  // Those that have work.
  std::vector<Lane> lanes() const {
    std::array<bool, kLanes> used{};
    for (const TimelineSpan& span : timeline_.spans) {
      used[static_cast<std::size_t>(span.lane)] = true;
    }
    std::vector<Lane> lanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if (used[lane]) lanes.push_back(static_cast<Lane>(lane));
    }
    return lanes;
  }

  double lane_top(std::size_t lane) const {
    return kTop + static_cast<double>(lane) * (kLaneHeight + kLaneGap);
  }
  double x_of(double seconds) const {
    return kLeft + kWidth * seconds / std::max(timeline_.seconds, 1e-30);
  }

  void draw_span(const TimelineSpan& span) {
    const auto lane = std::find(lanes_.begin(), lanes_.end(), span.lane) - lanes_.begin();
    const Instruction& instruction = cost_.schedule[span.instruction];
    const double x = x_of(span.begin), width = std::max(x_of(span.end) - x, 0.3);
    picture_.rectangle({x, lane_top(static_cast<std::size_t>(lane)) + 2}, width, kLaneHeight - 4,
                       colour_of(instruction.operation), name_of(instruction, inputs_.plan.inputs));
    if (width < 24) return;
    const int flat = instruction.flat, unit = instruction.unit;
    const auto& names = inputs_.plan.inputs.unit_names;
    const std::string label =
        unit >= 0 ? names[static_cast<std::size_t>(unit)]
        : flat >= 0
            ? flat_unit_name(inputs_.plan.inputs.flat_units[static_cast<std::size_t>(flat)], names)
            : "";
    if (static_cast<double>(label.size()) * 6 > width) return;
    picture_.text({x + width / 2, lane_top(static_cast<std::size_t>(lane)) + kLaneHeight / 2 + 4},
                  label, 10, SvgPicture::Anchor::kMiddle);
  }

  double y_of(std::int64_t bytes) const {
    const double most = static_cast<double>(std::max<std::int64_t>(cost_.peak.on_device(), 1));
    return memory_top_ + kMemoryHeight * (1 - static_cast<double>(bytes) / most);
  }

  // What is there when an instruction ends, and its worst while it runs.
  void draw_memory() {
    const double floor = memory_top_ + kMemoryHeight;
    std::vector<Point> points = {{kLeft, floor}, {kLeft, y_of(cost_.at_start.on_device())}};
    for (std::size_t i = 0; i < cost_.schedule.size(); ++i) {
      const double begin = x_of(timeline_.issued[i]);
      const double end =
          x_of(i + 1 < cost_.schedule.size() ? timeline_.issued[i + 1] : timeline_.seconds);
      points.push_back({begin, y_of(cost_.instructions[i].peak)});
      points.push_back({end, y_of(cost_.instructions[i].peak)});
      points.push_back({end, y_of(cost_.instructions[i].after)});
    }
    points.push_back({points.back().x, floor});
    picture_.polygon(points, "#cfe0ee");
    picture_.polyline(points, "#4e79a7");
    picture_.line({kLeft, y_of(cost_.peak.on_device())},
                  {kLeft + kWidth, y_of(cost_.peak.on_device())}, "#e15759");
    const auto label = [&](std::int64_t bytes) {
      picture_.text({kLeft - 8, y_of(bytes) + 4}, bytes_text(bytes), 12, SvgPicture::Anchor::kEnd);
    };
    label(cost_.peak.on_device());
    if (y_of(cost_.at_start.on_device()) > memory_top_ + 20) label(cost_.at_start.on_device());
    picture_.text({kLeft, floor + 20},
                  "memory of the device; the most is in " +
                      name_of(cost_.schedule[cost_.peak_at], inputs_.plan.inputs),
                  12);
  }

  const StepCostInputs& inputs_;
  const StepCost& cost_;
  Timeline timeline_;
  std::vector<Lane> lanes_;
  double memory_top_;
  SvgPicture picture_;
};

}  // namespace

std::string draw_step(const StepCostInputs& inputs, const StepCost& cost, const NominalRates& rates,
                      const std::string& title) {
  return Drawing(inputs, cost, rates, title).draw();
}

}  // namespace tessera
