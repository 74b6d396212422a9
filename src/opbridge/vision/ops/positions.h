// Positions of points in features (batch, channels, points).
#pragma once

#include <cstdint>

#include "opbridge.h"

namespace opbridge_vision {

inline void check_positions(opbridge::ShapeCall& call) {
  call.check(call.rank(0) == 3, "features must have sizes (batch, channels, points), not ", call.sizes(0));
  call.check(call.rank(1) > 1 && call.size(1, 0) == call.size(0, 0), "positions must have sizes (", call.size(0, 0),
             ", ...), not ", call.sizes(1));
}

template <class Positions>
void check_range(opbridge::Call& call, const Positions& positions, int64_t points) {
  for (int64_t i = 0; i < positions.count(); ++i)
    call.check(positions[i] >= 0 && positions[i] < points, "position ", positions[i], " of ", points, " points");
}

}  // namespace opbridge_vision
