#include "launcher/host_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/host_name.h"

namespace tessera {
namespace {

std::string text_of(const sockaddr* address) {
  char buffer[NI_MAXHOST];
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return getnameinfo(address, size, buffer, sizeof buffer, nullptr, 0, NI_NUMERICHOST) == 0
             ? buffer
             : std::string();
}

void add_address(const sockaddr* address, std::vector<std::string>& addresses) {
  if (address == nullptr) return;
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return;
  std::string text = text_of(address);
  if (!text.empty() && std::find(addresses.begin(), addresses.end(), text) == addresses.end())
    addresses.push_back(std::move(text));
}

void put_ipv4_first(std::vector<std::string>& addresses) {
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const std::string& a) { return a.find(':') == std::string::npos; });
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_UP) != 0) add_address(entry->ifa_addr, addresses);
  }
  freeifaddrs(list);
  put_ipv4_first(addresses);
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool is_own_address(const std::string& address) {
  if (is_loopback(address)) return true;
  const auto own = own_addresses();
  return std::find(own.begin(), own.end(), address) != own.end();
}

std::vector<std::string> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) {
    throw Error(ErrorKind::kComm, "the host '" + host + "' has no address: " + gai_strerror(code),
                {}, "Give a name that every node resolves, or a numeric address.");
  }
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next)
    add_address(entry->ai_addr, addresses);
  freeaddrinfo(list);
  put_ipv4_first(addresses);
  return addresses;
}

std::string listening_address(const std::string& host) {
  std::string loopback;
  for (const std::string& address : resolve(host)) {
    if (address == host) return address;  // numeric: taken at its word
    if (is_loopback(address)) {
      if (loopback.empty()) loopback = address;
    } else if (is_own_address(address)) {
      return address;
    }
  }
  if (loopback.empty()) {
    throw Error(ErrorKind::kComm,
                "the store of the job cannot be hosted here: '" + host +
                    "' is not an address of this host (" + host_name() + ")",
                {}, "Give an address of the node of rank 0.");
  }
  if (host == "localhost") return loopback;
  for (const std::string& address : own_addresses())
    if (!is_loopback(address) && address.find(':') == std::string::npos) return address;
  return loopback;
}

}  // namespace tessera
