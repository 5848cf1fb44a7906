-- Follows `time` and `token` in the scripts that let go: a round that is not there uses up its tokens, so that its request
-- is refused as stale if it arrives later. A token far ahead of the clock is not taken: a client whose clock is wrong must not
-- keep everybody out.
if held == 0 then
  local last = ARGV[3] + 0
  if last > last_token(KEYS[2], 0) and last <= us + ARGV[4] then move_fence(KEYS[2], ARGV[3], ARGV[5]) end
  if not ends then return 0 end
end

