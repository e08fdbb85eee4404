// Numbers as people read them. Owns: counts, bytes, durations. Not: machine formats (JSON writes
// numbers in full).
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

std::string format_count(std::int64_t count);   // 1,003,854
std::string format_short_count(double count);   // 950, 12.3K, 124.4M, 1.5B, 2.0T
std::string format_bytes(std::uint64_t bytes);  // 512B, 1.5KiB, 2.1GiB (powers of 1024)
std::string format_duration(double seconds);  // 01:12:33, hours may exceed 99; --:--:-- if unknown
std::string format_short_duration(
    double seconds);  // 12:33 or 1:12:33, as a progress bar shows it; ?
std::string format_fixed(double value,
                         int decimals);  // "nan", "inf", "-inf" where it is not finite

}  // namespace tessera
