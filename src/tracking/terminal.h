// The person's stream (stderr): lines that stay, and one line below them that is rewritten. Owns:
// the screen position and what the stream can do. Not: what the lines say.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

namespace tessera {

// What may be written to a stream.
struct TerminalTraits {
  bool interactive =
      false;            // a person's terminal that can move its cursor: the status line is shown
  bool colour = false;  // NO_COLOR is unset and it is interactive
  bool utf8 = false;    // by LC_ALL, LC_CTYPE, LANG
};

TerminalTraits detect_terminal_traits(int file_descriptor);

// Thread-safe. Log's writer should be print(), so that warnings do not tear the status line:
//   Log log(level, [&terminal](std::string_view line) { terminal.print(line); });
class Terminal {
 public:
  explicit Terminal(int file_descriptor = 2);
  Terminal(int file_descriptor, TerminalTraits traits, int columns);  // columns 0: ask each time
  ~Terminal();  // leaves the cursor on a line of its own
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  const TerminalTraits& traits() const { return traits_; }
  int columns() const;  // 80 where it cannot be told

  // A line that stays, above the status line. A stream that cannot be written to is ignored.
  void print(std::string_view line);
  // Replaces the status line; empty removes it. Nothing happens unless interactive. The text must
  // fit in columns() - 1.
  void set_status(std::string_view text);

 private:
  void write(std::string_view bytes);
  int file_descriptor_;
  TerminalTraits traits_;
  int columns_;
  std::mutex mutex_;
  std::string status_;
};

}  // namespace tessera
