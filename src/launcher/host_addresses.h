// Addresses of this host and of names. Owns: asking the system for them.
#pragma once

#include <string>
#include <vector>

namespace tessera {

std::vector<std::string> own_addresses();  // numeric, of all interfaces that are up, IPv4 first
bool is_own_address(const std::string& address);  // all of 127.0.0.0/8, too
bool is_loopback(const std::string& address);
// Numeric addresses of a name or a numeric address, IPv4 first. Error{kComm}: there are none.
std::vector<std::string> resolve(const std::string& host);

// Where the store of a job of several nodes listens, on the node that hosts it: `host` resolved to
// one of this host's addresses. A name that this host knows as 127.x only (as Debian maps a host's
// own name) stands for its first address that others can reach. Error{kComm}: not this host.
std::string listening_address(const std::string& host);

}  // namespace tessera
