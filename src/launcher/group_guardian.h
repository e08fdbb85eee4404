// Nothing that a rank started may outlive a killed agent. Owns: a small process that kills the
// ranks' process groups when the agent is gone, however it went. (The kernel's own parent-death
// signal reaches a rank, but not the programs that a rank's script has started.)
#pragma once

#include <sys/types.h>

namespace tessera {

class GroupGuardian {
 public:
  GroupGuardian();   // forks: before the first thread. Error{kResource}
  ~GroupGuardian();  // the groups still watched are killed
  GroupGuardian(const GroupGuardian&) = delete;
  GroupGuardian& operator=(const GroupGuardian&) = delete;

  void watch(pid_t group);
  void forget(pid_t group);  // before its leader is reaped: its number may then be used again

 private:
  int pipe_ = -1;
  pid_t process_ = -1;
};

}  // namespace tessera
