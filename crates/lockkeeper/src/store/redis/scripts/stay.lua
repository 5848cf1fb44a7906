-- Opens the scripts that renew, whose last argument is how long a fence is kept in ms, 0 for ever. A name that is held is in
-- use: its fence stays, as `lockkeeper ls` finds the name by it. It is pushed out once a tenth of that time is over, and
-- not each time: replicas and logs are told of every change. Whatever is wrong with the fence is not the hold's fault.
local KEEP = tonumber(ARGV[#ARGV])
local function stay(fence)
  if KEEP == 0 then return end
  local left = redis.pcall('PTTL', fence)
  if type(left) == 'number' and left >= 0 and left < 0.9 * KEEP then redis.pcall('PEXPIRE', fence, KEEP) end
end

