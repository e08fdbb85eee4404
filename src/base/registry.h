// Look-up by name in a plain table, with an error that lists the valid names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tessera {

// Levenshtein distance between two names, in bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or empty if none is near enough to be what was meant.
std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);

// Entry has a member `name`. `what` is the noun for the message ("optimizer").
template <class Entry, std::size_t N>
const Entry& find_in_registry(const Entry (&table)[N], std::string_view name,
                              std::string_view what) {
  std::vector<std::string_view> names;
  for (const Entry& entry : table) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  std::string valid;
  for (const std::string_view candidate : names)
    valid += (valid.empty() ? "" : ", ") + std::string(candidate);
  const std::string_view guess = nearest(name, names);
  throw Error(ErrorKind::kConfig, "unknown " + std::string(what) + " '" + std::string(name) + "'",
              {},
              (guess.empty() ? "" : "Did you mean '" + std::string(guess) + "'? ") +
                  "Valid: " + valid + ".");
}

}  // namespace tessera
