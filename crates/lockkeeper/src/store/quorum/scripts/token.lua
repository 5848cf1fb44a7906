-- The fence of one node of a quorum. Follows `time`.
-- Invariant: the fence of a name only grows, and a node that lost it counts from `floor`, which is above every token
--            that it can have granted before.

-- The last token that this node knows of. `floor`: when the node started, and what it might have admitted until then.
local function last_token(fence, floor)
  return math.max(tonumber(redis.call('GET', fence) or '0') or 0, tonumber(floor))
end

-- Moves the fence. `keep`: for how long it stays after its last use in ms, 0 for ever.
local function move_fence(fence, text, keep)
  if keep == '0' then
    redis.call('SET', fence, text)
  else
    redis.call('SET', fence, text, 'PX', keep)
  end
end

-- Moves the fence to `last`, if `first` is above it and above the floor. Nearly always it is: then one call does.
local function advance_fence(fence, first, last, floor, keep)
  if first + 0 <= floor + 0 or keep ~= '0' then
    if first + 0 <= last_token(fence, floor) then return false end
    move_fence(fence, last, keep)
    return true
  end
  -- Half as long as SET with GET.
  local before = redis.call('GETSET', fence, last)
  if not before or first + 0 > (tonumber(before) or 0) then return true end
  redis.call('SET', fence, before)
  return false
end

