-- Follows `time` and `token`: a round that was withdrawn uses up its tokens, so that its request is refused as stale if
-- it arrives later. A token far ahead of the clock is not taken: whoever's clock is wrong must not keep everybody out.
local function use_up(fence, last, lead, keep)
  if tonumber(last) > last_token(fence, 0) and tonumber(last) <= us + tonumber(lead) then
    move_fence(fence, last, keep)
  end
end

