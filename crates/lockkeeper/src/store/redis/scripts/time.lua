-- The time in numbers. Follows `clock`.
-- A double holds integers up to 2^53 exactly; microseconds since 1970 stay below that until the year 2255.
-- As text as well: Lua takes longer than a call to turn such a number into text.
local digits = time[1] .. time[2]
if #time[2] < 6 then digits = time[1] .. string.sub('000000', #time[2] + 1) .. time[2] end
local us = digits + 0
local now = (us - us % 1000) / 1000

