-- One node's vote for a round of a claim, or a hold that is re-added (dialect redisson).
--
-- KEYS  1 the name  2 fence
-- ARGV  1 record: last token, tokens, round, since in us, who  2 how long the fence is kept in ms, 0 for ever
--       3 claim  4 mode: x r w  5 lease in ms  6 first token  7 last token
--       8 how far ahead of this node's clock the last token may be in us, or empty to re-add a hold, whose tokens are
--       not compared  9 round  10 claim to stand beside, or empty  11 floor of the fence in us
--       12 node time in us past which to do nothing, 0 for never  13 a space and the label, if there is one
-- Result  us: yes · {1, us} yes · {0, us, ms until those in the way end or -1, first token of one of them or 0} busy ·
--         {2, us} too late · {3, us, last token} stale · {4, us, last token} too far ahead
-- Invariant: no vote while others hold, and none for a token that is not above the last, or is half an hour behind
--            the clock. A later round of a claim takes the place of an earlier one, never the reverse.
if ARGV[12] ~= '0' and us > ARGV[12] + 0 then
  return { 2, us }
end
local claim, mode, lease, votes = ARGV[3], ARGV[4], ARGV[5], ARGV[8] ~= ''
local last = ARGV[7] + 0

local fence = last_token(KEYS[2], ARGV[11])
local why = votes and spent(KEYS[2], fence, last)
if why then return { err = why } end

-- What is wrong with the tokens, if anything.
local function refusal()
  if not votes then return nil end
  local least = least_token(fence, ARGV[6] + 0)
  if ARGV[6] + 0 <= least then return { 3, us, least } end
  if last > us + ARGV[8] then return { 4, us, fence } end
end

local function voted()
  if last > fence then move_fence(KEYS[2], ARGV[7], ARGV[2]) end
  return { 1, us }
end

