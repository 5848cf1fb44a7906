-- Leaves the queue, and lets go if the claim holds.
--
-- KEYS  as in acquire
-- ARGV  1 who  2 how long the fence is kept  3 claim
-- Result  0
-- Invariant: as for a release; a claim that neither holds nor waits changes nothing.
local waiter = redis.call('HGET', WAITERS, ARGV[3])
if waiter then drop_waiter(ARGV[3], cmsgpack.unpack(waiter)[W_MODE]) end
local hold, index = find(ARGV[3])
if hold then finish(hold, index) end
if hold or waiter then
  if not (hold and leave_to_others()) then settle() end
end
save()
if hold then announce(hold[MODE]) end
return 0
