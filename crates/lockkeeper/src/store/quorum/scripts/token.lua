-- The fence of one node of a quorum. Follows `time`.
-- Invariant: the fence of a name only grows, and a node that lost it counts from `floor`, which is above every token
--            that it can have granted before.

-- Lua counts exactly up to 2^53; this is less than any run before that. Beyond, tokens do not grow.
local HIGHEST = 9e15

-- Why no token can be given out between these two and now, if so.
local function spent(fence, last, token)
  if not (last < HIGHEST and token < HIGHEST and us < HIGHEST) then
    return 'FENCE ' .. fence .. ' has ' .. string.format('%.0f', last) .. ' and the clock shows ' .. digits .. ' us'
  end
end

-- The last token that this node knows of. `floor`: when the node started, and what it might have admitted until then.
local function last_token(fence, floor)
  return math.max(tonumber(redis.call('GET', fence) or '0') or 0, tonumber(floor))
end

-- Moves the fence. `keep`: for how long it stays after its last use in ms, 0 for ever; and longer by what it is ahead of
-- the clock. So a token whose fence has ended is below the clock less `keep`.
local function move_fence(fence, text, keep)
  if keep == '0' then
    redis.call('SET', fence, text)
  else
    redis.call('SET', fence, text, 'PX', keep + math.max(0, math.ceil((text - us) / 1000)))
  end
end

